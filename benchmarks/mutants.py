"""Mutation testing: changes one operator or constant of the code at a time and runs the tests that cover its line.

    python -m benchmarks.mutants map harness/rollout --tests tests/harness/test_rollout.py  # which tests run which
    python -m benchmarks.mutants run harness/rollout --sample 20          # folder, PATH, PATH:LINE, PATH:FIRST-LAST
    python -m benchmarks.mutants run --changed main                       # lines that differ from a revision
    python -m benchmarks.mutants run --draw lm=40 --draw engines=60       # random mutants of whole areas
    python -m benchmarks.mutants table --journal benchmarks/mutants.jsonl --markdown benchmarks/mutants.md

All of it happens in a copy of the tracked files, without ../shared. Verdicts are appended to a journal, and a later
`run` skips mutants that it holds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import mutant_swap
from benchmarks.mutant_map import Recorder, instrument
from benchmarks.mutant_operators import AREAS, ROOT, Mutant, chosen, drawn

SUBPROCESSES = {
    "envsuite/sandbox/inside/": ("tests/sandbox/test_archive.py", "tests/sandbox/test_session.py"),
}
"""tests of code that runs in child processes, which probes do not see"""
MOST_SECONDS = 20.0
"""planned duration of the tests of one mutant, shortest first"""
LONGEST_TEST = 10
"""seconds after which a test is stopped while the map is made, so that no mutant runs it"""
LONG_AGO = 1_500_000_000
"""modification time of unchanged files, so that Python never uses the compiled file of another version"""

# ---- running tests --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def clone() -> Iterator[Path]:
    """Makes a copy of the tracked files without golden data."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        folder = Path(scratch, "main")
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in names.decode().split("\0")[:-1]:
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
                os.utime(folder / name, (LONG_AGO, LONG_AGO))
        os.environ.update(
            ENVSUITE_SHARED=str(Path(scratch, "nothing")), PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1",
            OMP_NUM_THREADS="1", ENVSUITE_CACHE=str(Path(scratch, "cache")),
        )  # fmt: skip
        os.environ.pop("CI", None)
        yield folder


def in_child(
    folder: Path,
    tests: Sequence[str],
    seconds: float,
    plugin: Any = None,
    prepare: Callable[[], object] = mutant_swap.forget,
) -> str:
    """Runs tests in a forked process after `prepare()`: returns 'passed', 'failed', 'timeout' or 'none'."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(quiet, stream)
            enter(folder)
            sys.dont_write_bytecode = True
            try:
                prepare()
            except ValueError:  # the change uses other variables of the scope around, so no code can be swapped
                mutant_swap.forget()
            import pytest

            mapping = [f"--timeout={LONGEST_TEST}", "-o", "timeout_func_only=true"]
            options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *(mapping if plugin else ["-x"])]
            code = int(pytest.main([*options, *tests], plugins=[plugin] if plugin else []))
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return {0: "passed", 5: "none"}.get(code, "failed")
            time.sleep(0.02)
        return "timeout"
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(child, signal.SIGKILL)  # also what the tests started and left running
            os.waitpid(child, 0)


def enter(folder: Path) -> None:
    """Makes this process import the copy in `folder` instead of this checkout."""
    os.chdir(folder)
    sys.path[:] = [str(folder), *(entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, folder))]


def collect(files: Sequence[str]) -> None:
    """Imports files of tests, and all that they need, into this process."""
    import pytest

    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files])


def make_map(tests: Sequence[str], mutants: Sequence[Mutant], folder: Path, seconds: float) -> None:
    """Writes the map of each file of tests; files that have one are skipped."""
    folder.mkdir(parents=True, exist_ok=True)

    def output(file: str) -> Path:
        return folder / f"{file.replace('/', '.')}.json"

    waiting = [file for file in tests if not output(file).exists()]
    with clone() as copy:
        instrument(copy, mutants, Path.write_bytes)
        outcome = in_child(copy, waiting, seconds, Lazy(output)) if waiting else "none"
    print(f"{outcome}: {sum(output(file).exists() for file in tests)} of {len(tests)} files of tests have a map")


class Lazy:
    """A pytest plugin that makes the Recorder inside the child, before any module of the project is imported."""

    def __init__(self, output: Callable[[str], Path]) -> None:
        self._output = output

    def pytest_configure(self, config: Any) -> None:
        config.pluginmanager.register(Recorder(self._output))


class Covering:
    """The tests that cover a line, shortest first."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self._lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._files: dict[str, set[str]] = defaultdict(set)
        """tests that run any line of a file: those for lines that run once, when the module is imported"""
        for file in sorted(folder.glob("*.json")):
            table = json.loads(file.read_text())
            self.seconds.update(table["seconds"])
            for path, lines in table["lines"].items():
                for line, tests in lines.items():
                    self._lines[path, int(line)].update(tests)
                    self._files[path].update(tests)

    def _importing(self, path: str) -> set[str]:
        """Returns the tests of the files that import a module."""
        package, _, name = path.removesuffix(".py").replace("/", ".").rpartition(".")
        statement = re.compile(rf"{re.escape(package)}(\.| import .*\b){name}\b")
        return {test for test in self.seconds if statement.search((ROOT / test.partition("::")[0]).read_text())}

    def tests(self, mutant: Mutant) -> list[str]:
        covering = self._lines[mutant.path, mutant.line] if mutant.in_function else self._files[mutant.path]
        if not covering and not mutant.in_function:  # a module that only defines constants and classes
            covering = self._importing(mutant.path)
        tests = sorted(covering, key=lambda test: (self.seconds[test], test))
        within: list[str] = []
        total = 0.0
        for test in tests:
            total += self.seconds[test] + 0.02
            if total > MOST_SECONDS and within:
                break
            within.append(test)
        more = [file for prefix, files in SUBPROCESSES.items() if mutant.path.startswith(prefix) for file in files]
        return within + more


