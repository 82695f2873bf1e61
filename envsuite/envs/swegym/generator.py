"""Making tasks: plant a bug, run the tests, keep what is a fair task.

A mutant is kept only if some tests that pass on the sound package fail on it, at most `SHARE` of them, the rest still
pass, and the same tests fail in three runs, in three processes that put sets in different orders: two of the tests that
reach a changed line (all tests, where importing the package does), and one of the failing tests alone, with their
failures explained for the problem statement. Tests that run no changed line cannot tell the mutant from the sound
package; `confirmed` runs them all the same, as the judge does, and the build drops what it contradicts. The gold patch
restores the published file to the byte, and the published package passes: that is the baseline. A compound of two or
three bugs is kept only if each of them is needed: without it fewer tests fail, and some still do. Compounds are made of
bugs that are tasks already, by turns of bugs that have a failing test in common, so that they interact, and of bugs
that have none.

Source: SWE-smith (Yang et al., 2025) for the idea; the operators and the verification are our own.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, zip_longest

from envsuite.envs.swegym import operators, packages, suite, tampering
from envsuite.envs.swegym.tasks import Generated, Planted, Symptom, digest, plant
from envsuite.errors import DataError
from envsuite.sandbox.pool import Pool

SHARE = 0.4
"""a bug that breaks more of the tests is no search any more"""
PATIENCE = 120
"""seconds that the whole suite of a sound package may take"""
MOST = 0.8
"""of its tests must pass; those that do not are left out"""
FEW = 30
SYMPTOMS = 3
_TOLD = 600
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


Site = tuple[str, operators.Bug]
"""(path, bug)"""


@dataclass(frozen=True)
class Baseline:
    """The sound package: its stable passing tests, and which of them reach which line."""

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
        """Every bug that some test reaches, by the digest that its task has."""
        found: dict[str, Site] = {}
        for path, text in packages.tree(self.package).items():
            if path.endswith(".py") and packages.is_code(self.package, path):
                for bug in operators.bugs(text):
                    reaching = self.reaching(path, *_lines(text, bug))
                    if reaching is None or reaching:
                        found.setdefault(name_of([(path, bug)]), (path, bug))  # two operators may come to the same
        return found

    def reaching(self, path: str, first: int, last: int) -> list[str] | None:
        """The tests that run one of these lines; None where importing the package does, so that any test may."""
        found: set[str] = set()
        for number in range(first, last + 1):
            found.update(self.lines.get(path, {}).get(str(number), ()))
        return None if "" in found else sorted(found & self.known)

    def distance(self, path: str, top: int, failing: Iterable[str]) -> int:
        per_test = self.hops.get(path, {}).get(str(top), {})
        return min((per_test[test] for test in failing if test in per_test), default=1)


def baseline(pools: Sequence[Pool], chosen: packages.Package) -> Baseline:
    """Runs the sound package in each of the three pools, in the last one traced; keeps tests that pass each time.

    A test whose parameters are called differently from process to process (they come from a set) is left out. Raises
    DataError.
    """
    runs = [suite.run(pool, chosen, packages.tree(chosen), seconds=PATIENCE, trace=pool is pools[-1]) for pool in pools]
    for one in runs:
        for place, text in one.uncollected.items():
            said = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or [text.strip()]
            raise DataError(
                f"Tests of {chosen.title} cannot be imported here: {place}: {said[-1][:200]}. For a package that is missing: "
                "--with NAME; or say which tests to take: --tests PATH."
            )
        if one.fate != "exited" or not one.statuses:
            told = (
                f"take more than {PATIENCE} s"
                if one.fate == "timeout"
                else f"do not run here ({one.fate}, pytest's exit code {one.exit_code})"
            )
            raise DataError(f"The tests of {chosen.title} {told}: take other tests or another package.")
    seen: list[set[str]] = [set(one.statuses) for one in runs]
    by_chance = {test.partition("[")[0] for test in seen[0].union(*seen) - seen[0].intersection(*seen)}
    passing: list[set[str]] = [{test for test, status in one.statuses.items() if status == "PASSED"} for one in runs]
    if len(passing[0].intersection(*passing)) < MOST * len(seen[0].intersection(*seen)):
        failing = min(seen[0] - passing[0].intersection(*passing))
        raise DataError(
            f"The suite of {chosen.title} fails here: {len(passing[0])} of {len(seen[0])} tests pass, {failing} does not. For "
            "a package that is missing: --with NAME; or say which tests to take: --tests PATH."
        )
    stable = sorted(
        test
        for test in passing[0].intersection(*passing)
        if not _ADDRESS.search(test) and test.partition("[")[0] not in by_chance
    )
    trace = runs[-1].trace
    return Baseline(chosen, stable, trace["lines"], trace["hops"], max(one.seconds for one in runs[:-1]))


def _lines(text: str, bug: operators.Bug) -> tuple[int, int]:
    data = text.encode()
    first = data[: min(start for start, _, _ in bug.edits)].count(b"\n") + 1
    last = data[: max(end for _, end, _ in bug.edits)].count(b"\n") + 1
    return min(first, bug.line), max(last, bug.line)


class Rejected(Exception):
    """The mutant is no task; the message is the reason's name."""


