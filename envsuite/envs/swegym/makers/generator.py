"""Planting of bugs: changes a package, runs its tests, and keeps the mutant if it is a fair task.

A mutant is kept only if some tests that pass on the original package fail on it, at most `SHARE` of
them, the others still pass, and the same tests fail in three runs, in three processes with
different hash seeds. Two runs use the tests that reach a changed line (all tests if importing the
package reaches it); the third runs the failing tests only and records their failures for the
problem statement. Tests that execute no changed line cannot distinguish the mutant from the
original; `confirmed` runs them anyway, as the judge does, and the build drops mutants that it
contradicts. The gold patch restores the published file byte for byte, and the published package
passes: that is the baseline. A compound of two or three bugs is kept only if every bug is needed:
without it fewer tests fail, and some still do. Compounds combine bugs that are tasks by themselves,
alternating between bugs that share a failing test, and so interact, and bugs that share none.

Source: the idea is from SWE-smith (Yang et al., 2025); the operators and the verification are
original.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, zip_longest

from envsuite.envs.swegym.judge import suite, tampering
from envsuite.envs.swegym.judge.suite import SuiteJob
from envsuite.envs.swegym.makers import operators
from envsuite.envs.swegym.planted import packages
from envsuite.envs.swegym.planted.tasks import PlantedBug, PlantedTask, Symptom, digest, plant
from envsuite.errors import DataError
from envsuite.sandbox.pool import Pool

SHARE = 0.4
"""largest share of tests that a bug may break: otherwise there is nothing to search for"""
PATIENCE = 120
"""seconds allowed for the complete suite of an original package"""
MOST = 0.8
"""share of its tests that must pass; the others are left out"""
FEW = 30
SYMPTOMS = 3
SYMPTOM_CHARACTERS = 600
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass(frozen=True)
class Baseline:
    """The original package: its stable passing tests, and which tests reach which line."""

    package: packages.Package
    tests: list[str]
    lines: dict[str, dict[str, list[str]]]
    seconds: float

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.tests)

    @cached_property
    def sites(self) -> dict[str, PlantedBug]:
        """Every bug that some test reaches, by the digest of its task."""
        sites: dict[str, PlantedBug] = {}
        for path, text in packages.tree(self.package).items():
            if path.endswith(".py") and packages.is_code(self.package, path):
                for bug in operators.bugs(path, text):
                    reaching = self.reaching([bug])
                    if reaching is None or reaching:
                        sites.setdefault(digest([bug]), bug)  # two operators may make the same change
        return sites

    def reaching(self, bugs: Iterable[PlantedBug]) -> list[str] | None:
        """Returns the tests that execute a line of one of these bugs; None if importing the package
        does, so that any test may.
        """
        original = packages.tree(self.package)
        tests: set[str] = set()
        for bug in bugs:
            first, last = lines_of(original[bug.path], bug)
            for number in range(first, last + 1):
                tests.update(self.lines.get(bug.path, {}).get(str(number), ()))
        return None if "" in tests else sorted(tests & self.known)


def baseline(pools: Sequence[Pool], chosen: packages.Package) -> Baseline:
    """Runs the original package in each of the three pools, with tracing in the last; keeps tests that
    pass every time.

    Tests whose parameter ids differ between processes (because they come from a set) are left out.
    Raises DataError.
    """
    runs = [
        suite.run(pool, SuiteJob(chosen, packages.tree(chosen), seconds=PATIENCE, trace=pool is pools[-1]))
        for pool in pools
    ]
    for run in runs:
        for path, text in run.uncollected.items():
            errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or [text.strip()]
            raise DataError(
                f"Tests of {chosen.title} cannot be imported here: {path}: {errors[-1][:200]}. For a missing package: "
                "--with NAME; or name the tests to use: --tests PATH."
            )
        if run.fate != "exited" or not run.statuses:
            problem = (
                f"take more than {PATIENCE} s"
                if run.fate == "timeout"
                else f"do not run here ({run.fate}, pytest's exit code {run.exit_code})"
            )
            message = f": {run.message}" if run.message else ""
            raise DataError(f"The tests of {chosen.title} {problem}{message}. Use other tests or another package.")
    seen: list[set[str]] = [set(run.statuses) for run in runs]
    unstable_names = {test.partition("[")[0] for test in seen[0].union(*seen) - seen[0].intersection(*seen)}
    passing: list[set[str]] = [{test for test, status in run.statuses.items() if status == "PASSED"} for run in runs]
    if len(passing[0].intersection(*passing)) < MOST * len(seen[0].intersection(*seen)):
        failing = min(seen[0] - passing[0].intersection(*passing))
        raise DataError(
            f"The suite of {chosen.title} fails here: "
            f"{len(passing[0])} of {len(seen[0])} tests pass, {failing} does not. "
            "For a missing package: --with NAME; or name the tests to use: --tests PATH."
        )
    stable = sorted(
        test
        for test in passing[0].intersection(*passing)
        if not _ADDRESS.search(test) and test.partition("[")[0] not in unstable_names
    )
    return Baseline(chosen, stable, runs[-1].lines, max(run.seconds for run in runs[:-1]))


def lines_of(text: str, bug: PlantedBug) -> tuple[int, int]:
    """Returns the first and the last line that a bug changes, or from which it takes text."""
    data = text.encode()
    first = data[: min(start for start, _, _ in bug.edits)].count(b"\n") + 1
    last = data[: max(end for _, end, _ in bug.edits)].count(b"\n") + 1
    return min(first, bug.line), max(last, bug.line)


class Rejected(Exception):
    """The mutant is not a task; the message is the name of the reason."""


def verify(pools: Sequence[Pool], base: Baseline, bugs: Sequence[PlantedBug]) -> PlantedTask:
    """Returns a set of bugs as a task. Raises Rejected. `pools`: three, see `suite.pools`."""
    original = packages.tree(base.package)
    files = _plant(original, bugs)
    if tampering.reaches(files, original):
        raise Rejected("its fix would be refused")
    reaching = base.reaching(bugs)
    selected = base.known if reaching is None else frozenset(reaching)
    seconds = _patience(base)
    run = suite.run(pools[0], SuiteJob(base.package, files, reaching, seconds))
    failing = _failing(base, run, selected)
    again = suite.run(pools[1], SuiteJob(base.package, files, reaching, 10 * seconds))
    if again.fate != "exited" or _failed(again, selected) != failing:
        raise Rejected("unstable")
    for needless in bugs if len(bugs) > 1 else ():
        partial = plant(original, [bug for bug in bugs if bug is not needless])
        run = suite.run(pools[0], SuiteJob(base.package, partial, sorted(failing), 10 * seconds))
        still = _failed(run, failing)
        if run.fate != "exited" or not still or still == failing:
            raise Rejected("a bug is not needed")
    run = suite.run(pools[2], SuiteJob(base.package, files, sorted(failing), 10 * seconds, "short"))
    if run.fate != "exited" or _failed(run, failing) != failing:
        raise Rejected("unstable")
    passing = tuple(test for test in base.tests if test not in failing)
    return PlantedTask(base.package, tuple(bugs), tuple(sorted(failing)), passing, symptoms_of(failing, run.failures))


def confirmed(pool: Pool, base: Baseline, task: PlantedTask) -> bool:
    """Returns True if exactly the task's tests fail, not counting tests that its package leaves out."""
    run = suite.run(pool, SuiteJob(base.package, task.files, None, 10 * _patience(base)))
    failing = frozenset(task.fail_to_pass)
    try:
        return _failing(base, run, failing.union(task.pass_to_pass)) == failing
    except Rejected:
        return False


