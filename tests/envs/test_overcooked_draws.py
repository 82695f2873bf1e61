"""Overcooked, versions 1 and 2: the fast draw of kitchens keeps to the rules, and no game depends on earlier ones."""

import json
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, permutations

import numpy as np
import pytest

from envsuite import registry
from envsuite.envs.overcooked.service import situations
from envsuite.envs.overcooked.service.cooks import follow_greedy, greedy_use
from envsuite.envs.overcooked.service.generator import draw_service
from envsuite.envs.overcooked.service.layout import ON_THE_WAY, RACK, chosen_station
from envsuite.envs.overcooked.service.outlook import Outlook
from envsuite.envs.overcooked.service.scripts import first_script, scripts
from envsuite.envs.overcooked.service.search_outlook import SearchOutlook
from envsuite.envs.overcooked.service.situations import Play, Situations, situations_of

ODD = {"foods": 4, "items": 3, "stoves": 0, "boards": 2, "chops": 1, "counters": 3, "size": 8, "slack": 0.0}
RAPID = {"cooking": 1, "burning": 1, "orders": 3, "stoves": 2, "slack": 0.05}
CASES = [
    ("Overcooked-easy-v1", {}, 0x5CE1D9F3),
    ("Overcooked-medium-v1", {}, 0xEFFDBC2C),
    ("Overcooked-hard-v1", {}, 0x5E725AF1),
    ("Overcooked-easy-v2", {}, 0x5FCF01D8),
    ("Overcooked-medium-v2", {}, 0x1098B34C),
    ("Overcooked-hard-v2", {}, 0xA9A22A69),
    ("Overcooked-medium-v1", ODD, 0x639B91F8),
    ("Overcooked-medium-v2", RAPID, 0xF594BD59),
]
"""Tasks, knobs, and the checksum of the games of SEEDS."""
SEEDS = (0, 1, 5_000, 10_000, 10_001, 10_002)


@pytest.fixture(autouse=True)
def _forget():
    """Starts each test without the situations of earlier ones."""
    situations._shared.cache_clear()


def settings_of(task, knobs):
    return registry.build(task, **knobs)._drawn_with


def draw(settings, seed):
    """Draws a game anew and returns it as text."""
    service, plan, rest = draw_service.__wrapped__(settings, seed)
    layout = service.layout
    return json.dumps([layout.rows, layout.start, service.orders, service.rules, service.change, plan, rest])


def services(seeds=SEEDS[:3]):
    """Yields services of all cases."""
    for task, knobs, _ in CASES:
        settings = settings_of(task, knobs)
        for seed in seeds:
            yield draw_service(settings, seed).service


def walk(service, rng, uses=40):
    """Yields (play, before, number, after) for whole uses of random stations, with the orders as they stand."""
    play = Play(service)
    spot = play.spot(service.start())
    for number in rng.integers(len(service.layout.stations), size=uses).tolist():
        play = play.at(spot)
        after = play.perform(spot, number)
        if play.is_interrupted(spot, after):
            after = play.until_change(spot, number)
        else:
            yield play, spot, number, after
        spot = after


# ---- games ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "knobs", "checksum"), CASES)
def test_the_games_of_a_seed_stay_the_same(task, knobs, checksum):
    settings = settings_of(task, knobs)
    assert zlib.crc32("".join(draw(settings, seed) for seed in SEEDS).encode()) == checksum


def test_no_game_depends_on_the_games_drawn_before_or_meanwhile(monkeypatch):
    """Draws in other sequences and in three threads, with tables that are full after a few kitchens."""
    monkeypatch.setattr(situations, "MOST_ENTRIES", 1000)
    interval = sys.getswitchinterval()
    jobs = [(settings_of(task, knobs), seed) for seed in SEEDS[:4] for task, knobs, _ in CASES]
    sequences = [jobs, jobs[::-1], sorted(jobs)]
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as pool:
            drawn = list(pool.map(lambda sequence: {job: draw(*job) for job in sequence}, sequences))
    finally:
        sys.setswitchinterval(interval)
    for settings, seed in jobs[:: len(CASES) + 1]:
        situations._shared.cache_clear()
        assert {games[settings, seed] for games in drawn} == {draw(settings, seed)}
    assert drawn[0] == drawn[1] == drawn[2]


# ---- tables --------------------------------------------------------------------------------------------------------


def test_kitchens_with_the_same_stations_and_rules_share_situations_until_they_are_full(monkeypatch):
    first, second = (draw_service(settings_of("Overcooked-medium-v1", {}), seed).service for seed in (0, 1))
    slow = draw_service(settings_of("Overcooked-medium-v1", {"cooking": 13}), 0).service
    large = draw_service(settings_of("Overcooked-hard-v1", {}), 0).service
    situations._shared.cache_clear()  # forgets the draws
    shared = situations_of(first)
    assert first.layout.rows != second.layout.rows and situations_of(second) is shared
    assert len({id(situations_of(service)) for service in (first, slow, large)}) == 3
    others = situations_of(large)
    monkeypatch.setattr(situations, "MOST_ENTRIES", 0)
    Play(first, shared).spot(first.start())
    renewed = situations_of(second)
    assert renewed is not shared and situations_of(first) is renewed and situations_of(large) is others


