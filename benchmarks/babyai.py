"""Compares steps per second of BabyAI with raw minigrid, alternating in one run.

    python -m benchmarks.babyai

Columns: minigrid's own step (with its encoded image); the same with the image converted to the text
of BabyAI-Text by a wrapper; ours (text, validity, admissible commands, progression, and all of
TextEnv's contract). All use the same random commands; resets are included.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from envsuite import registry
from envsuite.envs.babyai.env import COMMANDS
from envsuite.envs.babyai.view import Fact, describe

LEVELS = ("GoToLocal", "PutNextLocal", "KeyCorridorS4R3", "BossLevel")
STEPS, ROUNDS = 1500, 9
TYPES = {4: "door", 5: "key", 6: "ball", 7: "box"}
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
STATES = ("open", "closed", "locked")


def words(image: Any) -> str:
    """Returns the text for an image [n, n, 3], as a wrapper of minigrid would create it."""
    n = len(image)
    cells, facts = image.tolist(), []
    kind, color, _ = cells[n // 2][n - 1]
    if kind in TYPES:
        facts.append(Fact("carry", TYPES[kind], COLORS[color]))
    rays = (
        [(n // 2, n - 1 - k) for k in range(1, n)],
        [(n // 2 - k, n - 1) for k in range(1, n // 2 + 1)],
        [(n // 2 + k, n - 1) for k in range(1, n // 2 + 1)],
    )
    for ray in rays:
        for x, y in ray:
            if cells[x][y][0] > 1:
                if cells[x][y][0] == 2:
                    facts.append(Fact("wall", left=max(0, n // 2 - x), right=max(0, x - n // 2), forward=n - 1 - y))
                break
    for x in range(n):
        for y in range(n):
            kind, color, state = cells[x][y]
            if kind in TYPES and (x, y) != (n // 2, n - 1):
                text = STATES[state] if kind == 4 else ""
                place = max(0, n // 2 - x), max(0, x - n // 2), n - 1 - y
                facts.append(Fact("object", TYPES[kind], COLORS[color], text, *place))
    return describe(facts, "babyai-text")


def raw(level: str, as_text: bool) -> Callable[[], None]:
    """Plays STEPS steps on minigrid, with or without converting its image to text."""
    env: Any = gym.make(f"BabyAI-{level}-v0", disable_env_checker=True).unwrapped
    actions = np.random.default_rng(0).integers(6, size=STEPS).tolist()

    def play() -> None:
        seed = 0
        env.reset(seed=seed)
        for action in actions:
            observation, _, terminated, truncated, _ = env.step(action)
            if as_text:
                words(observation["image"])
            if terminated or truncated:
                seed += 1
                env.reset(seed=seed)

    return play


def ours(level: str) -> Callable[[], None]:
    """Plays the same commands on envsuite."""
    env = registry.build(f"BabyAI-level-{level}-v0", wording="babyai-text")
    commands = [COMMANDS[action] for action in np.random.default_rng(0).integers(6, size=STEPS)]

    def play() -> None:
        seed = 0
        env.reset(seed=seed)
        for command in commands:
            _, _, terminated, truncated, _ = env.step(command)
            if terminated or truncated:
                seed += 1
                env.reset(seed=seed)

    return play


def same_words(level: str) -> int:
    """Returns the number of steps with equal texts until the first difference."""
    env: Any = gym.make(f"BabyAI-{level}-v0", disable_env_checker=True).unwrapped
    mine = registry.build(f"BabyAI-level-{level}-v0", wording="babyai-text")
    env.reset(seed=1)
    mine.reset(seed=1)
    for step, action in enumerate(np.random.default_rng(1).choice([0, 1, 2, 2, 2, 3, 4, 5], size=400).tolist()):
        observation, _, terminated, truncated, _ = env.step(action)
        text, *_ = mine.step(COMMANDS[action])
        assert text == words(observation["image"]), (level, step)
        if terminated or truncated:
            return step + 1
    return 400


def main() -> None:
    print(
        "| level | minigrid, image | minigrid, image and words | envsuite, all | envsuite : image | envsuite : words |"
    )
    print("|---|---|---|---|---|---|")
    compared = 0
    for level in LEVELS:
        plays = ours(level), raw(level, False), raw(level, True)  # ours first, because it imports minigrid
        times: list[list[float]] = [[], [], []]
        with contextlib.redirect_stdout(io.StringIO()):  # minigrid prints every rejected layout
            compared += same_words(level)
            for play in plays:
                play()
            for _ in range(ROUNDS):
                for play, taken in zip(plays, times, strict=False):
                    began = time.process_time()
                    play()
                    taken.append(time.process_time() - began)
        mine, image, text = (STEPS / statistics.median(taken) for taken in times)
        print(f"| {level} | {image:,.0f} | {text:,.0f} | {mine:,.0f} | {mine / image:.2f} | {mine / text:.2f} |")
    print(f"\n{compared:,} steps told in the same words by both.")


if __name__ == "__main__":
    main()
