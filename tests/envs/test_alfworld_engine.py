"""The native ALFWorld engine and its solver: rules, states, invalid files, exactness."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import random
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsuite.envs.alfworld.engine import NOTHING_HAPPENS, AlfworldGame, GameState, NativeEngine, Unrecognised
from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.game import MAX_BYTES
from envsuite.envs.alfworld.games.game_tables import MAX_CACHED
from envsuite.envs.alfworld.games.generator import generate
from envsuite.envs.alfworld.games.logic import package_logic, remake
from envsuite.envs.alfworld.partial import PartialExpert
from envsuite.errors import DataError, UsageError
from tests.conftest import GOLDEN, SHARED
from tests.golden.digests import STEP, digest

if importlib.util.find_spec("alfworld") is None:
    pytest.skip("the package alfworld is not installed", allow_module_level=True)

SIMPLE = """(:goal (and (exists (?r - receptacle) (exists (?o - object)
  (and (inReceptacle ?o ?r) (objectType ?o {o}Type) (receptacleType ?r {r}Type))))))"""
LIGHT = """(:goal (and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot {r}Type)
  (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
  (exists (?o - object ?a - agent) (and (objectType ?o {o}Type) (holds ?a ?o)))))"""
FLAGS = {
    "Apple": "pickupable cleanable heatable coolable sliceable",
    "Knife": "pickupable cleanable",
    "Mug": "pickupable cleanable heatable coolable isReceptacleObject",
    "DeskLamp": "toggleable",
    "Book": "pickupable",
    "PaperTowelRoll": "pickupable",
}
HOLDS = {"CounterTop": "Apple Knife Mug Book", "Fridge": "Apple Mug", "Desk": "Book Mug", "Shelf": "Book"}


def room(receptacles: str, objects: str, goal: str = SIMPLE.format(o="Apple", r="Fridge"), extra: str = "") -> str:
    """Returns a problem from 'Fridge@1! CounterTop@2' (! is openable) and
    'Apple:Fridge1,CounterTop1'.
    """
    facts, where, ids = ["(atLocation agent1 loc_bar_0)"], {}, {}
    for word in receptacles.split():
        kind, place, opens = re.fullmatch(r"(\w+)@(\d+)(!?)", word).groups()
        number = sum(name.startswith(kind) for name in ids) + 1
        rid = ids[f"{kind}{number}"] = f"{kind}_bar_{number}"
        where[rid] = f"loc_bar_{place}"
        facts += [f"(receptacleType {rid} {kind}Type)", f"(receptacleAtLocation {rid} {where[rid]})"]
        facts += [f"(openable {rid})"] if opens else []
        facts += [f"(canContain {kind}Type {held}Type)" for held in HOLDS.get(kind, "").split()]
    for number, word in enumerate(objects.split()):
        kind, places = word.split(":")
        oid = f"{kind}_bar_{number}"
        facts += [f"(objectType {oid} {kind}Type)"] + [f"({flag} {oid})" for flag in FLAGS[kind].split()]
        for place in filter(None, places.split(",")):
            facts += [f"(inReceptacle {oid} {ids[place]})", f"(objectAtLocation {oid} {where[ids[place]]})"]
    return "(define (problem p) (:domain alfred)\n(:init\n" + "\n".join(facts) + f"\n{extra})\n{goal})"


def game_file(problem: str, dialect: str = "2.1.1", task: str = "try it.", **changes: object) -> str:
    domain, grammar = package_logic(dialect)
    grammar = grammar.replace("UNKNOWN GOAL.", task)
    return json.dumps({"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem, "solvable": True} | changes)


def engine_of(*args: str, dialect: str = "2.1.1", **kwargs: str) -> NativeEngine:
    return NativeEngine(AlfworldGame.from_json(game_file(room(*args, **kwargs), dialect), "here"))


@lru_cache(maxsize=64)
def generated(seed: int) -> AlfworldGame:
    game = generate(seed).game
    assert game is not None
    return game


def games_at_hand(step: int) -> list[tuple[AlfworldGame, int]]:
    """Every `step`-th official game, or 12 generated ones where there are none; each with its fewest commands."""
    if (SHARED / "data/alfworld").is_dir():
        return official(SHARED, step)
    return [(generated(seed), len(solver.commands(generated(seed), generated(seed).start) or ())) for seed in range(12)]


def official(shared: Path, step: int = 1) -> list[tuple[AlfworldGame, int]]:
    lengths = json.loads((shared / "golden/alfworld/optimal_lengths.json").read_text())
    root = shared / "data/alfworld/json_2.1.1"
    return [(AlfworldGame.load(root / name), length) for name, length in list(lengths.items())[::step]]


def wander(engine: NativeEngine, rng: random.Random, turns: int) -> list[str]:
    """Plays random commands, mostly ones with an effect, and returns them."""
    commands_played = []
    for _ in range(turns):
        effective = [
            c for c in engine.admissible() if not c.startswith(("look", "inventory", "examine", "go to", "help"))
        ]
        commands_played.append(rng.choice(effective if effective and rng.random() < 0.6 else engine.admissible()))
        engine.step(commands_played[-1])
    return commands_played


# ---- rules


def test_every_answer_has_the_digest_of_the_stock_engines():
    """alfworld's own engine was recorded in games that our generator makes (`tests/golden/make_alfworld.py`)."""
    walks = [json.loads(line) for line in (GOLDEN / "alfworld" / "stock.jsonl").read_text().splitlines()]
    count = 0
    for seed, dialect, commands, recorded, complete in walks:
        text = generate(seed).text
        engine = NativeEngine(
            AlfworldGame.from_json(remake(text, "0.4") if dialect == "0.4" else text, f"generated {seed}")
        )
        codes = []
        for command in (None, *commands):
            feedback, admissible, won = engine.reset() if command is None else engine.step(command)
            answer = [feedback, admissible, 0.0 if command is None else float(won), won, won]
            place = len(codes) * STEP
            codes.append(digest(answer))
            assert codes[-1][:STEP] == recorded[place : place + STEP], (seed, dialect, command, answer)
        assert digest(codes)[:16] == complete
        count += len(codes)
    assert (len(walks), count) == (18, 507)


