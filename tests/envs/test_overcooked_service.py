"""Overcooked, version 1: rules, kept kitchens, splits, players, rewards, texts and snapshots."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsuite import registry
from envsuite.envs.overcooked.service.cooks import play_greedy, serving_times, wins
from envsuite.envs.overcooked.service.engine import (
    BOWL,
    BURNT,
    CHOPPED,
    GRILLED,
    NOTHING,
    RAW,
    Order,
    Rules,
    Service,
)
from envsuite.envs.overcooked.service.generator import TENTHS, split_of, split_of_seed
from envsuite.envs.overcooked.service.layout import BIN, BOARD, COUNTER, CRATE, HATCH, RACK, STOVE, Layout, structure
from envsuite.envs.overcooked.service.scripts import scripts
from envsuite.envs.overcooked.service.situations import Play
from envsuite.errors import BadKnob, UsageError

LEVELS = ("easy", "medium", "hard")
ROWS = ["#tC##", "B..X#", "S...H", "R..o#", "#####"]
RULES = Rules(chops=2, cooking=4, burning=3)
CHOPPED_TOMATO, GRILLED_ONION = 1 << CHOPPED, 1 << 4 + GRILLED


def small(*orders, rules=RULES):
    """A service in a kitchen of five by five cells with the given orders."""
    return Service(Layout(ROWS, (1, 1)), orders or (Order(CHOPPED_TOMATO | GRILLED_ONION),), rules)


def station(service, kind, which=0):
    return service.layout.of_kind[kind][which]


def play(service, *kinds):
    """The state after whole uses of the first station of each kind; a crate is (CRATE, food)."""
    state = service.start()
    for kind in kinds:
        number = station(service, *kind) if isinstance(kind, tuple) else station(service, kind)
        state = service.perform(state, number)
    return state


# ---- the rules -----------------------------------------------------------------------------------------------------


def test_a_dish_is_chopped_grilled_gathered_and_served():
    service = small(rules=Rules(chops=2, cooking=4, burning=30))
    state = play(service, (CRATE, 1), STOVE, (CRATE, 0), BOARD, BOARD, RACK, BOARD, STOVE, HATCH)
    assert state.served == 1 and state.hand == NOTHING and set(state.slots) == {NOTHING}


def test_an_order_served_too_late_by_a_use_is_missed():
    service = small(Order(CHOPPED_TOMATO))
    uses = [station(service, *use) for use in ((CRATE, 0), (BOARD,), (BOARD,), (RACK,), (BOARD,), (HATCH,))]
    (end,) = serving_times(service, uses)
    for deadline, won in ((end, True), (end - 1, False)):
        assert wins(Service(service.layout, [Order(CHOPPED_TOMATO, deadline)], RULES), uses) is won


def test_the_hatch_takes_only_the_exact_dish():
    service = small()
    state = play(service, (CRATE, 0), BOARD, BOARD, RACK, BOARD)
    assert state.hand == BOWL | CHOPPED_TOMATO
    assert service.perform(state, station(service, HATCH)).hand == state.hand
    emptied = service.perform(state, station(service, BIN))
    assert emptied.hand == BOWL and service.perform(emptied, station(service, RACK)).hand == NOTHING


def test_food_on_a_stove_is_raw_then_grilled_then_burnt_and_only_the_bin_takes_it_then():
    service = small()
    state = play(service, (CRATE, 1), STOVE)
    slot = service.layout.stations[station(service, STOVE)].slot
    forms = [state.slots[slot] & 3]
    while state.slots[slot] & 3 != BURNT:
        state = service.step(state, 4)
        forms.append(state.slots[slot] & 3)
    assert forms == [RAW] * 3 + [GRILLED] * 3 + [BURNT]
    state = service.perform(state, station(service, STOVE))
    assert service.perform(state, station(service, RACK)).hand == state.hand == 4 + BURNT
    assert service.perform(state, station(service, BIN)).hand == NOTHING


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.integers(0, 999), min_size=5, max_size=60))
def test_a_whole_use_equals_its_single_steps(moves):
    service = small(Order(CHOPPED_TOMATO), Order(GRILLED_ONION))
    state, fast = service.start(), Play(service)
    for move in moves:
        number = move % len(service.layout.stations)
        performed = service.perform(state, number)
        assert fast.state(fast.perform(fast.spot(state), number)) == performed
        over = False
        while not over:
            direction = service.direction(state, number)
            here = state.cell + service.layout.kitchen.delta[direction]
            state = service.step(state, direction)
            over = here == service.layout.stations[number].cell and not service.goes_on(state, number)
        assert state == performed


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.integers(0, 4), min_size=20, max_size=150))
def test_steps_change_one_thing_at_a_time(moves):
    service = small()
    state = service.start()
    for move in moves:
        after = service.step(state, move)
        assert after.time == state.time + 1
        changed = sum(
            a != b and (a < 0 or b < 0 or a & ~3 != b & ~3) for a, b in zip(state.slots, after.slots, strict=True)
        )
        assert changed <= 1
        assert after.cell in service.layout.kitchen.floor
        for slot, thing in enumerate(after.slots):
            kind = service.layout.stations[service.layout.holders[slot]].kind
            assert kind != STOVE or NOTHING <= thing < BOWL
        state = after


# ---- kept kitchens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_kept_kitchen_is_won_by_its_plan_and_by_no_greedy_cook_and_no_script(level):
    env = registry.build(f"Overcooked-{level}-v1")
    for seed in (0, 1, 10_000, 10_001):
        env.reset(seed=seed)
        service, deadlines = env.service, [order.deadline for order in env.service.orders]
        assert all(time <= end for time, end in zip(serving_times(service, env.plan), deadlines, strict=True))
        greedy = [play_greedy(service, sequence) for sequence in permutations(range(len(service.orders)))]
        for times in (*greedy, *(serving_times(service, uses) for uses in scripts(service))):
            assert any(time > end for time, end in zip(times, deadlines, strict=True))


@pytest.mark.parametrize("control", ["primitive", "station"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_wins_and_the_greedy_cook_and_the_blind_player_lose(level, control):
    env = registry.build(f"Overcooked-{level}-v1", control=control)
    for player, won in (("", True), ("greedy", False), ("blind", False)):
        env.reset(seed=3)
        over = False
        while not over:
            command = env.blind() if player == "blind" else env.expert(player)
            _, _, terminated, truncated, info = env.step(command)
            over = terminated or truncated
            assert info["is_action_valid"] or player == "blind"
        assert info["success"] is won


def test_the_expert_finds_a_way_from_states_off_its_plan():
    env = registry.build("Overcooked-medium-v1", slack=0.5)
    env.reset(seed=10_004)
    for _ in range(4):
        env.step("wait")
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
    assert info["success"]


def test_the_levels_differ_in_plan_lengths():
    lengths = []
    for level in LEVELS:
        env = registry.build(f"Overcooked-{level}-v1")
        plans = []
        for seed in range(6):
            env.reset(seed=seed)
            plans.append(max(serving_times(env.service, env.plan)))
        assert len(set(plans)) > 2
        lengths.append(np.mean(plans))
    assert all(shorter < longer for shorter, longer in pairwise(lengths))


# ---- splits --------------------------------------------------------------------------------------------------------


def test_the_structure_of_a_map_ignores_names_turns_and_mirrors():
    turned = ["".join(column) for column in zip(*ROWS[::-1], strict=True)]
    renamed = [row.replace("t", "m").replace("o", "t") for row in turned]
    mirrored = [row[::-1] for row in renamed]
    assert structure(mirrored) == structure(ROWS)
    assert structure([row.replace("B", "C") for row in ROWS]) != structure(ROWS)


def test_the_seeds_of_a_split_draw_structures_of_this_split_alone():
    tenths = [tenth for tenths in TENTHS.values() for tenth in tenths]
    assert sorted(tenths) == list(range(10))
    env = registry.build("Overcooked-medium-v1")
    seeds = {"test": (0, 999), "valid": (5_000, 5_999), "train": (10_000, 4_000, 2**31 - 1)}
    for split, drawn in seeds.items():
        for seed in drawn:
            env.reset(seed=seed)
            assert split_of(env.service.layout.rows) == split == split_of_seed(seed)


# ---- the environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("player", ["", "greedy"])
def test_scripted_cooks_know_what_to_do_in_every_state(player):
    env = registry.build("Overcooked-hard-v1", counters=1, slack=0.5, control="station")
    rng = np.random.default_rng(4)
    for seed in (10_000,) if player == "" else (10_001, 10_002, 10_003):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            assert env.expert(player) in [*env._uses, "wait"]
            command = rng.choice(info["admissible_commands"][:-1] or ["wait"])
            _, _, terminated, truncated, info = env.step(str(command))
            over = terminated or truncated


def test_a_missed_deadline_ends_the_game():
    env = registry.build("Overcooked-easy-v1", reward_mode="dense")
    env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        text, reward, over, truncated, info = env.step("wait")
        total += reward
    assert not truncated and info["stop_reason"] == "failed" and "has run out" in text
    assert env.state.time == min(order.deadline for order in env.service.orders)
    assert total == pytest.approx(-0.001 * env.state.time)


@pytest.mark.parametrize("control", ["primitive", "station"])
def test_every_offered_command_does_something_and_no_other_does(control):
    env = registry.build("Overcooked-medium-v1", control=control)
    commands = ["north", "east", "south", "west"] if control == "primitive" else None
    rng = np.random.default_rng(0)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            offers = info["admissible_commands"]
            command = str(rng.choice(commands or list(env._uses)))
            observation, _, terminated, truncated, info = env.step(f" {command.upper()}. ")
            over = terminated or truncated
            if control == "primitive" or not terminated:
                assert info["is_action_valid"] >= (command in offers)
            assert control == "station" or info["is_action_valid"] == (command in offers)
            assert over or observation.count("steps left") + observation.count("is served") >= 1


def test_an_unknown_command_costs_a_step_and_says_so():
    env = registry.build("Overcooked-easy-v1")
    env.reset(seed=0)
    text, *_, info = env.step("open the fridge")
    assert (
        text.startswith("This command is unknown, and a step has passed.")
        and not info["is_action_valid"]
        and env.state.time == 1
    )


@pytest.mark.parametrize(("unit", "control"), [("command", "primitive"), ("step", "station"), ("command", "station")])
def test_shaped_rewards_telescope_so_no_cycle_pays(unit, control):
    gamma = 0.9
    options = {"reward_mode": "shaped", "shaping_gamma": gamma, "shaping_unit": unit, "control": control}
    env = registry.build("Overcooked-medium-v1", **options)
    rng = np.random.default_rng(1)
    for seed, player in ((0, "random"), (1, "random"), (2, "expert")):
        _, info = env.reset(seed=seed)
        first, total, factor, sparse, over = env._potential, 0.0, 1.0, 0.0, False
        while not over:
            command = env.expert() if player == "expert" else str(rng.choice(info["admissible_commands"]))
            _, reward, over, _, info = env.step(command)
            total += factor * reward
            sparse += factor * info["success"]
            factor *= env.shaping.discount(info["primitive_steps"])
        assert total == pytest.approx(sparse - first) and first == -1


def test_the_potential_depends_on_the_state_alone():
    env, second = (registry.build("Overcooked-medium-v1", reward_mode="shaped") for _ in range(2))
    env.reset(seed=0)
    for _ in range(12):
        env.step(env.expert())
    second.reset(seed=0)
    second.set_state(env.get_state())
    assert second.remaining() == env.remaining()


def test_a_snapshot_goes_on_in_another_environment():
    env, second = (registry.build("Overcooked-hard-v1") for _ in range(2))
    env.reset(seed=5)
    for _ in range(20):
        env.step(env.expert())
    second.reset(seed=6)
    second.restore(env.snapshot())
    for _ in range(10):
        command = env.expert()
        assert env.step(command) == second.step(command)


def test_turns_left_counts_the_cap():
    env = registry.build("Overcooked-easy-v1", turns_left=True, max_steps=50)
    text, _ = env.reset(seed=0)
    assert text.endswith("Turns left: 50.") and env.step("wait")[0].endswith("Turns left: 49.")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"cooks": 2}, "no knob 'cooks'.*version 0"),
        ({"items": 3}, "needs as many kinds, not 2"),
        ({"size": 5, "counters": 5, "boards": 3, "copies": 3}, "do not fit into a kitchen of size 5"),
    ],
)
def test_impossible_settings_get_one_clear_line(knobs, message):
    with pytest.raises((BadKnob, UsageError), match=message):
        registry.build("Overcooked-easy-v1", **knobs).reset(seed=0)


def test_a_kitchen_is_drawn_as_image_and_text():
    env = registry.build("Overcooked-hard-v1", render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(15):
        env.step(env.expert())
    picture = env.render()
    assert picture.shape == (7 * 48 + 22, 7 * 48, 3) and picture.dtype == np.uint8 and len(np.unique(picture)) > 50
    env = registry.build("Overcooked-hard-v1", render_mode="ansi")
    env.reset(seed=0)
    assert env.render().startswith("#") and COUNTER in {station.kind for station in env.service.layout.stations}


def test_commands_may_leave_out_the_article_and_say_go():
    env = registry.build("Overcooked-medium-v1", control="station")
    env.reset(seed=3)
    assert env.step("use rack 1")[4]["is_action_valid"] is False
    assert env.step("Use the bowl rack 1.")[4]["is_action_valid"]
    env.step("use bowl rack 1")
    assert "use the bin" in env.step("use the moon")[0]
    env = registry.build("Overcooked-medium-v1")
    env.reset(seed=3)
    before = env.state.cell
    env.step("go south")
    assert env.state.cell != before


def test_a_boolean_knob_refuses_other_words():
    with pytest.raises(BadKnob, match=r"it takes true\|false"):
        registry.build("Overcooked-easy-v1", turns_left="maybe")
