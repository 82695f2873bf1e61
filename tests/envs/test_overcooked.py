"""The salad kitchens beyond the golden games: walks, items, commands, planner, knobs, rewards, pictures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envsuite
from envsuite import registry
from envsuite.core import declared_knobs
from envsuite.envs.overcooked.salad import text
from envsuite.envs.overcooked.salad.engine import CHOPS, Simulation, macro_actions
from envsuite.envs.overcooked.salad.kitchen import RECIPES, published_kitchen
from envsuite.errors import UsageError

TOMATO = "Overcooked-tomato_salad-v0"
BOTH = "Overcooked-tomato_lettuce_salad-v0"


def do(sim, macro):
    """Plays one macro-action by single steps."""
    sim.begin(macro)
    while sim.macro is not None:
        sim.tick()


def play(env, command):
    """Plays to the end with the commands of a function. Returns the rewards and the last info."""
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, info = env.step(command())
        rewards.append(reward)
        over = terminated or truncated
    return rewards, info


def test_a_walk_goes_up_or_down_first_then_sideways():
    kitchen = published_kitchen("v3", 7)
    for target in [*kitchen.homes, *kitchen.boards, kitchen.delivery]:
        row, column = (min(max(axis, 1), 5) for axis in kitchen.position(target))
        for start in kitchen.floor:
            cell, seen, paths = start, [], kitchen.paths_to(target)
            while paths.steps[cell] > 1:
                cell += kitchen.delta[paths.direction(cell)]
                seen.append(kitchen.position(cell))
            r, c = kitchen.position(start)
            vertical = [(r + np.sign(row - r) * i, c) for i in range(1, abs(row - r) + 1)]
            sideways = [(row, c + np.sign(column - c) * i) for i in range(1, abs(column - c) + 1)]
            assert seen == vertical + sideways


@settings(max_examples=40, deadline=None)
@given(moves=st.lists(st.integers(0, 999), min_size=20, max_size=120))
def test_nothing_is_ever_lost_or_in_two_places(moves):
    kitchen = published_kitchen("v3", 7)
    sim = Simulation(kitchen, ("tomato", "lettuce"))
    macros = macro_actions(kitchen)
    for move in moves:
        do(sim, macros[move % len(macros)])
        for item, cell in enumerate(sim.place):
            in_bowl = item in sim.contents
            assert (sim.item_on(cell) == item and sim.hand != item) + (sim.hand == item) + in_bowl == 1
            if sim.hand == item:
                assert cell == sim.cell
            if in_bowl:
                assert sim.chops[item] == CHOPS and cell == sim.place[kitchen.bowl]
        again = Simulation(kitchen, ("tomato", "lettuce"))
        again.load(sim.save())
        assert again.save() == sim.save()
        if sim.delivered:
            break


def test_a_wrong_delivery_sends_items_home_raw():
    kitchen = published_kitchen("v3", 7)
    sim = Simulation(kitchen, ("tomato",))
    macros = {macro.name: macro for macro in macro_actions(kitchen)}
    for name in ("get onion", "go to knife 1", "chop", "get plate 1", "get onion", "deliver"):
        do(sim, macros[name])
    assert sim.place == kitchen.homes and sim.chops == [0, 0, 0] and sim.wrong_now == 1 and not sim.contents


@pytest.mark.parametrize("task", [TOMATO, BOTH])
def test_every_offer_is_understood_as_the_macro_action_it_stands_for(task):
    env = registry.build(task)
    rng = np.random.default_rng(5)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            offers = info["admissible_commands"]
            assert len(set(offers)) == len(offers)
            for macro, offer in zip(env.macros, offers, strict=True):
                assert offer == text.phrase(text.label(env.sim, macro))
                assert env._commands[offer] is env._commands[macro.name] is macro
            command = f"  {offers[rng.integers(len(offers))].upper()}. "
            *_, terminated, truncated, info = env.step(command)
            over = terminated or truncated


def test_what_is_not_understood_costs_a_step_and_says_so():
    env = registry.build(TOMATO, reward_mode="dense")
    first, _ = env.reset(seed=0)
    observation, reward, *_, info = env.step("open the fridge")
    assert observation.endswith(first) and observation != first
    assert (reward, info["primitive_steps"], info["is_action_valid"]) == (-0.001, 1, False)


def test_valid_says_whether_a_published_offer_got_anywhere():
    env = registry.build(TOMATO)
    env.reset(seed=0)
    commands = ("chop", "get tomato", "get tomato", "get plate 1", "go to knife 1", "chop")
    valid = [env.step(command)[-1]["is_action_valid"] for command in commands]
    assert valid == [False, True, False, False, True, True]


@pytest.mark.parametrize("size", [7, 9])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_expert_serves_every_recipe_and_remaining_falls_by_one_with_each_command(recipe, size):
    env = registry.build(BOTH, recipe=recipe, size=size)
    env.reset(seed=0)
    for macro in np.random.default_rng(size).integers(0, len(env.macros), size=4):  # from a state that play reached
        env.step(env.macros[macro].name)
    over = env._over
    while not over:
        before = env.remaining()
        *_, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
        assert env.remaining() == before - 1
    assert info["success"]


def test_every_recipe_is_a_task():
    assert registry.TASKS[TOMATO].kwargs == {}
    assert registry.TASKS[BOTH].kwargs == {"recipe": "tomato-lettuce", "variant": "v3"}
    tasks = [task for task in envsuite.tasks("overcooked-*") if task.id.endswith("_salad-v0")]
    assert {task.kwargs.get("recipe", "tomato") for task in tasks} == set(RECIPES)


def test_what_was_not_published_is_refused_in_one_line():
    with pytest.raises(UsageError, match="variant=v3"):
        registry.build(TOMATO, recipe="lettuce")
    with pytest.raises(UsageError, match="size=7 or size=9"):
        registry.build(TOMATO, size=8)


CHANGES = {
    "recipe": "lettuce-onion",
    "variant": "v3",
    "size": 9,
    "radius": 1,
    "horizon": 20,
    "discount": 1.0,
    "max_steps": 3,
}


@pytest.mark.parametrize("knob", sorted(declared_knobs(registry.env_class(registry.TASKS[TOMATO]))))
def test_every_knob_changes_what_is_played(knob):
    task = TOMATO if knob == "variant" else BOTH

    def transcript(**knobs):
        env = registry.build(task, reward_mode="dense", **knobs)
        steps, over, turn = list(env.reset(seed=4)), False, 0
        while not over:
            *step, info = env.step(("get tomato", "deliver")[turn] if turn < 2 else env.expert())
            steps += [*step, info]
            over, turn = step[2] or step[3], turn + 1
        return steps

    assert transcript(**{knob: CHANGES[knob]}) != transcript()


def test_the_horizon_truncates_but_never_cuts_a_walk():
    env = registry.build(TOMATO, horizon=4)
    env.reset(seed=0)
    env.step("get tomato")
    *_, terminated, truncated, info = env.step("go to knife 1")
    assert (terminated, truncated, info["env_step"], info["stop_reason"]) == (False, True, 7, "max_steps")
    assert env.sim.item_on(env.kitchen.boards[0]) == 0


def test_a_wider_window_shows_more():
    near, far = (registry.build(BOTH, radius=radius) for radius in (1, 6))
    observation, _ = near.reset(seed=0)
    wide, _ = far.reset(seed=0)
    assert "lettuce can" not in observation and "bowl can" not in observation
    assert "the tomato, the lettuce, the onion and the bowl" in wide.lower()


@pytest.mark.parametrize("unit", ["step", "command"])
def test_shaped_pays_the_telescoped_potential_in_the_unit_it_was_told(unit):
    env = registry.build(BOTH, reward_mode="shaped", shaping_gamma=0.9, shaping_unit=unit)
    env.reset(seed=2)
    total, discount, over = 0.0, 1.0, False
    while not over:
        _, reward, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
        total += discount * (reward - info["success"])
        discount *= 0.9 ** (info["primitive_steps"] if unit == "step" else 1)
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("knobs", "word"), [({"shaping_gamma": 1.5}, "1.5"), ({"shaping_unit": "turn"}, "turn"), ({"discount": 1.5}, "1.5")]
)
def test_a_discount_that_cannot_be_is_refused(knobs, word):
    with pytest.raises(UsageError, match=word):
        registry.build(TOMATO, reward_mode="shaped", **knobs)


def test_a_snapshot_restores_the_episode():
    env = registry.build(BOTH, reward_mode="dense")
    env.reset(seed=0)
    for _ in range(4):
        env.step(env.expert())
    saved = env.snapshot()
    first = play(env, env.expert)
    env.restore(saved)
    assert play(env, env.expert) == first


def test_pictures_show_every_move():
    pytest.importorskip("PIL")
    env = registry.build(BOTH, render_mode="rgb_array")
    words = registry.build(BOTH, render_mode="ansi")
    env.reset(seed=0)
    words.reset(seed=0)
    assert words.render().splitlines()[:2] == ["#####t#", "k...1.l"]
    last, over = None, False
    while not over:
        image = env.render()
        assert image.shape == (7 * 48 + 22, 7 * 48, 3) and image.dtype == np.uint8
        assert last is None or (image != last).any()
        last = image
        command = env.expert()
        words.step(command)
        *_, terminated, truncated, _ = env.step(command)
        over = terminated or truncated
    assert "bowl 1 holds" in words.render()
