"""Making tasks: plant a bug, run the tests, keep what is a fair task.

A mutant is kept only if some tests that pass on the sound package fail on it, at most `SHARE` of them, the rest still
pass, and the same tests fail in three runs, in three processes that put sets in different orders: the tests that reach a
changed line (they decide soon that a mutant survives), the whole suite as the judge runs it, and the failing tests alone,
with their failures explained for the problem statement. The gold patch restores the published file to the byte, and the
published package passes: that is the baseline. A compound of two or three bugs is kept only if each of them is needed:
without it fewer tests fail, and some still do. Compounds are made of bugs that are tasks already, every other one of bugs
that a test has in common, so that they interact.

Source: SWE-smith (Yang et al., 2025) for the idea; the operators and the verification are our own.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, zip_longest

from envsuite.envs.swegym import operators, packages, suite, tampering
from envsuite.envs.swegym.tasks import Generated, Planted, Symptom, digest, plant
from envsuite.errors import DataError
from envsuite.sandbox.pool import Pool

SHARE = 0.4
"""a bug that breaks more of the tests is no search any more"""
FEW = 30
SYMPTOMS = 3
MATERIAL = 60
"""a package's first tasks of one bug, which compounds are made of"""
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

    def reaching(self, path: str, first: int, last: int) -> list[str] | None:
        """The tests that run one of these lines; None where importing the package does, so that any test may."""
        found: set[str] = set()
        for number in range(first, last + 1):
            found.update(self.lines.get(path, {}).get(str(number), ()))
        return None if "" in found else sorted(found & self.known)

    def distance(self, path: str, top: int, failing: Iterable[str]) -> int:
        per_test = self.hops.get(path, {}).get(str(top), {})
        return min((per_test[test] for test in failing if test in per_test), default=1)


def baseline(pools: Sequence[Pool], name: str) -> Baseline:
    """Runs the sound package in each of the three pools, in the last one traced; keeps tests that pass each time.

    A test whose parameters are called differently from process to process (they come from a set) is left out. Raises
    DataError.
    """
    chosen = packages.package(name)
    runs = [suite.run(pool, chosen, packages.tree(name), seconds=120, trace=pool is pools[-1]) for pool in pools]
    for one in runs:
        if one.fate != "exited" or not one.statuses:
            raise DataError(
                f"The tests of {chosen.title} do not run here ({one.fate}, pytest's exit code {one.exit_code})."
            )
    seen = [set(one.statuses) for one in runs]
    by_chance = {test.partition("[")[0] for test in set.union(*seen) - set.intersection(*seen)}
    passing = [{test for test, status in one.statuses.items() if status == "PASSED"} for one in runs]
    stable = sorted(
        test
        for test in set.intersection(*passing)
        if not _ADDRESS.search(test) and test.partition("[")[0] not in by_chance
    )
    trace = runs[-1].trace
    return Baseline(chosen, stable, trace["lines"], trace["hops"], max(one.seconds for one in runs[:-1]))


def sites(base: Baseline) -> list[Site]:
    """Every bug that some test reaches."""
    found: dict[tuple[str, tuple[operators.Edit, ...]], Site] = {}
    for path, text in packages.tree(base.package.name).items():
        if path.endswith(".py") and packages.is_code(base.package, path):
            for bug in operators.bugs(text):
                reaching = base.reaching(path, *_lines(text, bug))
                if reaching is None or reaching:
                    found.setdefault((path, bug.edits), (path, bug))  # two operators may come to the same
    return list(found.values())


def _lines(text: str, bug: operators.Bug) -> tuple[int, int]:
    data = text.encode()
    first = data[: min(start for start, _, _ in bug.edits)].count(b"\n") + 1
    last = data[: max(end for _, end, _ in bug.edits)].count(b"\n") + 1
    return min(first, bug.line), max(last, bug.line)


class Rejected(Exception):
    """The mutant is no task; the message is the reason's name."""