def test_tables_that_many_kitchens_use_have_a_limited_length(monkeypatch):
    monkeypatch.setattr(situations, "MOST_ENTRIES", 2000)
    settings = settings_of("Overcooked-medium-v1", {"foods": 4, "orders": 3, "slack": 0.0})
    lengths = []
    for seed in range(40):
        service = draw_service.__wrapped__(settings, seed).service
        (tables,) = situations._shared(service.layout.equipment, service.rules)
        lengths.append(len(tables.things) + len(tables.tallies) + len(tables.moves))
    assert max(lengths) < 3000 and any(later < earlier for earlier, later in pairwise(lengths))


# ---- the rules -----------------------------------------------------------------------------------------------------


def test_uses_on_spots_equal_uses_on_states():
    rng = np.random.default_rng(0)
    for service in services():
        for play, before, number, after in walk(service, rng):
            plain, state = play.service, play.state(before)
            performed = plain.perform(state, number)
            assert plain is service.at(state) and play.state(after) == performed
            assert play.spot(performed)[:3] == play.settled(after)[0][:3]
            served = performed.served & ~state.served
            late = any(served >> i & 1 and order.deadline < performed.time for i, order in enumerate(plain.orders))
            assert play.misses(state.served, performed.served, performed.time) is (
                late or plain.expired(performed) >= 0
            )


def test_the_greedy_cook_on_spots_equals_the_greedy_cook_on_states():
    for service in services():
        for sequence in permutations(range(len(service.orders))):
            for play, before, after in follow_greedy(service, sequence):
                state = play.state(before)
                number = greedy_use(play.service, state, sequence)
                performed = play.service.perform(state, number)
                if play.service.change is None or performed.time <= play.service.change.time:
                    assert play.state(after) == performed


def test_the_outlook_of_a_search_equals_the_outlook_of_its_service():
    """Shared tables hold what a kitchen would compute alone."""
    rng = np.random.default_rng(1)
    for service in services():
        outlook = Outlook(service)
        shared = SearchOutlook(outlook, Play(service))
        alone = Play(service, Situations(service))
        own = SearchOutlook(outlook, alone)
        for play, _, _, after in walk(service, rng):
            if play.service is not service or after[2] == service.all:
                break
            spot, ages = play.settled(after)
            state = play.state(spot)
            spot_alone, _ = alone.settled(alone.spot(state))
            assert shared.estimate(spot, ages) == outlook.estimate(state, service.all)
            assert shared.estimate(spot, ages) == own.estimate(spot_alone, ages)
            assert shared.moves(spot[1], spot[2]) == own.moves(spot_alone[1], spot_alone[2])


# ---- ways ----------------------------------------------------------------------------------------------------------


def test_walks_and_trips_equal_single_steps():
    rng = np.random.default_rng(2)
    for service in services():
        layout = service.layout
        kitchen = layout.kitchen
        for number, station in enumerate(layout.stations):
            way = kitchen.find_way(station.cell)
            assert layout.ways[number].steps == way.steps
            for cell in kitchen.floor:
                end = cell
                while way.steps[end] > 1:
                    end += kitchen.delta[way.direction(end)]
                assert layout.walks[number][cell] == (way.steps[cell], end)
        parts = tuple(rng.integers(len(layout.stations), size=3).tolist())
        here, total = layout.start, 0
        for number in parts:
            steps, here = layout.walks[number][here]
            total += steps
        assert layout.trips[parts][layout.start] == (parts, total, here)


def test_a_trip_chooses_its_stations_by_distance():
    service = draw_service(settings_of("Overcooked-hard-v1", {"copies": 3}), 0).service
    layout, racks = service.layout, tuple(service.layout.of_kind[RACK])
    for cell in layout.kitchen.floor:
        ranked = sorted(racks, key=lambda rack: layout.steps(rack, cell))
        for rank in range(2):
            assert layout.trips[(chosen_station(racks, rank),)][cell][0] == (ranked[rank],)
        stations = [layout.trips[rack, 0][cell] for rack in racks]
        shortest = min(steps for _, steps, _ in stations)
        chosen = layout.trips[chosen_station(racks, ON_THE_WAY), 0][cell]
        assert chosen == next(trip for trip in stations if trip[1] == shortest)
        from_start = layout.trips[0, chosen_station(racks, 0, True)][cell]
        assert from_start[0] == (0, ranked[0])
        end = layout.walks[0][cell][1]
        assert layout.trips[0, chosen_station(racks)][cell][0] == (0, min(racks, key=lambda i: layout.steps(i, end)))


def test_the_first_script_is_the_first_of_all():
    for service in services():
        assert first_script(service) == next(scripts(service))
