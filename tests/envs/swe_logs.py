"""Test logs in the styles of pytest, Django and SymPy, written for comparisons with the `swebench` package.

`cases` yields logs of small test runs as the runners print them, with everything that surrounds the results:
tracebacks, captured output, colours, cut and forged logs. Each case is made from its name alone.
"""

import random
from typing import NamedTuple

from envsuite.envs.swegym.published.repos import END, START

STYLES = {
    "pytest": "parse_log_pytest",
    "pytest_options": "parse_log_pytest_options",
    "pytest_plain": "parse_log_pytest_v2",
    "pytest_progress": "parse_log_pytest_v2",
    "seaborn": "parse_log_seaborn",
    "matplotlib": "parse_log_matplotlib",
    "django": "parse_log_django",
    "sympy": "parse_log_sympy",
}
"""our parser -> parser of the package"""
ROUNDS = 3
"""test runs of different sizes per style and scenario"""
EXIT_CODE = ">>>>> Test Exit Code"


class LogCase(NamedTuple):
    """A log, the tests that count, and the exit code that the log states (None: none)."""

    name: str
    style: str
    log: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    exit_code: int | None


def cases():
    """Yields all cases, always the same ones."""
    for style in STYLES:
        for scenario in SCENARIOS:
            for number in range(ROUNDS):
                yield make(style, scenario, number)


def make(style, scenario, number):
    """Returns one case."""
    name = f"{style}/{scenario}/{number}"
    rng = random.Random(name)
    tests = [test_name(style, index, rng) for index in range(rng.randint(5, 8 + 20 * number))]
    fixed = tests[: rng.randint(1, 3)]
    maintained = tests[len(fixed) :]
    run = TestRun(style, dict.fromkeys(tests, "PASSED"), fixed, maintained, rng)
    SCENARIOS[scenario](run)
    failed = any(status in ("FAILED", "ERROR") for status in run.statuses.values())
    exit_code = run.exit_code if run.exit_code is not None else int(failed)
    log = run.assemble(RENDERERS[style](run), exit_code)
    stated = exit_code if run.states_exit_code and EXIT_CODE in log else None
    return LogCase(name, style, log, tuple(run.fixed), tuple(run.maintained), stated)


class TestRun:
    """A run that a scenario changes: statuses by test, and how its log is damaged."""

    __test__ = False

    def __init__(self, style, statuses, fixed, maintained, rng):
        self.style, self.statuses, self.fixed, self.maintained, self.rng = (
            style,
            statuses,
            list(fixed),
            list(maintained),
            rng,
        )
        self.exit_code = None
        self.states_exit_code = True
        self.captured, self.before, self.after = "", "", ""
        self.ending = self.beginning = True
        self.change = lambda text: text

    def assemble(self, output, exit_code):
        """Returns the log: what the script prints around the tests' output."""
        parts = ["+ source /opt/miniconda3/bin/activate\n", self.before]
        parts += [f"{START}\n"] if self.beginning else []
        parts += [self.change(output)]
        parts += [f"\n{END}\n"] if self.ending else []
        parts += [self.after]
        if self.states_exit_code and self.ending:
            parts.append(f"{EXIT_CODE}: {exit_code}\n")
        return "".join(parts)


def test_name(style, index, rng):
    """Returns the name of a test as the style's lists of tests spell it."""
    verb = rng.choice(("parses", "keeps", "rounds", "sorts", "opens"))
    if style == "django":
        case = (
            f"{rng.choice(('queries', 'forms_tests.tests', 'admin_views'))}.tests.{rng.choice(('Field', 'Form'))}Tests"
        )
        return rng.choice((f"test_{verb}_{index} ({case})", f"test_{verb}_{index} ({case}.test_{verb}_{index})"))
    if style == "sympy":
        return f"test_{verb}_{index}"
    file = rng.choice(("tests/test_core.py", "lib/tests/test_io.py"))
    options = {"pytest_options": ("[/x.dcm]", "[//host]", "[a*b]"), "matplotlib": ("[1-x]", "[3]")}
    choices = options.get(style, ("[a-1]", "[1.5-None]", "[x/y]"))
    return f"{file}::{rng.choice(('', 'TestCase::'))}test_{verb}_{index}{rng.choice(('', *choices))}"


test_name.__test__ = False


# ---- how the runners print -----------------------------------------------------------------------------------------


