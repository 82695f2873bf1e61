"""Overcooked beyond the published tasks: drawn kitchens, the planner, several cooks, knobs, wording, pictures."""

import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import envsuite
from envsuite import registry
from envsuite.core import declared_knobs
from envsuite.envs.overcooked import text
from envsuite.envs.overcooked.cooks import Menu, greedy_cook, play_out
from envsuite.envs.overcooked.engine import GET_FOOD, GO_TO_BOARD, Simulation, macro_actions
from envsuite.envs.overcooked.generator import draw_kitchen, steps_bound
from envsuite.envs.overcooked.graph import distances, explore
from envsuite.envs.overcooked.kitchen import (
    UNREACHABLE,
    Kitchen,
    all_foods,
    published_kitchen,
    recipe_foods,
    recipe_names,
)
from envsuite.envs.overcooked.motion import CHOPS
from envsuite.envs.overcooked.offers import helps, honest_label, label_state, published_label
from envsuite.envs.overcooked.planner import COMMAND, Planner
from envsuite.errors import DataError, UsageError

FOODS = list(all_foods())


def drawn(seed, size=6, cooks=1, recipe=1, foods=2, boards=1, bowls=1, deliveries=1, walls=0.1):
    return draw_kitchen(seed, size, cooks, tuple(FOODS[:recipe]), foods, boards, bowls, deliveries, walls)


def do(sim, macro, cook=0):
    """Plays one macro-action of a lone cook by single ticks; the primitive steps it took."""
    sim.begin(cook, macro)
    steps = 0
    while sim.macro[cook] is not None:
        sim.tick()
        steps += 1
    return steps


def things(sim):
    """The state but for where cooks stand and what is carried along."""
    free = [place for thing, place in enumerate(sim.place) if thing not in sim.hand]
    return sim.hand, sim.chops, sim.contents, sim.lying, sim.delivered, len(free)


# ---- walking -------------------------------------------------------------------------------------------------------


def test_on_the_open_map_a_walk_goes_up_or_down_first_then_sideways():
    kitchen = published_kitchen("v3", "a", 7, 1)
    targets = [cell for cell, kind in enumerate(kitchen.kind) if kind and kitchen.position(cell) not in CORNERS]
    for target in targets:
        row, column = (min(max(axis, 1), 5) for axis in kitchen.position(target))
        for start in kitchen.floor:
            cell, seen = start, []
            while kitchen.way(target).steps[cell] > 1:
                cell += kitchen.delta[kitchen.way(target).direction(cell)]
                seen.append(kitchen.position(cell))
            r, c = kitchen.position(start)
            vertical = [(r + np.sign(row - r) * i, c) for i in range(1, abs(row - r) + 1)]
            sideways = [(row, c + np.sign(column - c) * i) for i in range(1, abs(column - c) + 1)]
            assert seen == vertical + sideways


CORNERS = {(0, 0), (0, 6), (6, 0), (6, 6)}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(5, 10), walls=st.floats(0, 0.3))
def test_ways_are_shortest_and_their_gates_lie_on_them(seed, size, walls):
    kitchen = drawn(seed, size=size, walls=walls)
    for target in [*kitchen.boards, *kitchen.homes, kitchen.floor[0]]:
        way = kitchen.way(target)
        for cell in kitchen.floor:
            if cell == target or way.steps[cell] == UNREACHABLE:
                continue
            around = [cell + step for step in kitchen.delta[:4]]
            nearest = min(way.steps[second] for second in around if second == target or kitchen.kind[second] == 0)
            assert way.steps[cell] == nearest + 1
            walked = cell
            while way.steps[walked] > 2:
                walked += kitchen.delta[way.direction(walked)]
            assert way.steps[cell] < 2 or way.gate(cell) == walked


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), moves=st.lists(st.integers(0, 99), min_size=10, max_size=60))
def test_walking_in_leaps_ends_where_single_steps_end(seed, moves):
    kitchen = drawn(seed, recipe=2, foods=3, boards=2)
    first, second = (Simulation(kitchen, FOODS[:2]) for _ in range(2))
    macros = macro_actions(kitchen, counters=True)
    for move in moves:
        macro = macros[move % len(macros)]
        slow = do(first, macro)
        second.begin(0, macro)
        quick = second.fast_forward()
        while second.macro[0] is not None:
            second.tick()
            quick += 1
        assert (quick, second.save()) == (slow, first.save())
        if first.delivered:
            break


