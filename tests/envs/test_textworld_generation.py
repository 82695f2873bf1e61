"""Generation of TextWorld games: equal to tw-make, in parallel, and never corrupt."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envsuite.envs.textworld import game_cache
from envsuite.envs.textworld.engine.interpreter import Interpreter, _generators, generate_logic
from envsuite.envs.textworld.engine.parsers import read_words
from envsuite.envs.textworld.game_cache import ensure_game, find_game, generate_many, story_path
from envsuite.envs.textworld.games import GameSpec, game_spec
from envsuite.errors import EngineFailure

pytest.importorskip("textworld")
from textworld.generator import chaining

from envsuite.envs.textworld.generator import CannotGenerate, compile_game, content_digest, make_game
from tests.envs.textworld_games import canonical_game, tw_make

GRID = [(2, 3, 4), (8, 3, 4), (2, 12, 4), (8, 12, 4), (4, 6, 8)]
SPECS = [
    *(
        game_spec("custom", {"world_size": w, "nb_objects": o, "quest_length": q}, seed)
        for w, o, q in GRID
        for seed in (1, 40_001, 50_001)
    ),
    *(game_spec("treasure_hunter", {"level": level}, 20 + level) for level in (1, 7, 12)),
    *(game_spec("simple", {"rewards": rewards}, 5) for rewards in ("dense", "balanced", "sparse")),
    *(game_spec("coin_collector", {"level": level}, 9) for level in (3, 8, 102)),
    game_spec("cooking", {}, 1),
    game_spec("cooking", {"recipe": 3, "take": 2, "go": 6, "open": True, "cook": True, "cut": True}, 2),
    game_spec("cooking", {"recipe": 2, "take": 2, "go": 9, "drop": True, "recipe_seed": 4, "foods": "test"}, 3),
]

# tw-make, but for many games in one process, with each logic file read once, and without compiling.
TW_MAKE = """
import json, runpy, sys, textworld.generator, textworld.logic
compiled = textworld.generator.compile_inform7_game
textworld.generator.compile_inform7_game = lambda source, path: "set_walkthrough" in path and compiled(source, path)
load, known = textworld.logic.GameLogic.load, {}
textworld.logic.GameLogic.load = lambda paths: known.get(tuple(paths)) or known.setdefault(tuple(paths), load(paths))
script, folder = sys.argv[1:3]
for number, arguments in enumerate(json.load(sys.stdin)):
    sys.argv = [script, *arguments, "--output", f"{folder}/{number}.z8", "--silent"]
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="session")
def generated():
    """Returns a game in the cache that all test processes share, which one of them generates."""
    spec = game_spec("custom", {}, 22)
    return spec, ensure_game(spec)


@pytest.fixture(autouse=True)
def _private_cache(generated, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))


def copied(generated) -> GameSpec:
    """Copies the shared game into the private cache of a test; returns its spec."""
    spec, path = generated
    shutil.copytree(path.parent, story_path(spec).parent)
    assert find_game(spec)
    return spec


