"""Structures of TextWorld games: a canonical form, and splits that never share one."""

import json
import random
import re

import pytest

from envsuite import registry
from envsuite.envs.textworld.games import SETTINGS, game_spec
from envsuite.envs.textworld.menu import LEVELS
from envsuite.envs.textworld.structure import split_of, split_of_seed, structure_digest
from envsuite.errors import BadKnob

pytest.importorskip("textworld")
from envsuite.envs.textworld import generator
from envsuite.envs.textworld.generator import CannotGenerate, content_digest, make_game
from tests.envs.textworld_games import canonical_game, tw_make

TURNED = {"north_of": "east_of", "east_of": "south_of", "south_of": "west_of", "west_of": "north_of"}
MIRRORED = {"north_of": "south_of", "south_of": "north_of"}


@pytest.fixture(scope="module")
def game():
    """Returns a serialised game with doors, containers, supporters and a quest of eight commands."""
    return make_game(game_spec("custom", {"world_size": 4, "nb_objects": 6, "quest_length": 8}, 1)).serialize()


def facts_of(game):
    """Returns all facts of a serialised game, of its world and of its quests."""
    events = [event for quest in game["quests"] for event in (*quest["win_events"], *quest["fail_events"])]
    return [*game["world"], *(fact for event in events for fact in event["condition"]["preconditions"])]


def rewritten(game, directions, seed=0):
    """Returns a copy with shuffled facts and new identifiers for all things, and other directions."""
    copy = json.loads(json.dumps({"world": game["world"], "quests": game["quests"]}))
    dice = random.Random(seed)
    dice.shuffle(copy["world"])
    names = sorted({argument["name"] for fact in facts_of(copy) for argument in fact["arguments"]})
    identifiers = dict(zip(names, dice.sample(range(1000), len(names)), strict=True))
    for fact in facts_of(copy):
        fact["name"] = directions.get(fact["name"], fact["name"])
        for argument in fact["arguments"]:
            argument["name"] = f"thing_{identifiers[argument['name']]}"
    return copy


@pytest.mark.parametrize("directions", [{}, TURNED, MIRRORED], ids=["renamed", "turned", "mirrored"])
def test_a_structure_ignores_names_order_and_compass(game, directions):
    assert all(structure_digest(rewritten(game, directions, seed)) == structure_digest(game) for seed in range(3))


def test_a_structure_depends_on_map_kinds_places_and_quest(game):
    digests = {structure_digest(game)}
    for place in ("at", "match"):
        copy = rewritten(game, {})
        copy["world"].remove(next(fact for fact in copy["world"] if fact["name"] == place))
        digests.add(structure_digest(copy))
    bent = rewritten(game, {})
    way = next(fact for fact in bent["world"] if fact["name"] == "north_of")
    way["name"] = "east_of"
    digests.add(structure_digest(bent))
    other_kind = json.loads(json.dumps(rewritten(game, {})).replace('"type": "k"', '"type": "o"'))
    digests.add(structure_digest(other_kind))
    longer_quest = rewritten(game, {})
    longer_quest["quests"][0]["win_events"][0]["condition"]["preconditions"].append(longer_quest["world"][0])
    digests.add(structure_digest(longer_quest))
    assert len(digests) == 6


def ring(*sizes):
    """Returns a world of separate rings of rooms, each joined to the next by a door fact."""
    room = [{"name": f"r_{number}", "type": "r"} for number in range(sum(sizes))]
    world, first = [], 0
    for size in sizes:
        world += [
            {"name": "free", "arguments": [room[first + at], room[first + (at + step) % size]]}
            for at in range(size)
            for step in (1, -1)
        ]
        first += size
    return {"world": world, "quests": []}


def test_worlds_that_look_alike_from_every_room_are_distinguished():
    """Every room has two neighbours in both worlds, so counting neighbours cannot tell them apart."""
    assert structure_digest(ring(6)) != structure_digest(ring(3, 3))
    assert structure_digest(rewritten(ring(3, 3), {}, 1)) == structure_digest(rewritten(ring(3, 3), {}, 2))
    assert len({structure_digest(ring(*sizes)) for sizes in ((8,), (4, 4), (3, 5), (5, 3))}) == 3


def test_interchangeable_things_cost_no_search():
    player = {"name": "P", "type": "P"}
    things = [{"name": f"o_{number}", "type": "o"} for number in range(60)]
    world = [{"name": "in", "arguments": [thing, player]} for thing in things]
    assert structure_digest({"world": world, "quests": []}) == structure_digest({"world": world[::-1], "quests": []})


