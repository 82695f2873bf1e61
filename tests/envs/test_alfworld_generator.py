"""Generated games: solvable, determined by seed and settings, similar to official games."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("alfworld") is None:  # importing it would set ALFWORLD_DATA
    pytest.skip("the package alfworld is not installed", allow_module_level=True)

from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.floorplans import (
    HELD_OUT_PLANS,
    ROOMS,
    TASK_TYPES,
    floor_plan,
    holders,
    statistics,
)
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.generator import UNSEEN_SEEDS, GeneratorSettings, generate
from envsuite.envs.alfworld.games.plan_counts import plan_counts
from envsuite.envs.alfworld.ladder import LADDER
from envsuite.envs.alfworld.menu import LEVELS, SPLITS
from envsuite.errors import UsageError


def plan_of(made):
    return int(made.name.split("/")[1].rsplit("-", 1)[1])


def portable(game):
    return {o for row in game.start.contents for o in row if game.flags[o] & 1}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 3_000_000),
    task=st.sampled_from(TASK_TYPES),
    receptacles=st.sampled_from((0, 5, 9, 20)),
    objects=st.sampled_from((0, 8, 25)),
    hidden=st.sampled_from((-1.0, 0.0, 0.5, 1.0)),
    dialect=st.sampled_from(("2.1.1", "0.4")),
)
def test_generated_games_are_solvable_and_follow_the_settings(seed, task, receptacles, objects, hidden, dialect):
    recipe = GeneratorSettings((task,), receptacles=receptacles, objects=objects, hidden=hidden, dialect=dialect)
    try:
        made = generate(seed, recipe)
    except UsageError:  # for example a heating task with five receptacles; the message is tested below
        return
    game = made.game
    assert game.goal.kind == task and game.solvable
    assert solver.remaining(game, game.start) >= 3
    assert ("move" in game.sentences.put_command) == (dialect == "0.4")
    if receptacles:
        assert len(game.receptacles) <= receptacles
    if objects:
        assert (
            len(
                portable(game)
                - {o for o, kind in enumerate(game.objects) if kind.startswith(("papertowelroll", "teddybear"))}
            )
            == objects
        )
    if hidden in (0.0, 1.0):
        for r, row in enumerate(game.start.contents):
            if any(o in game.targets for o in row):
                assert bool(game.openable >> r & 1) == bool(hidden)


def test_the_share_of_hidden_targets_does_not_depend_on_rooms_that_cannot_hide_them():
    """Targets are hidden if the seed's own random numbers are below the share, whatever rooms are drawn for them."""
    recipe = GeneratorSettings(("pick_clean_then_place_in_recep",), hidden=0.5)
    shares = []
    for seed in range(40):
        game = generate(seed, recipe).game
        where = {o: r for r, row in enumerate(game.start.contents) for o in row if o in game.targets}
        hidden = sum(game.openable >> r & 1 for r in where.values())
        dice = Random(f"alfworld hidden {seed}")
        assert hidden == sum(dice.random() < 0.5 for _ in where)
        shares.append(hidden / len(where))
    assert 0.35 < sum(shares) / len(shares) < 0.65


def test_receptacle_names_match_their_types():
    for seed in (1_000_009, 1_000_115, *range(60)):  # the first two are bathrooms whose floor plan places no sink
        game = generate(seed).game
        for name, kind in zip(game.receptacles, game.receptacle_types, strict=False):
            assert name.split()[0] + "type" == kind


def test_a_seed_gives_the_same_game_on_every_machine():
    # Digests of generated games: a change here changes every generated task.
    digests = [
        hashlib.sha256(generate(seed).text.split('"pddl_problem"')[1].encode()).hexdigest()[:12]
        for seed in (0, 7, 2_000_000)
    ]
    assert digests == DIGESTS
    assert generate(7) is not generate(7) and generate(7).text == generate(7).text


def test_floor_plans_of_valid_unseen_occur_only_in_the_unseen_split():
    assert SPLITS["test_unseen"] == UNSEEN_SEEDS
    assert {plan_of(generate(seed)) for seed in UNSEEN_SEEDS[:40]} == HELD_OUT_PLANS
    for split in ("train", "test"):
        assert not {plan_of(generate(seed)) for seed in SPLITS[split][:100]} & HELD_OUT_PLANS


def groups_of(game):
    """Returns the receptacles of each group, and the objects in them without fixtures, as plans.json counts them."""
    kinds = {kind.lower() + "type": kind for kind in holders()}
    things = {thing.lower() + "type" for held in holders().values() for thing in held}
    things -= {thing.lower() + "type" for thing in statistics()["fixtures"]}
    number, contents = Counter(), Counter()
    for r, row in enumerate(game.start.contents):
        group = kinds[game.receptacle_types[r]], bool(game.openable >> r & 1)
        number[group] += 1
        contents[group] += sum(game.object_types[o] in things for o in row)
    return number, contents


