"""Trains with vLLM's CPU build as the server that plays: weights handed over, a server that is killed.

    make server-proof
    python -m benchmarks.training_servers [STEP ...] [--markdown benchmarks/training_servers.md]

SmolLM2-135M in float32 learns Market-v0 with GRPO, in steps:

    reload         all weights, loaded before each rollout
    lora           an adapter of rank 4, loaded before each rollout
    lora-ahead     the same, played ahead (async_level = 1)
    killed         the server is killed in the second rollout; after a restart --resume ends the run
    colocated      all weights, handed over in memory to vLLM in the trainer's own process, without a server

The server is started for all weights and again for adapters, which need the first weights below them. Finished steps
are kept in --output and not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import benchmarks.server_task  # noqa: F401  registers Market-v0
from baselines import recipe as recipes
from baselines.train import TrainingRun
from benchmarks.server_recipes import MODEL, VLLM, vllm
from envsuite.errors import DataError, EnvsuiteError
from harness.servers.process import ServerProcess

FLAGS = ("--enable-lora", "--max-lora-rank", "16", "--logprobs-mode", "processed_logprobs")
ENVIRONMENT = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_SERVER_DEV_MODE": "1"}
TOLERANCE = 1e-3
"""Nats per token; both sides compute in float32."""
Step = Callable[[Any, Path], dict[str, Any]]
KILLED_AFTER = 1.0
"""Seconds between the beginning of the second rollout and the kill."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], help="default: all")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/training-servers"))
    parser.add_argument("--markdown", type=Path, help="write the table of all finished steps to this page")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    missing = [name for name in args.steps or STEPS if not (args.output / f"{name}.json").exists()]
    log = args.output / "vllm.log"
    running: ServerProcess | None = None
    try:
        for place, name in enumerate(missing):
            alone = STEPS[name] is _colocated
            if running is not None and (alone or (name in ADAPTERS and missing[place - 1] not in ADAPTERS)):
                running.stop()
                running = None
            if running is None and not alone:
                log.unlink(missing_ok=True)
                running = _started(log)
            _say(name)
            work = args.output / name
            shutil.rmtree(work, ignore_errors=True)
            figures = STEPS[name](running, work)
            (args.output / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
            shutil.rmtree(work)
    except EnvsuiteError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if running is not None:
            running.stop()
    finished = {name: json.loads(path.read_text()) for name in STEPS if (path := args.output / f"{name}.json").exists()}
    page = _page(finished)
    print(page)
    if args.markdown:
        args.markdown.write_text(page)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _started(log: Path, port: int | None = None) -> ServerProcess:
    """Starts vLLM and waits until it answers."""
    server = vllm(_say)
    environment = {**server.environment, **ENVIRONMENT}
    running = dataclasses.replace(server, command=[*server.command, *FLAGS], environment=environment).start(log, port)
    running.wait(_say)
    return running


def _recipe(url: str, sync: str, **changes: Any) -> recipes.Recipe:
    """Returns a recipe of two updates of four episodes."""
    lora = sync == "lora"
    table = {
        "algorithm": "grpo",
        "model": {"name": MODEL, "dtype": "float32", "device": "cpu", "lora_rank": 4 if lora else 0},
        "tasks": ["Market-v0"],
        "updates": 2,
        "episodes": 4,
        "max_turns": 1,
        "eval_every": 0,
        "eval_episodes": 1,
        "save_every": 100,
        "acting": {"max_tokens": 6, "context": 512},
        "prompting": {"grammar": "bare", "thinking": False, "history": -1, "admissible": "none"},
        "generation": {"base_url": url, "sync": sync, "tolerance": TOLERANCE, "retries": 1},
        # Entropy has a gradient even where all rewards are equal, so that every update moves the weights.
        "config": {"learning_rate": 1e-2 if lora else 1e-4, "group_size": 2, "kl_coef": 0.0, "entropy_coef": 0.1},
        **changes,
    }
    return recipes.parse(table)


def _train(recipe: recipes.Recipe, folder: Path) -> Path:
    """Trains, or continues where the folder holds a checkpoint."""
    TrainingRun(recipe, folder, resume=(folder / "checkpoint.pt").exists()).train()
    return folder


def _figures(folder: Path, began: float, **further: Any) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if line["kind"] == "update"]
    return {
        "updates": len(updates),
        "replies": sum(line["env_steps"] for line in updates),
        "tokens": sum(line["tokens"] for line in updates),
        "gap": max(line["server_gap"] for line in lines if "server_gap" in line),
        "staleness": [line.get("staleness", 0) for line in updates],
        "behaviour_kl": [line["behaviour_kl"] for line in updates if "behaviour_kl" in line],
        "broken": sum(line["broken"] for line in updates),
        "seconds": time.monotonic() - began,
        "load": os.getloadavg()[0],
        **further,
    }


def _hands_over(sync: str, **changes: Any) -> Step:
    """Returns a step that trains with one way to hand over weights."""

    def step(running: ServerProcess, work: Path) -> dict[str, Any]:
        began = time.monotonic()
        try:
            return _figures(_train(_recipe(running.url, sync, **changes), work), began)
        except DataError as error:  # the server holds other weights than it was given
            return {"message": str(error).replace(running.url, "http://SERVER/v1")}

    return step