def test_every_structure_and_every_seed_has_one_split():
    counts = dict.fromkeys(("test", "valid", "train"), 0)
    for number in range(1000):
        counts[split_of(f"{number:016x}")] += 1
    assert counts == {"test": 200, "valid": 200, "train": 600}
    for level in LEVELS:
        for split, seeds in registry.TASKS[f"TextWorld-{level}-v0"].splits.items():
            assert {split_of_seed(seeds[0]), split_of_seed(seeds[-1])} == {split}


def test_games_of_a_split_have_its_structures_and_a_seed_of_tw_make():
    made = {"test": [], "valid": [], "train": []}
    for seed in (1, 40_001, 50_001):
        spec = game_spec("custom", {}, seed, "structure")
        game = make_game(spec)
        of_seed = make_game(game_spec("custom", {}, game.metadata["seed"]))
        assert content_digest(game.serialize()) == content_digest(of_seed.serialize())
        digest = structure_digest(game.serialize())
        assert split_of(digest) == split_of_seed(seed) == spec.split
        made[spec.split].append(digest)
        assert spec.name == f"w2-o3-q4-{spec.split}_{seed}" and spec.key != game_spec("custom", {}, seed).key
    assert not set(made["test"]) & set(made["train"]) and not set(made["valid"]) & set(made["train"])


OF_THE_GOAL = {"grammar": "only_last_action", "metadata": "uuid"}
"""Options of the generator that a game records and that depend on the knob `goal`."""


@pytest.mark.parametrize(
    ("level", "seed"),
    [
        *(("easy", seed) for seed in (1, 200, 40_001, 50_007, 1_050_000)),
        *((level, seed) for level in ("medium", "hard") for seed in (1, 40_001, 50_001)),
    ],
)
def test_a_brief_goal_changes_the_objective_only(level, seed):
    pair = []
    knobs = registry.knob_names(registry.TASKS[f"TextWorld-{level}-v0"])
    for goal in ("detailed", "brief"):
        settings = {name: knobs[name] for name in SETTINGS["custom"]} | {"goal": goal}
        spec = game_spec("custom", settings, seed, knobs["split_by"])
        pair.append((spec, make_game(spec)))
    (detailed_spec, detailed), (brief_spec, brief) = pair
    objectives = []
    serialised = [canonical_game(game.serialize()) for game in (detailed, brief)]
    for game in serialised:
        objectives.append(game.pop("objective"))
        for group, option in OF_THE_GOAL.items():
            del game[group][option]
        for quest in game["quests"]:
            del quest["desc"]
    assert serialised[0] == serialised[1]
    assert objectives == [detailed.objective, brief.objective]
    assert brief.walkthrough == detailed.walkthrough
    assert len(brief.objective) < len(detailed.objective)
    last_thing = re.split(r" (?:from|with|on|into) ", brief.walkthrough[-1].split(" ", 1)[1])[0]
    assert last_thing in brief.objective
    assert brief_spec.name == re.sub(r"(q\d+)-", r"\1-brief-", detailed_spec.name)
    assert brief_spec.key != detailed_spec.key


def test_a_brief_goal_is_that_of_tw_make_and_custom_games_have_no_goal_none():
    assert tw_make(game_spec("custom", {"goal": "brief"}, 17))[:2] == ["custom", "--only-last-action"]
    with pytest.raises(BadKnob, match="use detailed or brief"):
        registry.build("TextWorld-easy-v0", goal="none")


@pytest.mark.parametrize(
    ("task", "seeds", "wins"),
    [
        ("TextWorld-easy-v0", (35, 36), 1),
        ("TextWorld-medium-v0", (3, 4), 1),
        ("TextWorld-hard-v0", (16, 17), 1),
    ],
)
def test_scripts_win_some_games_of_a_level(task, seeds, wins):
    env = registry.build(task)
    won = 0
    for seed in seeds:
        env.reset(seed=seed)
        over = False
        while not over:
            _, _, terminated, truncated, _ = env.step(env.blind())
            over = terminated or truncated
        won += env.success
    env.close()
    assert won == wins


def test_settings_with_few_structures_are_refused_with_their_number(monkeypatch):
    monkeypatch.setattr(generator, "MAX_CANDIDATES", 12)
    spec = game_spec("coin_collector", {"level": 1}, 1, "structure")
    with pytest.raises(
        CannotGenerate, match=r"structures in 12 games of coin_collector-l1: 1, too few .*split_by=seed"
    ):
        make_game(spec)
