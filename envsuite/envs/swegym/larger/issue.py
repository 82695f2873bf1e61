"""Issue texts of larger tasks: every symptom of a compound, and what a missing feature must do.

No function with a bug is named, except a missing one: its interface is part of the request. Facts
about a missing feature come from its signature, its examples and its tests; the words are our own.
"""

from __future__ import annotations

import ast
import doctest
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from envsuite.envs.swegym.generated import issues, packages
from envsuite.envs.swegym.generated.issues import Check
from envsuite.envs.swegym.generated.operators import Function
from envsuite.envs.swegym.generated.tasks import GeneratedTask, Planted, Symptom
from envsuite.envs.swegym.larger import features
from envsuite.envs.swegym.larger.library import kind_of
from envsuite.envs.swegym.larger.source import body_of

CONTEXT = 30
"""lines of a test that an issue shows, at most"""
_SHORTENED = re.compile(r"\[\d+ chars\]")
EXAMPLES = 4
"""examples of a docstring that an issue shows"""
_INTRODUCTIONS: dict[str, Callable[[GeneratedTask], str]] = {
    "compound": lambda task: (
        f"{len(task.bugs)} things in {task.package.title} do not work as they should. They are "
        "independent of each other, and each has its own cause."
    ),
    "branch": lambda task: f"{task.package.title} no longer treats some cases as it should.",
    "refactoring": lambda task: (
        f"The code of {task.package.title} was restructured. That was not meant to change what it "
        "does, but some results are different now."
    ),
    "feature": lambda task: f"{task.package.title} lacks a feature. Please add it.",
}


def write(task: GeneratedTask, detail: str, visible: bool) -> str:
    """Returns the issue's text. `visible`: the failing tests are in the repository."""
    kind = kind_of(task.bugs)
    parts = [_INTRODUCTIONS[kind](task)]
    if kind == "feature":
        parts += _request(task, detail)
    if detail in ("full", "names"):
        parts.append(issues.listed(task.fail_to_pass))
    if detail == "symptom" and kind != "feature":
        checks = dict.fromkeys(explain(task, symptom) for symptom in task.symptoms)
        parts += ["This fails:\n\n" + check.text() for check in checks]
    if detail == "full":
        parts += [f"{symptom.test}:\n\n{explain(task, symptom).text()}" for symptom in task.symptoms]
    if not visible and detail in ("full", "names"):
        parts.append("These tests are not in your copy of the repository.")
    if kind == "feature":
        parts.append("Change the package itself, and break nothing that works.")
    else:
        parts.append("Repair the package itself so that it behaves again, and break nothing that works.")
    return "\n\n".join(parts)


def explain(task: GeneratedTask, symptom: Symptom) -> Check:
    """Explains the failure of one test."""
    files = packages.tree(task.package)
    tests = [path for path in files if path.endswith(".py") and not packages.is_code(task.package, path)]
    hidden = [] if kind_of(task.bugs) == "feature" else [bug.function for bug in task.bugs]
    return explain_in(files, tests, symptom, hidden)


def explain_in(files: Mapping[str, str], tests: Sequence[str], symptom: Symptom, hidden: Sequence[str]) -> Check:
    """Explains the failure of one test in the tree `files`; `tests` are its files that are not code.

    The statement comes with the lines of the test before it, if they are few and name none of the
    functions `hidden`. Values that unittest shortened are left out.
    """
    check = issues.explain_failure(files, tests, symptom)
    if _SHORTENED.search(check.finding):
        check = Check(check.statement, "The two sides are not equal.")
    longer = replace(check, statement=_with_context(files, symptom, check.statement))
    return longer if names_none(longer, hidden) else check


