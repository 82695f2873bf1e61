"""Bad input by agents and users costs a turn or gives one line, never a broken episode, lost files or
a traceback.
"""

import json
import subprocess
import sys
import types
from tempfile import gettempdir

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsuite import registry
from envsuite.checks import absent
from envsuite.envs.swegym import edits
from envsuite.envs.swegym.planted import tasks
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published import records
from envsuite.errors import DataError, MissingData
from envsuite.sandbox import drivers
from harness.cli import eval as cli
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))


@pytest.fixture(scope="module")
def env():
    name = next(
        task.instance_id for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1
    )
    made = registry.build("SWEGym-easy-v0", sandbox=DRIVER, instances=(name,), max_steps=100_000)
    yield made
    made.close()


# ---- commands -------------------------------------------------------------------------------------------------------


def tool(verb, **arguments):
    return json.dumps({"name": "str_replace_editor", "arguments": {"command": verb, "path": "README.rst", **arguments}})


LOST = {
    "create " + 300 * "a" + "\nx": "so long a name",
    "create " + 3000 * "a/" + "b\nx": "so long a name",
    "create .\nx": "is a folder",
    "create /testbed\nx": "is a folder",
    "undo .": "is a folder",
    "create tests\nx": "tests cannot be written: Is a directory.",
    "create README.rst/x\nx": "README.rst/x cannot be written: ",
    "create locked/x\nx": "locked/x cannot be written: Permission denied.",
    "create pipe\nx": "pipe cannot be written: it is no plain file.",
    tool("view", view_range=[1e999, 2]): "wrong type",
    tool("insert", insert_line=float("inf"), new_str="x"): "wrong type",
    tool("insert", insert_line=float("nan"), new_str="x"): "wrong type",
    tool("view", view_range=[10**30, -1]): "has",
    "echo " + 140_000 * "a": "exit code 1, in /testbed\nThe command has 140005 bytes, 120000 are the most",
    "search " + 140_000 * "a": "120000 are the most",
    "run_tests -x": "no test of that name",
    "run_tests nowhere.py": "no test of that name",
    "view -nothing": "no file or folder",
}


def test_each_of_these_is_a_lost_turn_with_a_clear_word_and_the_same_word_each_time(env):
    env.reset(seed=0)
    env.step("mkdir locked; chmod 500 locked; mkfifo pipe")
    for command, message in LOST.items():
        texts = set()
        for _ in range(2):
            text, reward, terminated, truncated, info = env.step(command)
            assert message in text, (command[:80], text[:300])
            assert not info["is_action_valid"], command[:80]
            assert (reward, terminated, truncated) == (0.0, False, False)
            texts.add(text)
        assert len(texts) == 1
        assert not any(word in text for text in texts for word in ("/tmp", gettempdir(), "sandbox")), texts
    assert env.step("echo there")[0].endswith("there\n")


def test_names_that_look_like_options_are_names(env):
    env.reset(seed=0)
    before = set(env.changes())
    for name in ("-delete", "-exec", "(", "!", "--checkpoint-action=exec=touch x", "-rf"):
        env.step(f"view '{name}'")
        env.step(f"search TestURI '{name}'")
        assert set(env.changes()) == before, name
        assert env.step(f"create '{name}'\nneedle")[4]["is_action_valid"]
        assert env.step(f"view '{name}'")[0] == "     1\tneedle"
        assert env.step(f"search needle '{name}'")[0] == f"{name}:1:needle"
        assert "taken back" in env.step(f"undo '{name}'")[0]
        assert env.step(f"create '{name}/in'\nneedle")[4]["is_action_valid"]
        assert env.step(f"view '{name}'")[0].split("\n") == [name, f"{name}/in"]
        env.step(f"rm -r -- './{name}'")
        assert set(env.changes()) == before, name


def test_a_hidden_folder_can_be_looked_into_and_is_not_listed(env):
    env.reset(seed=0)
    env.step("create .hidden/a\nx")
    assert env.step("view .hidden")[0] == ".hidden\n.hidden/a"
    assert ".hidden" not in env.step("view .")[0]


