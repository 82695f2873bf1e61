"""Kitchens with orders: rules, kept kitchens, scripts, changes, splits, players, rewards, texts and snapshots."""

import json
import zlib
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsuite import registry
from envsuite.envs.overcooked.orders.generator import TENTHS, draw_game, split_of, split_of_seed
from envsuite.envs.overcooked.orders.kitchen import (
    BIN,
    BOARD,
    COUNTER,
    CRATE,
    HATCH,
    RACK,
    STOVE,
    OrderKitchen,
    StationChoice,
    structure,
)
from envsuite.envs.overcooked.orders.rules import (
    BURNT,
    CHOPPED,
    EMPTY_BOWL,
    GRILLED,
    NEVER,
    RAW,
    Durations,
    Item,
    Order,
    OrderChange,
    OrderGame,
    is_bowl,
)
from envsuite.envs.overcooked.orders.scripts import (
    distinct_plans,
    follow,
    follow_greedy,
    is_won,
    serving_times,
    stations_for,
    won_by_script,
)
from envsuite.errors import BadKnob, UsageError

LEVELS = ("easy", "medium", "hard")
ROWS = ["#tC##", "B..X#", "S...H", "R..o#", "#####"]
DURATIONS = Durations(chops=2, cooking=4, burning=3)
SLOW = Durations(chops=2, cooking=4, burning=30)
TOMATO, ONION = frozenset({Item(0, CHOPPED)}), frozenset({Item(1, GRILLED)})
TOMATO_USES = [(CRATE, 0), (BOARD,), (BOARD,), (RACK,), (BOARD,), (HATCH,)]
ONION_USES = [(CRATE, 1), (STOVE,), (RACK,), (STOVE,), (HATCH,)]


def small(*orders, durations=DURATIONS):
    """A game in a kitchen of five by five cells with the given orders."""
    return OrderGame(OrderKitchen(ROWS, (1, 1)), orders or (Order(TOMATO | ONION),), durations)


def changing(time, deadline=100):
    """A game whose order of a tomato becomes an onion at a step."""
    return OrderGame(
        OrderKitchen(ROWS, (1, 1)), [Order(TOMATO, 90)], SLOW, OrderChange(time, 0, Order(ONION, deadline))
    )


def station(game, kind, which=0):
    return game.kitchen.equipment.of_kind[kind][which]


def stations(game, uses):
    return [station(game, *use) for use in uses]


def play(game, *uses):
    """The state after whole uses of the first station of each kind; a crate is (CRATE, food)."""
    state = game.start()
    for use in uses:
        state = game.perform(state, station(game, *use) if isinstance(use, tuple) else station(game, use))
    return state


def opened(level, seed, **knobs):
    env = registry.build(f"Overcooked-{level}-v0", **knobs)
    env.reset(seed=seed)
    return env


def finish(env, player=""):
    """Plays to the end. Returns the texts and the last info."""
    texts, over = [], False
    while not over:
        command = env.blind() if player == "blind" else env.expert(player)
        text, _, terminated, truncated, info = env.step(command)
        assert info["is_action_valid"] or player == "blind"
        texts.append(text)
        over = terminated or truncated
    return texts, info


# ---- the rules -----------------------------------------------------------------------------------------------------


def test_a_dish_is_chopped_grilled_gathered_and_served():
    game = small(durations=SLOW)
    state = play(game, (CRATE, 1), STOVE, (CRATE, 0), BOARD, BOARD, RACK, BOARD, STOVE, HATCH)
    assert state.served == {0} and state.hand is None and set(state.slots) == {None}


def test_an_order_served_too_late_by_a_use_is_missed():
    game = small(Order(TOMATO))
    uses = stations(game, TOMATO_USES)
    (end,) = serving_times(game, uses)
    for deadline, won in ((end, True), (end - 1, False)):
        timed = OrderGame(game.kitchen, [Order(TOMATO, deadline)], DURATIONS)
        assert is_won(follow(timed, uses)) is won