# ---- the state machine ---------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    cooks=st.integers(1, 3),
    bowls=st.integers(1, 2),
    moves=st.lists(st.integers(0, 999), min_size=20, max_size=120),
)
def test_nothing_is_ever_lost_or_in_two_places(seed, cooks, bowls, moves):
    kitchen = drawn(seed, size=7, cooks=cooks, recipe=2, foods=3, boards=2, bowls=bowls)
    sim = Simulation(kitchen, FOODS[:2])
    macros = macro_actions(kitchen, counters=True)
    for move in moves:
        for cook in range(cooks):
            if sim.macro[cook] is None:
                sim.begin(cook, macros[(move * (cook + 7)) % len(macros)])
        sim.tick()
        assert len(set(sim.cell)) == cooks  # nobody shares a cell
        for thing, place in enumerate(sim.place):
            inside = thing < sim.n_foods and sim.bowl_of[thing] >= 0
            held = [cook for cook, hand in enumerate(sim.hand) if hand == thing]
            assert (sim.lying[place] == thing) + len(held) + inside == 1
            assert sum(cell == thing for cell in sim.lying) == (not held and not inside)
            if held:
                assert place == sim.cell[held[0]]
            if inside:
                bowl = sim.bowl_of[thing]
                assert sim.chops[thing] == CHOPS and sim.contents[bowl].count(thing) == 1
                assert place == sim.place[sim.n_foods + bowl]
        if all(macro is None for macro in sim.macro):
            saved = sim.save()
            twin = Simulation(kitchen, FOODS[:2])
            twin.load(saved)
            assert twin.save() == saved
            assert (twin.lying, twin.bowl_of) == (sim.lying, sim.bowl_of)
        if sim.delivered:
            break


def test_a_wrong_delivery_sends_things_home_raw_or_to_the_nearest_free_counter():
    kitchen = published_kitchen("v3", "c", 7, 1)
    sim = Simulation(kitchen, ("tomato",))
    macros = {macro.name: macro for macro in macro_actions(kitchen, counters=True)}
    for name in ("get onion", "go to knife 1", "chop", "get onion"):
        do(sim, macros[name])
    sim.lying[sim.kitchen.homes[2]] = 1  # something else lies where the onion is kept
    sim.lying[sim.place[1]], sim.place[1] = -1, sim.kitchen.homes[2]
    do(sim, macros["deliver"])
    onion = sim.place[2]
    assert onion != kitchen.homes[2] and sim.lying[onion] == 2 and sim.chops[2] == 0
    row, column = kitchen.position(kitchen.homes[2])
    assert sum(abs(a - b) for a, b in zip(kitchen.position(onion), (row, column), strict=False)) == 1


# ---- offers --------------------------------------------------------------------------------------------------------


TINY = Kitchen("tiny", ["#tb#", "k..d", "####"], [(1, 1)])


@pytest.mark.parametrize(
    ("kitchen", "recipe"),
    [
        (published_kitchen("v4", "a", 7, 1), "tomato"),
        (published_kitchen("v3", "a", 7, 1), "tomato-lettuce"),
        (TINY, "tomato"),
    ],
    ids=["v4", "v3", "tiny"],
)
def test_a_command_helps_exactly_if_it_changes_a_thing_or_leads_to_raw_food(kitchen, recipe):
    sim = Simulation(kitchen, recipe_foods(recipe))
    macros = macro_actions(sim.kitchen, counters=kitchen is TINY)
    labels: dict[tuple, list[str]] = {}
    for state in explore(sim, macros).states:
        sim.load(state)
        if sim.delivered:
            continue
        phrases_now = [published_label(sim, 0, macro) for macro in macros]
        assert labels.setdefault(label_state(sim, 0), phrases_now) == phrases_now
        for macro in macros:
            sim.load(state)
            promised = helps(sim, 0, macro)
            assert promised == (honest_label(sim, 0, macro) is not None)
            empty, away = sim.hand[0] < 0, sim.cell[0]
            do(sim, macro)
            walked_to_raw = macro.verb == GO_TO_BOARD and empty and sim.cell[0] != away
            walked_to_raw = walked_to_raw and sim.raw_on_board(sim.kitchen.boards[macro.which])
            assert promised == (sim.touched > 0 or walked_to_raw)


