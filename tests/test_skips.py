"""The list of tests that may be skipped on CI."""

from pathlib import Path

import pytest

from tests.conftest import NEEDS_GOLDEN, excused

MISSING = "no golden data: ENVSUITE_SHARED=/nowhere is not a folder"


@pytest.mark.parametrize(
    ("test", "reason", "allowed"),
    [
        (f"tests/x.py::{NEEDS_GOLDEN[0]}", MISSING, True),
        (f"tests/x.py::{NEEDS_GOLDEN[-1]}[a-b]", MISSING, True),
        ("tests/x.py::test_group_advantages[grpo]", MISSING, False),
        ("tests/x.py::test_x", "Skipped: needs bubblewrap: apt-get install bubblewrap (no bwrap)", True),
        ("tests/x.py::test_x", "Skipped: peft is not installed", True),
        ("tests/x.py::test_x", "Skipped: not today", False),
    ],
)
def test_a_skip_needs_an_excuse(test, reason, allowed):
    assert excused(test, reason) == allowed


def test_every_test_that_may_lack_golden_data_exists():
    source = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    for name in NEEDS_GOLDEN:
        assert f"def {name}(" in source, name
    assert len(NEEDS_GOLDEN) <= 12
