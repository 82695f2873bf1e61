"""What a run would cost, from what runs of the same model on the same task took."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from envsuite import registry
from harness.evaluate import RunConfig
from harness.records import is_broken, key_of, read_journal


def turn_cap(config: RunConfig) -> int:
    """The most turns an episode can take; 0 where each game has a cap of its own."""
    cap = {**registry.knob_names(config.task), **config.knobs}["max_steps"]
    return min((limit for limit in (cap, config.max_turns) if limit), default=0)


def seconds_per_episode(config: RunConfig, folders: Iterable[Path]) -> float | None:
    """Mean seconds of this model's finished episodes of this task below `folders`; None where there are none.

    Episodes run beside each other: this is what one took, not what the machine takes per episode.
    """
    task_folder = config.folder(Path(".")).parent.name
    seconds: list[float] = []
    for folder in folders:
        for path in sorted(folder.glob(f"**/{task_folder}/*/timing.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    seconds.append(float(json.loads(line)["seconds"]))
                except (ValueError, KeyError, TypeError):  # the last line of a run that was killed
                    continue
    return sum(seconds) / len(seconds) if seconds else None


def remaining(config: RunConfig, output_dir: Path) -> int:
    """Episodes that `--resume` would play: those not in the journal, and those that broke."""
    path = config.folder(output_dir) / "journal.jsonl"
    lines = read_journal(path) if path.exists() else ()
    done = {key_of(found) for _, found in lines if found is not None and not is_broken(found)}
    return sum(episode.key not in done for episode in config.all_episodes())


def line(config: RunConfig, output_dir: Path, folders: Iterable[Path], together: int = 16) -> str:
    """One run's cost in words: episodes still to play, turns at most, and time where anything was timed."""
    todo = remaining(config, output_dir)
    cap = turn_cap(config)
    turns = f"at most {todo * cap:,} turns" if cap else "each game's own number of turns"
    each = seconds_per_episode(config, folders)
    if not todo:
        time = "nothing to play"
    elif each is None:
        time = "time not known: no run of this task and model has been timed"
    else:
        low, high = todo * each / min(together, todo), todo * each
        time = f"about {low:.0f} to {high:.0f} s by {each:.2f} s an episode measured"
    return f"{todo} episodes to play, {turns}, {time}"