def test_solver_needs_the_golden_number_of_commands_in_every_official_game(shared):
    games = official(shared)
    assert len(games) == 340
    for game, length in games:
        engine = NativeEngine(game)
        plan = solver.commands(game, game.start)
        assert plan is not None and len(plan) == length, game.name
        for turn, command in enumerate(plan):
            assert command in engine.admissible(), (game.name, command)
            assert engine.step(command).won == (turn == length - 1), game.name


def test_a_win_can_be_undone():
    engine = engine_of("Fridge@1! CounterTop@2", "Apple:CounterTop1")
    for command in ("go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "open fridge 1"):
        assert not engine.step(command).won
    assert engine.step("put apple 1 in/on fridge 1").won
    assert engine.step("close fridge 1").won
    engine.step("open fridge 1")
    assert not engine.step("take apple 1 from fridge 1").won


def test_walking_away_from_the_lamp_unwins():
    goal = LIGHT.format(o="Book", r="DeskLamp")
    engine = engine_of("Desk@1 Shelf@2", "DeskLamp:Desk1 Book:Shelf1", goal=goal)
    for command in ("go to desk 1", "use desklamp 1", "go to shelf 1", "take book 1 from shelf 1"):
        assert not engine.step(command).won
    assert engine.step("go to desk 1").won
    assert not engine.step("go to shelf 1").won
    assert engine.step("go to desk 1").won


def test_taking_an_object_that_fits_nowhere_is_a_dead_end():
    engine = engine_of("Fridge@1! CounterTop@2", "Apple:CounterTop1 PaperTowelRoll:CounterTop1")
    engine.step("go to countertop 1")
    assert not engine.dead_end
    before = engine.get_state()
    engine.step("take papertowelroll 1 from countertop 1")
    assert engine.dead_end
    assert solver.remaining(engine.game, engine.get_state()) is None
    assert not [command for command in engine.admissible() if command.startswith("put")]
    engine.set_state(before)
    assert not engine.dead_end


def test_holding_the_target_is_not_a_dead_end_if_the_task_is_to_hold_it():
    goal = LIGHT.format(o="PaperTowelRoll", r="DeskLamp")
    engine = engine_of("Desk@1 CounterTop@2", "DeskLamp:Desk1 PaperTowelRoll:CounterTop1", goal=goal)
    for command in ("go to countertop 1", "take papertowelroll 1 from countertop 1"):
        engine.step(command)
    assert not engine.dead_end
    assert solver.commands(engine.game, engine.get_state()) == ["go to desk 1", "use desklamp 1"]


def test_an_object_listed_in_two_receptacles_stays_in_the_second_when_taken():
    engine = engine_of("CounterTop@1 Fridge@2", "Mug:CounterTop1,Fridge1", goal=SIMPLE.format(o="Mug", r="Desk"))
    engine.step("go to countertop 1")
    engine.step("take mug 1 from countertop 1")
    assert engine.step("go to fridge 1").feedback.endswith("On the fridge 1, you see a mug 1.")
    assert engine.step("inventory").feedback == "You are carrying: a mug 1."
    assert engine.step("put mug 1 in/on fridge 1").feedback == "You put the mug 1 in/on the fridge 1."
    assert engine.step("examine fridge 1").feedback == "On the fridge 1, you see a mug 1."


def test_receptacles_at_one_location_are_reachable_without_walking():
    engine = engine_of("CounterTop@1 Fridge@1! Shelf@2", "Apple:CounterTop1")
    assert engine.step("go to countertop 1").feedback == "You arrive at loc 2. On the countertop 1, you see a apple 1."
    assert "go to fridge 1" not in engine.admissible()
    assert engine.step("go to fridge 1").feedback == NOTHING_HAPPENS
    assert engine.step("look").feedback == "You are facing the countertop 1, and fridge 1. Next to it, you see nothing."
    for command in ("take apple 1 from countertop 1", "open fridge 1", "put apple 1 in/on fridge 1"):
        engine.step(command)
    assert engine.step("look").feedback.endswith("Next to it, you see a apple 1.")


def test_slicing_works_inside_a_closed_fridge():
    engine = engine_of("CounterTop@1 Fridge@1!", "Knife:CounterTop1 Apple:Fridge1")
    engine.step("go to countertop 1")
    engine.step("take knife 1 from countertop 1")
    assert engine.step("slice apple 1 with knife 1").feedback == "You sliced the apple 1 with the knife 1."
    for command in ("put knife 1 in/on countertop 1", "open fridge 1", "take apple 1 from fridge 1"):
        engine.step(command)
    assert engine.step("examine apple 1").feedback == "This is a sliced apple 1."
    engine.step("cool apple 1 with fridge 1")
    assert engine.step("examine apple 1").feedback == "This is a cool sliced apple 1."


def test_an_object_that_contains_itself_is_described_once():
    mug = "(inReceptacleObject Mug_bar_0 Mug_bar_0)"  # as in some official games
    engine = engine_of("CounterTop@1 Fridge@2", "Mug:CounterTop1", extra=mug)
    engine.step("go to countertop 1")
    engine.step("take mug 1 from countertop 1")
    assert engine.step("examine mug 1").feedback == "This is a normal mug 1. In it, you see a mug 1."


def test_dialects_are_recognised_one_difference_at_a_time():
    text = game_file(room("CounterTop@1 Fridge@2", "Apple:CounterTop1"), "0.4")
    new = NativeEngine(AlfworldGame.from_json(text, "here"))
    assert new.step("go to countertop 1").feedback.startswith("You arrive at countertop 1. ")
    assert new.step("help").feedback.startswith("Available commands:\n") and "help" in new.admissible()
    new.step("take apple 1 from countertop 1")
    assert new.step("move apple 1 to countertop 1").feedback == "You move the apple 1 to the countertop 1."
    data = json.loads(text)
    data["grammar"] = data["grammar"].replace("You arrive at {r.name}.", "You arrive at {lend.name}.")
    mixed = NativeEngine(AlfworldGame.from_json(json.dumps(data), "here"))
    assert mixed.step("go to countertop 1").feedback.startswith("You arrive at loc 2. ")
    mixed.step("take apple 1 from countertop 1")
    assert "move apple 1 to countertop 1" in mixed.admissible()
    sinks = room("Sink@1 CounterTop@2", "Apple:CounterTop1")
    for dialect, cleans in (("2.1.1", True), ("0.4", False)):
        engine = NativeEngine(AlfworldGame.from_json(game_file(sinks, dialect), "here"))
        for command in ("go to countertop 1", "take apple 1 from countertop 1", "go to sink 1"):
            engine.step(command)
        assert ("clean apple 1 with sink 1" in engine.admissible()) == cleans


def test_converting_a_game_to_the_second_dialect_and_back_restores_it():
    paths = sorted((SHARED / "data/alfworld/json_2.1.1/valid_seen").glob("*/*/game.tw-pddl"))
    text = paths[0].read_text() if paths else generate(0).text
    back = json.loads(remake(remake(text, "0.4"), "2.1.1"))
    for key, value in json.loads(text).items():
        if isinstance(value, str):  # equal except for blank lines
            assert back[key].split() == value.split(), key
        else:
            assert back[key] == value


# ---- states


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 30), turns=st.integers(0, 40), more=st.integers(0, 15), data=st.integers())
def test_restoring_a_state_equals_replaying_the_commands(seed, turns, more, data):
    game, rng = generated(seed), random.Random(data)
    engine, replayed = NativeEngine(game), NativeEngine(game)
    commands_played = wander(engine, rng, turns)
    saved, commands, won = engine.get_state(), engine.admissible(), engine.won
    next_commands = wander(NativeEngine(game), rng, more)
    replies = [engine.step(command) for command in next_commands]
    engine.set_state(saved)
    for command in commands_played:
        replayed.step(command)
    assert engine.get_state() == replayed.get_state() == saved and hash(replayed.get_state()) == hash(saved)
    assert (engine.admissible(), engine.won) == (replayed.admissible(), replayed.won) == (commands, won)
    assert (
        [engine.step(command) for command in next_commands]
        == [replayed.step(command) for command in next_commands]
        == replies
    )


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 30), words=st.lists(st.text(max_size=30), max_size=5), data=st.integers())
def test_arbitrary_strings_do_not_change_the_state(seed, words, data):
    engine, rng = NativeEngine(generated(seed)), random.Random(data)
    wander(engine, rng, 10)
    for word in [
        *words,
        *(f"{c}{w}" for c, w in zip(engine.admissible(), words, strict=False)),
        "take  ",
        "go to",
        "put in/on",
    ]:
        if word.strip() in engine.admissible():
            continue
        before, commands, won = engine.get_state(), engine.admissible(), engine.won
        assert engine.step(word) == (NOTHING_HAPPENS, commands, won)
        assert engine.get_state() == before


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 30), data=st.integers())
def test_cached_views_equal_recomputed_ones(seed, data):
    game, rng = generated(seed), random.Random(data)
    engine = NativeEngine(game)
    for _ in range(40):
        fresh = NativeEngine(dataclasses.replace(game))  # does not share caches
        fresh.set_state(engine.get_state())
        assert engine.admissible() == fresh.admissible() == sorted(set(engine.admissible()))
        command = rng.choice(engine.admissible())
        assert engine.step(command) == fresh.step(f" {command}\n")


