"""Search for real bugs in a pair of releases: tests that the changes of the code repair, and the fewest
hunks that do it.

The new release's changed test modules run on the old code and on the new code, twice each, in
processes with different hash seeds. A test that fails on the old code and passes on the new one is *repaired*. For
each repaired test, delta debugging finds a smallest set of hunks with which it passes, beginning
with the hunks that the test executes. The candidate is kept if these hunks break no test that passes
on both releases. Other repaired tests that pass with the same hunks belong to the same candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.makers.findings import TracedSymptom, traced
from envsuite.envs.swegym.makers.hunks import FileHunk, apply, new_lines
from envsuite.envs.swegym.makers.reduction import OutOfBudget, minimise
from envsuite.envs.swegym.makers.releases import Hopeless, ReleasePair
from envsuite.errors import DataError, EngineFailure
from envsuite.sandbox.pool import Pool

CHECKS = 25
"""runs of one test, at most, in the search for a smallest set of hunks"""
MOST_HUNKS = 600
MOST_LINES = 150
"""changed lines of a candidate"""
CANDIDATES = 8
"""candidates of one pair"""
TRIES = 10
"""repaired tests of one pair from which the search starts"""
MISSES = 3
"""tests in a row without a candidate, after which a pair is left: the release rewrote too much"""
_EXPLAINED = 12
_CAUSE = 100
"""characters of the error that a reason quotes"""


@dataclass(frozen=True)
class BugCandidate:
    """Hunks that repair tests and break none."""

    pair: ReleasePair
    hunks: tuple[FileHunk, ...]
    repaired: tuple[str, ...]
    symptoms: tuple[TracedSymptom, ...]
    stable: tuple[str, ...]
    """tests that pass on both releases, and with the hunks"""

    @property
    def changes(self) -> dict[str, str | None]:
        return apply(self.pair.old.code, self.hunks)


@dataclass
class Search:
    """Searches one pair; `rejected` counts the reasons for which tests gave no candidate."""

    pair: ReleasePair
    pools: Sequence[Pool]
    """two pools with different hash seeds"""
    seconds: float = 30.0
    """that one run of a suite may take"""
    stopped: Callable[[], bool] = lambda: False
    """True once the command is being ended: the next run of tests raises EngineFailure"""
    rejected: Counter[str] = field(default_factory=Counter)
    repaired: list[str] = field(default_factory=list)
    stable: frozenset[str] = frozenset()
    """tests that pass on both releases in every run"""

    def candidates(self) -> Iterator[BugCandidate]:
        """Yields candidates that share no hunk. Raises DataError if no test qualifies."""
        self._compare()
        used: set[FileHunk] = set()
        waiting = list(self.repaired)
        tries = yielded = misses = 0
        while waiting and yielded < CANDIDATES:
            if tries >= TRIES or misses >= MISSES:
                self.rejected["not tried"] += len(waiting)
                return
            test, tries = waiting[0], tries + 1
            smallest = self._smallest(test)
            if isinstance(smallest, str):
                self.rejected[smallest] += 1
                misses += 1
                function = test.partition("[")[0]
                waiting = [name for name in waiting if name.partition("[")[0] != function]
                continue
            hunks, repaired = smallest
            waiting = [name for name in waiting if name not in repaired and name != test]
            if used & set(hunks):
                self.rejected["shares hunks with another"] += 1
                continue
            used |= set(hunks)
            yielded, misses = yielded + 1, 0
            yield BugCandidate(self.pair, hunks, tuple(repaired), self.symptoms(repaired), tuple(sorted(self.stable)))

    def _run(
        self,
        hunks: Sequence[FileHunk],
        only: Sequence[str] | None,
        number: int = 0,
        explain: bool = False,
        trace: bool = False,
        modules: Sequence[str] = (),
    ) -> suite.SuiteRun:
        if self.stopped():
            raise EngineFailure("the search was stopped")
        files = dict(self.pair.base)
        for path, text in apply(self.pair.old.code, hunks).items():
            if text is None:
                files.pop(path, None)
            else:
                files[path] = text
        package = replace(self.pair.new.package, tests=tuple(modules)) if modules else self.pair.new.package
        job = suite.SuiteJob(package, files, only, self.seconds, "whole" if explain else "", trace)
        return suite.run(self.pools[number], job)

    def _compare(self) -> None:
        """Finds the repaired tests. Raises DataError with the reason if there are none.

        Most pairs have none, so the modules that changed run first, and the whole suite only if it is needed.
        """
        hunks, modules = self.pair.hunks, self.pair.changed_modules
        before = self._ended(self._run([], None, modules=modules))
        failing = {test for test, status in before.statuses.items() if status in ("FAILED", "ERROR")}
        if before.uncollected:
            self.rejected["test file cannot be imported on the old code"] += len(before.uncollected)
        if not failing and not before.uncollected:
            raise DataError("no test that fails on the old code passes on the new one")
        after = self._ended(self._run(hunks, None, modules=modules))
        if "PASSED" not in after.statuses.values():
            raise Hopeless(f"the new tests do not run: {_cause(after)}")
        repaired = sorted(_passing(after) & failing)
        suspects = [test for test in repaired if self.pair.is_run(test.partition("::")[0])]
        if moved := len(repaired) - len(suspects):
            self.rejected["the test module moved"] += moved
        if not suspects:
            raise DataError("no test that fails on the old code passes on the new one")
        if len(hunks) > MOST_HUNKS:
            raise DataError("the code changed too much")
        again = self._run([], None, 1, modules=modules), self._run(hunks, None, 1, modules=modules)
        passing = _passing(again[1])
        self.repaired = [
            test for test in suspects if test in passing and again[0].statuses.get(test) in ("FAILED", "ERROR")
        ]
        if unstable := len(suspects) - len(self.repaired):
            self.rejected["unstable"] += unstable
        if self.repaired:
            stable = _passing(before) & _passing(after)
            complete = self._ended(self._run([], None)), self._ended(self._run(hunks, None))
            unchanged = {test for test in _passing(complete[0]) & _passing(complete[1]) if test not in before.statuses}
            self.stable = frozenset((stable & _passing(again[0]) & passing) | unchanged)

    def _ended(self, run: suite.SuiteRun) -> suite.SuiteRun:
        """Returns a run that ended by itself. Raises Hopeless."""
        if run.fate == "timeout":
            raise Hopeless(f"the suite takes more than {self.seconds:g} s")
        if run.fate != "exited":
            raise Hopeless(f"the new tests do not run: {_cause(run)}")
        return run

    def _smallest(self, test: str) -> tuple[tuple[FileHunk, ...], list[str]] | str:
        """Returns the hunks for a test and all tests they repair, or the reason why there are none."""
        required = [test]
        for _ in range(2):

            def passes(hunks: frozenset[FileHunk], required: Sequence[str] = tuple(required)) -> bool:
                statuses = self._run(sorted(hunks, key=_position), required).statuses
                return all(statuses.get(name) == "PASSED" for name in required)

            narrowed = self._executed(required)
            chosen = next((hunks for hunks in narrowed if passes(frozenset(hunks))), self.pair.hunks)
            try:
                hunks = minimise(chosen, passes, CHECKS, group=lambda hunk: hunk.path)
            except OutOfBudget:
                return "no small set of hunks within the budget"
            if sum(hunk.size for hunk in hunks) > MOST_LINES:
                return "patch too large"
            run = self._run(hunks, None)
            passing = _passing(run)
            if test not in passing:
                return "unstable"
            broken = sorted(self.stable - passing)
            if not broken:
                return tuple(hunks), [name for name in self.repaired if name in passing]
            required += broken[:20]
        return "breaks other tests"

    def _executed(self, tests: Sequence[str]) -> list[list[FileHunk]]:
        """Returns two sets of hunks that probably suffice for tests: hunks with a line that they execute, and in
        addition hunks that the import executes.

        Either spares most of the checks that delta debugging needs if it begins with all hunks.
        """
        executed = self._run(self.pair.hunks, tests, trace=True).lines
        numbers = new_lines(self.pair.hunks)

        def touched(hunk: FileHunk, names: set[str]) -> bool:
            lines = executed.get(hunk.path, {})
            return any(names.intersection(lines.get(str(number), ())) for number in numbers[hunk])

        sets = [[hunk for hunk in self.pair.hunks if touched(hunk, names)] for names in ({*tests}, {*tests, ""})]
        return [hunks for hunks in sets if hunks and len(hunks) < len(self.pair.hunks)]

    def symptoms(self, repaired: Sequence[str]) -> tuple[TracedSymptom, ...]:
        """Returns the errors of repaired tests on the old code."""
        run = self._run([], repaired[:_EXPLAINED], explain=True)
        return traced(repaired[:_EXPLAINED], run.failures)


def _cause(run: suite.SuiteRun) -> str:
    """Returns why no test of a run passed: the error of a test file that cannot be imported, or pytest's last line."""
    for text in run.uncollected.values():
        if errors := [line[1:].strip() for line in text.splitlines() if line.startswith("E  ")]:
            return errors[0][:_CAUSE]
        if lines := text.strip().splitlines():
            return lines[-1].strip()[:_CAUSE]
    failed = Counter(status for status in run.statuses.values())
    counts = ", ".join(f"{count} {status.lower()}" for status, count in failed.most_common())
    return (run.message or counts or f"pytest collects none (exit code {run.exit_code})")[:_CAUSE]


def _passing(run: suite.SuiteRun) -> set[str]:
    return {test for test, status in run.statuses.items() if status == "PASSED"}


def _position(hunk: FileHunk) -> tuple[str, int]:
    return hunk.path, hunk.start