@pytest.mark.parametrize("plan", [1, 10, 219, 424])
def test_a_room_is_furnished_and_filled_as_its_floor_plan_is_counted(plan):
    room = next(room for room, plans in ROOMS.items() if plan in plans)
    first = 2_000_000 if plan in HELD_OUT_PLANS else 0
    games = [generate(first + n, GeneratorSettings(rooms=(room,)), plan=plan).game for n in range(40)]
    expected = +Counter(plan_counts().receptacles(plan))
    assert all(groups_of(game)[0] == expected for game in games)
    contents = [groups_of(game)[1] for game in games]
    for group, mean in plan_counts().contents(plan).items():
        assert abs(sum(counts[group] for counts in contents) / 40 - mean) < 0.35 + 0.2 * mean, group


def test_the_table_of_floor_plans_covers_every_plan_and_counts_no_game_of_valid_unseen():
    table = plan_counts()
    assert all(table.receptacles(plan) and table.contents(plan) for plans in ROOMS.values() for plan in plans)
    assert all(table.games(plan) == 0 for plan in HELD_OUT_PLANS)
    assert sum(table.games(plan) for plans in ROOMS.values() for plan in plans) == 340


def test_a_classifier_tells_different_rooms_apart_and_equal_ones_not():
    pytest.importorskip("sklearn")
    from benchmarks import alfworld_classifier as classifier

    def rooms(first, **knobs):
        recipe = GeneratorSettings(("pick_cool_then_place_in_recep",), **knobs)
        games = [generate(first + n, recipe, plan=10).game for n in range(40)]
        return [classifier.Sample(10, str(n), classifier.features(game)) for n, game in enumerate(games)]

    official = rooms(2_000_000)
    equal = classifier.separation(official, [rooms(2_000_100)], by_plan=False, trees=40)
    different = classifier.separation(official, [rooms(2_000_100, objects=20)], by_plan=False, trees=40)
    assert abs(equal.auc - 0.5) < 0.2 and different.auc > 0.9


def test_generated_files_use_the_official_format():
    made = generate(3)
    game = json.loads(made.text)
    assert sorted(game) == ["grammar", "pddl_domain", "pddl_problem", "solvable"]
    again = AlfworldGame.from_json(made.text, made.name)
    assert again.start == made.game.start and again.objects == made.game.objects


def test_drawn_numbers_change_names_only():
    for seed in range(10):
        counted = generate(seed).game
        drawn = generate(seed, GeneratorSettings(numbers="drawn")).game
        for before, after in ((counted.receptacles, drawn.receptacles), (counted.objects, drawn.objects)):
            assert [name.split()[0] for name in before] == [name.split()[0] for name in after]
            assert len({*after}) == len(after)
            assert {int(name.split()[1]) for name in after} <= set(range(1, 100))
        assert (drawn.start, drawn.goal, drawn.task) == (counted.start, counted.goal, counted.task)


def test_drawn_numbers_are_spread_evenly_and_differ_between_seeds():
    recipe = GeneratorSettings(("pick_heat_then_place_in_recep",), numbers="drawn")
    microwaves = [
        int(name.split()[1])
        for seed in range(200)
        for name in generate(seed, recipe).game.receptacles
        if name.startswith("microwave ")
    ]
    assert len(microwaves) == 200 and len({*microwaves}) > 70
    assert 40 < sum(microwaves) / len(microwaves) < 60
    assert max(microwaves.count(number) for number in microwaves) <= 10


def test_impossible_generator_settings_are_rejected_by_name():
    with pytest.raises(UsageError, match="do not occur in bath"):
        generate(0, GeneratorSettings(("pick_heat_then_place_in_recep",), rooms=("bath",)))
    with pytest.raises(UsageError, match=r"receptacles=1.*Loosen the knobs"):
        generate(0, GeneratorSettings(("pick_heat_then_place_in_recep",), receptacles=1))


def test_the_alfworld_package_is_read_but_not_imported():
    code = (
        "import sys, os; from envsuite.envs.alfworld.games.generator import generate; generate(1);"
        "imported = [m for m in ('alfworld', 'textworld', 'fast_downward') if m in sys.modules]\n"
        "print(imported, 'ALFWORLD_DATA' in os.environ)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "ALFWORLD_DATA"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[] False"


def test_every_floor_plan_of_the_package_is_read():
    for room, plans in ROOMS.items():
        for number in plans:
            plan = floor_plan(number)
            assert plan.room == room and (plan.fixed_receptacles or plan.unplaced) and plan.things


def test_levels_grow_longer():
    lengths = []
    for _, knobs in LEVELS.values():
        recipe = GeneratorSettings(**knobs)
        games = [generate(seed, recipe).game for seed in range(40)]
        lengths.append(sum(solver.remaining(game, game.start) for game in games) / len(games))
    assert lengths == sorted(lengths) and lengths[0] < lengths[2] - 2


def test_every_step_of_the_ladder_can_be_played():
    for knobs in LADDER:
        for seed in range(5):
            assert generate(seed, GeneratorSettings(**knobs)).game.solvable


DIGESTS = ["9695c92a2cc5", "e383f82c9794", "948bfe384ae4"]