def test_caches_per_game_are_bounded():
    engine = NativeEngine(generated(3))
    wander(engine, random.Random(0), 5_000)
    table = engine.game.__dict__["_tables"]
    assert 0 < len(table.views) <= MAX_CACHED
    assert len(table.lists) <= MAX_CACHED


def test_a_state_of_another_game_is_rejected():
    engine = NativeEngine(generated(1))
    for wrong in (generated(2).start, None, tuple(generated(1).start)):
        with pytest.raises(UsageError, match="Not a state of the game"):
            engine.set_state(wrong)


# ---- the solver


def is_exact(game: AlfworldGame, state: GameState) -> bool:
    """Tests that the solved length is one more than the shortest length of all successor states."""
    engine = NativeEngine(game)
    engine.set_state(state)
    length = solver.remaining(game, state)
    if engine.won or length == 0:
        return engine.won and length == 0
    following = []
    for command in engine.admissible():
        engine.set_state(state)
        engine.step(command)
        following.append(solver.remaining(game, engine.get_state()))
    reachable = [n for n in following if n is not None]
    return length == (1 + min(reachable) if reachable else None)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 60), turns=st.integers(0, 30), data=st.integers())
def test_the_solver_is_exact_from_any_state(seed, turns, data):
    game = generated(seed)
    engine = NativeEngine(game)
    wander(engine, random.Random(data), turns)
    assert is_exact(game, engine.get_state())