@pytest.mark.parametrize("wording", ["published", "honest"])
@pytest.mark.parametrize("task", ["Overcooked-tomato_lettuce_salad-v0", "Overcooked-hard-v0"])
def test_every_offer_is_understood_as_the_macro_action_it_stands_for(wording, task):
    env = registry.build(task, wording=wording)
    rng = np.random.default_rng(5)
    for seed in range(4):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            offers = info["admissible_commands"]
            assert len(set(offers)) == len(offers)
            label = honest_label if wording == "honest" else published_label
            for macro in env.menu.macros:
                phrases_now = label(env.sim, 0, macro)
                if phrases_now is not None:
                    assert env._commands[text.phrase(phrases_now)] is env._commands[macro.name]
                    assert text.phrase(phrases_now) in offers
            command = f"  {offers[rng.integers(len(offers))].upper()}. "
            *_, terminated, truncated, info = env.step(command)
            over = terminated or truncated
            assert wording == "published" or info["is_action_valid"]


def test_what_is_not_understood_costs_a_step_and_says_so():
    env = registry.build("Overcooked-tomato_salad-v0", reward_mode="dense")
    first, _ = env.reset(seed=0)
    observation, reward, *_, info = env.step("open the fridge")
    assert observation.endswith(first) and observation != first
    assert (reward, info["primitive_steps"], info["is_action_valid"]) == (-0.001, 1, False)
    env = registry.build("Overcooked-tomato_salad-v0", wording="honest")
    env.reset(seed=0)
    observation, *_, info = env.step("deliver")
    assert "nothing" in observation and not info["is_action_valid"] and env.sim.cell == list(env.kitchen.starts)


def test_valid_says_whether_a_published_offer_got_anywhere():
    env = registry.build("Overcooked-tomato_salad-v0")
    env.reset(seed=0)
    valid = [
        env.step(command)[-1]["is_action_valid"] for command in ("chop", "get tomato", "get tomato", "get plate 1")
    ]
    assert valid == [False, True, False, False]


# ---- the planner ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_plan_has_the_fewest_commands_and_its_bound_is_never_too_high_in_drawn_kitchens(seed):
    recipe, foods, boards, bowls = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 2, 2, 1), (1, 1, 2, 2)][seed % 4]
    kitchen = drawn(seed, size=5 + seed % 3, recipe=recipe, foods=foods, boards=boards, bowls=bowls)
    sim = Simulation(kitchen, FOODS[:recipe])
    macros = macro_actions(kitchen, counters=recipe == foods == bowls == 1)
    graph = explore(sim, macros, limit=50_000)
    exact = distances(graph, COMMAND)
    planner = Planner(sim, macros)
    for i in np.random.default_rng(seed).permutation(len(graph.states))[:400]:
        cost = exact[i]
        planner.sim.load(graph.states[i])
        assert cost is None or planner._bound() <= cost
        plan = planner.plan(graph.states[i])
        assert (plan is None) == (cost is None)
        if plan is not None:
            assert plan.commands == cost // COMMAND
            assert plan.steps >= cost % COMMAND


@pytest.mark.parametrize("level", ["easy", "medium"])
def test_remaining_falls_by_one_with_each_command_of_the_expert(level):
    env = registry.build(f"Overcooked-{level}-v0")
    for seed in range(5):
        env.reset(seed=seed)
        for macro in np.random.default_rng(seed).integers(0, 3, size=4):  # from any state that play reached
            env.step(env.menu.macros[macro].name)
        over = env._over
        while not over:
            before = env.remaining()
            *_, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
            assert env.remaining() == before - 1
        assert info["success"]