def test_text_that_is_too_long_for_a_command_can_be_created(env):
    env.reset(seed=0)
    text = 40_000 * "abcdef\n"
    assert env.step(f"create long.txt\n{text}")[4]["is_action_valid"]
    assert env.step("wc -c < long.txt")[0].endswith(f"\n{len(text)}\n")


def test_the_mode_of_a_script_is_kept_by_an_edit(env):
    env.reset(seed=0)
    env.step("printf 'echo one\\n' > run.sh; chmod 755 run.sh")
    env.step(edits.spell_replace("run.sh", "one", "two"))
    assert env.step("./run.sh")[0].endswith("two\n")


def test_the_patch_of_awkward_names_is_one_that_git_takes(env, tmp_path):
    env.reset(seed=0)
    names = ["line\nend", 'quote"d', "tab\t", "back\\slash", "with space", "ünï", "form\x0cfeed"]
    for name in names:
        env.workspace.write(name, f"in {name!r}\x0c more\u2028\r\nend".encode())
    env.step("printf 'x\\n' > $'not-utf8-\\xff'")
    patch = env.patch()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr
    for name in names:
        assert (tmp_path / name).read_bytes() == f"in {name!r}\x0c more\u2028\r\nend".encode()
    assert (tmp_path / b"not-utf8-\xff".decode(errors="surrogateescape")).exists()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["view", "create", "..", "/"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["command", "path", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["command", "path", "view_range", "insert_line", "new_str", "old_str", "file_text", "tests", "pattern"]
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from([tool.name for tool in edits.TOOLS] + ["fly"]),
    st.dictionaries(KEYS, VALUES, max_size=5),
    st.sampled_from(["view", "create", "str_replace", "insert", "undo_edit", None]),
    st.text(max_size=40),
)
def test_nothing_that_is_said_breaks_the_parser(name, arguments, verb, words):
    if verb:
        arguments = {"path": "a", **arguments, "command": verb}
    for message in (
        json.dumps({"name": name, "arguments": arguments}),
        json.dumps({"name": name, "arguments": json.dumps(arguments)}),
        f"{verb} {words}",
        words,
    ):
        action = edits.parse(message)
        assert action.kind in ("", "shell", *edits.VERBS)
        assert isinstance(action.first, int) and isinstance(action.last, int)
        assert all(isinstance(text, str) for text in (action.text, action.path, action.old, *action.tests))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.text(max_size=12), st.sampled_from(["view", "create", "insert", "undo", "search"]))
def test_no_path_breaks_an_episode(path, verb):
    env = _shared()
    arguments = {"path": path, "file_text": "x", "insert_line": 0, "new_str": "x"}
    call = {"name": "str_replace_editor", "arguments": {"command": verb, **arguments}}
    if verb == "search":
        call = {"name": "search", "arguments": {"pattern": "x", "path": path}}
    _, _, terminated, truncated, _ = env.step(json.dumps(call))
    assert not terminated and not truncated


_made = []


def _shared():
    if not _made:
        name = next(
            task.instance_id for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1
        )
        _made.append(registry.build("SWEGym-easy-v0", sandbox=DRIVER, instances=(name,), max_steps=100_000))
        _made[0].reset(seed=0)
    return _made[0]


@pytest.fixture(scope="module", autouse=True)
def close_shared():
    yield
    while _made:
        _made.pop().close()


# ---- records and setups --------------------------------------------------------------------------------------------


def test_the_task_of_published_records_plays_nothing_else():
    with pytest.raises(MissingData, match="none are named: --set records=FILE"):
        registry.build("SWEGym-records-v0", sandbox=DRIVER)
    assert "none are named" in absent(registry.TASKS["SWEGym-records-v0"], sandbox=DRIVER)


