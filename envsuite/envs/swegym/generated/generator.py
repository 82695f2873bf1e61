"""Task generation: plants a bug, runs the tests, and keeps the mutant if it is a fair task.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, zip_longest

from envsuite.envs.swegym import tampering
from envsuite.envs.swegym.generated import operators, packages, suite
from envsuite.envs.swegym.generated.tasks import GeneratedTask, Planted, Symptom, digest, plant
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


Site = tuple[str, operators.Bug]
"""(path, bug)"""
SymptomChoice = Callable[[Sequence[Site], frozenset[str], dict[str, str]], tuple[Symptom, ...]]
"""(bugs, failing tests, failures by test) -> symptoms"""


@dataclass(frozen=True)
class Baseline:
    """The original package: its stable passing tests, and which tests reach which line."""

    package: packages.Package
    tests: list[str]
    lines: dict[str, dict[str, list[str]]]
    hops: dict[str, dict[str, dict[str, int]]]
    seconds: float

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.tests)

    @cached_property
    def sites(self) -> dict[str, Site]:
        """Every bug that some test reaches, by the digest of its task."""
        sites: dict[str, Site] = {}
        for path, text in packages.tree(self.package).items():
            if path.endswith(".py") and packages.is_code(self.package, path):
                for bug in operators.bugs(text):
                    reaching = self.reaching(path, *lines_of(text, bug))
                    if reaching is None or reaching:
                        sites.setdefault(name_of([(path, bug)]), (path, bug))  # two operators may make the same change
        return sites

    def reaching(self, path: str, first: int, last: int) -> list[str] | None:
        """Returns the tests that execute one of these lines; None if importing the package does, so
        that any test may.
        """
        tests: set[str] = set()
        for number in range(first, last + 1):
            tests.update(self.lines.get(path, {}).get(str(number), ()))
        return None if "" in tests else sorted(tests & self.known)

    def distance(self, path: str, top: int, failing: Iterable[str]) -> int:
        per_test = self.hops.get(path, {}).get(str(top), {})
        return min((per_test[test] for test in failing if test in per_test), default=1)


def baseline(pools: Sequence[Pool], chosen: packages.Package) -> Baseline:
    """Runs the original package in each of the three pools, with tracing in the last; keeps tests that
    pass every time.

    Tests whose parameter ids differ between processes (because they come from a set) are left out.
    Raises DataError.
    """
    runs = [suite.run(pool, chosen, packages.tree(chosen), seconds=PATIENCE, trace=pool is pools[-1]) for pool in pools]
    for run in runs:
        for place, text in run.uncollected.items():
            errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or [text.strip()]
            raise DataError(
                f"Tests of {chosen.title} cannot be imported here: {place}: {errors[-1][:200]}. For a missing package: "
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
    trace = runs[-1].trace
    return Baseline(chosen, stable, trace["lines"], trace["hops"], max(run.seconds for run in runs[:-1]))


def lines_of(text: str, bug: operators.Bug) -> tuple[int, int]:
    data = text.encode()
    first = data[: min(start for start, _, _ in bug.edits)].count(b"\n") + 1
    last = data[: max(end for _, end, _ in bug.edits)].count(b"\n") + 1
    return min(first, bug.line), max(last, bug.line)


class Rejected(Exception):
    """The mutant is not a task; the message is the name of the reason."""


@dataclass
class _Mutant:
    bugs: Sequence[Site]
    planted: tuple[Planted, ...]
    changed: dict[str, str]
    """files that differ, by path"""
    reaching: list[str] | None
    failing: frozenset[str] = frozenset()
    decision: GeneratedTask | str = ""


def verify(
    pools: Sequence[Pool], base: Baseline, candidates: Iterable[Sequence[Site]], choose: SymptomChoice | None = None
) -> list[GeneratedTask | str]:
    """Returns each set of bugs as a task, or the name of the reason for rejecting it.

    `pools`: three, see `suite.pools`. `choose` selects the symptoms of the issue and may raise
    Rejected; the default is `symptoms_of`.
    """
    mutants = [_mutant(base, bugs) for bugs in candidates]
    for number in (0, 1):
        undecided = [mutant for mutant in mutants if not mutant.decision]
        variants = [(mutant.changed, mutant.reaching) for mutant in undecided]
        for mutant, run in zip(undecided, _runs(pools[number], base, variants, first=number == 0), strict=True):
            selected = base.known if mutant.reaching is None else frozenset(mutant.reaching)
            try:
                failing = _failing(base, run, selected)
                if number and failing != mutant.failing:
                    raise Rejected("unstable")
                mutant.failing = failing
            except Rejected as rejected:
                mutant.decision = str(rejected) if not number else "unstable"
    _check_needs(pools[0], base, [mutant for mutant in mutants if not mutant.decision and len(mutant.planted) > 1])
    undecided = [mutant for mutant in mutants if not mutant.decision]
    explained = [(mutant.changed, sorted(mutant.failing)) for mutant in undecided]
    for mutant, run in zip(undecided, _runs(pools[2], base, explained, explain=True), strict=True):
        if run.fate != "exited" or _failed(run, mutant.failing) != mutant.failing:
            mutant.decision = "unstable"
            continue
        hops = min(base.distance(path, bug.top, mutant.failing) for path, bug in mutant.bugs)
        passing = tuple(test for test in base.tests if test not in mutant.failing)
        try:
            symptoms = (choose or _first_symptoms)(mutant.bugs, mutant.failing, run.failures)
        except Rejected as rejected:
            mutant.decision = str(rejected)
            continue
        fails = tuple(sorted(mutant.failing))
        mutant.decision = GeneratedTask(base.package, mutant.planted, fails, passing, hops, symptoms)
    return [mutant.decision for mutant in mutants]


def _mutant(base: Baseline, bugs: Sequence[Site]) -> _Mutant:
    original = packages.tree(base.package)
    planted = tuple(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in bugs)
    mutant = _Mutant(bugs, planted, {}, reaching(base, bugs))
    try:
        files = _plant(original, planted)
        if tampering.reaches(files, original):
            raise Rejected("its fix would be refused")
        mutant.changed = {bug.path: files[bug.path] for bug in planted}
    except Rejected as rejected:
        mutant.decision = str(rejected)
    return mutant


def _runs(
    pool: Pool,
    base: Baseline,
    variants: Sequence[tuple[dict[str, str], list[str] | None]],
    explain: bool = False,
    first: bool = False,
) -> list[suite.SuiteRun]:
    """Runs variants.

    `first`: some may hang; later ones get more time, because explaining failures takes long.
    """
    if not variants:
        return []
    seconds = _patience(base) * (1 if first else 10)
    return suite.run_each(pool, base.package, packages.tree(base.package), variants, seconds, explain)


def confirmed(pool: Pool, base: Baseline, task: GeneratedTask) -> bool:
    """Returns True if exactly the task's tests fail, not counting tests that its package leaves out."""
    run = suite.run(pool, base.package, task.files, None, 10 * _patience(base))
    failing = frozenset(task.fail_to_pass)
    try:
        return _failing(base, run, failing.union(task.pass_to_pass)) == failing
    except Rejected:
        return False


