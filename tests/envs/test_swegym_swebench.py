"""Log parsers and verdicts compared with the `swebench` package on the same logs."""

import json
import os
import random
import types

import pytest

from envsuite.envs.swegym.judge import grading
from envsuite.envs.swegym.published import logs, records
from envsuite.envs.swegym.published import problem as published
from envsuite.sandbox import drivers
from harness.grading import reports
from harness.interop.predictions import Prediction
from tests.conftest import SHARED
from tests.envs import little

swebench = pytest.importorskip("swebench", reason="the package swebench is not installed")

PAIRS = {
    "pytest": "parse_log_pytest",
    "pytest_options": "parse_log_pytest_options",
    "pytest_plain": "parse_log_pytest_v2",
    "seaborn": "parse_log_seaborn",
    "matplotlib": "parse_log_matplotlib",
    "sympy": "parse_log_sympy",
    "django": "parse_log_django",
    "pytest_progress": "parse_log_pytest_v2",  # which knows no percentages: they are put in below
}
PIECES = [
    "PASSED",
    "FAILED",
    "ERROR",
    "SKIPPED",
    "XFAIL",
    " ",
    " - ",
    "\n",
    "\n",
    "t.py::test_a",
    "t.py::test_b[x y]",
    "[1]",
    "t.py::test_c[/a/b/c]",
    "t.py::test_d[//x]",
    "t.py::test_e[/a*b]",
    "[ 50%]",
    "\x1b[32m",
    "\x1b[0m",
    " ... ok",
    " ... FAIL",
    " ... skipped",
    " ... ERROR",
    "test_f (x.Y)",
    "ok",
    "FAIL:",
    "ERROR:",
    "test_g",
    " ok",
    " F",
    " E",
    "MouseButton.LEFT",
    "____ sympy/core/x.py:test_h ____",
    "assert 1 == 2",
    "test_i (x.Y) ... Internal Server Error: /a/\nok\n",
    " PASSED ",
]


def some_logs(count):
    dice = random.Random(0)
    for _ in range(count):
        yield "".join(dice.choice(PIECES) for _ in range(dice.randint(1, 60)))


@pytest.mark.parametrize("ours", PAIRS)
def test_every_parser_reads_what_theirs_reads(ours):
    from swebench.harness.log_parsers import PARSER_REGISTRY

    theirs = PARSER_REGISTRY[PAIRS[ours]]
    compared = 0
    for log in some_logs(2000):
        read = log
        if ours == "pytest_progress":
            log = "\n".join(line.rstrip() for line in log.replace("[ 50%]", "").split("\n"))
            read = "\n".join(f"{line}  [ 50%]" for line in log.split("\n"))
        try:
            expected = theirs(log, None)
        except IndexError:  # theirs stumbles over a heading without a name
            logs.PARSERS[ours](read)
            continue
        assert logs.PARSERS[ours](read) == expected, log
        compared += 1
    assert compared > 1000


def test_the_verdict_is_theirs():
    from swebench.harness import constants
    from swebench.harness import grading as theirs

    dice = random.Random(1)
    made = []
    for number in range(30):  # records with 1 to 4 tests to fix and 0 to 199 that passed before
        row = little.record(f"a__b-{number}")
        row["FAIL_TO_PASS"] = [f"tests/t.py::test_new[{k}]" for k in range(1 + number % 4)]
        row["PASS_TO_PASS"] = [f"tests/t.py::test_old[{k}]" for k in range(dice.randrange(200) if number else 0)]
        made.append(records.parse(row, "here"))
    real = SHARED / "data" / "swe" / "records.jsonl"
    for record in made + (records.load(real) if real.is_file() else []):
        tests = {"FAIL_TO_PASS": list(record.fail_to_pass), "PASS_TO_PASS": list(record.pass_to_pass)}
        for share in (0.0, 0.02, 0.3):
            statuses = {}
            for test in (*record.fail_to_pass, *record.pass_to_pass):
                statuses[test] = dice.choice(logs.STATUSES) if dice.random() < share else "PASSED"
            for test in list(statuses)[:: 1 + dice.randrange(40)] if share else []:
                del statuses[test]
            report = theirs.get_eval_tests_report(statuses, tests)
            ours = grading.grade(statuses, *tests.values())
            assert ours.status == theirs.get_resolution_status(report)
            assert list(ours.fail_to_pass) == report["FAIL_TO_PASS"]["success"]
            assert list(ours.pass_to_pass_broken) == report["PASS_TO_PASS"]["failure"]
    assert (grading.START, grading.END) == (constants.START_TEST_OUTPUT, constants.END_TEST_OUTPUT)
    assert json.dumps(tests)


