"""Splits, token counts and speed of VirtualHome's drawn homes, version 0 against version 1.

python -m benchmarks.virtualhome_household splits|tokens|speed

Prints the tables of benchmarks/virtualhome_household.md. Tokens are those of SmolLM2's tokenizer. Times are CPU seconds
of this process, best of several rounds.
"""

import random
import sys
import time
from pathlib import Path
from statistics import mean

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.envs.virtualhome.household.classes import DrawSettings
from envsuite.envs.virtualhome.household.generator import draw_home
from envsuite.envs.virtualhome.household.structure import structure
from harness.lm.model_files import folder

LEVELS = ("easy", "medium", "hard")
TEST = 1_000_000
GAMES, TRAINING_GAMES = 1000, 3000
TOKEN_GAMES = 50
ROUNDS, STEPS = 4, 8000


def splits() -> None:
    """Counts sentences and structures of test games that training games have, too."""
    print("| level | version | test sentences in training | test structures in training | structures in training |")
    print("|---|---|--:|--:|--:|")
    for level in LEVELS:
        env = registry.build(f"VirtualHome-{level}-v0")
        training = {_objective(env, seed) for seed in range(TRAINING_GAMES)}
        shared = sum(_objective(env, TEST + i) in training for i in range(GAMES))
        print(f"| {level} | 0 | {shared} of {GAMES:,} | | |", flush=True)
        made = vars(registry.build(f"VirtualHome-{level}-v1").settings)
        settings = DrawSettings(**{name: made[name] for name in DrawSettings._fields})
        games = [draw_home(seed, settings) for seed in range(TRAINING_GAMES)]
        sentences = {game.goal.text for game in games}
        structures = {structure(game.goal, game.home.start, game.home.things) for game in games}
        tests = [draw_home(TEST + i, settings) for i in range(GAMES)]
        twins = sum(structure(game.goal, game.home.start, game.home.things) in structures for game in tests)
        shared = sum(game.goal.text in sentences for game in tests)
        print(f"| {level} | 1 | {shared} of {GAMES:,} | {twins} of {GAMES:,} | {len(structures):,} |", flush=True)


def _objective(env: TextEnv, seed: int) -> str:
    env.reset(seed=seed)
    return env.objective


def tokens() -> None:
    """Counts tokens of observations and episodes: with the expert, the random player and the expert that searches."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(folder("smollm2-135m")) / "tokenizer.json"))
    print("| task | player | tokens per observation | per episode | turns |")
    print("|---|---|--:|--:|--:|")
    tasks = [(f"VirtualHome-{level}-v{version}", {}) for level in LEVELS for version in (0, 1)]
    tasks += [(f"VirtualHome-{level}-v1", {"view": "full"}) for level in LEVELS]
    for task, knobs in tasks:
        env = registry.build(task, **knobs)
        for player in ("random", *("expert" if not kind else f"expert:{kind}" for kind in env.experts)):
            texts, turns = [], []
            for seed in range(TEST, TEST + TOKEN_GAMES):
                episode = _observations(env, seed, player)
                turns.append(len(episode) - 1)
                texts += episode
            total = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False))
            name = f"{task}{', view=full' if knobs else ''}"
            print(
                f"| {name} | {player} | {total / len(texts):.1f} | {total / TOKEN_GAMES:.0f} | {mean(turns):.1f} |",
                flush=True,
            )


def _observations(env: TextEnv, seed: int, player: str) -> list[str]:
    rng = random.Random(seed)
    text, info = env.reset(seed=seed)
    texts, over = [text], False
    while not over:
        if player == "random":
            command = rng.choice(info["admissible_commands"])
        else:
            command = env.expert(player.partition(":")[2]) or ""
        text, _, terminated, truncated, info = env.step(command)
        texts.append(text)
        over = terminated or truncated
    return texts


def speed() -> None:
    """Measures a random player, with text and offers: all included, and without resets."""
    print("| task | steps/s with resets | steps/s without | ms per reset |")
    print("|---|--:|--:|--:|")
    for level in LEVELS:
        for version in (0, 1):
            env = registry.build(f"VirtualHome-{level}-v{version}")
            rounds = [_steps(env, turn) for turn in range(ROUNDS)]
            cells = max(row[0] for row in rounds), max(row[1] for row in rounds), min(row[2] for row in rounds)
            print("| VirtualHome-{}-v{} | {:,.0f} | {:,.0f} | {:.2f} |".format(level, version, *cells), flush=True)


def _steps(env: TextEnv, turn: int) -> tuple[float, float, float]:
    choose, seed = random.Random(turn).random, turn * 100_000
    resets = 0
    resetting = 0.0
    began = time.process_time()
    over, info = True, {}
    for _ in range(STEPS):
        if over:
            before = time.process_time()
            _, info = env.reset(seed=seed)
            resetting += time.process_time() - before
            seed, resets = seed + 1, resets + 1
        offers = info["admissible_commands"]
        _, _, terminated, truncated, info = env.step(offers[int(choose() * len(offers))])
        over = terminated or truncated
    total = time.process_time() - began
    return STEPS / total, STEPS / (total - resetting), 1000 * resetting / resets


if __name__ == "__main__":
    {"splits": splits, "tokens": tokens, "speed": speed}[sys.argv[1]]()
