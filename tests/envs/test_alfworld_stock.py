"""The stock engine wrapper: no output, thread guard, and the same games as the native engine."""

import importlib.util
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import envsuite
from envsuite import registry
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.envs.alfworld.games.problem import display_names
from envsuite.envs.alfworld.stock import StockEngine
from envsuite.errors import DataError, EngineFailure, UsageError
from tests.conftest import SHARED

if any(importlib.util.find_spec(name) is None for name in ("alfworld", "textworld", "fast_downward")):
    pytest.skip("alfworld's own engine is not installed", allow_module_level=True)

SMALL = {"receptacles": 8, "objects": 6}


@pytest.fixture(scope="module")
def engine():
    stock_engine = StockEngine()
    yield stock_engine
    stock_engine.close()


def test_both_engines_play_generated_games_equally_in_both_dialects():
    for dialect in ("2.1.1", "0.4"):
        native, stock = (
            registry.build("ALFWorld-generated-v0", "dense", engine=engine, dialect=dialect, **SMALL)
            for engine in ("native", "textworld")
        )
        for seed in range(2):
            assert native.reset(seed=seed) == stock.reset(seed=seed)
            rng = np.random.default_rng(seed)
            over = False
            for turn in range(16):
                command = ["xyzzy", native.random_command(rng), native.expert()][min(turn % 4, 2)]
                native_result, stock_result = native.step(command), stock.step(command)
                assert native_result == stock_result, command
                over = native_result[2] or native_result[3]
                if over:
                    break
        stock.close()


def test_the_fast_downward_expert_wins_from_the_start_and_after_a_detour():
    env = registry.build("ALFWorld-generated-v0", engine="textworld", **SMALL)
    for seed in range(2):
        env.reset(seed=seed)
        needed = env.remaining()
        first = env.expert()
        assert first == env.expert() and first in env.admissible()
        env.step("inventory")  # leaves the plan, so that it plans again
        turns = 1
        while not env.success:
            env.step(env.expert())
            turns += 1
        assert turns == needed + 1
    env.close()


def test_an_opening_plan_is_cached_on_disk(engine, monkeypatch):
    generated = generate(5, GeneratorSettings(receptacles=6, objects=5))
    engine.load(json.loads(generated.text), generated.name)
    engine.reset()
    plan = engine.opening_plan()
    monkeypatch.setattr(StockEngine, "plan", lambda self: pytest.fail("it was planned again"))
    assert engine.opening_plan() == plan and plan


def test_the_engine_leaves_the_process_as_it_was(tmp_path):
    code = """
import json, sys, tempfile, os
from envsuite.envs.alfworld.stock import StockEngine
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
argv, stdout = sys.argv, sys.stdout
made = generate(0, GeneratorSettings(receptacles=5, objects=4))
for _ in range(2):
    engine = StockEngine()
    engine.load(json.loads(made.text), made.name)
    engine.reset(), engine.plan(), engine.step("look")
    engine.close()
assert sys.argv is argv and sys.stdout is stdout
assert os.listdir(tempfile.gettempdir()) == [], "files left behind"
assert "alfworld" not in sys.modules and "ALFWORLD_DATA" not in os.environ
maps = open("/proc/self/maps").read() if os.path.exists("/proc/self/maps") else ""
libraries = {line.split()[-2] for line in maps.splitlines() if "libdownward" in line}
assert len(libraries) <= 1, "the library was loaded twice"
"""
    environment = {k: v for k, v in os.environ.items() if k != "ALFWORLD_DATA"} | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, "x"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_calls_from_threads_are_rejected(engine):
    caught = []

    def use():
        try:
            engine.reset()
        except EngineFailure as error:
            caught.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "must not run in threads" in caught[0]


def test_the_stock_engine_needs_a_process():
    task = envsuite.tasks("ALFWorld-generated-v0")[0]
    full = registry.knob_names(task)
    assert AlfworldEnv.needs_process({**full, "engine": "textworld"}) and not AlfworldEnv.needs_process(full)


def test_games_the_stock_engine_cannot_load_are_named(engine):
    generated = generate(2, GeneratorSettings(("pick_heat_then_place_in_recep",), receptacles=6, objects=4))
    game = json.loads(generated.text)
    lines = game["pddl_problem"].split("\n")
    with pytest.raises(DataError, match=r"generated/.*goal is unreachable.*engine=native"):
        engine.load(
            {**game, "pddl_problem": "\n".join(line for line in lines if "(heatable" not in line)}, generated.name
        )
    with pytest.raises(DataError, match=r"generated/.*cannot read it"):
        engine.load({**game, "pddl_problem": game["pddl_problem"][:2000]}, generated.name)
    engine.load(game, generated.name)
    assert engine.reset().feedback.startswith("-= Welcome")


def test_a_game_with_unknown_rules_falls_back_to_the_stock_engine_with_a_warning(tmp_path, monkeypatch):
    generated = generate(2, GeneratorSettings(("pick_and_place_simple",), receptacles=6, objects=4))
    game = json.loads(generated.text)
    game["grammar"] = game["grammar"].replace("You pick up", "You grab")
    folder = tmp_path / "json_2.1.1/valid_seen/pick_and_place_simple-X-None-Y-1/trial_1"
    folder.mkdir(parents=True)
    (folder / "game.tw-pddl").write_text(json.dumps(game))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    env = registry.build("ALFWorld-valid_seen-v0", "dense")
    with pytest.warns(UserWarning, match="native engine cannot read this game"):
        env.reset(seed=0)
    total, texts = 0.0, []
    while not env.success:
        text, reward, *_ = env.step(env.expert())
        total += reward
        texts.append(text)
    assert total == 1.0 and any("You grab" in text for text in texts)
    assert env.labels()["task_type"] == "pick_and_place_simple"
    with pytest.raises(UsageError):
        env.remaining()
    env.close()


def test_display_names_equal_those_of_alfworlds_demangler():
    files = sorted((SHARED / "data/alfworld").rglob("game.tw-pddl"))[::60]
    games = [json.loads(file.read_text()) for file in files] + [json.loads(generate(seed).text) for seed in range(6)]
    code = (
        "import sys, json\nfrom alfworld.agents.utils.misc import Demangler\n"
        "from textworld.generator.game import EntityInfo\n"
        "for ids in json.load(sys.stdin):\n"
        "    d = Demangler(game_infos={i: EntityInfo(i, 'x') for i in ids})\n"
        "    print(json.dumps({i: d.demangle_alfred_name(i) for i in ids}))"
    )
    ids = []
    for game in games:
        problem = game["pddl_problem"].lower()
        words = problem[problem.index("(:init") : problem.index("(:goal")].replace("(", " ").replace(")", " ").split()
        ids.append(sorted({word for word in words if "_bar_" in word or word == "agent1"}))
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(ids), capture_output=True, text=True, check=True
    )
    for entities, line in zip(ids, done.stdout.splitlines(), strict=True):
        assert entities
        assert display_names(entities) == json.loads(line)
