"""Certificates: a report of every check, whatever the environment does."""

import importlib.util
import json
import re
import sys

import gymnasium as gym
import pytest

from envsuite import Task, register, registry
from envsuite.checks import Finding, check
from envsuite.checks.certificate import certificate
from harness.cli import check as command
from tests.toys import HiLo

FINDINGS = [Finding("expert wins", True, "5 games", "semantic.gold_wins", 0.25)]


class Exits(HiLo):
    """HiLo that ends the program at the first guess."""

    def _act(self, command):
        sys.exit(3)


class SameGame(HiLo):
    """HiLo that ignores its seed."""

    def _reset(self, seed):
        return super()._reset(7)


TOYS = {"CertificateExits-v0": Exits, "CertificateSameGame-v0": SameGame}


@pytest.fixture(autouse=True, scope="module")
def _toys():
    for name, cls in TOYS.items():
        register(Task(name, f"{__name__}:{cls.__name__}", summary="a toy"))
    yield
    for name in TOYS:
        del registry.TASKS[name]
        del gym.registry[f"envsuite/{name}"]


def report(name, findings=FINDINGS, seeds=range(1, 6)):
    return json.loads(certificate(registry.TASKS[name], {}, findings, list(seeds)))


def test_a_certificate_has_every_field_of_openenvs_report_and_ours_as_results():
    document = report("HiLo-v0")
    assert document["report_schema_version"] == "1" and document["target"] == "HiLo-v0"
    assert re.fullmatch("sha256:[0-9a-f]{64}", document["source_digest"])
    assert document["verdict"] == "pass"
    start, gold, seeds = document["results"]
    assert start["measured"]["seeds"] == [1, 2, 3, 4, 5]
    assert gold["check_id"] == "semantic.gold_wins" and gold["duration_s"] == 0.25
    assert seeds["check_id"] == "runtime.seed_control" and seeds["measured"]["games"] > 1
    for result in document["results"]:
        assert re.fullmatch("[a-z_]+[.][a-z_]+", result["check_id"]) and result["status"] == "pass"
    if importlib.util.find_spec("openenv") and importlib.util.find_spec("openenv.validation"):
        from openenv.validation.report import ValidationReport

        ValidationReport.model_validate(document)


def test_an_ignored_seed_is_a_warning_and_a_failed_check_a_failure():
    document = report("CertificateSameGame-v0")
    assert document["verdict"] == "warn"
    assert "1 different games of 5 seeds: the task is one fixed game, or its seed is ignored" in str(document)
    assert report("HiLo-v0", [*FINDINGS, Finding("idle", False, "won", "semantic.idle_loses")])["verdict"] == "fail"


def test_an_environment_that_exits_fails_its_check_and_does_not_end_the_command():
    first = next(check(registry.TASKS["CertificateExits-v0"], 0.1, 1))
    assert not first.ok and first.detail == "SystemExit: 3" and first.id == "runtime.gymnasium_checker"


def test_a_certificate_is_for_one_task(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["BabyAI-*", "--certificate", "c.json"])
    assert ended.value.code == 2 and "--certificate is for all checks of one task" in capsys.readouterr().err