RECIPE = {"source": {"kind": "sdist", "req": "calc==1"}, "pins": ["pytest"]}
BAD_RECIPES = {
    "a list": ([], "field 'source' is not"),
    "no pins": ({"source": RECIPE["source"]}, "field 'pins' is missing"),
    "pins of numbers": ({**RECIPE, "pins": [3]}, "field 'pins' is not a list of requirements"),
    "pins of text": ({**RECIPE, "pins": "pytest"}, "field 'pins' is not a list of requirements"),
    "a pin that is an option": ({**RECIPE, "pins": ["--index-url=x"]}, "field 'pins' is not a list of requirements"),
    "env of text": ({**RECIPE, "env": "x"}, "field 'env' is not an object"),
    "env with a brace": ({**RECIPE, "env": {"A": "{home}"}}, "field 'env' holds a brace"),
    "a command that is a list": ({**RECIPE, "test_cmd": ["pytest"]}, "field 'test_cmd' is not text"),
    "a source that is an option": (
        {**RECIPE, "source": {"kind": "sdist", "req": " -r/tmp/x"}},
        "field 'source' is not",
    ),
    "a source of another kind": ({**RECIPE, "source": {"kind": "git"}}, "field 'source' is not"),
}


@pytest.mark.parametrize("kind", BAD_RECIPES)
def test_a_setup_is_looked_at_before_it_is_followed(tmp_path, kind):
    setup, message = BAD_RECIPES[kind]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "instance.json").write_text(json.dumps(little.record("a__b-1")))
    (tmp_path / "one" / "replay.json").write_text(json.dumps(setup))
    with pytest.raises(DataError) as caught:
        published.find(str(tmp_path))
    assert message in str(caught.value) and "replay.json" in str(caught.value)


def test_what_cannot_be_played_is_said_before_the_first_episode_in_a_line_and_with_code_2(tmp_path, capsys):
    rows = {"none": [], "empty": {}, "two": [little.record("a__b-1"), little.record("a__b-2")]}
    for name, row in rows.items():
        (tmp_path / name / "one").mkdir(parents=True)
        (tmp_path / name / "one" / "instance.json").write_text(json.dumps(row))
    (tmp_path / "plain.jsonl").write_text(json.dumps(little.record("a__b-1")) + "\n")
    little.instances(tmp_path / "strange", [{**little.record("a__b-1"), "repo": "no/where"}])
    knobs = {
        "none": "instance.json contains 0 records",
        "empty": "instance.json contains 0 records",
        "two": "instance.json contains 2 records",
        "plain.jsonl": "a__b-1 has no setup",
        "strange": "how the tests of 'no/where' are run is not known",
        "": "none are named",
    }
    for name, message in knobs.items():
        records_ = f"records={tmp_path / name}" if name else "split=all"
        words = [
            "-m",
            "idle",
            "-e",
            "SWEGym-records",
            "-n",
            "1",
            "--set",
            records_,
            "--set",
            f"sandbox={other_than_docker()}",
        ]
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "-o", str(tmp_path / "out")])
        text = capsys.readouterr()
        assert ended.value.code == 2, text
        assert message in text.err + text.out
        assert "Traceback" not in text.err


def other_than_docker():
    return DRIVER if DRIVER != "docker" else "process"


def test_data_sets_by_name_are_asked_for_the_split_they_have(monkeypatch):
    requested = []

    def load_dataset(name, split):
        requested.append((name, split))
        return [little.record("a__b-1")]

    hub = types.ModuleType("datasets")  # the hub cannot be reached: the test looks at the request
    hub.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", hub)
    for name in (
        "SWE-Gym/SWE-Gym",
        "SWE-Gym/SWE-Gym-Lite",
        "SWE-bench/SWE-bench_Lite",
        "princeton-nlp/SWE-bench_Verified",
    ):
        assert len(records.load(name)) == 1
    assert [split for _, split in requested] == ["train", "train", "test", "test"]
    published.find("SWE-bench/SWE-bench_Lite", "dev")
    assert requested[-1] == ("SWE-bench/SWE-bench_Lite", "dev")