def _with_context(files: Mapping[str, str], symptom: Symptom, statement: str) -> str:
    """Returns the lines of a test up to a statement and the loop around it; `statement` if they are many."""
    path, _, name = symptom.test.partition("::")
    head, mark, text = statement.rpartition("\n") if statement.startswith("# parameters: ") else ("", "", statement)
    lines = files.get(path, "").splitlines()
    for function in _functions(files.get(path, "")):
        if function.name != re.sub(r"\[.*", "", name, flags=re.DOTALL).rpartition("::")[2]:
            continue
        body = body_of(function)
        for node in body:
            context = "\n".join(lines[body[0].lineno - 1 : node.end_lineno])
            inside = [part for part in ast.walk(node) if isinstance(part, ast.stmt)]
            texts = {textwrap.dedent("\n".join(lines[part.lineno - 1 : part.end_lineno])) for part in inside}
            if text in texts and context.count("\n") < CONTEXT:
                return head + mark + textwrap.dedent(context)
    return statement


@lru_cache(maxsize=64)
def _functions(text: str) -> list[Function]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]


def names_none(check: Check, functions: Iterable[str]) -> bool:
    """Returns True if a check has a statement and names none of the functions, nor what a wrong
    refactoring made of them.
    """
    if not check.statement:
        return False
    for function in functions:
        name = re.escape(function.rpartition(".")[2].strip("_"))
        if re.search(rf"\b(__|_|_compute_|_cached_)?{name}(__|_results?)?\b", check.text()):
            return False
    return True


def tells(check: Check) -> bool:
    """Returns True if a check shows values, an error, or more than one line of the test."""
    empty = check.finding in (issues.FALSE, "The two sides are not equal.")
    return bool(check.statement) and not (empty and "\n" not in check.statement)


def rank(check: Check) -> int:
    """Returns the place of a check by what it tells: both values, an error, anything else, nothing."""
    if check.got:
        return 0
    if check.finding.startswith("It raises"):
        return 1
    return 3 if check.finding == issues.FALSE else 2


def _request(task: GeneratedTask, detail: str) -> list[str]:
    """Returns what the missing feature is called and, for all details but `nothing`, what it must do."""
    (bug,) = task.bugs
    function, signature = features.interface(packages.tree(task.package)[bug.path], bug.function)
    noun = "method" if "." in bug.function else "function"
    if "property" in {ast.unparse(decorator) for decorator in function.decorator_list}:
        noun = "property"
    parts = [f"Missing: the {noun} `{signature}` in `{bug.path}`. {_state(bug)}"]
    if detail == "nothing":
        return parts
    checks = dict.fromkeys(explain(task, symptom).statement for symptom in task.symptoms)
    parts += ["This must work:\n\n" + textwrap.indent(statement, "    ") for statement in checks if statement]
    if examples := _examples(ast.get_docstring(function) or ""):
        parts.append("Examples:\n" + "\n".join(f"- `{call}` gives `{answer}`" for call, answer in examples))
    if errors := _errors(function):
        parts.append(f"Errors that it raises where they are due: {', '.join(f'`{name}`' for name in errors)}.")
    count = len(task.fail_to_pass)
    parts.append(
        f"Tests in this repository specify it: {count} of them {'fails' if count == 1 else 'fail'} without it."
    )
    return parts


def _state(bug: Planted) -> str:
    if bug.operator == "missing_body":
        return "Its place is there, and raises `NotImplementedError`."
    return "Its name is gone from the file" + (", and from `__all__`." if len(bug.edits) > 1 else ".")


def _examples(docstring: str) -> list[tuple[str, str]]:
    """Returns one-line calls of a docstring's examples with their answers."""
    try:
        listed = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return []
    pairs = [(example.source.strip().partition("  #")[0], example.want.strip()) for example in listed]
    short = [(call, answer) for call, answer in pairs if answer and not {"\n", "`"} & set(call + answer)]
    return [pair for pair in short if "..." not in pair[1] and "Traceback" not in pair[1]][:EXAMPLES]


def _errors(function: ast.AST) -> list[str]:
    raised = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None]
    called = [error.func if isinstance(error, ast.Call) else error for error in raised]
    return sorted({error.id for error in called if isinstance(error, ast.Name) and error.id[:1].isupper()})
