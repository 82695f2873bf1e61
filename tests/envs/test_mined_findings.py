"""Findings of mined issues: real failures of pytest, told as what a check gives and what it expects."""

import pytest

from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.makers import findings
from envsuite.envs.swegym.planted import packages
from envsuite.sandbox import drivers

CODE = """\
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


def test_filled():
    out = []
    m.collect(out)
    assert out == [m.Money(1)]


def test_named():
    expected = m.Money(3)
    assert m.split(10)[0] == expected
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
    assert len(explained) == 13
    return explained


def test_values_that_a_helper_compares_are_shown(checks):
    assert checks["test_helper"].statement == 'agree("ab", "abba")'
    assert checks["test_helper"].finding == "Left side: `'abab'`\nRight side: `'abba'`"


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


def test_of_two_answers_of_the_package_none_is_called_expected(checks):
    assert checks["test_both"].finding == "Left side: `'aa'`\nRight side: `'AA'`"


@pytest.mark.parametrize("test", ["test_unpacked", "test_fixture", "test_loop", "test_annotated"])
def test_a_constructor_is_not_taken_for_the_answer_that_a_name_holds(checks, test):
    assert checks[test].finding == "Left side: `Money(4)`\nRight side: `Money(3)`"


def test_a_list_that_the_package_fills_is_not_what_the_test_expects(checks):
    assert checks["test_filled"].finding == "Left side: `[Money(2)]`\nRight side: `[Money(1)]`"


def test_a_name_like_expected_is_what_the_test_expects(checks):
    assert checks["test_named"].finding == "Got: `Money(4)`\nExpected: `Money(3)`"


def test_of_equal_lines_the_one_that_failed_is_shown(checks):
    assert checks["test_lines"].statement == 'agree(\n    "a", "ab"\n)'
    assert checks["test_lines"].finding == "Left side: `'aa'`\nRight side: `'ab'`"