@dataclass
class _Mutant:
    bugs: Sequence[Site]
    planted: tuple[Planted, ...]
    changed: dict[str, str]
    """the files that differ, by path"""
    reaching: list[str] | None
    failing: frozenset[str] = frozenset()
    answer: Generated | str = ""


def verify(pools: Sequence[Pool], base: Baseline, candidates: Iterable[Sequence[Site]]) -> list[Generated | str]:
    """For each set of bugs its task, or the name of the reason against it. `pools`: three, see `suite.pools`."""
    mutants = [_mutant(base, bugs) for bugs in candidates]
    for number in (0, 1):
        open_ones = [mutant for mutant in mutants if not mutant.answer]
        wanted = [(mutant.changed, mutant.reaching) for mutant in open_ones]
        for mutant, run in zip(open_ones, _runs(pools[number], base, wanted, first=number == 0)):
            asked = base.known if mutant.reaching is None else frozenset(mutant.reaching)
            try:
                failing = _failing(base, run, asked)
                if number and failing != mutant.failing:
                    raise Rejected("unstable")
                mutant.failing = failing
            except Rejected as rejected:
                mutant.answer = str(rejected) if not number else "unstable"
    _check_needs(pools[0], base, [mutant for mutant in mutants if not mutant.answer and len(mutant.planted) > 1])
    open_ones = [mutant for mutant in mutants if not mutant.answer]
    explained = [(mutant.changed, sorted(mutant.failing)) for mutant in open_ones]
    for mutant, run in zip(open_ones, _runs(pools[2], base, explained, explain=True)):
        if run.fate != "exited" or _failed(run, mutant.failing) != mutant.failing:
            mutant.answer = "unstable"
            continue
        hops = min(base.distance(path, bug.top, mutant.failing) for path, bug in mutant.bugs)
        keep = tuple(test for test in base.tests if test not in mutant.failing)
        symptoms = _symptoms(mutant.failing, run.failures)
        fails = tuple(sorted(mutant.failing))
        mutant.answer = Generated(base.package, mutant.planted, fails, keep, hops, symptoms)
    return [mutant.answer for mutant in mutants]


def _mutant(base: Baseline, bugs: Sequence[Site]) -> _Mutant:
    sound = packages.tree(base.package)
    planted = tuple(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in bugs)
    made = _Mutant(bugs, planted, {}, _reaching(base, bugs))
    try:
        files = _plant(sound, planted)
        if tampering.reaches(files, sound):
            raise Rejected("its fix would be refused")
        made.changed = {bug.path: files[bug.path] for bug in planted}
    except Rejected as rejected:
        made.answer = str(rejected)
    return made


def _runs(
    pool: Pool,
    base: Baseline,
    variants: Sequence[tuple[dict[str, str], list[str] | None]],
    explain: bool = False,
    first: bool = False,
) -> list[suite.Run]:
    """`first`: some may hang; later ones are given time, since to explain failures takes some."""
    if not variants:
        return []
    seconds = _patience(base) * (1 if first else 10)
    return suite.run_each(pool, base.package, packages.tree(base.package), variants, seconds, explain)


def confirmed(pool: Pool, base: Baseline, task: Generated) -> bool:
    """Whether of all tests, but for those that its package leaves out, exactly the task's fail."""
    run = suite.run(pool, base.package, task.files, None, 10 * _patience(base))
    failing = frozenset(task.fail_to_pass)
    try:
        return _failing(base, run, failing.union(task.pass_to_pass)) == failing
    except Rejected:
        return False


def _reaching(base: Baseline, bugs: Iterable[Site]) -> list[str] | None:
    """The tests that reach one of these bugs; None where any may."""
    sound, found = packages.tree(base.package), set()
    for path, bug in bugs:
        reached = base.reaching(path, *_lines(sound[path], bug))
        if reached is None:
            return None
        found.update(reached)
    return sorted(found)