def _killed(running: ServerProcess, work: Path) -> dict[str, Any]:
    began = time.monotonic()
    recipe = _recipe(running.url, "lora", episodes=16, acting={"max_tokens": 32, "context": 512})
    run = TrainingRun(recipe, work)
    play = run.collector.collect_with

    def play_and_kill(*arguments: Any) -> Any:
        if run.update == 1:
            threading.Timer(KILLED_AFTER, running.crash).start()
        return play(*arguments)

    run.collector.collect_with = play_and_kill  # type: ignore[method-assign]
    try:
        run.train()
    except DataError as error:
        message = str(error).replace(running.url, "http://SERVER/v1")
    else:
        raise EnvsuiteError("the run ended before its server was killed")
    before = len((work / "metrics.jsonl").read_text().splitlines())
    again = _started(running.log, running.port)
    try:
        return _figures(_train(recipe, work), began, message=message, lines_before=before)
    finally:
        again.stop()


def colocated(folder: Path) -> None:
    """Trains with vLLM's engine in this process; for the Python in which vLLM is installed."""
    recipe = _recipe("", "reload", generation={"engine": "vllm", "tolerance": TOLERANCE})
    _train(recipe, folder)


def _colocated(_: ServerProcess | None, work: Path) -> dict[str, Any]:
    """Runs `colocated` in vLLM's environment, which borrows from this one what it lacks."""
    server = vllm(_say)
    further = [str(Path(__file__).resolve().parent.parent), *(path for path in sys.path if "site-packages" in path)]
    program = f"import sys, pathlib; sys.path += {further!r}; from benchmarks.training_servers import colocated; "
    program += f"colocated(pathlib.Path({str(work)!r}))"
    environment = {**os.environ, **server.environment}
    environment.pop("PYTHONPATH", None)
    began = time.monotonic()
    with work.with_suffix(".log").open("w") as log:
        done = subprocess.run([server.command[0], "-c", program], env=environment, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        raise EnvsuiteError(f"training with vLLM in one process failed: see {work.with_suffix('.log')}")
    return _figures(work, began)


STEPS: dict[str, Step] = {
    "reload": _hands_over("reload"),
    "lora": _hands_over("lora"),
    "lora-ahead": _hands_over("lora", async_level=1, updates=3),
    "killed": _killed,
    "colocated": _colocated,
}
ADAPTERS = ("lora", "lora-ahead", "killed")


def _page(steps: dict[str, dict[str, Any]]) -> str:
    rows = [
        f"| {name} | {s['updates']} | {s['replies']} | {s['tokens']} | {s['gap']:.1e} | "
        f"{', '.join(map(str, s['staleness']))} | {s['broken']} | {s['seconds']:.0f} | {s['load']:.1f} |"
        for name, s in steps.items()
        if "updates" in s
    ]
    missing = [name for name in STEPS if name not in steps]
    messages = [f"- **{name}**: {s['message']}" for name, s in steps.items() if "message" in s]
    return "\n".join(
        [
            "# Training with a real vLLM",
            "",
            f"`make server-proof` (`python -m benchmarks.training_servers`): GRPO on Market-v0, played by {VLLM} with",
            "SmolLM2-135M in float32 on the CPU. `gap` is the largest mean difference between the log-probs of the",
            f"server and of the trainer, in nats per token; the tolerance is {TOLERANCE:g}.",
            "The machine had other work.",
            "",
            "| step | updates | replies | tokens | gap | staleness | broken | s | load |",
            "|---|--:|--:|--:|--:|---|--:|--:|--:|",
            *rows,
            "",
            *_notes(steps),
            *(["Runs that ended with a line:", "", *messages, ""] if messages else []),
            *([f"Not run yet: {', '.join(missing)}.", ""] if missing else []),
        ]
    )


def _notes(steps: dict[str, dict[str, Any]]) -> Sequence[str]:
    """Returns sentences about the steps that ran."""
    notes = []
    if "updates" in steps.get("reload", {}):
        notes.append(
            "In `reload`, the model's output head shares the embedding's weights. vLLM's CPU build computes with a\n"
            "packed copy of the head, which it renews only where the head is among the weights: the trainer writes\n"
            "it too."
        )
    if "updates" in steps.get("colocated", {}):
        notes.append(
            "`colocated` ran vLLM's engine in the trainer's process and handed the weights over in memory.\n"
            "vLLM's CPU build cannot sleep: it stayed awake during the updates."
        )
    if "updates" in steps.get("lora-ahead", {}):
        kl = ", ".join(f"{value:.1e}" for value in steps["lora-ahead"]["behaviour_kl"])
        notes.append(f"KL from behaviour to proximal policy in `lora-ahead`, by update: {kl}.")
    if "lines_before" in steps.get("killed", {}):
        before = steps["killed"]["lines_before"]
        notes.append(f"`killed` had {before} lines of log before the kill; the resumed run added the rest.")
    return [*notes, ""] if notes else []


if __name__ == "__main__":
    sys.exit(main())