def rendered_pytest(run):
    """Prints `pytest -rA`: progress, failures, passes with captured output, and the summary."""
    letters = "".join({"PASSED": ".", "FAILED": "F", "ERROR": "E", "SKIPPED": "s", "XFAIL": "x"}[status]
                      for status in run.statuses.values())  # fmt: skip
    lines = ["=" * 27 + " test session starts " + "=" * 27, f"collected {len(letters)} items", ""]
    lines += [f"tests/test_core.py {letters}  [100%]", ""]
    failed = [test for test, status in run.statuses.items() if status in ("FAILED", "ERROR")]
    for test in failed:
        short = test.rpartition("::")[2]
        lines += [
            f"{'_' * 20} {short} {'_' * 20}",
            "",
            f"    def {short.partition('[')[0]}():",
            ">       assert 1 == 2",
        ]
        lines += ["E       assert 1 == 2", "", "tests/test_core.py:7: AssertionError"]
    lines += ["=" * 35 + " PASSES " + "=" * 35, f"{'_' * 20} test_prints {'_' * 20}"]
    lines += ["-" * 27 + " Captured stdout call " + "-" * 27, run.captured or "reading table", ""]
    lines += ["=" * 27 + " short test summary info " + "=" * 27]
    for test, status in sorted(run.statuses.items(), key=lambda item: item[1] != "PASSED"):
        lines.append(_summary_line(test, status, run.rng))
    lines.append(f"{'=' * 10} {len(failed)} failed, {len(letters) - len(failed)} passed in 0.31s {'=' * 10}")
    return "\n".join(lines)


def _summary_line(test, status, rng):
    if status == "SKIPPED":
        return rng.choice((f"SKIPPED [1] {test.partition('::')[0]}:12: needs a display", f"SKIPPED {test}"))
    if status == "XFAIL":
        return f"XFAIL {test} - known"
    error = rng.choice((" - assert 1 == 2", " - ValueError: no - such value", ""))
    return f"{status} {test}{error if status in ('FAILED', 'ERROR') else ''}"


def rendered_options(run):
    """Prints like pytest, with whole paths where the lists of tests have only their last part."""
    return rendered_pytest(run).replace("[/x", "[/testbed/lib/data/x")


def rendered_verbose(run):
    """Prints `pytest -vv` in the classic style, with colours, then the summary."""
    lines = ["=" * 20 + " test session starts " + "=" * 20]
    for test, status in run.statuses.items():
        lines.append(f"{test} \x1b[32m{status}\x1b[0m" if run.rng.random() < 0.5 else f"{test} {status}")
    return "\n".join([*lines, run.captured, rendered_pytest(run)])


def rendered_seaborn(run):
    """Prints `pytest --no-header -rA`, also with names before the status."""
    lines = [f"{test} PASSED [ 50%]" for test, status in run.statuses.items() if status == "PASSED"]
    return "\n".join([*lines[::2], rendered_pytest(run)])


def rendered_matplotlib(run):
    """Prints like pytest, with enumeration members where the lists of tests have numbers."""
    return rendered_pytest(run).replace("[1-x]", "[MouseButton.LEFT-x]").replace("[3]", "[MouseButton.RIGHT]")


def rendered_django(run):
    """Prints `runtests.py --verbosity 2`, where a test's own output may stand before its status."""
    lines = ["Testing against Django installed in '/testbed/django'", "Importing application queries"]
    words = {"PASSED": "ok", "FAILED": "FAIL", "ERROR": "ERROR", "SKIPPED": "skipped 'no GDAL'"}
    words["XFAIL"] = "expected failure"
    noises = ("", "Internal Server Error: /a/\n", "System check identified no issues (0 silenced)\n")
    for test, status in run.statuses.items():
        noise = run.rng.choice(noises) if status == "PASSED" else ""
        lines.append(f"{test} ... {noise}{words[status]}")
    lines.append(run.captured)
    for test, status in run.statuses.items():
        if status in ("FAILED", "ERROR"):
            title = "FAIL" if status == "FAILED" else "ERROR"
            lines += ["=" * 70, f"{title}: {test}", "-" * 70, "Traceback (most recent call last):", "AssertionError"]
    return "\n".join([*lines, "-" * 70, f"Ran {len(run.statuses)} tests in 0.2s", "", "FAILED (failures=1)"])


def rendered_sympy(run):
    """Prints `bin/test -C --verbose`, with the headings of failures."""
    words = {"PASSED": "ok", "FAILED": "F", "ERROR": "E", "SKIPPED": "s", "XFAIL": "f"}
    lines = ["=" * 30 + " test process starts " + "=" * 30, "", f"sympy/core/tests/test_a.py[{len(run.statuses)}]"]
    lines += [f"{test} {words[status]}" for test, status in run.statuses.items()]
    lines.append(run.captured)
    for test, status in run.statuses.items():
        if status in ("FAILED", "ERROR"):
            lines += ["", "_" * 80, f"{'_' * 20} sympy/core/tests/test_a.py:{test} {'_' * 20}", "Traceback:"]
    return "\n".join([*lines, "", f"tests finished: {len(run.statuses)} passed, in 0.11 seconds"])


RENDERERS = {
    "pytest": rendered_pytest,
    "pytest_options": rendered_options,
    "pytest_plain": rendered_verbose,
    "pytest_progress": rendered_verbose,
    "seaborn": rendered_seaborn,
    "matplotlib": rendered_matplotlib,
    "django": rendered_django,
    "sympy": rendered_sympy,
}