def test_the_hatch_takes_only_the_exact_dish():
    game = small()
    state = play(game, (CRATE, 0), BOARD, BOARD, RACK, BOARD)
    assert state.hand == TOMATO
    assert game.perform(state, station(game, HATCH)).hand == state.hand
    emptied = game.perform(state, station(game, BIN))
    assert emptied.hand == EMPTY_BOWL and game.perform(emptied, station(game, RACK)).hand is None


def test_food_on_a_stove_is_raw_then_grilled_then_burnt_and_only_the_bin_takes_it_then():
    game = small()
    state = play(game, (CRATE, 1), STOVE)
    slot = game.kitchen.stations[station(game, STOVE)].slot
    forms = [state.slots[slot].form]
    while state.slots[slot].form != BURNT:
        state = game.step(state, 4)
        forms.append(state.slots[slot].form)
    assert forms == [RAW] * 3 + [GRILLED] * 3 + [BURNT]
    state = game.perform(state, station(game, STOVE))
    assert game.perform(state, station(game, RACK)).hand == state.hand == Item(1, BURNT)
    assert game.perform(state, station(game, BIN)).hand is None


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.integers(0, 999), min_size=5, max_size=60))
def test_a_whole_use_equals_its_single_steps(moves):
    game = small(Order(TOMATO), Order(ONION))
    state = game.start()
    for move in moves:
        number = move % len(game.kitchen.stations)
        performed = game.perform(state, number)
        is_done = False
        while not is_done:
            direction = game.direction(state, number)
            here = state.cell + game.kitchen.grid.delta[direction]
            state = game.step(state, direction)
            is_done = here == game.kitchen.stations[number].cell and not game.goes_on(state, number)
        assert state == performed


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.integers(0, 4), min_size=20, max_size=150))
def test_steps_change_one_thing_at_a_time(moves):
    game = small()
    state = game.start()
    food = lambda thing: thing.food if isinstance(thing, Item) else thing
    for move in moves:
        after = game.step(state, move)
        assert after.time == state.time + 1 and after.cell in game.kitchen.grid.floor
        assert sum(food(a) != food(b) for a, b in zip(state.slots, after.slots, strict=True)) <= 1
        for slot in game.kitchen.equipment.stove_slots:
            assert not is_bowl(after.slots[slot])
        state = after


# ---- drawn games ---------------------------------------------------------------------------------------------------

CHECKSUMS = {"easy": 0x2830F595, "medium": 0x7956DC13, "hard": 0x16DE8093}
SEEDS = (0, 1, 5_000, 10_000, 10_001)


@pytest.mark.parametrize("level", LEVELS)
def test_the_games_of_a_seed_stay_the_same_and_no_greedy_cook_and_no_script_wins_them(level):
    texts = []
    for seed in SEEDS:
        game, plan, rest = draw_game.__wrapped__(opened(level, 0).draw_settings, seed)
        rows, orders = game.kitchen.rows, [(sorted(order.dish), order.deadline) for order in game.orders]
        change = game.change and (game.change.time, game.change.order, sorted(game.change.replacement.dish))
        texts.append(json.dumps([rows, game.kitchen.start, orders, change, plan, rest]))
        assert split_of(rows) == split_of_seed(seed)
        assert not any(is_won(follow_greedy(game, order)) for order in permutations(range(len(orders))))
        assert not won_by_script(game)
        if game.change is None:
            assert is_won(follow(game, plan))
    assert zlib.crc32("".join(texts).encode()) == CHECKSUMS[level]


def test_the_search_for_scripts_finds_what_plain_playing_finds():
    """Plays every plan with every choice of stations, with long deadlines in some games."""
    results = []
    for seed in range(4):
        game = opened("easy", seed).game
        orders = [Order(order.dish, order.deadline * (1 + seed % 2)) for order in game.orders]
        game = OrderGame(game.kitchen, orders, game.durations)
        wins = False
        for plan in distinct_plans(game):
            uses = list(dict.fromkeys(plan))
            for choice in product(*(stations_for(game.kitchen, use) for use in uses)):
                chosen = dict(zip(uses, choice, strict=True))
                wins = wins or is_won(follow(game, [chosen[use] for use in plan]))
        results.append(wins)
        assert won_by_script(game) is wins
    assert results == [False, True, False, True]


