"""Compares `envsuite.compat.alfworld` with the alfworld package: equal commands, equal results.

    python -m benchmarks.alfworld_compat [--games 50] [--batch-sizes 1 8 64] [--write]

For each batch size and each configuration (without expert, with the handcoded expert, with domain
randomization), both environments play the same commands over the same games: in half of the games a
shortest plan with an invalid command in it, in the others random admissible commands up to the step
limit. All finished games receive further commands. Observations, scores, dones and infos must be
equal on every turn. Both sides draw the same random numbers per game. Reads the official games under
$ALFWORLD_DATA.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.alfworld_equivalence import memoise_stock
from envsuite.compat.alfworld import AlfredTWEnv, AlfworldBatchEnv
from envsuite.envs.alfworld.games import solver

PAGE = Path(__file__).with_suffix(".md")
MAX_STEPS = 16
AFTER_THE_END = 2
KINDS = ("no expert", "handcoded", "randomized")


class Job(NamedTuple):
    """A comparison: a configuration, a batch size, and the games to play in each round."""

    config: dict[str, Any]
    train_eval: str
    games: list[str]
    batch_size: int
    rounds: int
    seed: int


def make_job(games: list[str], batch_size: int, kind: str, seed: int = 0, rounds: int = 0) -> Job:
    """Returns the job for a kind of `KINDS`; `rounds=0` plays every game at least once."""
    config = {
        "dataset": {
            "data_path": "$ALFWORLD_DATA/json_2.1.1/train",
            "eval_id_data_path": "$ALFWORLD_DATA/json_2.1.1/valid_seen",
            "eval_ood_data_path": "$ALFWORLD_DATA/json_2.1.1/valid_unseen",
            "num_train_games": -1,
            "num_eval_games": -1,
        },
        "env": {
            "task_types": [1, 2, 3, 4, 5, 6],
            "goal_desc_human_anns_prob": 0.0,
            "expert_type": "handcoded",
            "domain_randomization": kind == "randomized",
        },
        "general": {"training_method": "dqn" if kind == "no expert" else "dagger"},
        "rl": {"training": {"max_nb_steps_per_episode": MAX_STEPS}},
        "dagger": {"training": {"max_nb_steps_per_episode": MAX_STEPS}},
    }
    train_eval = "eval_in_distribution" if kind == "no expert" else "train"
    return Job(config, train_eval, games, batch_size, rounds or -(-len(games) // batch_size), seed)


def open_batch(environment: type, job: Job) -> Any:
    """Builds the batch environment of a job with the stock class or ours."""
    random.seed(job.seed)
    env = environment.__new__(environment)
    env.config, env.train_eval, env.game_files = job.config, job.train_eval, list(job.games)
    batch = env.init_env(job.batch_size)
    batch.seed(job.seed)
    batch.skip(1)
    return batch


def play(batch: Any, tapes: list[list[list[str]]]) -> list[Any]:
    """Plays the commands [round, turn, game] and returns all results as plain JSON values."""
    results: list[Any] = []
    for tape in tapes:
        results.append(_plain(batch.reset()))
        results += [_plain(batch.step(commands)) for commands in tape]
    return results


def make_tapes(job: Job) -> list[list[list[str]]]:
    """Returns commands [round, turn, game] for a job."""
    rng = random.Random(job.seed)
    batch = separate_generators(open_batch(AlfredTWEnv, job), job.seed)
    tapes = []
    for round_number in range(job.rounds):
        batch.reset()
        plans = [solver.commands(slot.engine.game, slot.engine.game.start) or [] for slot in batch._slots]
        tape = []
        for turn in range(MAX_STEPS + AFTER_THE_END):
            commands = []
            for number, (slot, plan) in enumerate(zip(batch._slots, plans, strict=True)):
                if (number + round_number) % 2 == 0 and plan and turn != 1:
                    commands.append(plan.pop(0))
                elif turn == 1:
                    commands.append("take the moon")
                else:
                    commands.append(rng.choice(slot.engine.admissible()))
            batch.step(commands)
            tape.append(commands)
        tapes.append(tape)
    return tapes


def compare(job: Job) -> tuple[int, int, list[str]]:
    """Plays a job on both sides; returns (results compared, games won, differences)."""
    tapes = make_tapes(job)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "job.json"), Path(folder, "results.json")
        source.write_text(json.dumps([job._asdict(), tapes]))
        command = [sys.executable, "-m", "benchmarks.alfworld_compat", "--stock", str(source), str(target)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        expected = json.loads(target.read_text())
    results = play(separate_generators(open_batch(AlfredTWEnv, job), job.seed), tapes)
    assert len(results) == len(expected)
    differences = []
    for turn, (ours, stock) in enumerate(zip(results, expected, strict=True)):
        stock[-1].pop("facts", None)
        if ours != stock:
            differences.append(f"batch of {job.batch_size}, result {turn}: {_difference(ours, stock)}")
    last_of_rounds = results[MAX_STEPS + AFTER_THE_END :: 1 + MAX_STEPS + AFTER_THE_END]
    won = sum(sum(result[1]) for result in last_of_rounds)
    return len(results) * job.batch_size, won, differences


def record_stock(source: str, target: str) -> None:
    """Plays a job on the alfworld package and writes the results."""
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv as StockEnv
    from textworld.gym.envs import textworld_batch

    fields, tapes = json.loads(Path(source).read_text())
    job = Job(**fields)
    memoise_stock()
    textworld_batch._make_env = functools.partial(_seed_and_make, textworld_batch._make_env, job.seed)
    Path(target).write_text(json.dumps(play(open_batch(StockEnv, job), tapes)))
    os._exit(0)  # the stock library crashes when the process exits normally


def _seed_and_make(make: Any, seed: int, *args: Any) -> Any:
    """Seeds the generator of the process in which the stock environment plays one game."""
    random.seed(seed)
    return make(*args)


def separate_generators(batch: AlfworldBatchEnv, seed: int) -> AlfworldBatchEnv:
    """Gives every game its own random numbers, as the processes of the stock environment do."""
    for slot in batch._slots:
        generator = random.Random(seed)
        slot.reset = functools.partial(_with_generator, generator, slot.reset)  # type: ignore[method-assign]
        slot.step = functools.partial(_with_generator, generator, slot.step)  # type: ignore[method-assign]
    return batch


def _with_generator(generator: random.Random, call: Any, *args: Any) -> Any:
    """Calls a function while the global random numbers are those of `generator`."""
    outside = random.getstate()
    random.setstate(generator.getstate())
    try:
        return call(*args)
    finally:
        generator.setstate(random.getstate())
        random.setstate(outside)


def _plain(result: Any) -> Any:
    *values, infos = result
    infos = {key: [] if key == "facts" else list(value) for key, value in infos.items()}
    return json.loads(json.dumps([*values, infos]))


def _difference(ours: Any, stock: Any) -> str:
    """Returns the first differing values of two results."""
    for one_side, other_side in zip(ours[:-1], stock[:-1], strict=True):
        for value, expected in zip(one_side, other_side, strict=True):
            if value != expected:
                return f"{value!r} instead of {expected!r}"
    for key in sorted({*ours[-1], *stock[-1]}):
        for value, expected in zip(ours[-1].get(key, []), stock[-1].get(key, []), strict=False):
            if value != expected:
                return f"{key}: {value!r} instead of {expected!r}"
    return f"keys {sorted(ours[-1])} instead of {sorted(stock[-1])}"


def main() -> int:
    """Compares all batch sizes and kinds, prints a table, and returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=50)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--write", action="store_true", help=f"writes {PAGE.name}")
    parser.add_argument("--stock", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stock:
        record_stock(*options.stock)
    from envsuite.envs.alfworld.games import data

    files = [str(game.path) for split in ("train", "valid_seen") for game in data.games(split)]
    games = random.Random(0).sample(files, min(options.games, len(files)))
    lines = [
        "# The alfworld interface on the native engine, compared with the alfworld package",
        "",
        f"`python -m benchmarks.alfworld_compat --write`: {len(games)} official games, at most {MAX_STEPS} steps each.",
        "",
        "| configuration | batch size | results compared | differences |",
        "|---|---|---|---|",
    ]
    failed = False
    for kind in options.kinds:
        for batch_size in options.batch_sizes:
            count, _, differences = compare(make_job(games, batch_size, kind))
            failed |= bool(differences)
            lines.append(f"| {kind} | {batch_size} | {count:,} | {len(differences)} |")
            print(lines[-1], *differences[:5], sep="\n", flush=True)
    if options.write:
        PAGE.write_text("\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
