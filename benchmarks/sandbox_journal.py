"""What the sandbox's benchmarks share: their command, and a journal, so that they continue after an interrupt."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from envsuite.sandbox import drivers, packages

ROOT = Path(__file__).resolve().parents[1]
GAME = ROOT / "envsuite" / "envs" / "datascicoding"
USERS = ("root", "ordinary")


def user() -> str:
    return USERS[0] if os.geteuid() == 0 else USERS[1]


def fingerprint(*programs: Path) -> str:
    """Returns a hash of `programs` and of the code of the sandboxes: results of other code are not reused."""
    sandbox = sorted(packages.INSIDE.parent.rglob("*.py"))
    paths = [*programs, *sandbox, GAME / "runner.py", GAME / "scoring.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


class ResultJournal:
    """An append-only file of results, which root and an ordinary user may both continue."""

    def __init__(self, path: Path, code: str) -> None:
        """`code`: a `fingerprint`; results of other code are ignored."""
        self.path, self.code = path, code
        self.results: dict[tuple[Any, ...], dict[str, Any]] = {}
        if os.geteuid() == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            path.chmod(0o666)
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # cut off by an interrupt
                continue
            if entry["code"] == code:
                self.results[tuple(entry["key"])] = entry["result"]

    def add(self, key: Iterable[Any], result: dict[str, Any]) -> None:
        """Records a result, with the load average at its end."""
        result = {**result, "load": round(os.getloadavg()[0], 1)}
        with self.path.open("a") as file:
            file.write(json.dumps({"code": self.code, "key": list(key), "result": result}) + "\n")
        self.results[tuple(key)] = result

    def loads(self) -> str:
        """Returns the range of the load averages, as text."""
        loads = [result["load"] for result in self.results.values()]
        return f"{min(loads):.0f} to {max(loads):.0f} on {os.cpu_count()} cores" if loads else "unknown"


def run(
    doc: str | None,
    kind: str,
    journal: Path,
    programs: Iterable[Path],
    play: Callable[[ResultJournal, list[str], float], None],
    write_page: Callable[[ResultJournal], tuple[str, int]],
) -> int:
    """Runs the command `play` or `page` of a benchmark; returns the number of failures that the page states.

    `kind`: what is played, such as "attack". `play` gets the journal, the drivers, and the time at which to stop.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    playing = commands.add_parser("play", help=f"play the {kind}s that the journal lacks")
    playing.add_argument("drivers", nargs="*", help="default: every safe driver that works here")
    playing.add_argument("--seconds", type=float, default=math.inf, help=f"start no {kind} after this time")
    writing = commands.add_parser("page", help="write the page of results")
    writing.add_argument("--markdown", type=Path, metavar="FILE", required=True)
    args = parser.parse_args()
    results = ResultJournal(journal, fingerprint(*programs))
    if args.command == "play":
        names = args.drivers or [name for name in drivers.SAFE if not drivers.probe(name)]
        play(results, names, time.monotonic() + args.seconds)
        return 0
    page, failures = write_page(results)
    args.markdown.write_text(page)
    print(page)
    return int(failures)