def test_the_solver_is_exact_in_official_games():
    rng = random.Random(0)
    games = games_at_hand(20)
    assert len(games) >= 12
    for game, _ in games:
        engine = NativeEngine(game)
        for _ in range(4):
            wander(engine, rng, 6)
            assert is_exact(game, engine.get_state()), game.name


def test_impossible_tasks_have_no_plan():
    engine = engine_of("CounterTop@1 Fridge@2!", "Book:CounterTop1", goal=SIMPLE.format(o="Book", r="Fridge"))
    assert solver.solve(engine.game, engine.get_state()) is None  # a fridge cannot hold a book
    assert solver.commands(engine.game, engine.get_state()) is None
    assert solver.next_command(engine.game, engine.get_state()) is None


# ---- the expert that must search


def test_the_partial_expert_wins_official_games_in_at_least_the_optimal_number_of_commands():
    games = games_at_hand(5)
    assert len(games) >= 12
    for game, length in games:
        engine, expert, commands_played = NativeEngine(game), PartialExpert(game), []
        while not engine.won:
            expert.follow(commands_played)
            commands_played.append(expert.next_command())
            assert commands_played[-1] in engine.admissible(), game.name
            engine.step(commands_played[-1])
        assert length <= len(commands_played) <= 50, game.name


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 40), data=st.integers())
def test_the_partial_expert_uses_only_what_it_has_seen(seed, data):
    game, rng = generated(seed), random.Random(data)
    contents = list(game.start.contents)
    rng.shuffle(contents)
    shuffled = dataclasses.replace(game, start=game.start._replace(contents=tuple(contents)))
    engines, experts = [NativeEngine(g) for g in (game, shuffled)], [PartialExpert(g) for g in (game, shuffled)]
    answers, commands_played = [engine.reset() for engine in engines], []
    while answers[0] == answers[1] and not answers[0].won and len(commands_played) < 60:
        for expert in experts:
            expert.follow(commands_played)
        first, second = (expert.next_command() for expert in experts)
        assert first == second, commands_played
        if first is None:
            break
        commands_played.append(first)
        answers = [engine.step(first) for engine in engines]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 40), turns=st.integers(0, 25), data=st.integers())
