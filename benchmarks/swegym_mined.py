"""Mined instances of SWE-Gym: the yield of mining, the shipped list, and the verdicts of a sample.

    `python -m benchmarks.swegym_mined [--mined FOLDER ...] [--sample 12] [--markdown FILE]`

`--mined` reads the journals of `envsuite swe mine`, adds their instances to the shipped list (at most 3 MB) and
writes the yield per package (`benchmarks/swegym_mined.json`, a part per folder). Of a sample, drawn by the ids'
hash, four submissions are graded as the environment grades them: the gold patch must resolve the record; no change,
an empty line in a file of the gold patch, and the gold patch without its largest hunk must not. Exits with 1
otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.makers import mining
from envsuite.envs.swegym.mined import tasks as library
from envsuite.envs.swegym.published.problem import PublishedProblem
from envsuite.envs.swegym.published.runs import changes_of
from envsuite.errors import DataError
from envsuite.sandbox import drivers
from harness.mining.tables import reasons_table, yield_table

YIELDS = Path(__file__).with_suffix(".json")
LICENCES = Path(__file__).parents[1] / "docs" / "licences.md"
MARK = "<!-- mined packages: benchmarks/swegym_mined.py writes this line -->\n"
MOST_BYTES = 3_000_000
SECONDS = 300.0
LEFT_OUT = {
    "pypi__ftfy-6.2.0-0a4c7536": "its text does not give the value of the test's parameter",
    "pypi__validators-0.36.0-26088572": "its text does not give the value of the test's parameter",
    "pypi__validators-0.36.0-9e5b20d0": "its text does not give the value of the test's parameter",
    "pypi__packageurl-python-0.17.4-097eba03": "its text does not give the value of the test's parameter",
    "pypi__glom-24.11.0-55aa696d": "its text names an option and does not say what it does",
    "pypi__multipart-2.0.0-96ee2704": "its text names a missing function and does not specify it",
    "pypi__humanize-4.13.0-0324de4f": "its text names a missing function and does not specify it",
    "pypi__semantic-version-2.7.1-f1ebbf63": "its text does not give the table of cases",
    "pypi__semantic-version-2.8.2-b3f6d2e8": "its text does not give the table of cases",
    "pypi__docstring-parser-0.9.1-f9ef4b8d": "its text does not say what the new value holds",
    "pypi__jsonpatch-1.45-38d18259": "its text names a missing class and specifies it in part",
    "pypi__url-normalize-3.0.0-a22c3fdd": "its text names a missing function and specifies it in part",
    "pypi__xmltodict-0.10.0-9e7ce9ba": "its text shows one of the two forms of an option",
    "pypi__xmltodict-0.13.0-034776f1": "its text does not give the input of the check",
    "pypi__jsonpickle-4.0.3-f9a1481a": "its setup installs scikit-learn for one test",
    "pypi__uritools-6.1.4-4e140e9b": "its text does not give the value of the test's parameter",
    "pypi__uritools-6.1.4-8793a2ad": "its text shows a value that unittest shortened",
    "pypi__cachetools-7.2.6-36376b97": "its text does not show the helper that counts",
    "pypi__cachetools-7.2.6-62feba8e": "its text does not show the helper that counts",
}
"""instances that were kept by the miner and are not shipped, after a person has read their texts"""
COUNTED = ("pairs", "repaired", "candidates", "kept", "seconds")
SUBMISSIONS = ("gold patch", "no change", "empty line", "part of the gold patch")


def ship(folders: Sequence[Path]) -> None:
    """Adds the instances of folders of `envsuite swe mine` to the shipped list, and writes their yields."""
    rounds = json.loads(YIELDS.read_text())
    results = [mining.PairResult(row["repo"].partition("/")[2], records=[row]) for row in library.rows()]
    for folder in folders:
        mined = mining.MiningJournal(folder).results
        rounds[folder.resolve().name] = {"packages": mining.yields(mined)}
        results += mined
    rows = [row for row in mining.records(results) if row["instance_id"] not in LEFT_OUT]
    while library.write(rows) > MOST_BYTES:
        largest = Counter(row["repo"] for row in rows).most_common(1)[0][0]
        rows.remove(max((row for row in rows if row["repo"] == largest), key=lambda row: len(json.dumps(row))))
    library.mined_tasks.cache_clear()
    write_licences()
    write_atomically(YIELDS, json.dumps(rounds, indent=1) + "\n")


def write_licences() -> None:
    """Updates the line of docs/licences.md that names the packages; some state their licence in two ways."""
    licences = {(task.package, task.licence) for task in library.mined_tasks().values()}
    named = ", ".join(f"{package} ({licence})" for package, licence in sorted(licences))
    before, mark, after = LICENCES.read_text().partition(MARK)
    _, _, rest = after.partition("\n")
    write_atomically(LICENCES, f"{before}{mark}{named}.\n{rest}")


def listed() -> list[str]:
    """Returns the lines about the shipped list."""
    tasks = list(library.mined_tasks().values())
    lines = ["| package | licence | split | easy | medium | hard | all |", "|---|---|---|---|---|---|---|"]
    for package in sorted({task.package for task in tasks}):
        of_package = [task for task in tasks if task.package == package]
        levels = Counter(task.level for task in of_package)
        counts = " | ".join(str(levels[level]) for level in library.LEVELS)
        first = of_package[0]
        lines.append(f"| {package} | {first.licence} | {first.split} | {counts} | {len(of_package)} |")
    levels = Counter(task.level for task in tasks)
    counts = " | ".join(str(levels[level]) for level in library.LEVELS)
    lines.append(f"| all |  |  | {counts} | {len(tasks)} |")
    if tasks:
        fail = [len(task.record.fail_to_pass) for task in tasks]
        size = [task.lines for task in tasks]
        several = sum(task.files > 1 for task in tasks)
        splits = Counter(task.split for task in tasks)
        lines += [
            "",
            f"{splits['train']} instances to train on, {splits['test']} to test on. Changed lines of the gold patch: "
            f"median {statistics.median(size):g}, most {max(size)}; {several} change several files. FAIL_TO_PASS: "
            f"median {statistics.median(fail):g}, most {max(fail)}. {library.MANIFEST.name} takes "
            f"{library.MANIFEST.stat().st_size / 1000:.0f} kB.",
        ]
    return lines


def merged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row of yields per package: the sums over the rounds that mined it."""
    packages: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = packages.setdefault(row["package"], {**row, **dict.fromkeys(COUNTED, 0), "reasons": Counter()})
        known["reasons"].update(row["reasons"])
        known["licence"] = known["licence"] or row["licence"]
        known.update({name: known[name] + row[name] for name in COUNTED})
    return list(packages.values())