# ---- what happens in a run -----------------------------------------------------------------------------------------


def _set(where, status, share=0.0):
    """Returns a scenario in which one test of a list, or a share of them, has another status; None removes it."""

    def apply(run):
        listed = getattr(run, where)
        for test in listed[: max(1, round(share * len(listed)))]:
            if status is None:
                del run.statuses[test]
            else:
                run.statuses[test] = status

    return apply


def _with(**attributes):
    """Returns a scenario that sets attributes of the run."""
    return lambda run: [setattr(run, name, value) for name, value in attributes.items()]


def _both(*scenarios):
    return lambda run: [scenario(run) for scenario in scenarios]


def _no_kept(run):
    run.maintained = []


def _cut_ids(run):
    """Shortens listed names inside their parameter, as the data sets do."""
    run.fixed = [test[:-2] if test.endswith("]") else test for test in run.fixed]
    run.maintained = [test[:-1] if test.endswith("]") else test for test in run.maintained]


def _ambiguous_ids(run):
    """Lists a name that is the beginning of a test that passes and of one that fails."""
    run.statuses |= {"tests/test_core.py::test_many[a-1]": "PASSED", "tests/test_core.py::test_many[a-2]": "FAILED"}
    run.maintained.append("tests/test_core.py::test_many[a-")


def _forged_in_output(run):
    """Prints a passing line for a test that fails later."""
    run.statuses[run.fixed[0]] = "FAILED"
    run.captured = _passing_line(run.style, run.fixed[0])


def _passing_line(style, test):
    return {"django": f"{test} ... ok", "sympy": f"{test} ok"}.get(style, f"PASSED {test}")


def _nothing_runs(run):
    run.change = lambda text: "ImportError while loading conftest '/testbed/conftest.py'.\nE   ModuleNotFoundError: x"
    run.exit_code = 4


def _marker_in_output(run):
    """Prints passing lines for all tests and the end marker, before the true results."""
    forged = "\n".join([*(_passing_line(run.style, test) for test in run.statuses), END])
    run.change = lambda text: f"{forged}\n{text}"
    run.statuses[run.fixed[0]] = "FAILED"
    run.states_exit_code = False


def _outside(run):
    """Prints the results before the markers, as when two streams are mixed."""
    run.change = lambda text: ""
    run.before = "\n".join(_passing_line(run.style, test) for test in run.statuses) + "\n"


FAULT_MARKS = (">>>>> Patch Apply Failed", ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out")
SCENARIOS = {
    "all pass": lambda run: None,
    "a failing test still fails": _set("fixed", "FAILED"),
    "all failing tests still fail": _set("fixed", "FAILED", 1.0),
    "a failing test has an error": _set("fixed", "ERROR"),
    "a failing test does not run": _set("fixed", None),
    "a failing test is skipped": _set("fixed", "SKIPPED"),
    "a failing test is expected to fail": _set("fixed", "XFAIL"),
    "a passing test fails": _set("maintained", "FAILED"),
    "half the passing tests fail": _set("maintained", "FAILED", 0.5),
    "a passing test has an error": _set("maintained", "ERROR"),
    "a passing test does not run": _set("maintained", None),
    "a passing test is skipped": _set("maintained", "SKIPPED"),
    "a passing test is expected to fail": _set("maintained", "XFAIL"),
    "both lists fail": _both(_set("fixed", "FAILED"), _set("maintained", "ERROR")),
    "no passing tests are listed": _no_kept,
    "no passing tests, one fails": _both(_no_kept, _set("fixed", "FAILED")),
    "ids are cut": _cut_ids,
    "ids are cut and a test fails": _both(_cut_ids, _set("maintained", "FAILED")),
    "cut ids are ambiguous": _ambiguous_ids,
    "no exit code": _with(states_exit_code=False),
    "exit code without a failure": _with(exit_code=1),
    "exit code 0 with a failure": _both(_with(exit_code=0), _set("fixed", "FAILED")),
    "killed": _both(_with(exit_code=137), _set("maintained", None, 0.5)),
    "the end is missing": _with(ending=False),
    "the start is missing": _with(beginning=False),
    "cut in the middle": _both(_with(ending=False), _with(change=lambda text: text[: len(text) // 2])),
    "nothing runs": _nothing_runs,
    "no output": _with(change=lambda text: ""),
    "a passing line is forged": _forged_in_output,
    "line ends of Windows": _with(change=lambda text: text.replace("\n", "\r\n")),
    "text of other scripts": _with(captured="naïve ☃ 表 \u202e test"),
    **{f"fault mark {mark[6:]}": _with(after=f"{mark}\n") for mark in FAULT_MARKS},
    "the end marker is forged": _marker_in_output,
    "results outside the markers": _outside,
}
DIFFERENT = ("the end marker is forged", "results outside the markers")
"""scenarios in which our verdict is stricter on purpose"""