def run(mutants: Sequence[Mutant], maps: Path, journal: Path, seconds: float) -> None:
    """Runs mutants until `seconds` are over; appends a line to the journal for each."""
    covering = Covering(maps)
    done = {row["name"] for row in rows(journal)}
    end = time.monotonic() + seconds
    waiting = [(mutant, covering.tests(mutant)) for mutant in mutants if mutant.name not in done]
    with clone() as copy, journal.open("a") as file:
        enter(copy)
        collect(sorted({test.partition("::")[0] for _, tests in waiting for test in tests}))
        for mutant, tests in waiting:
            planned = sum(covering.seconds.get(test, 30.0) for test in tests)
            if time.monotonic() + 2 * planned + 2 > end:
                print("time is over: run the command again for the rest")
                break
            target = copy / mutant.path
            source = (ROOT / mutant.path).read_bytes()
            changed = mutant.applied(source)
            prepare: Callable[[], object] = mutant_swap.forget
            if mutant.in_function:
                functions = mutant_swap.functions_of(target)
                prepare = functools.partial(mutant_swap.swap, functions, source, changed, target)
            began = time.monotonic()
            try:
                target.write_bytes(changed)  # for processes that the tests start
                outcome = in_child(copy, tests, 4 * planned + 10, prepare=prepare) if tests else "none"
            finally:
                target.write_bytes(source)
                os.utime(target, (LONG_AGO, LONG_AGO))
            verdict = {"passed": "survived", "none": "not covered", "failed": "killed", "timeout": "killed"}[outcome]
            row = {"name": mutant.name, "area": mutant.area, "verdict": verdict, "tests": len(tests)}
            if outcome == "timeout":
                row["note"] = "timeout"
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            print(f"{verdict:11} {time.monotonic() - began:5.1f} s {len(tests):3} tests  {mutant.name}", flush=True)


# ---- results --------------------------------------------------------------------------------------------------------


def rows(journal: Path) -> list[dict[str, Any]]:
    """Returns the journal's rows; a later row replaces an earlier one of the same mutant."""
    if not journal.exists():
        return []
    read = [json.loads(line) for line in journal.read_text().splitlines()]
    return list({row["name"]: row for row in read}.values())


def outcome_of(row: dict[str, Any]) -> str:
    """Returns 'killed', 'equivalent', 'killed later' (by a test that was added), or 'alive'."""
    if row["verdict"] == "killed":
        return "killed"
    if "equivalent" in row:
        return "equivalent"
    return "killed later" if "killed_by" in row else "alive"