def test_a_trip_chooses_its_stations_by_distance():
    kitchen = opened("hard", 0, copies=3).game.kitchen
    racks = tuple(kitchen.equipment.of_kind[RACK])
    for cell in kitchen.grid.floor:
        ranked = sorted(racks, key=lambda rack: kitchen.steps(rack, cell))
        for rank, rule in enumerate(("first", "second")):
            assert kitchen.trip((StationChoice(racks, rule),), cell).stations == (ranked[rank],)
        trips = [kitchen.trip((rack, 0), cell) for rack in racks]
        assert kitchen.trip((StationChoice(racks, "shortest"), 0), cell) == min(trips, key=lambda trip: trip.steps)
        end = kitchen.walk(0, cell)[1]
        nearest = min(racks, key=lambda rack: kitchen.steps(rack, end))
        assert kitchen.trip((0, StationChoice(racks, "nearest")), cell).stations == (0, nearest)


def test_the_levels_differ_in_plan_lengths():
    lengths = []
    for level in LEVELS:
        envs = [opened(level, seed) for seed in range(5)]
        plans = [
            max(serving_times(OrderGame(env.game.kitchen, env.game.orders, env.game.durations), env.plans[0]))
            for env in envs
        ]
        assert len(set(plans)) > 2
        lengths.append(np.mean(plans))
    assert all(shorter < longer for shorter, longer in pairwise(lengths))


def test_the_structure_of_a_map_ignores_names_turns_and_mirrors():
    turned = ["".join(column) for column in zip(*ROWS[::-1], strict=True)]
    renamed = [row.replace("t", "m").replace("o", "t") for row in turned]
    mirrored = [row[::-1] for row in renamed]
    assert structure(mirrored) == structure(ROWS)
    assert structure([row.replace("B", "C") for row in ROWS]) != structure(ROWS)


def test_the_seeds_of_a_split_draw_structures_of_this_split_alone():
    assert sorted(tenth for tenths in TENTHS.values() for tenth in tenths) == list(range(10))
    seeds = {"test": (0, 999), "valid": (5_000, 5_999), "train": (10_000, 4_000, 2**31 - 1)}
    for split, drawn in seeds.items():
        for seed in drawn:
            assert split_of(opened("easy", seed).game.kitchen.rows) == split == split_of_seed(seed)


# ---- changes -------------------------------------------------------------------------------------------------------


def test_a_withdrawn_order_is_refused_and_its_replacement_is_served():
    game = changing(time=12)
    assert serving_times(game, stations(game, TOMATO_USES)) == [NEVER]
    assert is_won(follow(game, stations(game, ONION_USES)))
    late = changing(time=80)
    assert is_won(follow(late, stations(late, TOMATO_USES)))
    hurried = changing(time=12, deadline=13)
    assert not is_won(follow(hurried, stations(hurried, ONION_USES)))


def test_an_order_that_is_served_before_the_change_stays_served():
    game = changing(time=60)
    state = play(game, *TOMATO_USES[:1], *(kind for use in TOMATO_USES[1:] for kind in use))
    assert state.served == {0} and state.time < 60
    state = game.wait(state, 100)
    assert game.at(state) is game and game.expired(state) == -1


@pytest.mark.parametrize("level", ["medium", "hard"])
def test_the_change_is_announced_when_it_happens_and_the_expert_goes_on(level):
    env = opened(level, 4)
    change = env.game.change
    texts, info = finish(env)
    announced = [time for time, text in enumerate(texts, 1) if "is withdrawn" in text]
    assert announced == [change.time] and info["success"]
    assert f"{change.replacement.deadline - change.time} step" in texts[change.time - 1]


def test_no_player_foresees_the_change():
    """The first commands of the planner do not depend on the order that comes later."""
    env = opened("medium", 5)
    constant = OrderGame(env.game.kitchen, env.game.orders, env.game.durations)
    first = [env.step(env.expert("planner"))[0] for _ in range(env.game.change.time - 1)]
    env.reset(seed=5)
    env.game = constant
    assert [env.step(env.expert("planner"))[0] for _ in range(len(first))] == first


