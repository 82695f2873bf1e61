"""All proofs of the sandboxes in one command: attacks, tests, red team and misdeeds.

    python -m benchmarks.sandbox_proof play [part ...] [--seconds N]
    python -m benchmarks.sandbox_proof page --markdown benchmarks/sandbox_proof.md

`play` runs the parts that the journal lacks, as root and as an ordinary user, with a Docker daemon of its own, and
continues after an interrupt. It needs root for that; an ordinary user plays the parts of an ordinary user. `page`
exits with 1 if a part has failed.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import sandbox_misdeeds, sandbox_red_team
from benchmarks.sandbox_journal import ROOT, USERS, ResultJournal, fingerprint, table
from envsuite.sandbox import drivers
from tests.sandbox import red_team

JOURNAL = Path("build/sandbox_proof.jsonl")
TESTS = {
    "sessions": "test_session test_dialogue test_leftovers test_archive test_view",
    "limits": "test_usage test_system_calls test_host_kills test_selftest",
    "hostile programs": "test_hostile",
    "cheating": "test_cheating",
    "red team, sampled": "test_red_team",
    "images": "test_images",
    "exploring turns": "../envs/datascicoding/test_exploring",
}
"""parts that are tests: name -> files in tests/sandbox"""
SELF_TEST = "self-test"
PARTS = (SELF_TEST, *TESTS)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
_FINDING = re.compile(r"^\s*(ok|FAIL|open|none) ", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    playing = commands.add_parser("play", help="run the parts that the journal lacks")
    playing.add_argument("parts", nargs="*", metavar="part", help=f"default: all of {', '.join(PARTS)}")
    playing.add_argument("--seconds", type=float, default=math.inf, help="start no part after this time")
    playing.add_argument("--limit", type=float, default=3600.0, help="seconds after which a part is ended (3600)")
    writing = commands.add_parser("page", help="write the page of results")
    writing.add_argument("--markdown", type=Path, metavar="FILE", required=True)
    args = parser.parse_args()
    journal = ResultJournal(JOURNAL, fingerprint(*sorted((ROOT / "tests" / "sandbox").glob("*.py"))))
    if args.command == "play":
        return play(journal, args.parts or list(PARTS), time.monotonic() + args.seconds, args.limit)
    page, failed = write_page(journal)
    args.markdown.write_text(page)
    print(page)
    return failed


def play(journal: ResultJournal, parts: list[str], end: float, limit: float) -> int:
    """Runs the missing parts; returns 2 if a part was ended by the limit, otherwise 0."""
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"There is no part {min(unknown)!r}: choose from {', '.join(PARTS)}.")
    cut = 0
    for part in parts:
        for user in USERS if os.geteuid() == 0 else USERS[1:]:
            if (part, user) in journal.results:
                continue
            if time.monotonic() > end:
                print("more to play")
                return cut
            began = time.monotonic()
            try:
                done = subprocess.run(command(part, user), cwd=ROOT, capture_output=True, text=True, timeout=limit)
            except subprocess.TimeoutExpired:
                print(f"{part}, {user}: not finished within {limit:g} s", flush=True)
                cut = 2
                continue
            result = totals(part, done.stdout)
            if done.returncode not in (0, 1) or not sum(result.values()):
                raise SystemExit(f"{part}, {user} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            journal.add((part, user), {**result, "seconds": round(time.monotonic() - began)})
            print(f"{part}, {user}: {result}", flush=True)
            if result["failed"]:
                print(done.stdout[-2000:], flush=True)
    return cut


def command(part: str, user: str) -> list[str]:
    """Returns the command of a part: with a Docker daemon, and as an ordinary user if it is one's part."""
    words = [".ci/dockerd", sys.executable]
    if user == USERS[1]:
        words = ["env", "DOCKERD_FOR_ALL=1", ".ci/dockerd", ".ci/as-user", sys.executable]
    if part == SELF_TEST:
        return [*words, "-m", "harness", "check", "--sandbox"]
    return [*words, "-m", "pytest", "-q", "-n", "0", *(f"tests/sandbox/{name}.py" for name in TESTS[part].split())]


def totals(part: str, output: str) -> dict[str, int]:
    """Returns how much of a part passed, failed and was skipped, from its output."""
    if part == SELF_TEST:
        marks = _FINDING.findall(output)
        return {"passed": marks.count("ok"), "failed": marks.count("FAIL"), "skipped": marks.count("none")}
    counts: dict[str, int] = {"passed": 0, "failed": 0, "skipped": 0}
    for number, name in _COUNT.findall(output.strip().splitlines()[-1] if output.strip() else ""):
        counts[{"error": "failed", "errors": "failed"}.get(name, name)] += int(number)
    return counts


def write_page(journal: ResultJournal) -> tuple[str, int]:
    """Returns the page, and 1 if a part, an exploit or a misdeed has failed."""
    rows = [
        [
            part,
            user,
            *(journal.results[part, user][name] for name in ("passed", "failed", "skipped", "seconds", "load")),
        ]
        for part in PARTS
        for user in USERS
        if (part, user) in journal.results
    ]
    missing = [f"{part} ({user})" for part in PARTS for user in USERS if (part, user) not in journal.results]
    attacks = sandbox_red_team.totals(
        ResultJournal(sandbox_red_team.JOURNAL, fingerprint(Path(red_team.__file__))),
    )
    misdeeds, over = sandbox_misdeeds.totals(ResultJournal(sandbox_misdeeds.JOURNAL, fingerprint()))
    page = f"""\
# Sandbox: all proofs

From `make sandbox-proof`. {f"Not run yet: {', '.join(missing)}" if missing else "Every part has been run"}.

## Tests and attacks, per user

Skipped are tests of what this machine does not have. In the self-test, each driver of {", ".join(drivers.SAFE)} is
attacked; attacks that only `process` does not stop are not counted.

{table(["part", "user", "passed", "failed", "skipped", "seconds", "load average"], rows)}
## Red team on noise labels

Details: [sandbox_red_team.md](sandbox_red_team.md).

{table(sandbox_red_team.TOTALS, attacks)}
## Misdeeds

Details: [sandbox_misdeeds.md](sandbox_misdeeds.md). Times are shares of the limit.

{table(sandbox_misdeeds.TOTALS, misdeeds)}"""
    broken = sum(int(row[4]) for row in attacks)
    return page, int(bool(_failed(journal.results) or broken or over))


def _failed(results: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> int:
    return sum(result["failed"] for result in results.values())


if __name__ == "__main__":
    raise SystemExit(main())
