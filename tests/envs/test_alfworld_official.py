"""Official splits: knobs that apply to them, epochs, compiled games, and pickled vector environments."""

import importlib.util
import os
import subprocess
import sys
from collections import Counter

import pytest

from envsuite import registry
from envsuite.envs.alfworld import env as alfworld_env
from envsuite.envs.alfworld.games import compiled, data
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.envs.alfworld.games.pack import Pack
from envsuite.errors import BadKnob, UsageError

if importlib.util.find_spec("alfworld") is None:
    pytest.skip("the package alfworld is not installed", allow_module_level=True)

TYPES = ("pick_and_place_simple", "look_at_obj_in_light")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with six games of two types in valid_seen; no game is cached."""
    for seed in range(6):
        made = generate(seed, GeneratorSettings((TYPES[seed % 2],), receptacles=6, objects=4))
        path = tmp_path / "json_2.1.1/valid_seen" / f"{TYPES[seed % 2]}-X-None-Y-{seed}" / "trial_1/game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_text(made.text)
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path
    forget()


def forget():
    """Clears the caches of games in this process."""
    compiled.clear_memory()
    compiled._pack.cache_clear()
    alfworld_env._official.cache_clear()


def test_task_types_select_official_games(folder):
    env = registry.build("ALFWorld-valid_seen-v0", task_types=("look_at_obj_in_light",))
    types = {env.reset(seed=seed)[1]["labels"]["task_type"] for seed in range(6)}
    assert types == {"look_at_obj_in_light"}
    panel = registry.panel(registry.TASKS["ALFWorld-valid_seen-v0"], task_types=("look_at_obj_in_light",))
    assert panel.name == "alfworld/valid_seen/look_at_obj_in_light" and len(panel) == 3
    whole = registry.panel(registry.TASKS["ALFWorld-valid_seen-v0"])
    assert whole.name == "alfworld/valid_seen" and len(whole) == 6 and whole.digest != panel.digest
    with pytest.raises(UsageError, match="no solvable games of valid_seen of the types pick_two_obj_and_place"):
        registry.build("ALFWorld-valid_seen-v0", task_types=("pick_two_obj_and_place",))


@pytest.mark.parametrize(
    "knobs",
    [{"objects": 5}, {"hidden": 1.0}, {"rooms": ("bath",)}, {"numbers": "drawn"}],
)
def test_knobs_of_the_generator_are_rejected_for_official_games(folder, knobs):
    name = next(iter(knobs))
    with pytest.raises(BadKnob, match=f"has no knob '{name}'"):
        registry.build("ALFWorld-valid_seen-v0", **knobs)


def test_a_split_cannot_be_replaced_under_the_id_of_another(folder):
    for build in (registry.build, registry.make):
        with pytest.raises(BadKnob, match="valid_unseen"):
            build("ALFWorld-valid_unseen-v0", games="valid_seen")
    with pytest.raises(BadKnob, match="valid_unseen"):
        registry.make_vec("ALFWorld-valid_unseen-v0", 2, games="valid_seen")
    assert registry.build("ALFWorld-valid_seen-v0", games="valid_seen").settings.games == "valid_seen"


def test_unseeded_resets_play_each_official_game_once_per_epoch(folder):
    orders = []
    for seed in (3, 3, 4):
        env = registry.build("ALFWorld-valid_seen-v0")
        env.reset(seed=seed)
        names = [env.reset()[1]["labels"]["instance"] for _ in range(12)]
        assert set(Counter(names[:6]).values()) == set(Counter(names[6:]).values()) == {1}
        orders.append(names)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][:6] != orders[0][6:]


def test_a_compiled_game_equals_the_parsed_one(folder):
    file = data.games("valid_seen")[0]
    expected = AlfworldGame.load(file.path)
    for step in ("parsed", "from memory", "from disk"):
        if step == "from disk":
            forget()
        game = compiled.load_compiled(file.path, file.digest)
        assert {name: getattr(game, name) for name in expected.__dataclass_fields__} == {
            name: getattr(expected, name) for name in expected.__dataclass_fields__
        }, step


@pytest.mark.parametrize("damage", ["content", "mark", "tail"])
def test_a_damaged_file_of_compiled_games_is_repaired(folder, damage):
    files = data.games("valid_seen")
    expected = [compiled.load_compiled(file.path, file.digest).objects for file in files]
    path = compiled._pack().path
    whole = path.read_bytes()
    if damage == "tail":  # a writer was killed
        path.write_bytes(whole[:-7])
    else:
        place = 100 if damage == "content" else 0
        path.write_bytes(whole[:place] + b"damage" + whole[place + 6 :])
    for _ in range(2):
        forget()
        assert [compiled.load_compiled(file.path, file.digest).objects for file in files] == expected
    forget()
    assert all(compiled._stored(file.digest) for file in files)


def test_processes_that_store_games_at_once_keep_those_of_each_other(tmp_path):
    names = [f"{number:064x}" for number in range(40)]
    code = (
        "import pathlib, sys; from envsuite.envs.alfworld.games.pack import Pack; "
        "pack = Pack(pathlib.Path(sys.argv[1])); [pack.add(name, name.encode()) for name in sys.argv[2:]]"
    )
    path = tmp_path / "games.bin"
    writers = [subprocess.Popen([sys.executable, "-c", code, path, *names[start::2]]) for start in (0, 1)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    pack = Pack(path)
    assert [bytes(pack.get(name)) for name in names] == [name.encode() for name in names]
    assert pack.get("f" * 64) is None
    other = Pack(tmp_path / "other.bin")
    for number in range(100):
        other.add(f"{number:063x}f", b"other")
    os.replace(other.path, path)
    assert pack.get(f"{7:063x}f") == b"other"
    pack.add("e" * 64, b"new")
    assert Pack(path).get(f"{99:063x}f") == b"other" and Pack(path).get("e" * 64) == b"new"


def test_a_compiled_game_is_found_without_its_file_and_only_by_its_digest(folder):
    env = registry.build("ALFWorld-valid_seen-v0")
    first, _ = env.reset(seed=0)
    forget()
    text = env._files[0].path.read_text()
    env._files[0].path.write_text("{")
    assert env.reset(seed=0)[0] == first
    env._files[0].path.write_text(text.replace("Your task is to: ", "Your task is to: please "))
    renewed = registry.build("ALFWorld-valid_seen-v0")
    assert (
        "please"
        in renewed.reset(seed=renewed._files.index(next(f for f in renewed._files if f.name == env._files[0].name)))[0]
    )