# ---- drawn kitchens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooks", [1, 2, 3])
def test_drawn_kitchens_hold_what_was_asked_for_and_are_solved_by_their_cooks(cooks):
    for seed in range(30):
        kitchen = drawn(seed, size=8, cooks=cooks, recipe=3, foods=5, boards=2, bowls=2, deliveries=2, walls=0.15)
        assert len(kitchen.starts) == cooks
        assert (len(kitchen.foods), len(kitchen.boards), len(kitchen.bowl_homes), len(kitchen.deliveries)) == (
            5,
            2,
            2,
            2,
        )
        assert set(FOODS[:3]) <= set(kitchen.foods)
        for station in [*kitchen.homes, *kitchen.boards, *kitchen.deliveries]:
            assert all(kitchen.way(station).steps[cell] < UNREACHABLE for cell in kitchen.floor)
        menu = Menu(macro_actions(kitchen, counters=True))
        assert play_out(Simulation(kitchen, FOODS[:3]), menu) is not None


def test_drawn_kitchens_are_served_within_the_horizon():
    args = {"size": 15, "recipe": 4, "foods": 5, "walls": 0.2}
    menu = lambda kitchen: Menu(macro_actions(kitchen, counters=True))
    needed = [play_out(Simulation(k, FOODS[:4]), menu(k)) for k in (drawn(seed, **args) for seed in range(20))]
    assert max(needed) > 160  # some that are drawn would take longer
    for seed in range(20):
        kitchen = draw_kitchen(seed, 15, 1, tuple(FOODS[:4]), 5, 1, 1, 1, 0.2, horizon=160)
        assert play_out(Simulation(kitchen, FOODS[:4]), menu(kitchen)) <= 160


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(6, 11),
    stations=st.tuples(st.integers(1, 4), st.integers(4, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
    walls=st.floats(0, 0.35),
)
def test_a_lone_greedy_cook_never_takes_longer_than_its_bound(seed, size, stations, walls):
    recipe, *foods_besides = stations
    try:
        kitchen = draw_kitchen(seed, size, 1, tuple(FOODS[:recipe]), *foods_besides, walls, 1000)
    except UsageError:  # too crowded
        return
    menu = Menu(macro_actions(kitchen, counters=True))
    assert play_out(Simulation(kitchen, FOODS[:recipe]), menu) <= steps_bound(kitchen, FOODS[:recipe])


def test_seeds_name_the_same_kitchens_in_every_version():
    for level, digest in KITCHENS.items():
        env, drawings = registry.build(f"Overcooked-{level}-v0"), hashlib.sha256()
        for seed in range(40):
            env.reset(seed=seed)
            drawings.update(repr((env.kitchen.drawing(), env.kitchen.starts, env.sim.order)).encode())
        assert drawings.hexdigest()[:16] == digest, level


KITCHENS = {"easy": "a3eb4b282272ab39", "medium": "7cc944fc7da930a3", "hard": "6f18404d8871c40c"}


def test_an_order_is_as_large_as_asked_for_however_few_foods_there_are_besides():
    env = registry.build("Overcooked-easy-v0", recipe_size=4, foods=2, size=7)
    for seed in range(5):
        env.reset(seed=seed)
        assert len(env.sim.recipe) == len(env.kitchen.foods) == 4


def test_seeds_draw_different_kitchens_and_the_same_seed_the_same():
    env, second = registry.build("Overcooked-medium-v0"), registry.build("Overcooked-medium-v0")
    drawings = set()
    for seed in range(50):
        env.reset(seed=seed)
        draw_kitchen.cache_clear()
        second.reset(seed=seed)
        assert env.kitchen.drawing() == second.kitchen.drawing() and env.objective == second.objective
        drawings.add(tuple(env.kitchen.drawing()))
    assert len(drawings) == 50


def test_what_does_not_fit_is_said_in_one_line():
    with pytest.raises(UsageError, match="larger size"):
        registry.build("Overcooked-easy-v0", size=5, foods=8, boards=4, walls=0.4).reset(seed=0)
    with pytest.raises(UsageError, match=r"did not serve .* within horizon=20"):
        registry.build("Overcooked-hard-v0", horizon=20).reset(seed=0)
    with pytest.raises(UsageError, match="variant=v3"):
        registry.build("Overcooked-tomato_salad-v0", recipe="lettuce")
    with pytest.raises(UsageError, match="cooks=2"):
        registry.build("Overcooked-tomato_salad-v0", layout="b")
    with pytest.raises(UsageError, match="sizes 7 and 9"):
        registry.build("Overcooked-tomato_salad-v0", size=8)
    with pytest.raises(UsageError, match="plans for 1 cook"):
        registry.build("Overcooked-tomato_salad-2cooks-v0", reward_mode="shaped")
    with pytest.raises(DataError, match="floor on its border"):
        Kitchen("open", ["###", "...", "###"], [(1, 1)])


def test_a_kitchens_drawing_draws_it_again():
    for variant in ("v1", "v3", "v4"):
        for size in (7, 9):
            kitchen = published_kitchen(variant, "c", size, 1)
            again = Kitchen("again", kitchen.drawing(), [kitchen.position(cell) for cell in kitchen.starts])
            assert (again.kind, again.homes, again.boards) == (kitchen.kind, kitchen.homes, kitchen.boards)


# ---- published maps and teams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 9])
@pytest.mark.parametrize("layout", ["a", "b", "c"])
@pytest.mark.parametrize("variant", ["v1", "v3"])
def test_all_seven_recipes_are_served_on_every_map_by_one_two_or_three_greedy_cooks(variant, layout, size):
    for cooks in (1, 2, 3):
        if (layout, cooks) == ("b", 1):
            continue
        for recipe in recipe_names():
            kitchen = published_kitchen(variant, layout, size, cooks)
            menu = Menu(macro_actions(kitchen, counters=layout != "a"))
            assert play_out(Simulation(kitchen, recipe_foods(recipe)), menu, limit=200) is not None


@pytest.mark.parametrize("task", [task.id for task in envsuite.tasks("overcooked-*") if not task.level])
def test_the_expert_wins_every_published_task_within_the_horizon(task):
    env = registry.build(task)
    env.reset(seed=0)
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
        assert info["is_action_valid"]
    assert info["success"]


@pytest.mark.parametrize("partner", ["policy", "expert", "greedy", "random"])
def test_partners_fill_the_other_places_and_time_passes_for_all_at_once(partner):
    env = registry.build(
        "Overcooked-tomato_lettuce_salad-b-2cooks-v0", reward_mode="dense", partner=partner, discount=1.0
    )
    observation, info = env.reset(seed=3)
    requested, total, steps, over = set(), 0.0, 0, False
    while not over:
        requested.add(observation.split(".")[0])
        assert len(info["admissible_commands"]) >= 1
        observation, reward, terminated, truncated, info = env.step(env.expert("greedy"))
        total, steps, over = total + reward, steps + info["primitive_steps"], terminated or truncated
    assert requested == (
        {"You are cook 1 of 2", "You are cook 2 of 2"} if partner == "policy" else {"You are cook 1 of 2"}
    )
    assert steps == info["env_step"] <= 200
    assert total == pytest.approx(info["metrics"]["plain_return"], abs=1e-9)
    assert info["success"] or partner == "random"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), cooks=st.integers(2, 3), layout=st.sampled_from(["a", "b", "c", "random"]))