def test_the_partial_expert_can_take_over_after_any_commands(seed, turns, data):
    game = generated(seed)
    engine, expert = NativeEngine(game), PartialExpert(game)
    commands_played = wander(engine, random.Random(data), turns)
    from_here = PartialExpert(game, engine.get_state())
    commands_played.append("dance")
    expert.follow(commands_played)
    assert (command := expert.next_command()) is None or command in engine.admissible()
    assert (command := from_here.next_command()) is None or command in engine.admissible()


# ---- bad files

SOUND = room("CounterTop@1 Fridge@2", "Apple:CounterTop1")
BROKEN_PROBLEMS = {
    "no \\(:init": "(define (problem p))",
    "line 5: not a fact": SOUND.replace(
        "(receptacleAtLocation CounterTop_bar_1", "receptacleAtLocation CounterTop_bar_1"
    ),
    "takes two arguments, not 'countertop_bar_1'": SOUND.replace("CounterTop_bar_1 CounterTopType", "CounterTop_bar_1"),
    "a game cannot start with a fact 'holds'": SOUND.replace("(:init", "(:init (holds agent1 Apple_bar_0)"),
    "two facts 'receptacleatlocation'": SOUND.replace("(:init", "(:init (receptacleAtLocation Fridge_bar_1 loc_bar_9)"),
    "'inreceptacle' does not apply to 'pear'": SOUND.replace("(:init", "(:init (inReceptacle pear Fridge_bar_1)"),
    "has more than one type": SOUND.replace("(:init", "(:init (objectType Fridge_bar_1 AppleType)"),
    "one agent": SOUND.replace("(atLocation agent1 loc_bar_0)", ""),
    "no \\(:goal": SOUND[: SOUND.index("(:goal")],
    "not 'fridge_bar_1 apple_bar_0'": SOUND.replace("(:init", "(:init (openable Fridge_bar_1 Apple_bar_0)"),
    "'inreceptacle' does not apply to 'fridge_bar_1'": SOUND.replace(  # a cycle: the fridge contains itself
        "(:init", "(:init (inReceptacle Fridge_bar_1 Fridge_bar_1)"
    ),
    "2,005 receptacles, objects and locations, but at most 2,000": SOUND.replace(
        "(:init", "(:init\n" + "\n".join(f"(objectType Apple_bar_{n} AppleType)" for n in range(2_000))
    ),
    "not a fact|unbalanced": SOUND.replace("(:init", "(:init " + "(" * 5_000),
}


