"""Cost estimates of a run, from earlier runs of the same model on the same task."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from harness.evaluate import RunConfig
from harness.records import is_broken, key_of, read_journal


def seconds_per_episode(config: RunConfig, folders: Iterable[Path]) -> float | None:
    """Returns the mean duration of finished episodes of this model and task in `folders`, or None without any.

    Episodes run concurrently: this is the duration of one episode, not the machine time per episode.
    """
    task_folder = config.folder(Path(".")).parent.name
    seconds: list[float] = []
    for folder in folders:
        for path in sorted(folder.glob(f"**/{task_folder}/*/timing.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    seconds.append(float(json.loads(line)["seconds"]))
                except (ValueError, KeyError, TypeError):  # incomplete last line of a killed run
                    continue
    return sum(seconds) / len(seconds) if seconds else None


def remaining(config: RunConfig, output_dir: Path) -> int:
    """Returns the number of episodes that `--resume` would play: missing or broken ones."""
    path = config.folder(output_dir) / "journal.jsonl"
    lines = read_journal(path) if path.exists() else ()
    done = {key_of(record) for _, record in lines if record is not None and not is_broken(record)}
    return sum(episode.key not in done for episode in config.all_episodes())


def line(config: RunConfig, output_dir: Path, folders: Iterable[Path], together: int = 16) -> str:
    """Describes the cost of a run: remaining episodes, turn limit, and time if earlier runs were timed."""
    todo = remaining(config, output_dir)
    cap = config.turn_cap
    turns = f"at most {todo * cap:,} turns" if cap else "turns limited by each game"
    per_episode = seconds_per_episode(config, folders)
    if not todo:
        time = "nothing to play"
    elif per_episode is None:
        time = "unknown time: no earlier run of this task and model was timed"
    else:
        low, high = todo * per_episode / min(together, todo), todo * per_episode
        time = f"about {low:.0f} to {high:.0f} s, from {per_episode:.2f} s per episode in earlier runs"
    return f"{todo} episodes to play, {turns}, {time}"