def test_no_team_of_random_cooks_ever_gets_stuck(seed, cooks, layout):
    env = registry.build("Overcooked-tomato_lettuce_salad-v0", cooks=cooks, layout=layout, partner="random")
    env.reset(seed=seed)
    rng, over = np.random.default_rng(seed), False
    while not over:
        *_, terminated, truncated, info = env.step(env.random_command(rng))
        over = terminated or truncated
    assert info["success"] or info["env_step"] == 200


def test_two_cooks_head_on_in_a_passage_one_cell_wide_get_past_each_other():
    kitchen = Kitchen("lane", ["#######", "k.....t", "##d#b##"], [(1, 1), (1, 5)])
    sim = Simulation(kitchen, ("tomato",))
    macros = {macro.name: macro for macro in macro_actions(kitchen, counters=False)}
    sim.begin(0, macros["get tomato"])
    sim.begin(1, macros["go to knife 1"])
    for _ in range(12):
        sim.tick()
    assert sim.macro == [None, None] and sim.hand[0] == 0
    assert [kitchen.position(cell) for cell in sim.cell] == [(1, 5), (1, 1)]


def test_a_snapshot_brings_back_walks_under_way():
    env = registry.build("Overcooked-tomato_lettuce_salad-c-2cooks-v0", reward_mode="dense")
    env.reset(seed=0)
    for _ in range(5):
        env.step(env.expert())
    saved = env.snapshot()
    after = [env.step(env.expert("greedy")) for _ in range(6)]
    env.restore(saved)
    assert [env.step(env.expert("greedy")) for _ in range(6)] == after