@pytest.mark.parametrize("message", BROKEN_PROBLEMS)
def test_broken_problems_are_rejected_with_their_line(message):
    with pytest.raises(DataError, match=r"^odd\.tw-pddl: key 'pddl_problem', line \d+: .*") as caught:
        AlfworldGame.from_json(game_file(BROKEN_PROBLEMS[message]), "odd.tw-pddl")
    assert re.search(message, str(caught.value))
    assert not isinstance(caught.value, Unrecognised)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (game_file(SOUND)[:-200], r"line 1: not JSON"),
        ("{\n\n}", r"key 'pddl_domain' is missing"),
        ("[1]", r"line 1: a game is a JSON object, not list"),
        (game_file(SOUND, grammar=None), r"key 'grammar' is NoneType"),
        ("[" * 200_000, r"line 1: not a game"),
        ('{"a":' * 100_000, r"line 1: not a game"),
        ("1" * 10_000, r"line 1: not a game"),
        (" " * (MAX_BYTES + 1), r"larger than 4,000,000 characters"),
        ('{\n"pddl_domain": \x00}', r"line 2: not JSON"),
    ],
)
def test_invalid_game_files_are_rejected_by_name(text, message):
    with pytest.raises(DataError, match=rf"^odd: {message}"):
        AlfworldGame.from_json(text, "odd")


def test_unreadable_files_are_named(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{}")
    for name, message in (("missing", "cannot be read"), ("bytes", "not UTF-8"), (".", "cannot be read")):
        with pytest.raises(DataError, match=message) as caught:
            AlfworldGame.load(tmp_path / name)
        assert str(tmp_path) in str(caught.value)


def test_unknown_logic_and_goals_are_unrecognised():
    data = json.loads(game_file(SOUND))
    for key, old, new in (
        ("pddl_domain", "(not (holdsAny ?a))  ; agent", "; agent"),
        ("grammar", "You open the", "You tear open the"),
        ("grammar", "Your task is to: try it.", "Your task is to: try {r.name}."),
        ("grammar", "Your task is to", "You are to"),
        ("pddl_problem", "(inReceptacle ?o ?r) (objectType", "(isSliced ?o) (objectType"),
    ):
        assert old in data[key], old
        with pytest.raises(Unrecognised, match=f"odd: key '{key}'"):
            AlfworldGame.from_json(json.dumps(data | {key: data[key].replace(old, new)}), "odd")


@settings(deadline=None, max_examples=100)
@given(start=st.integers(0, 5_000), length=st.integers(1, 200), text=st.text(max_size=8))
def test_a_damaged_game_file_is_played_or_rejected_with_a_message(start, length, text):
    problem = SOUND[: start % len(SOUND)] + text + SOUND[start % len(SOUND) + length :]
    refusal = "odd: "
    try:
        game = AlfworldGame.from_json(game_file(problem), "odd")
    except DataError as error:
        refusal = str(error)
    else:
        wander(NativeEngine(game), random.Random(0), 20)
        solver.solve(game, game.start)
    assert refusal.startswith("odd: ")


def test_the_engine_needs_neither_textworld_nor_fast_downward():
    code = (
        "import sys, envsuite.envs.alfworld.env\n"
        "print([m for m in ('textworld', 'fast_downward', 'alfworld') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