def verdicts(count: int) -> tuple[list[str], bool]:
    """Grades a sample; returns the lines about it, and whether every verdict is right."""
    tasks = sorted(library.mined_tasks().values(), key=_draw)[:count]
    resolved: Counter[str] = Counter()
    graded: Counter[str] = Counter()
    wrong = []
    began = time.monotonic()
    for task in tasks:
        problem = PublishedProblem(task.record, task.setup, drivers.choose())
        for name, changes in submissions(problem).items():
            if changes is None:
                continue
            report = problem.judge(changes, SECONDS)
            graded[name] += 1
            resolved[name] += report.resolved
            if report.resolved != (name == "gold patch"):
                wrong.append(f"{problem.instance_id}: {name}: {report.fault or report.status}")
        problem.close()
    lines = ["| submission | graded | resolved |", "|---|---|---|"]
    lines += [f"| {name} | {graded[name]} | {resolved[name]} |" for name in SUBMISSIONS]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines += ["", f"{len(tasks)} instances, {time.monotonic() - began:.0f} s; load average {load}."]
    return [*lines, *(f"- wrong: {line}" for line in wrong)], not wrong


def submissions(problem: PublishedProblem) -> dict[str, Any]:
    """Returns the submissions by name; None for one that cannot be made."""
    gold = problem.gold()
    path = next((path for path in gold if path in problem.tree()), None)
    part = without_largest_hunk(problem.record.patch)
    try:
        partial = changes_of(part, problem.source) if part else None
    except DataError:
        partial = None
    return {
        "gold patch": gold,
        "no change": {},
        "empty line": {path: problem.tree()[path] + b"\n"} if path else None,
        "part of the gold patch": partial,
    }


def without_largest_hunk(patch: str) -> str:
    """Returns a patch of one file without its largest hunk; '' if it has one hunk or several files."""
    head, *hunks = re.split(r"^(?=@@ )", patch, flags=re.MULTILINE)
    if patch.count("diff --git ") != 1 or len(hunks) < 2:
        return ""
    largest = max(hunks, key=len)
    return head + "".join(hunk for hunk in hunks if hunk is not largest)


def _draw(task: library.MinedTask) -> bytes:
    return hashlib.sha256(task.record.instance_id.encode()).digest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mined", type=Path, nargs="+", help="folders of `envsuite swe mine`")
    parser.add_argument("--sample", type=int, default=12)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    if args.mined:
        ship(args.mined)
    rounds = json.loads(YIELDS.read_text()).values()
    packages = merged(row for part in rounds for row in part["packages"])
    lines, right = verdicts(args.sample)
    seconds = sum(row["seconds"] for row in packages)
    kept = sum(row["kept"] for row in packages)
    shipped = len(library.mined_tasks())
    twice = kept - shipped - len(LEFT_OUT)
    rate = f"{kept * 3600 / seconds:.1f}" if seconds else "–"
    page = [
        *("## The list", "", *listed(), "", "## A sample, graded", "", *lines, ""),
        *("## The yield", "", *yield_table(packages), ""),
        f"{rate} instances per hour and worker, on a crowded machine.",
        *(
            "",
            f"The miner kept {kept}: {shipped} are shipped, {twice} was kept twice, and {len(LEFT_OUT)} are left out:",
            "",
            *(f"- {name}: {reason}" for name, reason in LEFT_OUT.items()),
        ),
        *("", "All reasons:", "", *reasons_table(packages)),
    ]
    print("\n".join(page))
    if args.markdown and right:
        title, _, about = (__doc__ or "").partition("\n\n")
        body = " ".join(about.split("\n\n")[1].split())
        command = about.split("\n\n")[0].strip()
        text = "\n".join(page)
        args.markdown.write_text(f"# {title}\n\n{command}\n\n{body}\n\n{text}\n")
    sys.exit(not right)


if __name__ == "__main__":
    main()
