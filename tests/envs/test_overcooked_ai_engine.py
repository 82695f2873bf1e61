"""Overcooked-AI: the engine plays as version 1.1.0 of the published package."""

import json

import pytest

from envsuite.envs.overcooked.soup.engine import DISH, IDLE, NOTHING, ONION, SOUP, SoupKitchen
from envsuite.envs.overcooked.soup.layout import DOWN, GRIDS, INTERACT, LEFT, RIGHT, STAY, UP, published
from tests.golden.make_soup import PATH, digest_of

GAMES = json.loads(PATH.read_text())


def replay(game, **rules):
    kitchen = SoupKitchen(published(game["layout"]), automatic=game["automatic"], **rules)
    steps, state = [], kitchen.start()
    for first, second in zip(game["actions"][::2], game["actions"][1::2], strict=True):
        steps.append(kitchen.step(state, (int(first), int(second))))
        state = steps[-1].state
    return kitchen.start(), steps


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game["layout"])
def test_recorded_games_have_the_packages_states_and_rewards(game):
    start, steps = replay(game)
    assert digest_of(start, steps) == game["digest"]
    assert sum(sum(step.served) for step in steps) == game["reward"]
    assert sum(sum(step.shaped) for step in steps) == game["shaped"]


def test_recorded_games_notice_a_changed_rule():
    changed = [game for game in GAMES if digest_of(*replay(game, cook_time=19)) != game["digest"]]
    assert {game["layout"] for game in changed} == set(GRIDS)


def test_the_package_plays_the_recorded_games_in_the_same_way():
    pytest.importorskip("overcooked_ai_py", reason="overcooked_ai is not installed")
    from benchmarks.overcooked_ai import Reference

    for game in GAMES:
        reference = Reference(game["layout"], game["automatic"])
        start = reference.start()
        pairs = zip(game["actions"][::2], game["actions"][1::2], strict=True)
        assert digest_of(start, [reference.step((int(a), int(b))) for a, b in pairs]) == game["digest"], game


def play(state, *joint, automatic=False):
    """Plays joint actions in the cramped room; returns the state and both sums of rewards."""
    kitchen = SoupKitchen(published("cramped_room"), automatic=automatic)
    served = shaped = 0
    for actions in joint:
        step = kitchen.step(state, actions)
        state, served, shaped = step.state, served + sum(step.served), shaped + sum(step.shaped)
    return state, served, shaped


def start():
    return SoupKitchen(published("cramped_room")).start()


def at(state, **changes):
    return state._replace(**changes)


def cell(row, column):
    return row * 5 + column


def test_cooks_who_want_the_same_cell_stay_and_turn():
    state, *_ = play(start(), (UP, LEFT))  # from (2, 1) and (1, 3): to (1, 1) and (1, 2)
    assert state.cells == (cell(1, 1), cell(1, 2))
    blocked, *_ = play(state, (RIGHT, STAY))
    assert (blocked.cells, blocked.facing) == (state.cells, (RIGHT, LEFT))


def test_cooks_do_not_swap_cells_but_may_follow_each_other():
    state = at(start(), cells=(cell(1, 1), cell(1, 2)))
    assert play(state, (RIGHT, LEFT))[0].cells == state.cells
    assert play(state, (RIGHT, RIGHT))[0].cells == (cell(1, 2), cell(1, 3))


def test_a_pot_cooks_for_twenty_steps_after_someone_starts_it_with_empty_hands():
    state = at(start(), cells=(cell(1, 2), cell(2, 3)), pots=((3, IDLE),))
    waiting, *_ = play(state, *[(STAY, STAY)] * 30)
    assert waiting.pots == ((3, IDLE),)
    begun, *_ = play(state, (INTERACT, STAY))
    assert begun.pots == ((3, 1),)
    assert play(begun, *[(STAY, STAY)] * 30)[0].pots == ((3, 20),)


def test_full_pots_start_by_themselves_if_cooking_is_automatic():
    state = at(start(), cells=(cell(1, 2), cell(2, 3)), hands=(ONION, NOTHING), pots=((2, IDLE),))
    assert play(state, (INTERACT, STAY), automatic=True)[0].pots == ((3, 1),)
    early = at(state, hands=(NOTHING, NOTHING))
    assert play(early, (INTERACT, STAY), automatic=True)[0].pots == ((2, IDLE),)


def test_only_soups_of_three_onions_pay():
    state = at(start(), cells=(cell(2, 3), cell(1, 1)), facing=(DOWN, UP))
    assert play(at(state, hands=(SOUP + 3, NOTHING)), (INTERACT, STAY))[1:] == (20, 0)
    assert play(at(state, hands=(SOUP + 2, NOTHING)), (INTERACT, STAY))[1:] == (0, 0)
    assert play(at(state, hands=(ONION, NOTHING)), (INTERACT, STAY))[0].hands == (ONION, NOTHING)


def test_shaped_rewards_are_three_three_and_five():
    near_dishes = at(start(), cells=(cell(2, 1), cell(1, 3)), facing=(DOWN, UP))
    assert play(near_dishes, (INTERACT, STAY))[1:] == (0, 0)  # no pot needs a dish
    assert play(at(near_dishes, pots=((1, IDLE),)), (INTERACT, STAY))[1:] == (0, 3)
    assert play(at(near_dishes, pots=((3, IDLE),)), (INTERACT, STAY))[1:] == (0, 0)  # as in the package
    at_pot = at(start(), cells=(cell(1, 2), cell(2, 3)))
    assert play(at(at_pot, hands=(ONION, NOTHING)), (INTERACT, STAY))[1:] == (0, 3)
    done = at(at_pot, hands=(DISH, NOTHING), pots=((3, 20),))
    state, *rewards = play(done, (INTERACT, STAY))
    assert (state.hands, rewards) == ((SOUP + 3, NOTHING), [0, 5])