def test_a_game_equals_that_of_tw_make(tmp_path):
    same_as_tw_make(SPECS[:1], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_27_games_equal_those_of_tw_make(tmp_path):
    assert len(SPECS) == 27
    same_as_tw_make(SPECS, tmp_path)


def same_as_tw_make(specs, folder):
    script = str(Path(sys.executable).parent / "tw-make")
    subprocess.run(
        [sys.executable, "-c", TW_MAKE, script, str(folder)],
        input=json.dumps([tw_make(spec) for spec in specs]),
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    # In reverse order, so that leftovers of one game would show in the next.
    for number, spec in reversed(list(enumerate(specs))):
        theirs = json.loads((folder / f"{number}.json").read_text())
        ours = make_game(spec).serialize()
        assert canonical_game(ours) == canonical_game(theirs), spec.name
        assert content_digest(ours) == content_digest(theirs)


HARD = {"world_size": 8, "nb_objects": 12, "quest_length": 12}
FAST = [
    game_spec("custom", {"world_size": 4, "nb_objects": 6, "quest_length": 8}, 60_101),
    *(game_spec("custom", HARD, seed) for seed in (60_102, 60_103)),
    game_spec("custom", {"goal": "brief"}, 3, "structure"),
    game_spec("simple", {}, 60_104),
    *(game_spec("treasure_hunter", {"level": level}, 60_105) for level in (5, 14, 25)),
    game_spec("coin_collector", {"level": 105}, 60_106),
    game_spec("cooking", {"recipe": 3, "take": 2, "go": 6, "open": True}, 60_107),
]


@pytest.mark.parametrize("spec", FAST, ids=lambda spec: spec.name)
def test_the_search_for_quests_makes_the_games_of_textworlds_own(spec, monkeypatch):
    fast = make_game(spec)
    monkeypatch.setattr(chaining, "get_chains", chaining.get_chains.__wrapped__)
    own = make_game(spec)
    assert canonical_game(fast.serialize()) == canonical_game(own.serialize())
    assert fast.walkthrough == own.walkthrough


NO_QUEST = game_spec("treasure_hunter", {"level": 10}, 93_675_449)


def test_the_search_finds_no_quest_where_textworld_finds_none(monkeypatch):
    with pytest.raises(CannotGenerate, match="QuestGenerationError"):
        make_game(NO_QUEST)
    monkeypatch.setattr(chaining, "get_chains", chaining.get_chains.__wrapped__)
    with pytest.raises(CannotGenerate, match="QuestGenerationError"):
        make_game(NO_QUEST)


@pytest.fixture
def slow_parser():
    """Returns textworld's own grammar parser, even if it has been patched."""
    from textworld.textgen import TextGrammar

    return lambda text: TextGrammar._CONVERTER.walk(TextGrammar._PARSER.parse(text))


def plain(value):
    """Converts objects to class names and contents, for deep comparison."""
    if isinstance(value, dict):
        return [(key, plain(value)) for key, value in value.items()]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return [type(value).__name__, plain(vars(value))] if hasattr(value, "__dict__") else value


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_every_grammar_parses_as_with_textworlds_parser(slow_parser, step):
    """The six long grammars are three pairs that differ in a few lines; step 2 takes one of each."""
    import textworld

    texts = {path.read_text() for path in Path(textworld.__file__).parent.rglob("*.twg")}
    assert len(texts) == 10
    for text in sorted(texts, key=len)[::step]:
        assert plain(read_words(text).rules) == plain(slow_parser(text).rules)


ODD_GRAMMARS = [
    "",
    "# nothing but a comment\n",
    "a:",
    "a:;\nb: x ; ;y;",
    "a: one two |  noun ; lone <-> big | box ;x <-> y\n\n  \n# c\nb:#a#;[if x; y]z;(c;d) e\\nf",
    "a:b [over\ntwo lines] c\nd:e",
    "go/east->k<->c : walk",
]
BROKEN_GRAMMARS = [
    "a",
    "a b",
    "a:b\n c d\n",
    "a:b | c | d",
    "a:b <-> ",
    "a:[open",
    "a:b\n #late\n",
    "a:x > y",
    "a:b\r\n",
    ": b",
]


@pytest.mark.parametrize("text", [*ODD_GRAMMARS, *BROKEN_GRAMMARS])
def test_unusual_grammars_parse_equally_and_broken_ones_use_textworlds_parser(text, slow_parser):
    from tatsu.exceptions import ParseException

    try:
        expected = plain(slow_parser(text).rules)
    except ParseException:
        expected = None
    grammar = read_words(text)
    assert (plain(grammar.rules) if grammar else None) == expected
    assert (expected is None) == (text in BROKEN_GRAMMARS)


@pytest.mark.slow
def test_compiled_games_equal_those_of_textworld(tmp_path):
    from textworld.generator.inform7 import compile_inform7_game, generate_inform7_source

    game = make_game(SPECS[0])
    compile_game(game, tmp_path / "ours.z8")
    compile_inform7_game(generate_inform7_source(game), str(tmp_path / "theirs.z8"))
    ours, theirs = ((tmp_path / name).read_bytes() for name in ("ours.z8", "theirs.z8"))
    if ours[0x12:0x18] == theirs[0x12:0x18]:  # the date of compilation and the checksum
        assert ours == theirs
    assert ours[0x40:] == theirs[0x40:] or ours[0x12:0x18] != theirs[0x12:0x18]


def test_content_digests_distinguish_games_by_facts_and_quests():
    first, second = (make_game(spec).serialize() for spec in SPECS[:2])
    assert content_digest(first) != content_digest(second)
    prose = json.loads(json.dumps(first))
    for _, info in prose["infos"]:
        info["desc"] = "Something else entirely."
    prose["objective"] = "Do it."
    assert content_digest(prose) == content_digest(first)
    renamed = json.loads(json.dumps(first))
    next(info for _, info in renamed["infos"] if info["type"] == "r")["name"] = "orangery"
    assert content_digest(renamed) != content_digest(first) and content_digest(renamed, named=False) == content_digest(
        first, named=False
    )


def test_parallel_generation_yields_games_in_order_and_once():
    specs = [game_spec("custom", {}, seed) for seed in (11, 12, 11)]
    impossible = GameSpec("coin_collector", (("level", 160),), 5)
    made = list(generate_many([specs[0], impossible, *specs[1:]], processes=2))
    assert [result.spec for result in made] == [specs[0], impossible, *specs[1:]]
    assert made[1].path is None and "cannot generate coin_collector-l160_5 (ValueError" in made[1].problem
    assert "another seed" in made[1].problem
    paths = [result.path for result in made if result.path]
    assert paths[0] == paths[2] and all(find_game(result.spec) == result.path for result in made if result.path)
    before = {path: path.stat().st_mtime_ns for path in paths}
    assert [result.path for result in generate_many(specs)] == paths
    assert {path: path.stat().st_mtime_ns for path in paths} == before
    assert leftovers(paths[0]) == []


def test_closing_the_iterator_does_not_wait_for_unfinished_games(generated):
    quick = copied(generated)
    slow = game_spec("treasure_hunter", {"level": 30}, 5)  # not finished within 300 s
    made = generate_many([quick, slow], processes=2)
    assert next(made).path == story_path(quick)
    time.sleep(1.0)  # wait until the other worker has started
    start = time.monotonic()
    made.close()
    assert time.monotonic() - start < 10


def leftovers(path: Path) -> list[Path]:
    return list(path.parents[2].rglob("*.partial"))


def test_a_killed_generator_leaves_no_partial_game():
    spec = game_spec("custom", {}, 21)
    worker = Interpreter()
    worker._start()
    partial = story_path(spec).parent.with_name(spec.key + ".partial")
    outcome: list[object] = []

    def make() -> None:
        try:
            outcome.append(worker.ask("make", spec, timeout=200.0))
        except EngineFailure as error:
            outcome.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    deadline = time.monotonic() + 200
    while not (partial / "game.json").exists():  # compilation has started
        assert thread.is_alive() and time.monotonic() < deadline, f"nothing was seen to compile: {outcome}"
        time.sleep(0.002)
    os.killpg(worker.pid, signal.SIGKILL)
    thread.join()
    assert isinstance(outcome[0], EngineFailure) and find_game(spec) is None
    assert ensure_game(spec) == find_game(spec) and leftovers(story_path(spec)) == []


def test_a_damaged_game_in_the_cache_is_regenerated(generated):
    spec = copied(generated)
    path = story_path(spec)
    content = path.read_bytes()
    for damage in (content[:70_000], content[:5_000] + b"\0\0\0\0" + content[5_004:], b""):
        path.write_bytes(damage)
        assert find_game(spec) is None
    metadata = path.with_suffix(".json")
    path.write_bytes(content)
    logic = metadata.read_bytes()
    for damage in (logic[:9_000], b"", b"\0" * len(logic)):
        metadata.write_bytes(damage)
        assert find_game(spec) is None
    metadata.unlink()
    assert ensure_game(spec) == path and metadata.exists()
    assert path.read_bytes()[0x40:] == content[0x40:]


def test_machine_faults_are_not_reported_as_impossible_games(tmp_path, monkeypatch):
    """A full disk or a killed compiler is not fixed by another seed."""
    game = make_game(game_spec("custom", {}, 25))
    with pytest.raises(EngineFailure, match=r"could not finish \(exit 1: .*couldn't write"):
        compile_game(game, Path("/dev/full"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))  # writing more kills the process
    try:
        with pytest.raises(EngineFailure, match=rf"could not finish \(exit -{signal.SIGXFSZ.value}"):
            compile_game(game, tmp_path / "game.z8")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("textworld.generator.make_game", full)
    with pytest.raises(OSError, match="No space"):
        make_game(game_spec("custom", {}, 25))


@pytest.mark.slow
def test_concurrent_requests_generate_a_game_once(monkeypatch):
    spec = game_spec("custom", {}, 23)
    workers = [Interpreter(), Interpreter()]
    paths: list[str] = []
    threads = [
        threading.Thread(target=lambda worker=worker: paths.append(worker.ask("make", spec, timeout=200.0)))
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [str(story_path(spec))] * 2
    assert not list(game_cache.cache_dir("textworld").rglob("*.partial"))
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("cache", ["", pytest.param("mine", marks=pytest.mark.slow)])
def test_games_are_stored_in_the_users_cache(cache, tmp_path, monkeypatch):
    """The worker's home is temporary, but games must persist. Relative paths refer to the caller's
    folder.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("ENVSUITE_CACHE", cache)
    worker = Interpreter()
    spec = game_spec("custom", {}, 24)
    path = Path(worker.ask("make", spec, timeout=200.0))
    worker.close()
    assert find_game(spec) == path.relative_to(tmp_path) if cache else find_game(spec) == path
    assert path.is_relative_to(tmp_path / (cache or "xdg")) and path.is_file()


def test_a_shared_worker_writes_into_the_cache_of_the_moment(tmp_path, monkeypatch):
    for name in ("one", "two"):
        monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / name))
        path = generate_logic(game_spec("custom", {}, 24), 200.0)
        assert Path(path).is_relative_to(tmp_path / name) and Path(path).is_file()
        _generators.pop(tmp_path / name)[0].close()


def test_cache_keys_depend_only_on_settings_and_seed():
    first = game_spec("custom", {"quest_length": 4}, 3)
    assert (
        first == game_spec("custom", {"nb_objects": 3, "world_size": 2}, 3)
        and first.key == game_spec("custom", {}, 3).key
    )
    assert len({game_spec("custom", {}, 4).key, first.key, game_spec("custom", {"quest_length": 5}, 3).key}) == 3
    with pytest.raises(CannotGenerate, match="another seed"):
        make_game(GameSpec("treasure_hunter", (("level", 99),), 1))
