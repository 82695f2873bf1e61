"""Findings of failed checks with whole values: what a check gives, and what it expects.

`traced` reads pytest's explanation of a failure. `explain` adds to `issues.explain_failure`: values that a
helper of the test compares, results of calls in a condition, messages that a pattern does not match, and
assertions of the package itself.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from envsuite.envs.swegym.makers.generator import symptom_of, symptoms_of
from envsuite.envs.swegym.planted import issues
from envsuite.envs.swegym.planted.issues import FALSE, Check
from envsuite.envs.swegym.planted.tasks import Symptom

CHARACTERS = 40_000
"""characters of an error"""
LONGEST = 500
"""characters of a value; of longer ones the part around the first difference is shown"""
_BEFORE, _AFTER = 60, 240
"""characters shown before and after the first difference"""
_CALL = 300
"""characters of a call in a finding"""
_PLACE = re.compile(r"(?P<path>\S+):(?P<line>\d+): in (?P<function>\S+)")
_DIFFER = re.compile(r"(AssertionError: )?(?:Lists|Tuples|Sequences|Sets) differ: ")
_CONDITION = re.compile(r"(?:AssertionError: )?assert (?:not )?(?P<value>.+)")
_PATTERN = re.compile(r"Expected regex: (?P<pattern>.+)\nActual message: (?P<message>.+)")


@dataclass(frozen=True)
class TracedSymptom(Symptom):
    """Error of a failing test, and where it was raised."""

    inner: str = ""
    """innermost line of the traceback in the test's own file: in a helper, if the test calls one"""
    raised_in: str = ""
    """file in which the error was raised"""
    line: int = 0
    """number of the line `code`; 0 if it is not known"""
    inner_line: int = 0


def traced(tests: Sequence[str], failures: Mapping[str, str]) -> tuple[TracedSymptom, ...]:
    """Returns the errors of up to three failing tests. `failures`: pytest's explanations with whole values."""
    chosen = [symptom.test for symptom in symptoms_of(tests, dict(failures))]
    return tuple(_traced(test, failures.get(test, "")) for test in chosen)


def _traced(test: str, failure: str) -> TracedSymptom:
    symptom = symptom_of(test, failure, CHARACTERS)
    lines = [*failure.splitlines(), ""]
    places = [(lines[number + 1], match) for number, line in enumerate(lines) if (match := _PLACE.match(line))]
    own = [(code, match) for code, match in places if match["path"] == test.partition("::")[0] and code[:4] == "    "]
    outer = next(((code, match) for code, match in own if match["function"].startswith("test")), None)
    return TracedSymptom(
        test,
        outer[0].strip()[:200] if outer else symptom.code,
        symptom.error,
        inner=symptom.code,
        raised_in=places[-1][1]["path"] if places else "",
        line=int(outer[1]["line"]) if outer else 0,
        inner_line=int(own[-1][1]["line"]) if own else 0,
    )


def explain(files: Mapping[str, str], tests: Sequence[str], symptom: Symptom) -> Check:
    """Explains the failure of one test in the tree `files`; `tests` are its Python files that are not code."""
    symptom = replace(symptom, error=_DIFFER.sub(r"\1", symptom.error, count=1))
    if not isinstance(symptom, TracedSymptom):
        return issues.explain_failure(files, tests, symptom, whole=True)
    check = _explained(files, tests, symptom)
    first = symptom.error.partition("\n")[0]
    if symptom.raised_in in files and symptom.raised_in not in tests and first.startswith("AssertionError"):
        return replace(check, finding=f"It raises `{first if len(first) <= _CALL else 'AssertionError'}`.")
    inner = replace(symptom, code=symptom.inner, line=symptom.inner_line)
    if not check.got and symptom.inner != symptom.code:
        compared = _explained(files, tests, inner)
        check = replace(compared, statement=check.statement) if compared.sides else check
    if not check.got and check.sides:
        check = _decided(files, tests, inner, check, *check.sides)
    if check.got:
        got, expected = shortened(check.got, check.expected)
        return replace(check, finding=f"Got: `{got}`\nExpected: `{expected}`")
    if check.sides:
        left, right = shortened(*check.sides)
        return replace(check, finding=f"Left side: `{left}`\nRight side: `{right}`")
    if match := _PATTERN.search(symptom.error):
        got, expected = _text(match["message"]), _text(match["pattern"])
        return replace(check, finding=f"The error has another message.\nGot: `{got}`\nExpected pattern: `{expected}`")
    if check.finding.startswith(FALSE[:-1]) and (result := _result(symptom.error)):
        return replace(check, finding=result)
    return check


