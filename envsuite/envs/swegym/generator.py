"""Making tasks: plant a bug, run the tests, keep what is a fair task.

A mutant is kept only if some tests that pass on the sound package fail on it, at most `SHARE` of them, the rest still
pass, and the same tests fail in three runs: two of the tests that reach a changed line (all tests, where importing the
package does), and one of the failing tests alone, with their failures explained for the problem statement. Tests that run no
changed line cannot tell the mutant from the sound package; `whole` runs them too, and `make swe-proof` does so for a
sample. The gold patch restores the published file to the byte, and the published package passes: that is the baseline. A compound of two or three bugs is kept only if each of them is
needed: without it fewer tests fail, and some still do.

Source: SWE-smith (Yang et al., 2025) for the idea; the operators and the verification are our own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from envsuite.envs.swegym import operators, packages, suite
from envsuite.envs.swegym.tasks import Generated, Planted, Symptom, digest, plant
from envsuite.errors import DataError
from envsuite.sandbox.pool import Pool

SHARE = 0.4
"""a bug that breaks more of the tests is no search any more"""
FEW = 30
SYMPTOMS = 3
_TOLD = 600
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


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


def baseline(pool: Pool, name: str) -> Baseline:
    """Runs the sound package three times, the last one traced; keeps tests that pass each time. Raises DataError."""
    chosen = packages.package(name)
    runs = [suite.run(pool, chosen, packages.tree(name), seconds=120, trace=k == 2) for k in range(3)]
    for one in runs:
        if one.fate != "exited" or not one.statuses:
            raise DataError(
                f"The tests of {chosen.title} do not run here ({one.fate}, pytest's exit code {one.exit_code})."
            )
    passing = [{test for test, status in one.statuses.items() if status == "PASSED"} for one in runs]
    stable = sorted(test for test in set.intersection(*passing) if not _ADDRESS.search(test))
    trace = runs[2].trace
    return Baseline(chosen, stable, trace["lines"], trace["hops"], max(one.seconds for one in runs[:2]))


def sites(base: Baseline) -> list[tuple[str, operators.Bug]]:
    """Every bug that some test reaches, as (path, bug)."""
    found = []
    for path, text in packages.tree(base.package.name).items():
        if path.endswith(".py") and packages.is_code(base.package, path):
            for bug in operators.bugs(text):
                reaching = base.reaching(path, *_lines(text, bug))
                if reaching is None or reaching:
                    found.append((path, bug))
    return found


def _lines(text: str, bug: operators.Bug) -> tuple[int, int]:
    data = text.encode()
    first = data[: min(start for start, _, _ in bug.edits)].count(b"\n") + 1
    last = data[: max(end for _, end, _ in bug.edits)].count(b"\n") + 1
    return min(first, bug.line), max(last, bug.line)


class Rejected(Exception):
    """The mutant is no task; the message is the reason's name."""


def verify(pool: Pool, base: Baseline, bugs: Sequence[tuple[str, operators.Bug]], whole: bool = False) -> Generated:
    """The task of these bugs. `whole`: every run is of all tests. Raises Rejected."""
    name, sound = base.package.name, packages.tree(base.package.name)
    planted = tuple(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in bugs)
    files = _plant(sound, planted)
    reaching: set[str] | None = set()
    for path, bug in bugs:
        reached = base.reaching(path, *_lines(sound[path], bug))
        reaching = None if reached is None or reaching is None else reaching | set(reached)
    only = None if reaching is None or whole else sorted(reaching)
    first = _failing(pool, base, files, only)
    if _failing(pool, base, files, only) != first:
        raise Rejected("unstable")
    explained = suite.run(pool, base.package, files, sorted(first), _patience(base), explain=True)
    if explained.fate != "exited" or _failed(explained, first) != first:
        raise Rejected("unstable")
    if len(planted) > 1:
        _each_needed(pool, base, planted, first)
    hops = min(base.distance(path, bug.top, first) for path, bug in bugs)
    keep = tuple(test for test in base.tests if test not in first)
    failing = tuple(sorted(first))
    return Generated(name, planted, failing, keep, hops, _symptoms(failing, explained.failures))


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
    return max(10.0, 4 * base.seconds)


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


def _symptoms(failing: tuple[str, ...], failures: dict[str, str]) -> tuple[Symptom, ...]:
    """What up to three of the failing tests say, one per test function where there are as many."""
    by_function: dict[str, str] = {}
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

Candidate = list[tuple[str, operators.Bug]]


def candidates(base: Baseline, count: int, seed: int, tries: int = 400) -> Iterator[Candidate]:
    """Bugs to try, in an order that hangs on `seed` alone: every site once, or `tries` draws of `count` bugs in different
    functions. Sites that few tests reach come first: they are verified soonest, and they are the more hidden ones."""
    found = sites(base)
    if count == 1:
        random.Random(f"{seed}/{base.package.name}").shuffle(found)
        found.sort(key=lambda site: _reached(base, *site) > FEW)
        yield from ([site] for site in found)
        return
    found = [site for site in found if _reached(base, *site) <= FEW]  # or together they break too much
    chance = random.Random(f"{seed}/{base.package.name}/{count}")
    for _ in range(tries):
        chosen = chance.sample(found, min(count, len(found)))
        if len({(path, bug.function) for path, bug in chosen}) == count and not _overlap(chosen):
            yield chosen


def _reached(base: Baseline, path: str, bug: operators.Bug) -> int:
    reaching = base.reaching(path, *_lines(packages.tree(base.package.name)[path], bug))
    return len(base.tests) if reaching is None else len(reaching)


def _overlap(chosen: Candidate) -> bool:
    spans = sorted((path, start, end) for path, bug in chosen for start, end, _ in bug.edits)
    return any(one[0] == two[0] and two[1] < one[2] for one, two in zip(spans, spans[1:]))


def name_of(candidate: Candidate) -> str:
    """The digest that the task of these bugs has."""
    return digest(Planted(path, bug.operator, bug.function, bug.line, bug.edits) for path, bug in candidate)


def verified(pool: Pool, base: Baseline, tried: Iterable[Candidate]) -> Iterator[tuple[str, Generated | str]]:
    """Verifies on all sandboxes of the pool at once: (digest, task or the reason against it), in the order of `tried`."""

    def attempt(candidate: Candidate) -> tuple[str, Generated | str]:
        try:
            return name_of(candidate), verify(pool, base, candidate)
        except Rejected as rejected:
            return name_of(candidate), str(rejected)

    source = iter(tried)
    with ThreadPoolExecutor(pool.size) as threads:
        waiting = [threads.submit(attempt, candidate) for candidate in islice(source, pool.size)]
        try:
            while waiting:
                answer = waiting.pop(0).result()
                waiting += [threads.submit(attempt, candidate) for candidate in islice(source, 1)]
                yield answer
        finally:
            for future in waiting:
                future.cancel()