def table(journal: Path) -> str:
    """Returns the counts per area and the survivors as Markdown.

    A row's `equivalent` states why no test can fail, and `killed_by` names a test that was added.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows(journal):
        counts[row["area"]][outcome_of(row)] += 1
    lines = ["| area | mutants | equivalent | killed at first | killed by added tests | alive | at first | now |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    total = Counter[str]()
    for area, count in [*sorted(counts.items()), ("all", total)]:
        total += count if count is not total else Counter()
        decided = count.total() - count["equivalent"]
        shares = [
            f"{100 * killed / decided:.0f} %" if decided else "–"
            for killed in (count["killed"], count["killed"] + count["killed later"])
        ]
        numbers = [count.total(), *(count[name] for name in ("equivalent", "killed", "killed later", "alive")), *shares]
        lines.append(f"| {area} | {' | '.join(map(str, numbers))} |")
    titles = {"killed later": "Killed by added tests", "alive": "Alive", "equivalent": "Equivalent"}
    for outcome, title in titles.items():
        listed = [row for row in rows(journal) if outcome_of(row) == outcome]
        lines += ["", f"{title}:", ""] if listed else []
        for row in listed:
            reason = row.get("equivalent") or row.get("killed_by") or row.get("note", row["verdict"])
            lines.append(f"- `{' '.join(row['name'].split())}`: {reason}")
    return "\n".join(lines) + "\n"


HEAD = """# Mutants

One operator, constant, condition or call of the code is changed at a time, and the tests that cover its line run: a
test that fails kills the mutant. An equivalent mutant behaves as the code does, so no test can kill it. All runs were
in a copy of the repository without golden data beside it. `make mutants` changes the lines that differ from main.

These are 288 of 300 planned mutants. The first 82 are random lines of 10 modules, some of whose tests were new:
`harness/policies`, `harness/waiting.py`, `harness/prompting/messages.py` and `envsuite/sandbox/packages.py`. The
others were drawn with seed 26 among all modules of an area, old and new: lm (40), policies (15), baselines (38),
engines (57 of 60), sandbox (18 of 25) and harness (40). Two of them were among the first 82 as well. The tests of the
other 10 did not end in time on a busy machine, needed Docker, or did not start.

Tests that take longer than 10 seconds did not run, nor did tests that play in several processes; a mutant that only
they could kill counts as alive, as does one that no test covers. For engines, sandbox and harness, modules without a
map were tested with files of tests chosen by hand. "At first" is before any test was added for these mutants; "now"
counts a test that was added only where it has run against its mutant. Three numbers of system calls ran against the
added test alone. Line numbers are those of the commit on which a mutant ran. `benchmarks/mutants.jsonl` holds the
verdicts.

"""


def area_and_count(word: str) -> tuple[str, int]:
    """Parses AREA=COUNT."""
    area, _, count = word.partition("=")
    if area not in AREAS.values() or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not AREA=COUNT with an area of {', '.join(AREAS.values())}")
    return area, int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["map", "run", "table"])
    parser.add_argument("paths", nargs="*", help="the mutants of modules or folders, PATH:LINE, PATH:FIRST-LAST")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="map: files of tests")
    parser.add_argument("--changed", default="", metavar="REV", help="those of lines that differ from a revision")
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants of each path (default all)")
    parser.add_argument("--draw", type=area_and_count, action="append", default=[], metavar="AREA=COUNT",
                        help=f"random mutants of an area: {', '.join(AREAS.values())}")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--seconds", type=float, default=240.0, help="stop before this time is over")
    parser.add_argument("--maps", type=Path, default=ROOT / "build" / "mutants", help="folder of the maps")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "mutants" / "journal.jsonl")
    parser.add_argument("--markdown", type=Path, help="table: the page to write")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the blocks that clean up
    mutants = [mutant for area, count in args.draw for mutant in drawn(area, count, args.seed)]
    if args.verb != "table":
        for group in [[path] for path in args.paths] + ([[]] if args.changed else []):
            sample = chosen(group, "" if group else args.changed)
            random.Random(args.seed).shuffle(sample)
            mutants += sample[: args.sample or None]
    if args.verb == "map":
        make_map(args.tests, mutants, args.maps, args.seconds)
    elif args.verb == "run":
        run(mutants, args.maps, args.journal, args.seconds)
    else:
        text = HEAD + table(args.journal)
        print(text) if args.markdown is None else args.markdown.write_text(text)


if __name__ == "__main__":
    main()
