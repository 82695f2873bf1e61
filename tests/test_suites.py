"""Suites fix what changes the number, and say so where a flag disagrees."""

import dataclasses

import pytest

from envsuite import registry
from envsuite.errors import UsageError
from harness import cli, suites
from harness.cli.eval import parser, plan


def planned(*words):
    return plan(parser().parse_args(["-m", "smollm2-135m", *words]), cli.console())


@pytest.mark.parametrize("name", suites.read())
def test_every_suite_names_tasks_and_flags_that_exist(name):
    asked = parser().parse_args(["-m", "x", "-e", "y"])
    fixed = suites.protocol(asked, asked, name)
    assert fixed.history == suites.suite(name)["history"]
    for pattern in suites.suite(name)["tasks"]:
        assert registry.tasks(pattern)


def test_a_suite_sets_the_protocol_of_each_of_its_tasks():
    configs = planned("-e", "suite:verlog-babyai", "-n", "3")
    assert [config.task.id for config in configs][:2] == ["BabyAI-goto-v0", "BabyAI-pickup-v0"]
    assert all(config.prompting.history == 1 and config.episodes == 3 for config in configs)
    assert dataclasses.asdict(configs[0].sampling)["max_tokens"] == 512


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-e", "suite:verlog-babyai", "--history", "4"], "fixes --history 1"),
        (["-e", "suite:verlog-babyai", "-n", "1000"], "plays 100 episodes"),
        (["-e", "suite:verlog-babyia"], "Did you mean 'verlog-babyai'"),
    ],
)
def test_what_disagrees_with_a_suite_is_refused_by_name(words, said):
    with pytest.raises(UsageError, match=said):
        planned(*words)
