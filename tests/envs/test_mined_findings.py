"""Findings of mined issues: real failures of pytest, told as what a check gives and what it expects."""

import pytest

from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.makers import findings, issue
from envsuite.envs.swegym.planted import packages
from envsuite.envs.swegym.planted.issues import Check
from envsuite.sandbox import drivers

CODE = """\
from datetime import date


def day():
    return date(2020, 1, 2)


def double(text):
    return text + text


def first(values):
    assert values, "no values"
    return values[0]


class Money(int):
    def __repr__(self):
        return f"Money({int(self)})"


def split(amount):
    return Money(amount // 2 - 1), Money(amount // 2)


class Wrong(Exception):
    pass


def collect(values):
    values.append(Money(2))


def refuse(text):
    raise Wrong("refused: " + text)
"""
TESTS = """\
import copy
from datetime import date

import pytest
import m


def agree(text, other):
    made = m.double(text)
    assert made == other


def test_helper():
    agree("ab", "abba")


def test_long():
    assert m.double("a" * 300) == "a" * 450 + "b" * 150


def test_condition():
    assert isinstance(m.double("a"), bytes)


def test_pattern():
    with pytest.raises(m.Wrong, match="denied"):
        m.refuse("a")


def test_inside():
    assert m.first([]) is None


def test_standard():
    assert date(2021, 1, 1) == m.day()


def test_lines():
    agree(
        "a", "aa"
    )
    agree(
        "a", "ab"
    )


def test_both():
    made = m.double("a")
    assert copy.copy(made) == made.upper()


def test_unpacked():
    total, rest = m.split(10)
    assert total == m.Money(3)


@pytest.fixture
def share():
    return m.split(10)


def test_fixture(share):
    assert share[0] == m.Money(3)


def test_loop():
    for part in m.split(10):
        assert part == m.Money(3)


def test_annotated():
    total: int = m.split(10)[0]
    assert total == m.Money(3)


def test_unpacked_answer():
    wanted, pair = 3, m.split(10)
    (total, rest) = pair
    hoped: int = 3
    assert hoped == total


def test_filled():
    out = []
    m.collect(out)
    assert out == [m.Money(1)]


def test_filled_by_its_method():
    out = []
    out.append(m.split(10)[0])
    assert out == [m.Money(3)]


def test_filled_with_values():
    hoped = []
    hoped.append(5)
    assert list(m.split(10)) == hoped


def test_value_that_fills_a_list():
    value = 5
    hoped = []
    hoped.append(value)
    assert m.split(10)[0] == value


@pytest.mark.parametrize("amount, share", [(10, 3)])
def test_parameters(amount, share):
    assert m.split(amount)[0] == share
"""


@pytest.fixture(scope="module")
def checks():
    """The check of each failing test, from one run."""
    files = {"m.py": CODE, "test_m.py": TESTS}
    package = packages.Package("m", "1.0", "MIT", "", ("m.py",), ("test_m.py",))
    pool = suite.pools(drivers.choose(), 1)[0]
    try:
        run = suite.run(pool, suite.SuiteJob(package, files, explain="whole"))
    finally:
        pool.close()
    explained = {}
    for test in run.failures:
        (symptom,) = findings.traced([test], run.failures)
        explained[test.partition("::")[2]] = findings.explain(files, ["test_m.py"], symptom)
    assert len(explained) == 18
    return explained


def test_values_that_a_helper_compares_are_told_apart(checks):
    assert checks["test_helper"].statement == 'agree("ab", "abba")'
    assert checks["test_helper"].finding == "Got: `'abab'`\nExpected: `'abba'`"


def test_long_values_are_shown_around_their_first_difference(checks):
    got, expected = checks["test_long"].finding.splitlines()
    assert got == f"Got: `[...]{'a' * 210}'`"
    assert expected == f"Expected: `[...]{'a' * 60}{'b' * 150}'`"


def test_a_condition_shows_the_result_of_its_call(checks):
    assert checks["test_condition"].finding == "`isinstance('aa', bytes)` is `False`."


def test_a_message_that_does_not_match_is_told_from_the_pattern(checks):
    assert checks["test_pattern"].finding == (
        "The error has another message.\nGot: `refused: a`\nExpected pattern: `denied`"
    )


def test_an_assertion_of_the_package_is_an_error_that_it_raises(checks):
    assert checks["test_inside"].finding == "It raises `AssertionError: no values`."


def test_a_call_of_the_standard_library_is_not_the_answer_of_the_package(checks):
    finding = checks["test_standard"].finding
    assert finding == "Got: `datetime.date(2020, 1, 2)`\nExpected: `datetime.date(2021, 1, 1)`"


def test_of_two_answers_of_the_package_none_is_called_expected(checks):
    assert checks["test_both"].finding == "Left side: `'aa'`\nRight side: `'AA'`"


@pytest.mark.parametrize("test", ["test_unpacked", "test_fixture", "test_loop", "test_annotated"])
def test_a_constructor_is_not_taken_for_the_answer_that_a_name_holds(checks, test):
    assert checks[test].finding == "Left side: `Money(4)`\nRight side: `Money(3)`"


@pytest.mark.parametrize(("test", "left"), [("test_filled", 2), ("test_filled_by_its_method", 4)])
def test_a_list_that_the_package_fills_is_not_what_the_test_expects(checks, test, left):
    right = left - 1
    assert checks[test].finding == f"Left side: `[Money({left})]`\nRight side: `[Money({right})]`"


def test_a_list_that_the_test_fills_with_values_is_expected(checks):
    assert checks["test_filled_with_values"].finding == "Got: `[Money(4), Money(5)]`\nExpected: `[5]`"


def test_a_value_that_the_test_puts_into_its_own_list_is_expected(checks):
    assert checks["test_value_that_fills_a_list"].finding == "Got: `Money(4)`\nExpected: `5`"


@pytest.mark.parametrize("test", ["test_unpacked_answer", "test_parameters[10-3]"])
def test_an_answer_is_told_from_names_that_the_test_binds_to_values(checks, test):
    assert checks[test].finding == "Got: `Money(4)`\nExpected: `3`"


def test_of_equal_lines_the_one_that_failed_is_shown(checks):
    assert checks["test_lines"].statement == 'agree(\n    "a", "ab"\n)'
    assert checks["test_lines"].finding == "Got: `'aa'`\nExpected: `'ab'`"


def test_code_of_the_patch_that_a_changelog_quotes_is_no_term():
    note = "Fixed `start_day`: it used `weekday() + 1` and now uses `isoweekday() % 7`, as `date(1, 1, 1)` needs."
    check = Check("start()", "It raises `ValueError`.")
    changed = "    start_day = (d.isoweekday() % 7) % step\n    start_day = (d.weekday() + 1) % step\n"
    text = issue.statement("tiny 1.0", [check], note, set(), changed)
    assert "mention `start_day`, `date(1, 1, 1)`." in text