def _explained(files: Mapping[str, str], tests: Sequence[str], symptom: TracedSymptom) -> Check:
    """Explains a failure as generated tasks do. Of two operands that are no literals none is called the answer yet."""
    check = issues.explain_failure(files, tests, symptom, whole=True, line=symptom.line)
    operands = issues.operands_of(issues.statement_of(files, tests, symptom, symptom.line)[1])
    if not check.got or operands is None or any(issues.is_literal(operand) for operand in operands):
        return check
    return replace(check, got="", expected="")


def _decided(
    files: Mapping[str, str], tests: Sequence[str], symptom: TracedSymptom, check: Check, left: str, right: str
) -> Check:
    """Tells got from expected by where the two operands come from.

    The package's answer is, or was bound to, a call of something that is not in the standard library. The other
    operand must consist of values that the test writes out, or be named like `expected`.
    """
    _, node = issues.statement_of(files, tests, symptom, symptom.line)
    operands = issues.operands_of(node)
    tree = _parsed(files.get(symptom.test.partition("::")[0], ""))
    if operands is None or node is None:
        return check
    functions = [part for part in ast.walk(tree) if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    around = [part for part in functions if part.lineno <= node.lineno <= (part.end_lineno or 0)]
    bindings = [binding for scope in (*tree.body, *around) for binding in _bindings(scope, scope in around)]
    bindings += [binding for function in around for binding in _parameters(function, tree)]
    standard = _standard_names(tree)
    own = {part.name for part in ast.walk(tree) if isinstance(part, (ast.FunctionDef, ast.ClassDef))} | standard
    _, written_out = _origins(bindings, standard)
    bindings += [binding for scope in around for binding in _filled(scope, own | written_out)]
    answers, plain = _origins(bindings, standard)
    for one, other, got, expected in ((*operands, left, right), (*operands[::-1], right, left)):
        written = issues.is_wanted(other) or _is_plain(other, plain)
        if written and _is_answer(one, standard, answers) and not _is_answer(other, standard, answers):
            return replace(check, got=got, expected=expected)
    return check


def _origins(bindings: Sequence[tuple[str, ast.expr]], standard: set[str]) -> tuple[set[str], set[str]]:
    """Returns the names that hold answers of the package, and the names of values that the test writes out."""
    answers: set[str] = set()
    for _ in bindings:  # a name may be bound to an expression with another bound name
        answers |= {name for name, value in bindings if _is_answer(value, standard, answers)}
    plain = standard | {name for name, _ in bindings} - answers
    for _ in bindings:
        plain -= {name for name, value in bindings if not _is_plain(value, plain)} - standard
    return answers, plain


def _bindings(scope: ast.stmt, inside: bool) -> list[tuple[str, ast.expr]]:
    """Returns each name that a statement binds, with the expression that its value comes from. `inside`: also the
    names that the statements and parameters of a function bind.
    """
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for part in ast.walk(scope) if inside else [scope]:
        if isinstance(part, ast.Assign):
            pairs += [(target, part.value) for target in part.targets]
        elif isinstance(part, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and part.value is not None:
            pairs.append((part.target, part.value))
        elif isinstance(part, (ast.For, ast.AsyncFor, ast.comprehension)):
            pairs.append((part.target, part.iter))
        elif isinstance(part, ast.withitem) and part.optional_vars is not None:
            pairs.append((part.optional_vars, part.context_expr))
    names = [
        (name.id, value)
        for target, value in pairs
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    for part in scope.decorator_list if inside and isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else ():
        if isinstance(part, ast.Call) and ast.unparse(part.func).endswith("parametrize") and len(part.args) == 2:
            spoken = [text.value for text in ast.walk(part.args[0]) if isinstance(text, ast.Constant)]
            names += [(name, part.args[1]) for text in spoken for name in re.findall(r"\w+", str(text))]
    return names


def _filled(scope: ast.stmt, own: set[str]) -> list[tuple[str, ast.expr]]:
    """Returns each name whose object a statement may fill: with what is passed to its method, or by a call of the
    package with the name as an argument. `own`: names of functions, and of objects with methods, that fill no argument.
    """
    pairs: list[tuple[str, ast.expr]] = []
    for part in ast.walk(scope):
        call = part.value if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call) else None
        if call is None:
            continue
        passed = [*call.args, *(word.value for word in call.keywords)]
        function = call.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            pairs += [(function.value.id, value) for value in passed]
        while isinstance(function, ast.Attribute):
            function = function.value
        if isinstance(function, ast.Name) and function.id not in own | {"self", "cls", "pytest"}:
            pairs += [(value.id, call) for value in passed if isinstance(value, ast.Name)]
    return pairs


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """Returns the parameters of a helper with their defaults, and with what a module's calls pass."""
    spec = function.args
    parameters = [part.arg for part in (*spec.posonlyargs, *spec.args)]
    pairs = list(zip(reversed(parameters), reversed(spec.defaults), strict=False))
    positional = parameters[1:] if parameters[:1] == ["self"] else parameters
    for call in (part for part in ast.walk(tree) if isinstance(part, ast.Call)):
        if ast.unparse(call.func) in (function.name, f"self.{function.name}"):
            spread = [part.value for part in call.args if isinstance(part, ast.Starred)]
            spread += [part.value for part in call.keywords if part.arg is None]
            pairs += [(name, value) for name in parameters for value in spread]
            pairs += [] if spread else zip(positional, call.args, strict=False)
            pairs += [(part.arg, part.value) for part in call.keywords if part.arg]
    return pairs


def _is_plain(node: ast.expr, plain: set[str]) -> bool:
    """Returns True if an expression reads only names in `plain`, or names that it binds itself."""
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return all(name.id in plain or name.id in own for name in names)


def _standard_names(tree: ast.Module) -> set[str]:
    """Returns the names of builtins and of what a module imports from the standard library."""
    names = set(dir(builtins))
    for part in ast.walk(tree):
        if isinstance(part, ast.ImportFrom) and (part.module or "").partition(".")[0] in sys.stdlib_module_names:
            names |= {alias.asname or alias.name for alias in part.names}
        elif isinstance(part, ast.Import):
            standard = [alias for alias in part.names if alias.name.partition(".")[0] in sys.stdlib_module_names]
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in standard}
    return names


def _is_answer(node: ast.expr, standard: set[str], bound: set[str]) -> bool:
    """Returns True if an expression calls a function that is not in `standard`, or reads a name in `bound`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in bound:
            return True
        if isinstance(part, ast.Call):
            root: ast.expr = part.func
            while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id not in standard:
                return True
    return False


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def shortened(got: str, expected: str) -> tuple[str, str]:
    """Returns two values; of long ones only the part around their first difference, with `[...]` for the rest."""
    if max(len(got), len(expected)) <= LONGEST:
        return got, expected
    pairs = enumerate(zip(got, expected, strict=False))
    place = next((number for number, (a, b) in pairs if a != b), min(len(got), len(expected)))
    start, end = max(0, place - _BEFORE), place + _AFTER

    def part(value: str) -> str:
        before, after = "[...]" * (start > 0), "[...]" * (len(value) > end)
        return f"{before}{value[start:end]}{after}"

    return part(got), part(expected)


def _text(printed: str) -> str:
    """Returns the text of a printed string, shortened if it is long."""
    try:
        value = str(ast.literal_eval(printed))
    except (ValueError, SyntaxError):
        value = printed
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}[...]"


def _result(error: str) -> str:
    """Returns which call in a condition gave which result; '' if pytest does not tell."""
    first, *more = error.splitlines()
    condition = _CONDITION.fullmatch(first)
    if condition is None:
        return ""
    value = condition["value"]
    for line in more:
        text = re.sub(r"^\+\s+where ", "", line)
        if text != line and text.startswith(f"{value} = "):
            call = text.removeprefix(f"{value} = ")
            return f"`{call}` is `{value}`." if len(call) + len(value) <= _CALL else ""
    return ""