ROWS = {  # outcome and reason of a result, by instance
    "a__b-1": ("resolved", ""),
    "a__b-2": ("unresolved", ""),
    "a__b-3": ("unresolved", "no_log"),
    "a__b-4": ("unresolved", "timeout"),
    "a__b-5": ("not_applied", "Hunk #1 FAILED"),
    "a__b-6": ("empty", ""),
    "a__b-7": ("error", "its gold patch fails"),
}


def test_the_report_of_a_run_has_their_fields_and_their_counts(tmp_path, monkeypatch, capsys):
    from swebench.harness.reporting import make_run_report

    rows, predictions = [], {}
    for name, (outcome, reason) in ROWS.items():
        lists = {field: {"success": ["t"], "failure": []} for field in ("FAIL_TO_PASS", "PASS_TO_PASS")}
        rows.append({"instance_id": name, "model": "org/m", "outcome": outcome, "reason": reason, **lists})
        patch = "" if outcome == "empty" else "p"
        predictions[name] = {"instance_id": name, "model_name_or_path": "org/m", "model_patch": patch}
        place = reports.instance_folder(tmp_path, "r", "org/m", name)
        reports.write_instance(place, Prediction(name, "org/m", patch), rows[-1], "", None)
    dataset = [{"instance_id": name} for name in [*ROWS, "a__b-8"]]
    monkeypatch.chdir(tmp_path)
    theirs = json.loads(make_run_report(predictions, dataset, "r").read_text())
    ours = reports.run_report(rows, [*ROWS, "a__b-8"])
    assert list(ours) == list(theirs)
    advisory = {"infra_failure", "ambiguous_failure"}  # theirs are guessed from logs
    for field, value in theirs.items():
        if field != "failure_reasons" and not field.startswith(tuple(advisory)):
            assert ours[field] == value, field


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("instance", ["getmoto__moto-5876", "getmoto__moto-6920", "getmoto__moto-7365"])
def test_on_the_logs_of_real_instances_reports_agree(shared, tmp_path, instance, monkeypatch):
    """Compares the gold patch, no patch, a patch that breaks the package, and a truncated log."""
    from swebench.harness import grading as theirs

    if "ENVSUITE_PROOF_CACHE" in os.environ:  # virtual environments take minutes to make
        monkeypatch.setenv("ENVSUITE_CACHE", os.environ["ENVSUITE_PROOF_CACHE"])
    driver = drivers.choose("auto", (*drivers.SAFE, "process"))
    problem = published.PublishedProblem(*published.find(str(shared / "data" / "swe"))[instance], driver)
    record, seen = problem.record, []
    broken = dict.fromkeys(problem.gold_files, b"raise ImportError('broken')\n")
    for name, changes in (("gold", problem.gold()), ("nothing", {}), ("broken", broken)):
        with problem.bench(600) as session:
            log, code, fault = problem.run_tests(session, changes)
        assert not fault
        for kind, text in (
            (name, log),
            (f"{name}-cut", log[: len(log) // 2]),
            (f"{name}-bare", log.replace(grading.START, "")),
        ):
            file = tmp_path / f"{kind}.log"
            file.write_text(text)
            spec = types.SimpleNamespace(
                instance_id=instance,
                log_parser="parse_log_pytest",
                eval_type="pass_and_fail",
                FAIL_TO_PASS=list(record.fail_to_pass),
                PASS_TO_PASS=list(record.pass_to_pass),
            )
            arguments = {"instance_id": instance, "model_name_or_path": "x", "model_patch": "x"}
            report = theirs.get_eval_report(spec, arguments, str(file), include_tests_status=True)[instance]
            ours = grading.grade_log(text, "pytest", record.fail_to_pass, record.pass_to_pass, None)
            assert ours.resolved == report["resolved"], kind
            results = theirs.get_logs_eval(spec, str(file))
            assert bool(ours.fault) == (not results[1] or not results[0]), kind
            if not ours.fault:
                assert logs.pytest(grading.between_markers(text)) == results[0]
                assert list(ours.fail_to_pass) == report["tests_status"]["FAIL_TO_PASS"]["success"]
                assert list(ours.pass_to_pass) == report["tests_status"]["PASS_TO_PASS"]["success"]
            seen.append(ours.resolved)
    assert seen == [True, *[False] * 8]