def _plant(original: dict[str, str], bugs: Sequence[PlantedBug]) -> dict[str, str]:
    files = plant(original, bugs)
    for path in {bug.path for bug in bugs}:
        try:
            compile(files[path], path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            raise Rejected("no Python") from None
    if files == original:
        raise Rejected("no change")
    return files


def _patience(base: Baseline) -> float:
    """Returns the seconds allowed for a variant, which needs about 0.1, or the complete suite's time
    if all tests reach its bug.
    """
    return max(2.0, 2 * base.seconds)


def _failing(base: Baseline, run: suite.SuiteRun, selected: frozenset[str]) -> frozenset[str]:
    """Returns the baseline tests that fail in a run of `selected`.

    Raises Rejected if it is not a fair task.
    """
    if run.fate != "exited":
        raise Rejected("hangs" if run.fate == "timeout" else "crashes")
    if run.uncollected or run.exit_code > 1:
        raise Rejected("breaks everything")
    failing = _failed(run, selected)
    if not failing:
        raise Rejected("survives")
    if len(failing) > SHARE * len(base.tests):
        raise Rejected("breaks too much")
    return failing


def _failed(run: suite.SuiteRun, selected: frozenset[str]) -> frozenset[str]:
    return frozenset(test for test in selected if run.statuses.get(test) not in ("PASSED", "XFAIL"))


def symptoms_of(
    tests: Iterable[str], failures: dict[str, str], characters: int = SYMPTOM_CHARACTERS
) -> tuple[Symptom, ...]:
    """Returns the errors of up to three failing tests, one per test function if there are enough."""
    by_function: dict[str, str] = {}
    failing = sorted(tests)
    for test in failing:
        if test in failures:
            by_function.setdefault(test.partition("[")[0], test)
    chosen = [*by_function.values(), *(test for test in failing if test not in by_function.values())][:SYMPTOMS]
    return tuple(symptom_of(test, failures.get(test, ""), characters) for test in chosen)


def symptom_of(test: str, failure: str, characters: int = SYMPTOM_CHARACTERS) -> Symptom:
    """Returns the error of a failing test from pytest's explanation."""
    errors = [line[1:].strip() for line in failure.splitlines() if line.startswith("E ")]
    error = _ADDRESS.sub("0x...", "\n".join(errors))[:characters]
    return Symptom(test, _test_line(failure, test)[:200], error)


def _test_line(failure: str, test: str) -> str:
    """Returns the line of the test's own file that failed; the location inside the package is not
    revealed.
    """
    code, own = "", False
    for line in failure.splitlines():
        if frame := re.match(r"(\S+):\d+: in ", line):
            own = frame[1] == test.partition("::")[0]
        elif own and line.startswith("    ") and line.strip()[:1] not in "^~":
            code, own = line.strip(), False
    return code


# ---- candidates ---------------------------------------------------------------------------------------------------


def singles(base: Baseline, seed: int) -> Iterator[list[PlantedBug]]:
    """Yields every bug once, in an order that depends on `seed` only.

    Bugs that few tests reach come first, because they are verified fastest and hardest to find.
    """
    sites = list(base.sites.values())
    random.Random(f"{seed}/{base.package.name}").shuffle(sites)
    sites.sort(key=lambda site: len(base.reaching([site]) or base.tests) > FEW)
    yield from ([site] for site in sites)


def compounds(base: Baseline, sources: Sequence[PlantedTask], count: int, seed: str) -> Iterator[list[PlantedBug]]:
    """Yields sets of `count` bugs, each a task by itself, in an order that depends on `seed` only.

    The bugs are in different functions, each breaks a test alone, and together they stay
    within `SHARE`. Sets whose bugs meet in a test alternate with sets whose bugs do not; a test
    fails until all bugs that it meets are fixed.
    """
    combined = [chosen for chosen in combinations(sources, count) if _fit(base, chosen)]
    random.Random(f"{seed}/{base.package.name}/{count}").shuffle(combined)
    meeting = [chosen for chosen in combined if _meet(chosen)]
    separate = [chosen for chosen in combined if not _meet(chosen)]
    for pair in zip_longest(meeting, separate):
        yield from ([base.sites[digest(task.bugs)] for task in chosen] for chosen in pair if chosen is not None)


def _fit(base: Baseline, chosen: Sequence[PlantedTask]) -> bool:
    counts = Counter(test for task in chosen for test in task.fail_to_pass)
    bugs = [bug for task in chosen for bug in task.bugs]
    return (
        len({(bug.path, bug.function) for bug in bugs}) == len(bugs)
        and len(counts) <= SHARE * len(base.tests)
        and all(any(counts[test] == 1 for test in task.fail_to_pass) for task in chosen)
        and not _overlap(bugs)
    )


def _meet(chosen: Sequence[PlantedTask]) -> bool:
    """Returns True if each bug shares a failing test with another one."""
    counts = Counter(test for task in chosen for test in task.fail_to_pass)
    return all(any(counts[test] > 1 for test in task.fail_to_pass) for task in chosen)


def _overlap(bugs: Sequence[PlantedBug]) -> bool:
    spans = sorted((bug.path, start, end) for bug in bugs for start, end, _ in bug.edits)
    return any(first[0] == second[0] and second[1] < first[2] for first, second in pairwise(spans))
