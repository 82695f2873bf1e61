"""Issue texts: sides told apart, whole values, no empty statements; a lint of all shipped tasks."""

import ast
import re

import pytest

from envsuite import registry
from envsuite.envs.swegym.mined.tasks import mined_tasks
from envsuite.envs.swegym.planted import issues, tasks

CHECK = re.compile(
    r"^This (?:check )?fails:\n\n(.*?)(?=^This (?:check )?fails:|^Repair the package|^Change the package|\Z)",
    re.MULTILINE | re.DOTALL,
)


def faults(text):
    """Returns the faults of an issue's text: what a reader who sees only the text can find."""
    found = set()
    checks = CHECK.findall(text)
    if not checks:
        found.add("no check")
    for check in checks:
        code = [line[4:] for line in check.splitlines() if line.startswith("    ")]
        if not code:
            found.add("no statement")
        values = dict(re.findall(r"^(Got|Expected|Left side|Right side): `(.*)`$", check, re.MULTILINE))
        quoted = [
            *values.values(),
            *re.findall(r"^(?:It raises|Both sides print as|The check is false:) `(.*)`", check),
        ]
        if any("..." in value for value in quoted):
            found.add("shortened value")
        if values.get("Got", "got") == values.get("Expected", "expected"):
            found.add("got equals expected")
        if "Got" in values and contradicts(code, values):
            found.add("swapped")
    return found


def contradicts(code, values):
    """Returns True if the statement compares with a literal that is the value called `Got`."""
    try:
        (statement,) = ast.parse("\n".join(code)).body
        test = statement.test
        literals = [ast.literal_eval(side) for side in (test.left, *test.comparators) if not calls(side)]
        return values["Got"] == repr(literals[0]) != values["Expected"]
    except (ValueError, SyntaxError, AttributeError, IndexError):
        return False


def calls(node):
    return any(isinstance(part, (ast.Call, ast.Name)) for part in ast.walk(node))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "part",
    [pytest.param(slice(None, None, 25), id="sample"), pytest.param(slice(None), id="all", marks=pytest.mark.slow)],
)
def test_no_issue_text_has_a_fault(part):
    listed = tasks.manifest()[part]
    assert {task.instance_id: found for task in listed if (found := faults(issues.write(task, "symptom", True)))} == {}


def test_no_issue_text_of_a_mined_instance_has_a_fault():
    texts = {name: task.record.problem_statement for name, task in mined_tasks().items()}
    assert {name: found for name, text in texts.items() if (found := faults(text))} == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("This fails:\n\nIt raises `StopIteration`.\n\nRepair the package", "no statement"),
        ("This fails:\n\n    f()\n\nGot: `1`\nExpected: `1`\n\nRepair the package", "got equals expected"),
        ("This fails:\n\n    f()\n\nGot: `{'a': ...}`\nExpected: `1`\n\nRepair the package", "shortened value"),
        ("This fails:\n\n    assert 'a' == f(x)\n\nGot: `'a'`\nExpected: `'b'`\n\nRepair the package", "swapped"),
        ("Something is wrong.\n\nRepair the package", "no check"),
    ],
)
def test_the_lint_finds_each_fault(text, fault):
    assert fault in faults(text)


@pytest.mark.parametrize(
    ("statement", "side"),
    [
        ("f(x) == expected", "left"),
        ("expected == f(x)", "right"),
        ("'a' == result['b']", "right"),
        ("result == 3", "left"),
        ("result == expected", "left"),
        ("f(x) == g(x)", ""),
        ("one == two", ""),
    ],
)
def test_the_operand_that_holds_the_call_is_what_the_package_returned(statement, side):
    comparison = ast.parse(statement, mode="eval").body
    assert issues.got_side(comparison.left, comparison.comparators[0]) == side


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("assert is_valid('a')", "The check is false: `is_valid('a')`."),
        ("assert False", issues.FALSE),
        ("AssertionError", issues.FALSE),
        ("", issues.FALSE),
        ("assert 'aaa...bbb' in names", issues.FALSE),
        ("assert " + "a" * 1000, issues.FALSE),
    ],
)
def test_a_false_check_is_quoted_if_its_message_says_more(error, text):
    assert issues._compared("assert f()", None, error) == issues.Check("assert f()", text)


def test_got_and_expected_are_told_apart_where_the_test_writes_the_expected_value_first():
    env = registry.build("SWEGym-medium-v0", instances=("inflection-0.5.1-08774227",))
    try:
        text, _ = env.reset(seed=0)
    finally:
        env.close()
    assert "Got: `'cpital'`\nExpected: `'capital'`" in text
