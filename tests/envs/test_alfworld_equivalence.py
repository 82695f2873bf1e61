"""A sample of `make equivalence`: the native engine gives the same answers as the stock engine.

The stock engine runs in a separate process. The results of the full run over 340 games are in
benchmarks/alfworld_equivalence.md.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
from pathlib import Path

import pytest

from benchmarks.alfworld_equivalence import Point, Walk, record, replay
from envsuite.envs.alfworld.engine import AlfworldGame
from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.generator import generate
from envsuite.envs.alfworld.games.logic import remake
from tests.conftest import SHARED

for package in ("alfworld", "textworld", "fast_downward"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed", allow_module_level=True)

OFFICIAL = (
    "valid_seen/look_at_obj_in_light-Box-None-DeskLamp-205/trial_T20190907_074425_330493",
    "valid_seen/pick_two_obj_and_place-Newspaper-None-Drawer-224/trial_T20190911_101248_326533",
)


def sample() -> list[tuple[str, str, tuple[str, ...], bool]]:
    """(name, text of the game, walks, memoise)"""
    games = [(f"generated {seed}", generate(seed).text) for seed in (1, 2)]
    if (SHARED / "data/alfworld").is_dir():
        root = Path(SHARED) / "data/alfworld/json_2.1.1"
        games = [(name, (root / name / "game.tw-pddl").read_text()) for name in OFFICIAL]
    (first, text), (second, second_text) = games
    return [
        (first, text, ("plan",), False),
        (second, second_text, ("plan", "busy"), True),
        (f"{first} in the second dialect", remake(text, "0.4"), ("remade",), True),
    ]


@pytest.fixture(scope="module")
def played() -> list[tuple[AlfworldGame, list[Walk]]]:
    """Returns the stock engine's answers, recorded in a separate process."""
    jobs, games = [], []
    for name, text, kinds, memoise in sample():
        games.append(AlfworldGame.from_json(text, name))
        jobs.append((text, name, solver.commands(games[-1], games[-1].start), kinds, memoise))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        walks = pool.starmap(record, jobs)
    return list(zip(games, walks, strict=False))


def test_both_engines_give_equal_answers_at_every_step(played):
    points = 0
    for game, walks in played:
        for walk in walks:
            for stock, native in replay(game, walk):
                assert stock == native, game.name
                points += 1
    assert points > 90
    commands = [point for _, walks in played for walk in walks for point in walk if point.command is not None]
    assert sum(point.won for point in commands) >= 3
    assert sum(point.feedback == "Nothing happens." for point in commands) >= 15


def test_the_comparison_detects_a_difference(played):
    game, (walk, *_) = played[0]
    spoilt = list(walk)
    spoilt[2] = spoilt[2]._replace(admissible=spoilt[2].admissible[::-1])
    spoilt[3] = spoilt[3]._replace(feedback=spoilt[3].feedback + " ")
    assert [stock == native for stock, native in replay(game, spoilt)].count(False) == 2
    assert json.loads(json.dumps(walk)) == [list(point) for point in walk]  # the transcript survives storage
    assert all(isinstance(point, Point) for point in walk)