# ---- chance, knobs, pictures ---------------------------------------------------------------------------------------


CHANGES = {
    "recipe": "lettuce-onion",
    "layout": "c",
    "variant": "v1",
    "size": 9,
    "cooks": 2,
    "partner": "random",
    "foods": 6,
    "boards": 1,
    "bowls": 2,
    "deliveries": 3,
    "walls": 0.3,
    "recipe_size": 1,
    "radius": 1,
    "horizon": 20,
    "slip": 0.5,
    "wording": "honest",
    "discount": 1.0,
    "step_cost": 0.1,
    "chop_reward": 1.0,
    "wrong_cost": 1.0,
    "texts": "v1",
    "realtime": True,
    "max_steps": 3,
}
DRAWN_ONLY = ("foods", "boards", "bowls", "deliveries", "walls", "recipe_size")


KNOBS = declared_knobs(registry.env_class(registry.TASKS["Overcooked-easy-v0"])).keys() - {"say"}
"""`say` changes nothing until a cook says something: test_overcooked_teams."""


@pytest.mark.parametrize("knob", sorted(KNOBS))
def test_every_knob_changes_what_is_played(knob):
    task = "Overcooked-medium-v0" if knob in DRAWN_ONLY else "Overcooked-tomato_lettuce_salad-v0"
    if knob in ("partner", "realtime"):
        task = "Overcooked-tomato_lettuce_salad-2cooks-v0"
    assert transcript(task, **{knob: CHANGES[knob]}) != transcript(task)


def transcript(task, **knobs):
    """All that is told and paid when raw food is handed in and then the greedy cook plays."""
    env = registry.build(task, reward_mode="dense", **knobs)
    observation, over, turn = list(env.reset(seed=4)), False, 0
    while not over:
        command = (f"get {env.kitchen.foods[0]}", "deliver")[turn] if turn < 2 else env.expert("greedy")
        *step, info = env.step(command)
        observation += [*step, info]
        over, turn = step[2] or step[3], turn + 1
    return observation


def test_every_row_of_the_papers_is_on_the_menu():
    """Tasks 0 and 3 of both papers, and every other dish, on every map, for as many cooks as can serve it there."""
    assert registry.TASKS["Overcooked-tomato_salad-v0"].kwargs == {}
    assert registry.TASKS["Overcooked-tomato_lettuce_salad-v0"].kwargs == {"recipe": "tomato-lettuce", "variant": "v3"}
    tasks = [task for task in envsuite.tasks("overcooked-*") if not task.level]
    rows = [task.kwargs for task in tasks if not task.id.startswith("Overcooked-AI-")]
    for recipe in recipe_names():
        mine = [row for row in rows if row.get("recipe", "tomato") == recipe]
        played = {(row.get("layout", "a"), row.get("cooks", 1)) for row in mine}
        assert played == {(layout, cooks) for layout in "abc" for cooks in (1, 2, 3)} - {("b", 1)}


