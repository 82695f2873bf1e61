"""Measures managed servers: seconds to start and to stop, and processes that are left after SIGKILL.

    python -m benchmarks.managed_servers [vllm llamacpp] [--markdown benchmarks/managed_servers.md]

Each kind of server plays two short episodes with the bundled model twice: once to the end, and once until the
command is killed with SIGKILL as soon as it has an episode. vLLM's CPU build and llama.cpp are installed first,
if they are not there (`benchmarks.server_recipes`).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.server_recipes import RECIPES
from envsuite.errors import DataError, EnvsuiteError
from harness.servers import programs
from harness.servers.process import descendants, started

MODEL = "smollm2-135m"
ARGS = {"vllm": "--enforce-eager", "llamacpp": ""}
"""Further words of each server's command line: compiling the model would take minutes on a CPU."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(programs.KINDS), help="default: all")
    parser.add_argument("--markdown", type=Path, help="write the table to this page")
    args = parser.parse_args()
    rows = []
    for kind in args.kinds:
        try:
            RECIPES[kind](_say)
            rows.append(_measure(kind))
        except EnvsuiteError as error:
            print(f"{kind}: {error}", file=sys.stderr)
            return 1
    page = _page(rows)
    print(page)
    if args.markdown:
        args.markdown.write_text(page)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _measure(kind: str) -> dict[str, Any]:
    """Returns the figures of one kind of server."""
    settings = programs.ServerSettings(context=2048, concurrent=2, args=ARGS[kind])
    command = programs.command(kind, MODEL, settings, _say)
    with tempfile.TemporaryDirectory() as folder:
        server = started(command, Path(folder) / "log", _say)
        start = time.monotonic() - server.began
        processes = len(descendants(server.pid))
        began = time.monotonic()
        server.stop()
        stop = time.monotonic() - began
        left, waited = _left_after_a_kill(kind, Path(folder))
    return {
        "server": command.name,
        "start": start,
        "stop": stop,
        "processes": processes,
        "left": left,
        "waited": waited,
        "load": os.getloadavg()[0],
    }


def _left_after_a_kill(kind: str, folder: Path) -> tuple[int, float]:
    """Kills a command as soon as it has played a turn; returns the processes left after a minute at most, and
    the seconds until none was left.
    """
    words = [sys.executable, "-m", "harness.cli.eval", "-m", f"{kind}:{MODEL}", "-e", "BabyAI-easy-v0", "-n", "2"]
    words += ["--max-turns", "20", "--max-tokens", "8", "--baselines", "none", "--server-context", "2048", "-c", "2"]
    words += ["--thinking", "off", "--action-grammar", "bare", "--reuse", "off", "-o", str(folder / "runs")]
    words += [f"--server-args={ARGS[kind]}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if " answers after " in line:
                break
        else:
            raise DataError(f"{kind}: the command ended before its server answered: {process.wait()}")
        pids = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.stderr.close()
    began = time.monotonic()
    while (left := sum(map(_alive, pids))) and time.monotonic() - began < 60:
        time.sleep(0.02)
    return left, time.monotonic() - began


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _page(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "# Managed servers: start, stop and orphans",
        "",
        f"`python -m benchmarks.managed_servers`, of `make server-proof`, on {os.cpu_count()} cores without a GPU:",
        f"`vllm:{MODEL}` and `llamacpp:{MODEL}` with 2,048 tokens of context and 2 conversations. The last two columns",
        "are about an `envsuite-eval` that is killed with SIGKILL while its server answers.",
        "",
        "| server | start, s | stop, s | its processes | left after SIGKILL | gone after, s | load |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        figures = f"{row['start']:.1f} | {row['stop']:.1f} | {row['processes']} | {row['left']} | {row['waited']:.1f}"
        lines.append(f"| {row['server']} | {figures} | {row['load']:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
