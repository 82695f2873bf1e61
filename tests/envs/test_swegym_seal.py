"""Published records are judged with a sealed pytest, on sabotaged tests that are drawn anew each time."""

import random
import re

import pytest

from envsuite.envs.swegym import preflight
from envsuite.envs.swegym.judge import sabotage
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published import sealing
from envsuite.sandbox import drivers
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
HIDES_BY_MESSAGE = (
    "import _pytest.runner as r\nold = r.TestReport.from_item_and_call.__func__\n"
    "def new(cls, item, call):\n"
    "    if call.excinfo and 'assert 1 == 2' in str(call.excinfo.value):\n        call.excinfo = None\n"
    "    return old(cls, item, call)\n"
    "r.TestReport.from_item_and_call = classmethod(new)\n"
)


@pytest.fixture
def problem(tmp_path):
    def make(**fields):
        folder = little.instances(tmp_path / "records", [{**little.record("a__b-1"), **fields}])
        ((record, setup),) = published.find(folder).values()
        return published.PublishedProblem(record, {**setup, "test_cmd": "pytest -rA"}, DRIVER)

    return make


def test_a_runner_that_hides_one_message_is_found_by_the_seal_and_by_a_copy_that_fails_with_it(problem):
    first = problem()
    submission = {"calc.py": (HIDES_BY_MESSAGE + little.CODE).encode()}
    assert first.judge(submission, 60).fail_to_pass_left == ("tests/test_calc.py::test_one",)  # the seal fails it
    first.sealed = False
    assert first.judge(submission, 60).resolved  # neither seal nor message: what this test guards against
    first.failures = {"tests/test_calc.py::test_one": sabotage.Failure("AssertionError", "assert 1 == 2")}
    assert first.judge(submission, 60).fault == "tampered"


def test_a_test_function_that_the_code_under_test_replaces_counts_as_failed(problem):
    replaces = (
        "import sys\n\ndef double(x):\n"
        "    if x == 0:\n"
        "        test = sys.modules['test_calc'].test_one\n"
        "        test.__code__ = (lambda: None).__code__\n"
        "    return x\n"
    )
    report = problem().judge({"calc.py": replaces.encode()}, 60)
    assert report.fail_to_pass == ()


def test_the_preflight_stores_how_tests_failed_and_whether_gold_passes_sealed(problem):
    first = problem()
    assert preflight.gold_failure(first, 60) == ""
    assert first.sealed
    assert first.failures == {"tests/test_calc.py::test_one": sabotage.Failure("AssertionError", "assert 1 == 2")}
    again = problem_like(first)
    assert preflight.gold_failure(again, 60) == ""  # from the cache
    assert again.failures == first.failures


def problem_like(first):
    return published.PublishedProblem(first.record, first.setup, DRIVER)


SHOWS = "import os\n\ndef test_shows():\n    print(sorted(os.environ.items()))\n    print('shown')\n"


def test_tests_find_the_environment_of_the_setup_and_only_selected_ones_run(problem):
    first = problem()
    logs = {}
    with first.bench(60) as session:
        for first.sealed in (True, False):
            session.reset()
            logs[first.sealed], code, fault = first.run_tests(
                session, first.gold(), over={"tests/test_calc.py": SHOWS.encode()}
            )
            assert (code, fault) == (0, "")
        first.sealed = True
        session.reset()
        log, code, _ = first.run_tests(session, first.gold(), only=["tests/test_calc.py::test_zero[x]"])
    seen, plain = (re.search(r"(?s)\[\('.*?\)\]\nshown", logs[sealed])[0] for sealed in (True, False))
    assert "PYTHONPATH" in plain
    assert seen == plain
    assert re.findall(r"PASSED (\S+)", log) == ["tests/test_calc.py::test_zero"]
    assert code == 0


def test_messages_are_read_from_the_summary_of_pytest():
    log = (
        "FAILED tests/a.py::test_one - AssertionError: assert 1 == 2\nFAILED tests/a.py::test_two - assert 3 == 4\n"
        "FAILED tests/a.py::test_three\nPASSED tests/a.py::test_four - ValueError: no\n"
    )
    assert sealing.messages(log) == {
        "tests/a.py::test_one": ("AssertionError", "assert 1 == 2"),
        "tests/a.py::test_two": ("AssertionError", "assert 3 == 4"),
    }


TEST = (
    "def test_a():\n    value = f()\n    assert value.first == 1\n    with pytest.raises(KeyError):\n        value['x']\n"
    "    assert value.second == 2\n    for item in value:\n        assert item == 3\n\n"
    "def test_b():\n    with pytest.raises(ValueError, match='no'):\n        f(0)\n"
)


def test_which_of_the_comparisons_and_exceptions_is_changed_is_drawn():
    drawn = {
        sabotage.in_python(TEST, ["t.py::test_a"], "t.py", "pytest", random.Random(seed)).text for seed in range(40)
    }
    changed = [next(b for a, b in zip(TEST.split("\n"), text.split("\n"), strict=True) if a != b) for text in drawn]
    assert {line.split()[1] for line in changed} == {"value.first", "value.second"}
    drawn = {
        sabotage.in_python(TEST, ["t.py::test_b"], "t.py", "pytest", random.Random(seed)).text for seed in range(40)
    }
    assert any("raises(BufferError, match='no')" in text for text in drawn)
    assert any("raises(ValueError" in text for text in drawn)


def test_a_tenth_of_the_tests_that_passed_before_is_sabotaged_and_at_least_ten():
    rng = random.Random(0)
    assert len(sabotage.sample(["a"], [str(n) for n in range(500)], rng)) == 51
    assert len(sabotage.sample(["a"], [str(n) for n in range(30)], rng)) == 11
    assert sorted(sabotage.sample(["a", "b"], ["c"], rng)) == ["a", "b", "c"]