# ---- the environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_the_experts_win_and_the_greedy_cook_and_the_blind_player_lose(level):
    for player, won in (("", True), ("planner", True), ("greedy", False), ("blind", False)):
        assert finish(opened(level, 3), player)[1]["success"] is won


def test_the_expert_finds_a_way_from_states_off_its_plan():
    env = opened("easy", 10_004, slack=0.3)
    for _ in range(3):
        env.step("wait")
    assert finish(env)[1]["success"]


def test_a_missed_deadline_ends_the_game():
    env = opened("easy", 0, reward_mode="dense")
    total, over = 0.0, False
    while not over:
        text, reward, over, truncated, info = env.step("wait")
        total += reward
    assert not truncated and info["stop_reason"] == "failed" and "has run out" in text
    assert env.state.time == min(order.deadline for order in env.game.orders)
    assert total == pytest.approx(-0.001 * env.state.time)


def test_every_offered_command_does_something_and_no_other_does():
    rng = np.random.default_rng(0)
    for seed in range(3):
        env = registry.build("Overcooked-medium-v0")
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            offers = info["admissible_commands"]
            command = str(rng.choice(["north", "east", "south", "west"]))
            observation, _, terminated, truncated, info = env.step(f" Go {command.upper()}. ")
            over = terminated or truncated
            assert info["is_action_valid"] == (command in offers)
            assert over or observation.count("steps left") + observation.count("is served") >= 1


def test_an_unknown_command_costs_a_step_and_says_so():
    env = opened("easy", 0)
    text, *_, info = env.step("open the fridge")
    assert text.startswith("This command is unknown") and not info["is_action_valid"] and env.state.time == 1


@pytest.mark.parametrize("player", ["random", "expert"])
def test_shaped_rewards_telescope_and_snapshots_hold_across_the_change(player):
    options = {"reward_mode": "shaped", "shaping_gamma": 0.9}
    rng = np.random.default_rng(1)
    env, second = opened("medium", 0, **options), opened("medium", 9, **options)
    info, first, total, factor, sparse, over = {}, env._potential, 0.0, 1.0, 0.0, False
    while not over:
        offers = info.get("admissible_commands") or env.admissible()
        command = env.expert() if player == "expert" else str(rng.choice(offers))
        second.restore(env.snapshot())
        answer = env.step(command)
        assert second.step(command) == answer
        _, reward, over, _, info = answer
        total += factor * reward
        sparse += factor * info["success"]
        factor *= 0.9
    assert total == pytest.approx(sparse - first) and first == -1


def test_turns_left_counts_the_cap():
    env = registry.build("Overcooked-easy-v0", turns_left=True, max_steps=50)
    text, _ = env.reset(seed=0)
    assert text.endswith("Turns left: 50.") and env.step("wait")[0].endswith("Turns left: 49.")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"cooks": 2}, "no knob 'cooks'.*one cook"),
        ({"items": 3}, "needs as many kinds, not 2"),
        ({"size": 5, "counters": 5, "boards": 3, "copies": 3}, "do not fit into a kitchen of size 5"),
        ({"turns_left": "maybe"}, r"it takes true\|false"),
    ],
)
def test_impossible_settings_get_one_clear_line(knobs, message):
    with pytest.raises((BadKnob, UsageError), match=message):
        registry.build("Overcooked-easy-v0", **knobs).reset(seed=0)


def test_a_kitchen_is_drawn_as_image_and_text():
    env = opened("hard", 0, render_mode="rgb_array")
    for _ in range(15):
        env.step(env.expert())
    picture = env.render()
    assert picture.shape == (7 * 48 + 22, 7 * 48, 3) and picture.dtype == np.uint8 and len(np.unique(picture)) > 50
    env = opened("hard", 0, render_mode="ansi")
    assert env.render().startswith("#") and COUNTER in {station.kind for station in env.game.kitchen.stations}


def test_the_text_says_that_an_order_may_change_and_only_then():
    assert "may be withdrawn" in opened("medium", 0).instructions
    assert "may be withdrawn" not in opened("easy", 0).instructions