def test_slips_cost_time_depend_on_the_attempt_and_leave_the_kitchen_solvable():
    env = registry.build("Overcooked-tomato_lettuce_salad-v0", slip=0.3, horizon=1000)
    lengths = []
    for attempt in (0, 0, 1):
        env.reset(seed=7, options={"attempt": attempt})
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
        assert info["success"]
        lengths.append(info["env_step"])
    assert lengths[0] == lengths[1] != lengths[2]
    assert min(lengths) > 45


def test_the_horizon_truncates_but_never_cuts_a_lone_cooks_walk():
    env = registry.build("Overcooked-tomato_salad-v0", horizon=4)
    env.reset(seed=0)
    env.step("get tomato")
    *_, terminated, truncated, info = env.step("go to knife 1")
    assert (terminated, truncated, info["env_step"], info["stop_reason"]) == (False, True, 7, "max_steps")
    assert env.sim.lying[env.kitchen.boards[0]] == 0


def test_a_wider_window_shows_more_and_changes_where_a_walk_to_a_filled_bowl_stops():
    near, far = (registry.build("Overcooked-tomato_lettuce_salad-v0", radius=radius) for radius in (1, 6))
    observation, _ = near.reset(seed=0)
    wide, _ = far.reset(seed=0)
    assert "lettuce can" not in observation and "bowl can" not in observation
    assert "the tomato, the lettuce, the onion and the bowl" in wide.lower()


def test_rewards_are_knobs():
    env = registry.build(
        "Overcooked-tomato_salad-v0", reward_mode="dense", chop_reward=0.1, step_cost=0.0, wrong_cost=0.0, discount=1.0
    )
    env.reset(seed=0)
    rewards = [env.step(name)[1] for name in ("get tomato", "go to knife 1", "chop", "get tomato", "deliver")]
    assert rewards == [0.0, 0.0, 0.1, 0.0, 0.0]


@pytest.mark.parametrize("unit", ["step", "command"])
def test_shaped_pays_the_telescoped_potential_in_the_unit_it_was_told(unit):
    env = registry.build("Overcooked-easy-v0", reward_mode="shaped", shaping_gamma=0.9, shaping_unit=unit)
    env.reset(seed=2)
    total, discount, over = 0.0, 1.0, False
    while not over:
        _, reward, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
        total += discount * (reward - info["success"])
        discount *= 0.9 ** (info["primitive_steps"] if unit == "step" else 1)
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize(("settings", "word"), [({"shaping_gamma": 1.5}, "1.5"), ({"shaping_unit": "turn"}, "turn")])
def test_a_discount_that_cannot_be_is_refused(settings, word):
    with pytest.raises(UsageError, match=word):
        registry.build("Overcooked-easy-v0", reward_mode="shaped", **settings)


@pytest.mark.parametrize("knob", ["discount", "step_cost"])
def test_a_share_above_one_is_refused(knob):
    with pytest.raises(UsageError, match=knob):
        registry.build("Overcooked-easy-v0", **{knob: 1.5})


def test_pictures_show_every_move():
    pytest.importorskip("PIL")
    env = registry.build("Overcooked-tomato_lettuce_salad-v0", render_mode="rgb_array")
    words = registry.build("Overcooked-tomato_lettuce_salad-v0", render_mode="ansi")
    env.reset(seed=0)
    words.reset(seed=0)
    assert words.render().splitlines()[0] == "#####t#" and words.render().splitlines()[1] == "k...1.l"
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


def test_the_greedy_cook_clears_up_after_others():
    """From states that random play has made a mess of, wrong foods in the bowl and on the boards included."""
    for seed in range(25):
        kitchen = drawn(seed, size=7, recipe=2, foods=4, boards=2)
        sim, menu = Simulation(kitchen, FOODS[:2]), Menu(macro_actions(kitchen, counters=True))
        rng = np.random.default_rng(seed)
        for _ in range(60):
            do(sim, menu.macros[rng.integers(len(menu.macros))])
            if sim.delivered:
                sim.reset()
        assert play_out(sim, menu) is not None, kitchen.drawing()
    assert greedy_cook(sim, 0, menu).verb >= GET_FOOD