def _plant(sound: dict[str, str], planted: tuple[Planted, ...]) -> dict[str, str]:
    files = plant(sound, planted)
    for path in {bug.path for bug in planted}:
        try:
            compile(files[path], path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            raise Rejected("no Python") from None
    if files == sound:
        raise Rejected("no change")
    return files


def _patience(base: Baseline) -> float:
    """Seconds for a variant, which needs some 0.1, or the whole suite's time where all tests reach its bug."""
    return max(2.0, 2 * base.seconds)


def _failing(base: Baseline, run: suite.Run, asked: frozenset[str]) -> frozenset[str]:
    """The baseline tests that fail in a run of `asked`. Raises Rejected for what is no fair task."""
    if run.fate != "exited":
        raise Rejected("hangs" if run.fate == "timeout" else "crashes")
    if run.uncollected or run.exit_code > 1:
        raise Rejected("breaks everything")
    failing = _failed(run, asked)
    if not failing:
        raise Rejected("survives")
    if len(failing) > SHARE * len(base.tests):
        raise Rejected("breaks too much")
    return failing


def _failed(run: suite.Run, asked: frozenset[str]) -> frozenset[str]:
    return frozenset(test for test in asked if run.statuses.get(test) not in ("PASSED", "XFAIL"))


def _check_needs(pool: Pool, base: Baseline, mutants: Sequence[_Mutant]) -> None:
    """Rejects the compounds of which one bug could be left out."""
    sound = packages.tree(base.package)
    owners, variants = [], []
    for mutant in mutants:
        for left_out in mutant.planted:
            files = plant(sound, [bug for bug in mutant.planted if bug is not left_out])
            owners.append(mutant)
            variants.append(({path: files[path] for path in mutant.changed}, sorted(mutant.failing)))
    for mutant, run in zip(owners, _runs(pool, base, variants)):
        still = _failed(run, mutant.failing)
        if run.fate != "exited" or not still or still == mutant.failing:
            mutant.answer = "a bug is not needed"


def _symptoms(tests: Iterable[str], failures: dict[str, str]) -> tuple[Symptom, ...]:
    """What up to three of the failing tests say, one per test function where there are as many."""
    by_function: dict[str, str] = {}
    failing = sorted(tests)
    for test in failing:
        if test in failures:
            by_function.setdefault(test.partition("[")[0], test)
    chosen = [*by_function.values(), *(test for test in failing if test not in by_function.values())][:SYMPTOMS]
    found = []
    for test in chosen:
        text = failures.get(test, "")
        said = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        found.append(Symptom(test, _test_line(text, test)[:200], _ADDRESS.sub("0x...", "\n".join(said))[:_TOLD]))
    return tuple(found)


def _test_line(failure: str, test: str) -> str:
    """The line of the test's own file that failed: where in the package it happened is not told."""
    code, own = "", False
    for line in failure.splitlines():
        if place := re.match(r"(\S+):\d+: in ", line):
            own = place[1] == test.partition("::")[0]
        elif own and line.startswith("    ") and line.strip()[:1] not in "^~":
            code, own = line.strip(), False
    return code


# ---- many at once -------------------------------------------------------------------------------------------------------


def singles(base: Baseline, seed: int) -> Iterator[list[Site]]:
    """Every site once, in an order that hangs on `seed` alone. Sites that few tests reach come first: they are verified
    soonest, and they are the more hidden ones."""
    found = list(base.sites.values())
    random.Random(f"{seed}/{base.package.name}").shuffle(found)
    found.sort(key=lambda site: len(_reaching(base, [site]) or base.tests) > FEW)
    yield from ([site] for site in found)


def compounds(base: Baseline, material: Sequence[Generated], count: int, seed: str) -> Iterator[list[Site]]:
    """Sets of `count` bugs, each a task by itself, in an order that hangs on `seed` alone: in different functions, each with
    a failing test of its own, together within `SHARE`. By turns bugs that meet in a test, which fails until all that it
    meets are mended, and bugs that do not."""
    known = [(base.sites[digest(task.bugs)], frozenset(task.fail_to_pass)) for task in material]
    found = [chosen for chosen in combinations(known, count) if _fit(base, chosen)]
    random.Random(f"{seed}/{base.package.name}/{count}").shuffle(found)
    meeting = [chosen for chosen in found if _meet(chosen)]
    others = [chosen for chosen in found if not _meet(chosen)]
    for pair in zip_longest(meeting, others):
        yield from ([site for site, _ in chosen] for chosen in pair if chosen is not None)


def _fit(base: Baseline, chosen: Sequence[tuple[Site, frozenset[str]]]) -> bool:
    sites, failing = zip(*chosen)
    counts = Counter(test for tests in failing for test in tests)
    return (
        len({(path, bug.function) for path, bug in sites}) == len(sites)
        and len(counts) <= SHARE * len(base.tests)
        and all(any(counts[test] == 1 for test in tests) for tests in failing)
        and not _overlap(sites)
    )


def _meet(chosen: Sequence[tuple[Site, frozenset[str]]]) -> bool:
    """Whether each has a failing test in common with another one."""
    counts = Counter(test for _, tests in chosen for test in tests)
    return all(any(counts[test] > 1 for test in tests) for _, tests in chosen)


def _overlap(chosen: Sequence[Site]) -> bool:
    spans = sorted((path, start, end) for path, bug in chosen for start, end, _ in bug.edits)
    return any(one[0] == two[0] and two[1] < one[2] for one, two in zip(spans, spans[1:]))


def name_of(candidate: Iterable[Site]) -> str:
    """The digest that the task of these bugs has."""
    return digest(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in candidate)