def verify(pools: Sequence[Pool], base: Baseline, bugs: Sequence[Site]) -> Generated:
    """The task of these bugs. `pools`: three, see `suite.pools`. Raises Rejected."""
    name, sound = base.package.name, packages.tree(base.package.name)
    planted = tuple(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in bugs)
    files = _plant(sound, planted)
    if tampering.reaches(files, sound):
        raise Rejected("its fix would be refused")
    reaching = _reaching(base, bugs)
    asked = base.known if reaching is None else frozenset(reaching)
    first = _failing(pools[0], base, files, reaching)
    failing = _failing(pools[1], base, files, None)
    if failing & asked != first:
        raise Rejected("unstable")
    explained = suite.run(pools[2], base.package, files, sorted(failing), _patience(base), explain=True)
    if explained.fate != "exited" or _failed(explained, failing) != failing:
        raise Rejected("unstable")
    if len(planted) > 1:
        _each_needed(pools[0], base, planted, failing)
    hops = min(base.distance(path, bug.top, failing) for path, bug in bugs)
    keep = tuple(test for test in base.tests if test not in failing)
    return Generated(name, planted, tuple(sorted(failing)), keep, hops, _symptoms(failing, explained.failures))


def _reaching(base: Baseline, bugs: Iterable[Site]) -> list[str] | None:
    """The tests that reach one of these bugs; None where any may."""
    sound, found = packages.tree(base.package.name), set()
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
    return max(4.0, 4 * base.seconds)


def _failing(pool: Pool, base: Baseline, files: dict[str, str], only: list[str] | None) -> frozenset[str]:
    """The baseline tests that fail now. Raises Rejected for what is no fair task."""
    run = suite.run(pool, base.package, files, only, _patience(base))
    if run.fate != "exited":
        raise Rejected("hangs" if run.fate == "timeout" else "crashes")
    if run.uncollected or run.exit_code > 1:
        raise Rejected("breaks everything")
    failing = _failed(run, base.known if only is None else frozenset(only))
    if not failing:
        raise Rejected("survives")
    if len(failing) > SHARE * len(base.tests):
        raise Rejected("breaks too much")
    return failing


def _failed(run: suite.Run, asked: frozenset[str]) -> frozenset[str]:
    return frozenset(test for test in asked if run.statuses.get(test) not in ("PASSED", "XFAIL"))


def _each_needed(pool: Pool, base: Baseline, planted: tuple[Planted, ...], failing: frozenset[str]) -> None:
    sound = packages.tree(base.package.name)
    for left_out in planted:
        files = plant(sound, [bug for bug in planted if bug is not left_out])
        run = suite.run(pool, base.package, files, sorted(failing), _patience(base))
        still = _failed(run, failing)
        if run.fate != "exited" or not still or still == failing:
            raise Rejected("a bug is not needed")


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
    found = sites(base)
    random.Random(f"{seed}/{base.package.name}").shuffle(found)
    found.sort(key=lambda site: len(_reaching(base, [site]) or base.tests) > FEW)
    yield from ([site] for site in found)


def compounds(base: Baseline, material: Sequence[Generated], count: int, seed: int) -> Iterator[list[Site]]:
    """Sets of `count` bugs, each a task by itself, in an order that hangs on `seed` alone: in different functions, each with
    a failing test of its own, together within `SHARE`. By turns bugs that meet in a test, which fails until all that it
    meets are mended, and bugs that do not."""
    by_digest = {name_of([site]): site for site in sites(base)}
    known = [(by_digest[digest(task.bugs)], frozenset(task.fail_to_pass)) for task in material]
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


def verified(
    pools: Sequence[Pool], base: Baseline, tried: Iterable[list[Site]], threads: ThreadPoolExecutor
) -> Iterator[tuple[list[Site], Generated | str]]:
    """Verifies on all sandboxes at once: (bugs, task or the reason against it), in the order of `tried`."""

    def attempt(candidate: list[Site]) -> tuple[list[Site], Generated | str]:
        try:
            return candidate, verify(pools, base, candidate)
        except Rejected as rejected:
            return candidate, str(rejected)

    source = iter(tried)
    waiting = [threads.submit(attempt, candidate) for candidate in islice(source, pools[0].size)]
    try:
        while waiting:
            answer = waiting.pop(0).result()
            waiting += [threads.submit(attempt, candidate) for candidate in islice(source, 1)]
            yield answer
    finally:
        for future in waiting:
            future.cancel()