def reaching(base: Baseline, bugs: Iterable[Site]) -> list[str] | None:
    """Returns the tests that reach one of these bugs; None if any test may."""
    original, tests = packages.tree(base.package), set()
    for path, bug in bugs:
        reached = base.reaching(path, *lines_of(original[path], bug))
        if reached is None:
            return None
        tests.update(reached)
    return sorted(tests)


def _plant(original: dict[str, str], planted: tuple[Planted, ...]) -> dict[str, str]:
    files = plant(original, planted)
    for path in {bug.path for bug in planted}:
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


def _check_needs(pool: Pool, base: Baseline, mutants: Sequence[_Mutant]) -> None:
    """Rejects compounds in which one bug could be left out."""
    original = packages.tree(base.package)
    owners, variants = [], []
    for mutant in mutants:
        for left_out in mutant.planted:
            files = plant(original, [bug for bug in mutant.planted if bug is not left_out])
            owners.append(mutant)
            variants.append(({path: files[path] for path in mutant.changed}, sorted(mutant.failing)))
    for mutant, run in zip(owners, _runs(pool, base, variants), strict=True):
        still = _failed(run, mutant.failing)
        if run.fate != "exited" or not still or still == mutant.failing:
            mutant.decision = "a bug is not needed"


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


def _first_symptoms(_: Sequence[Site], failing: frozenset[str], failures: dict[str, str]) -> tuple[Symptom, ...]:
    return symptoms_of(failing, failures)


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
        if place := re.match(r"(\S+):\d+: in ", line):
            own = place[1] == test.partition("::")[0]
        elif own and line.startswith("    ") and line.strip()[:1] not in "^~":
            code, own = line.strip(), False
    return code


# ---- candidates ---------------------------------------------------------------------------------------------------


def singles(base: Baseline, seed: int) -> Iterator[list[Site]]:
    """Yields every site once, in an order that depends on `seed` only.

    Sites that few tests reach come first: they are verified fastest and hardest to find.
    """
    sites = list(base.sites.values())
    random.Random(f"{seed}/{base.package.name}").shuffle(sites)
    sites.sort(key=lambda site: len(reaching(base, [site]) or base.tests) > FEW)
    yield from ([site] for site in sites)


def compounds(base: Baseline, sources: Sequence[GeneratedTask], count: int, seed: str) -> Iterator[list[Site]]:
    """Yields sets of `count` bugs, each a task by itself, in an order that depends on `seed` only.

    The bugs are in different functions, each breaks a test alone, and together they stay
    within `SHARE`. Sets whose bugs meet in a test alternate with sets whose bugs do not; a test
    fails until all bugs that it meets are fixed.
    """
    known = [(base.sites[digest(task.bugs)], frozenset(task.fail_to_pass)) for task in sources]
    candidates = [chosen for chosen in combinations(known, count) if _fit(base, chosen)]
    random.Random(f"{seed}/{base.package.name}/{count}").shuffle(candidates)
    meeting = [chosen for chosen in candidates if _meet(chosen)]
    separate = [chosen for chosen in candidates if not _meet(chosen)]
    for pair in zip_longest(meeting, separate):
        yield from ([site for site, _ in chosen] for chosen in pair if chosen is not None)


def _fit(base: Baseline, chosen: Sequence[tuple[Site, frozenset[str]]]) -> bool:
    sites, failing = zip(*chosen, strict=True)
    counts = Counter(test for tests in failing for test in tests)
    return (
        len({(path, bug.function) for path, bug in sites}) == len(sites)
        and len(counts) <= SHARE * len(base.tests)
        and all(any(counts[test] == 1 for test in tests) for tests in failing)
        and not _overlap(sites)
    )


def _meet(chosen: Sequence[tuple[Site, frozenset[str]]]) -> bool:
    """Returns True if each bug shares a failing test with another one."""
    counts = Counter(test for _, tests in chosen for test in tests)
    return all(any(counts[test] > 1 for test in tests) for _, tests in chosen)


def _overlap(chosen: Sequence[Site]) -> bool:
    spans = sorted((path, start, end) for path, bug in chosen for start, end, _ in bug.edits)
    return any(first[0] == second[0] and second[1] < first[2] for first, second in pairwise(spans))


def name_of(candidate: Iterable[Site]) -> str:
    """Returns the digest of the task with these bugs."""
    return digest(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in candidate)
