"""Overcooked, version 2: kitchens that interleaved scripts lose, and orders that change during the game."""

from itertools import permutations, product

import numpy as np
import pytest

from benchmarks.overcooked_scripts import best_scripts, draw_rule, script
from envsuite import registry
from envsuite.envs.overcooked.service.cooks import follow_greedy, is_won, serving_times, wins
from envsuite.envs.overcooked.service.engine import CHOPPED, GRILLED, Order, OrderChange, Rules, Service
from envsuite.envs.overcooked.service.generator import split_of, split_of_seed
from envsuite.envs.overcooked.service.layout import BOARD, CRATE, HATCH, RACK, STOVE, Layout
from envsuite.envs.overcooked.service.scripts import distinct_plans, scripts, won_by_script

LEVELS = ("easy", "medium", "hard")
ROWS = ["#tC##", "B..X#", "S...H", "R..o#", "#####"]
TOMATO, ONION = 1 << CHOPPED, 1 << 4 + GRILLED


def changing(time, deadline=100):
    """A service of a tomato whose order becomes an onion at a step."""
    rules = Rules(chops=2, cooking=4, burning=30)
    return Service(Layout(ROWS, (1, 1)), [Order(TOMATO, 90)], rules, OrderChange(time, 0, Order(ONION, deadline)))


def station(service, kind, which=0):
    return service.layout.of_kind[kind][which]


def drawn(level, seed, **knobs):
    env = registry.build(f"Overcooked-{level}-v2", **knobs)
    env.reset(seed=seed)
    return env


def finish(env, player=""):
    """Plays to the end. Returns the texts and the last info."""
    texts, over = [], False
    while not over:
        command = env.blind() if player == "blind" else env.expert(player)
        text, _, terminated, truncated, info = env.step(command)
        texts.append(text)
        over = terminated or truncated
    return texts, info


# ---- scripts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_no_greedy_cook_and_no_interleaved_script_wins_a_kept_kitchen(level):
    for seed in (0, 10_000):
        service = drawn(level, seed).service
        assert split_of(service.layout.rows) == split_of_seed(seed)
        for sequence in permutations(range(len(service.orders))):
            assert not is_won(follow_greedy(service, sequence))
        assert not won_by_script(service)
        assert not any(wins(service, uses) for uses in scripts(service))


def test_the_search_for_scripts_finds_what_plain_playing_finds():
    """Plays every plan with every choice of stations in kitchens of version 1, some of which a script wins."""
    found = []
    for seed in range(6):
        env = registry.build("Overcooked-easy-v1")
        env.reset(seed=seed)
        service, layout = env.service, env.service.layout
        crates = [[i for i in layout.of_kind[CRATE] if layout.stations[i].food == food] for food in range(2)]
        plain = False
        for *crate, rack, hatch in product(*crates, layout.of_kind[RACK], layout.of_kind[HATCH]):
            numbers = {**dict(enumerate(layout.of_kind)), CRATE: crate, RACK: [rack], HATCH: [hatch]}
            plans = distinct_plans(service)
            plain = plain or any(wins(service, [numbers[kind][which] for kind, which in plan]) for plan in plans)
        found.append(plain)
        assert won_by_script(service) is plain
    assert len(set(found)) == 2


def test_scripts_by_rules_serve_their_orders_and_the_best_is_counted_on_other_games():
    services = [drawn("easy", seed).service for seed in (0, 1, 10_000, 10_001)]
    endless = [Order(order.dish) for order in services[0].orders]
    made = [script(endless, 1, 1, draw_rule(number)) for number in range(20)]
    assert len({tuple(uses) for uses in made}) > 5
    for uses in made:
        assert uses.count((HATCH, 0)) == 2 and uses[-1] == (HATCH, 0)
    best = best_scripts(services[2:], services[:2], rules=20)
    assert set(best) == {"one", "by kind", "on train"} and max(best.values()) <= 2


# ---- changes -------------------------------------------------------------------------------------------------------


def test_a_withdrawn_order_is_refused_and_its_replacement_is_served():
    service = changing(time=12)
    tomato = [(CRATE, 0), (BOARD,), (BOARD,), (RACK,), (BOARD,), (HATCH,)]
    onion = [(CRATE, 1), (STOVE,), (RACK,), (STOVE,), (HATCH,)]
    assert serving_times(service, [station(service, *use) for use in tomato]) == [1 << 30]
    assert wins(service, [station(service, *use) for use in onion])
    late = changing(time=80)
    assert wins(late, [station(late, *use) for use in tomato])
    assert not wins(changing(time=12, deadline=13), [station(service, *use) for use in onion])


def test_an_order_that_is_served_before_the_change_stays_served():
    service = changing(time=60)
    state = service.start()
    for use in [(CRATE, 0), (BOARD,), (BOARD,), (RACK,), (BOARD,), (HATCH,)]:
        state = service.perform(state, station(service, *use))
    assert state.served == 1 and state.time < 60
    state = service.wait(state, 100)
    assert service.at(state) is service and service.expired(state) == -1


@pytest.mark.parametrize("control", ["primitive", "station"])
@pytest.mark.parametrize("level", ["medium", "hard"])
def test_the_change_is_announced_when_it_happens_and_the_experts_go_on(level, control):
    env = drawn(level, 4, control=control)
    time = env.service.change.time
    announced, over = [], False
    while not over:
        before = env.state.time
        text, _, over, _, info = env.step(env.expert())
        assert info["is_action_valid"]
        if "is withdrawn" in text:
            announced.append(text)
            assert before < time == env.state.time
            replacement = env.service.change.replacement
            assert f"{replacement.deadline - time} step" in text
    assert len(announced) == 1 and info["success"]


@pytest.mark.parametrize(("player", "wins"), [("planner", True), ("greedy", False), ("blind", False)])
def test_players_that_do_not_know_the_plan(player, wins):
    for level in ("easy", "medium"):
        env = drawn(level, 3, control="station")
        assert finish(env, player)[1]["success"] is wins


def test_no_player_foresees_the_change():
    """The first commands of the experts do not depend on the order that comes later."""
    env = drawn("medium", 5)
    blind = Service(env.service.layout, env.service.orders, env.service.rules)
    first = [env.step(env.expert("planner"))[0] for _ in range(env.service.change.time - 1)]
    env.reset(seed=5)
    env.service = blind
    env.outlook = type(env.outlook)(blind)
    assert [env.step(env.expert("planner"))[0] for _ in range(len(first))] == first


def test_rewards_and_snapshots_hold_across_the_change():
    options = {"reward_mode": "shaped", "shaping_gamma": 0.9, "control": "station"}
    rng = np.random.default_rng(1)
    for seed, player in ((0, "random"), (1, "expert")):
        env, second = drawn("medium", seed, **options), drawn("medium", 9, **options)
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
            factor *= env.shaping.discount(info["primitive_steps"])
        assert total == pytest.approx(sparse - first)


def test_the_text_says_that_an_order_may_change_and_only_then():
    assert "may be withdrawn" in drawn("medium", 0).instructions and "may change" in drawn("medium", 0).objective
    easy = drawn("easy", 0)
    assert "withdrawn" not in easy.instructions and "change" not in easy.objective and easy.service.change is None


def test_ids_without_a_version_mean_version_2():
    assert registry.tasks("overcooked-hard")[0].id == "Overcooked-hard-v2"
    levels = registry.env_class(registry.TASKS["Overcooked-hard-v2"]).levels_of
    assert (
        levels({"rejects": "interleaved"})["hard"]["changes"]
        and "changes" not in levels({"rejects": "sequential"})["hard"]
    )
