"""Packs a trained adapter, plays its 100 held-out games, and writes its card and its board.

    python -m benchmarks.adapter runs/train/alfworld-smollm2 -o leaderboards/adapters/smollm2-alfworld
    python -m benchmarks.adapter runs/train/babyai-smollm2 -o leaderboards/adapters/smollm2-babyai

The folder gets the adapter's two files, `card.json` and `README.md`. The episodes of the adapter, its
base model, the random player and the expert go to the board of the suite, where anyone can replay them.
The base model plays fewer games, because it loses all of them and takes every turn to do so. A run that
was stopped within fine-tuning counts up to its last checkpoint, whose adapter is packed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import write_atomically
from harness.cli import eval as evaluation
from harness.lm import adapters
from harness.stats.summary import Summary, percent
from harness.suites import leaderboards


class Held(NamedTuple):
    """The held-out games of a recipe's adapter."""

    suite: str
    base_games: int
    """Games of the base model."""
    games: str
    """Name of the games on the card."""
    made: str
    """The command that makes the adapter."""
    played: str
    """The command that plays it."""
    shared: str
    """Likeness of held-out games and games of the training, in the words of the card."""


HELD = {
    "alfworld-smollm2": Held(
        "alfworld-easy",
        10,
        "generated ALFWorld games",
        "make adapter",
        "make eval",
        "their floor plans are those of the training games",
    ),
    "babyai-smollm2": Held(
        "babyai-goto",
        20,
        "BabyAI's goto",
        "make adapter-babyai",
        "envsuite-eval -m leaderboards/adapters/smollm2-babyai -e suite:babyai-goto",
        "rooms, objects and missions are drawn as in training",
    ),
}
"""By the name of the recipe."""


def pack(run: Path, folder: Path) -> None:
    """Copies the adapter of a training run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (adapters.CONFIG, adapters.WEIGHTS):
        shutil.copyfile(run / "adapter" / name, folder / name)


def play(folder: Path, held: Held, runs: Path) -> dict[str, Summary]:
    """Plays the suite, adds the runs to its board and returns the summary of each player."""
    base = adapters.read(folder).base
    suite = ["--env", f"suite:{held.suite}", "--resume", "-o", str(runs)]
    for words in (["--model", str(folder)], ["--model", base, "-n", str(held.base_games), "--baselines", "none"]):
        try:
            evaluation.main([*words, *suite])
        except SystemExit as ended:  # the command's own end; 0 is success
            if ended.code:
                raise
    board = leaderboards.add(
        Path("leaderboards") / held.suite, sorted(file.parent for file in runs.rglob("results.jsonl"))
    )
    return {model: summary for (_, _, model), summary in board.summaries.items()}


def training(run: Path, cpu_hours: float) -> dict[str, Any]:
    """Returns what a run's recipe and log say about the training."""
    record = json.loads((run / "recipe.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    recipe = record["recipe"]
    steps = [line for line in lines if line["kind"] == "sft"]
    if len(steps) < steps[-1]["steps"]:
        steps = steps[: len(steps) - len(steps) % recipe["sft"]["train"]["save_every"]]
    return {
        "tasks": recipe["tasks"],
        "expert": recipe["sft"]["expert"],
        "episodes_played": recipe["sft"]["episodes"],
        "episodes_learned": recipe["sft"]["train"]["rows"] * len(steps),
        "steps": len(steps),
        "tokens_read": round(sum(line["read"] for line in steps)),
        "tokens_learned": round(sum(line["tokens"] for line in steps)),
        "planned_steps": steps[-1]["steps"],
        "cpu_hours": cpu_hours or round(sum(line["cpu_seconds"] for line in steps) / 3600, 2),
        "threads": record["threads"],
        "settings": {name: recipe["sft"]["train"][name] for name in ("learning_rate", "epochs", "rows", "max_length")},
        "lora": {name: recipe["model"][f"lora_{name}"] for name in ("rank", "alpha", "targets")},
        "prompting": recipe["prompting"],
    }


def card(run: Path, folder: Path, summaries: dict[str, Summary], cpu_hours: float) -> dict[str, Any]:
    """Returns the adapter's card."""
    weights = (folder / adapters.WEIGHTS).read_bytes()
    return {
        "base": adapters.read(folder).base,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "bytes": len(weights),
        "licence": "Apache-2.0",
        "recipe": f"baselines/recipes/{run.name}.toml",
        "training": training(run, cpu_hours),
        "suite": HELD[run.name].suite,
        "success": {model: {**summary["success"], "turns": summary["turns"]} for model, summary in summaries.items()},
    }


def page(folder: Path, held: Held, content: dict[str, Any], summaries: dict[str, Summary]) -> str:
    """Returns the adapter's README."""
    trained = content["training"]
    games = f"{trained['episodes_learned']} games of `{trained['expert']}` on {' and '.join(trained['tasks'])}"
    tokens = f"{trained['tokens_read']:,} tokens read, {trained['tokens_learned']:,} learned"
    rows = "\n".join(
        f"| {model} | {percent(summary['success'])} | {summary['turns']:.1f} |" for model, summary in summaries.items()
    )
    return f"""# {folder.name}

A LoRA adapter of {content["base"]} that plays {held.games}.
`{held.played}` plays it,
`{held.made}` makes it, and [a page of the documentation](../../../docs/howto/adapters.md) explains both.
`card.json` has the same facts for programs.

| | |
|---|---|
| weights | {content["bytes"] / 1e6:.1f} MB, SHA-256 `{content["sha256"][:16]}...`, licence {content["licence"]} |
| adapter | LoRA of rank {trained["lora"]["rank"]} on {", ".join(trained["lora"]["targets"])} |
| recipe | `{content["recipe"]}` |
| data | {games}, split train |
| training | {trained["steps"]} of {trained["planned_steps"]} planned steps, {tokens} |
| time | {trained["cpu_hours"]} CPU hours, {trained["threads"]} thread |

Success on games of the suite `{content["suite"]}`, in percent with 95 % intervals. Their seeds are not
trained on (split test); {held.shared}.

| player | success % [95 %] | turns |
|---|--:|--:|
{rows}

The records are in [the suite's board](../../{content["suite"]}/README.md).
"""


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Pack a trained adapter, play its held-out games, write its card.")
    parser.add_argument("run", type=Path, help="folder of the training run")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the adapter")
    parser.add_argument("--runs", type=Path, default=Path("runs/adapter"), help="folder of the played runs")
    parser.add_argument("--cpu-hours", type=float, default=0.0, help="for a run whose log has no CPU times")
    args = parser.parse_args()
    if args.run.name not in HELD:
        parser.error(f"{args.run} is not a run of a recipe with held-out games: {', '.join(HELD)}")
    held = HELD[args.run.name]
    pack(args.run, args.output)
    summaries = play(args.output, held, args.runs / held.suite)
    content = card(args.run, args.output, summaries, args.cpu_hours)
    write_atomically(args.output / "card.json", json.dumps(content, indent=1) + "\n")
    write_atomically(args.output / "README.md", page(args.output, held, content, summaries))


if __name__ == "__main__":
    main()
