"""Plays episodes against real model servers, kills each server in mid-run, resumes, and compares the records.

    make server-proof
    python -m benchmarks.servers [vllm llamacpp transformers] [--steps ...] [--markdown benchmarks/servers.md]

Every step starts the server anew and plays the same episodes with greedy replies:

    undisturbed          8 episodes at once
    killed               8 at once; the server is killed after a third of the episodes; --resume ends the run
    one-by-one           1 episode at a time, so that each request is alone in its batch
    one-by-one-killed    the same, killed and resumed
    repeated             8 at once again: are the server's replies the same?

Finished steps are kept in --output and not played again. Servers end with the script, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.server_recipes import MODEL, RECIPES, THREADS, Server
from benchmarks.server_table import render
from envsuite.errors import EnvsuiteError
from harness import records
from harness.servers.process import ServerProcess

TASK, MODULE = "Market-v0", "benchmarks.server_task"
MAX_TOKENS = 8
EVAL_LIMIT = 900.0
"""Seconds that a run may take."""


@dataclass(frozen=True)
class Step:
    """A run against a freshly started server."""

    name: str
    concurrent: int
    killed: bool = False


@dataclass(frozen=True)
class Size:
    """Size of every run."""

    episodes: int
    max_turns: int


STEPS = (
    Step("undisturbed", 8),
    Step("killed", 8, killed=True),
    Step("one-by-one", 1),
    Step("one-by-one-killed", 1, killed=True),
    Step("repeated", 8),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", choices=[*RECIPES, []], help="default: all")
    parser.add_argument("--steps", nargs="+", choices=[step.name for step in STEPS], help="default: all")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/servers"), help="folder of runs and figures")
    parser.add_argument("-n", "--episodes", type=int, default=50)
    parser.add_argument("--max-turns", type=int, default=3, help="per episode")
    parser.add_argument("--anew", action="store_true", help="play finished steps again")
    parser.add_argument("--markdown", type=Path, help="write the table of all finished steps to this page")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    missing = 0
    for key in args.servers or RECIPES:
        try:
            server = RECIPES[key](_say)
            for step in STEPS:
                if not args.steps or step.name in args.steps:
                    _run_step(server, step, args.output / key, Size(args.episodes, args.max_turns), args.anew)
        except (EnvsuiteError, OSError) as error:
            print(f"{key}: {error}", file=sys.stderr)
            missing += 1
        except KeyboardInterrupt:
            print("stopped: finished steps are kept, and the same command continues", file=sys.stderr)
            return 130
    page = render(args.output)
    print(page)
    if args.markdown and not missing:
        args.markdown.write_text(page)
    return 1 if missing else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run_step(server: Server, step: Step, folder: Path, size: Size, anew: bool) -> None:
    """Plays one step and writes its figures to `folder/STEP.json`, unless that file exists."""
    figures = folder / f"{step.name}.json"
    if figures.exists() and not anew:
        return
    _say(f"{server.name}: {step.name}")
    runs, log, interrupted = (folder / f"{step.name}{suffix}" for suffix in ("", ".log", ".interrupted"))
    folder.mkdir(parents=True, exist_ok=True)
    if not interrupted.exists() or anew:
        shutil.rmtree(runs, ignore_errors=True)
        interrupted.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    running = server.start(log)
    values: dict[str, Any] = {"server": server.name, "version": server.version, **dataclasses.asdict(step)}
    try:
        values["start_seconds"] = running.wait(_say)
        if step.killed and not interrupted.exists():
            outcome = _play_until_killed(server, step, runs, size, running)
            interrupted.write_text(json.dumps(outcome))  # if this script is stopped now, it continues from here
            running = server.start(log, running.port)  # at its old address, as after a restart
            running.wait(_say)
        code, message = _finish(_eval(server, step, running.url, runs, size, resume=step.killed))
    finally:
        running.stop()
    if code:
        raise EnvsuiteError(f"{step.name}: envsuite-eval ended with code {code}: {message}")
    if step.killed:
        values["interrupted"] = json.loads(interrupted.read_text())
    values |= _measure(_run_folder(runs))
    settings = {"task": TASK, "max_tokens": MAX_TOKENS, "threads": THREADS, **dataclasses.asdict(size)}
    values |= {"settings": settings, "load": os.getloadavg()[0], "cpus": os.cpu_count()}
    figures.write_text(json.dumps(values, indent=2) + "\n")


def _eval(server: Server, step: Step, url: str, runs: Path, size: Size, resume: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness.cli.eval", "-m", MODEL, "-e", TASK, "--module", MODULE]
    command += ["-n", str(size.episodes), "--num-workers", "0", "--reuse", "off"]
    command += ["--base-url", url, "--served-model-name", server.served_name, "--max-turns", str(size.max_turns)]
    command += ["--max-tokens", str(MAX_TOKENS), "--thinking", "off", "--action-grammar", "bare"]
    command += ["--admissible", "none", "--baselines", "none", "--max-retries", "1"]
    command += ["-c", str(step.concurrent), "-o", str(runs), *(["--resume"] if resume else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for a run; returns its exit code and the last line it printed."""
    try:
        output, _ = process.communicate(timeout=EVAL_LIMIT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, (output.strip().splitlines() or [""])[-1]


def _play_until_killed(server: Server, step: Step, runs: Path, size: Size, running: ServerProcess) -> dict[str, Any]:
    """Kills the server after a third of the episodes; returns how the run ended."""
    process = _eval(server, step, running.url, runs, size, resume=False)
    try:
        deadline = time.monotonic() + EVAL_LIMIT
        while _journal_lines(runs) < max(1, size.episodes // 3):
            if process.poll() is not None or time.monotonic() > deadline:
                raise EnvsuiteError(f"{step.name}: the run ended before the server was killed: {_finish(process)[1]}")
            time.sleep(0.05)
        running.crash()
        killed = time.monotonic()
        code, message = _finish(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    journal = list(_journal(runs))
    broken = sum(map(records.is_broken, journal))
    return {
        "code": code,
        "message": message,
        "seconds": time.monotonic() - killed,
        "finished": len(journal) - broken,
        "broken": broken,
    }


def _run_folder(runs: Path) -> Path:
    return next(records.iterate_runs(runs))


def _journal_lines(runs: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in runs.glob("**/journal.jsonl"))


def _journal(runs: Path) -> list[records.Record]:
    lines = records.read_journal(_run_folder(runs) / "journal.jsonl")
    return [record for _, record in lines if record is not None]


def _measure(folder: Path) -> dict[str, Any]:
    """Returns the figures of a finished run."""
    results = records.read_results(folder / "results.jsonl")
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    cached = sum(line["cached_tokens"] for line in timing)
    read = sum(record["input_tokens"] for record in results)
    began = min(line["ended"] - line["seconds"] for line in timing)
    return {
        "results": str(folder / "results.jsonl"),
        "episodes": len(results),
        "requests": sum(record["num_turns"] for record in results),
        "prompt_tokens": read,
        "cached_tokens": cached,
        "reply_tokens": sum(record["output_tokens"] for record in results),
        "seconds": max(line["ended"] for line in timing) - began,
        "broken": sum(map(records.is_broken, results)),
        "faults": {kind: sum(record["faults"][kind] for record in results) for kind in records.FAULTS},
        "success": sum(record["success"] for record in results),
        "weights_checked": (folder / "weights.json").exists(),
    }


if __name__ == "__main__":
    sys.exit(main())
