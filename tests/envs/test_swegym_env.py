"""SWE-Gym: commands, edits, endings, rewards, expert."""

import json

import pytest

from envsuite import registry
from envsuite.envs.swegym import edits, expert
from envsuite.envs.swegym.planted import problem as planted_problem
from envsuite.envs.swegym.planted import tasks
from envsuite.errors import BadKnob, DataError, UsageError
from envsuite.sandbox import drivers
from tests.conftest import need_driver

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
SMALL = next(
    task.instance_id for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1
)


@pytest.fixture(scope="module")
def envs():
    made = {}

    def get(mode="dense", task="SWEGym-easy-v0", **knobs):
        key = json.dumps([mode, task, knobs])
        if key not in made:
            made[key] = registry.build(task, mode, sandbox=DRIVER, **{"instances": (SMALL,), **knobs})
        return made[key]

    yield get
    for env in made.values():
        env.close()


# ---- commands -------------------------------------------------------------------------------------------------------


def test_shell_keeps_the_working_directory_and_says_how_it_ended(envs):
    env = envs()
    text, info = env.reset(seed=0)
    assert "uritemplate 4.2.0" in text
    assert info["labels"]["instance"] == SMALL
    assert info["labels"]["isolation"] == DRIVER
    assert env.step("cd tests && pwd")[0] == "exit code 0, in /testbed/tests\n/testbed/tests\n"
    assert env.step("pwd; exit 3")[0] == "exit code 3, in /testbed/tests\n/testbed/tests\n"
    assert env.step("true")[0] == "exit code 0, in /testbed/tests\n(no output)"
    assert env.step("cat /testbed/README.rst | head -1 >&2; x=1; cd /testbed")[0].startswith(
        "exit code 0, in /testbed\n"
    )
    assert env.step("echo $x; git status --short")[0] == "exit code 0, in /testbed\n\n"
    assert env.step("python -c 'import uritemplate; print(uritemplate.__file__)'")[0].endswith(
        "/testbed/uritemplate/__init__.py\n"
    )
    assert env.step("```bash\necho fenced\n```")[4]["history"][-1] == "```bash\necho fenced\n```"


def test_long_output_is_cut_in_the_middle_and_said_so(envs):
    env = envs(characters=400)
    env.reset(seed=0)
    text = env.step("python -c \"print('a' * 5000 + 'b' * 5000)\"")[0]
    assert "characters left out" in text or "bytes left out" in text
    assert "aaa" in text
    assert text.rstrip().endswith("bbb")
    assert len(text) < 600


def test_a_command_that_hangs_is_ended_and_the_next_one_works(envs):
    env = envs(command_seconds=1.0)
    env.reset(seed=0)
    text = env.step("echo before; sleep 100")[0]
    assert "before" in text
    assert "longer than 1 seconds" in text
    assert env.step("echo after")[0].endswith("after\n")


def test_structured_edits_view_create_replace_insert_search_and_undo(envs):
    env = envs()
    env.reset(seed=0)
    assert "written" in env.step("create new/a.txt\none\ntwo")[0]
    assert env.step("view new/a.txt")[0] == "     1\tone\n     2\ttwo"
    assert env.step("view /testbed/new/a.txt 2 2")[0] == "     2\ttwo"
    assert "changed" in env.step("str_replace new/a.txt\n<<<<<<<\ntwo\n=======\n  2\n>>>>>>>")[0]
    assert env.step("insert new/a.txt 0\nzero")[0] == "new/a.txt is changed."
    assert env.step("cat new/a.txt")[0].endswith("zero\none\n  2\n")
    assert "taken back" in env.step("undo new/a.txt")[0]
    assert "taken back" in env.step("undo new/a.txt")[0]
    assert env.step("cat new/a.txt")[0].endswith("in /testbed\none\ntwo\n")
    assert env.step("search 'two|zwei' new")[0] == "new/a.txt:2:two"
    assert "new/a.txt" in env.step("view new")[0]
    assert "taken back" in env.step("undo new/a.txt")[0]
    assert not env.step("view new/a.txt")[4]["is_action_valid"]
    assert env.step("git status --short")[0].endswith("(no output)") or "new" not in env.step("git status --short")[0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("view ../../etc/passwd", "not in the repository"),
        ("create /etc/x\na", "not in the repository"),
        ("create .git/config\na", "not in the repository"),
        ("view nowhere.py", "no file or folder"),
        ("str_replace README.rst\nno marks", "takes a path"),
        ("str_replace README.rst\n<<<<<<<\nnot there\n=======\nx\n>>>>>>>", "occurs 0 times"),
        ("insert README.rst 100000\nx", "lines: insert after"),
        ("insert README.rst", "takes a path and a line"),
        ("undo README.rst", "no edit"),
        ("search", "takes a pattern"),
        ("view 'unclosed", "closing quotation"),
        ("", "no command"),
        ("a\0b", "NUL"),
        ('{"name": "fly", "arguments": {}}', "no tool 'fly'"),
        ('{"name": "bash", "arguments": {}}', "needs the argument 'command'"),
        ('{"name": "bash", "arguments": {"command": 3}}', "wrong type"),
    ],
)
def test_what_cannot_be_done_is_said_in_words_and_costs_a_turn(envs, command, message):
    env = envs(max_steps=1000)
    if env._over:
        env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step(command)
    assert message in text
    assert (reward, terminated, truncated, info["is_action_valid"]) == (0.0, False, False, False)


def test_tool_calls_are_the_same_commands():
    def call(name, **arguments):
        return edits.parse(json.dumps({"name": name, "arguments": arguments}))

    assert call("bash", command="ls") == edits.parse("ls")
    assert call("submit") == edits.parse("submit")
    assert call("search", pattern="a b", path="x") == edits.parse("search 'a b' x")
    assert call("run_tests") == edits.parse("run_tests")
    edit = "str_replace_editor"
    assert call(edit, command="view", path="a", view_range=[1, 2]) == edits.parse("view a 1 2")
    assert call(edit, command="create", path="a", file_text="x\n") == edits.parse("create a\nx")
    assert call(edit, command="insert", path="a", insert_line=3, new_str="x") == edits.parse("insert a 3\nx")
    assert call(edit, command="undo_edit", path="a") == edits.parse("undo a")
    assert call(edit, command="str_replace", path="a", old_str=" b", new_str="c") == edits.parse(
        edits.spell_replace("a", " b", "c")
    )
    wrapped = {"type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": "ls"})}}
    assert edits.parse(json.dumps(wrapped)) == edits.parse("ls")
    assert {tool.name for tool in edits.TOOLS} == {
        "bash",
        "str_replace_editor",
        "search",
        "run_tests",
        "submit",
    }
    assert edits.parse("{ ls; }").kind == "shell"


def test_nothing_of_one_instance_is_left_in_the_next_and_a_second_try_is_the_first_again(envs):
    second = next(task.instance_id for task in tasks.manifest() if task.package.name == "xmltodict")
    env = envs(instances=(SMALL, second))
    seen = []
    for seed in (0, 1, 0, 0):
        env.reset(seed=seed)
        listed = env.step("ls -A; git log --format=%H; cat /tmp/left 2>&1")[0]
        assert set(env.workspace.files()) == set(env._base)
        seen.append(listed)
        env.step("touch left.txt /tmp/left; rm README*; echo >> setup.py")
    assert seen[0] == seen[2] == seen[3] != seen[1]


# ---- endings and rewards --------------------------------------------------------------------------------------------


def test_the_expert_is_paid_once_at_the_end_and_the_idle_player_is_not(envs):
    env = envs()
    env.reset(seed=0)
    paid, over = [], False
    while not over:
        text, reward, over, truncated, info = env.step(env.expert())
        assert info["is_action_valid"] and not truncated
        paid.append(reward)
    assert text.endswith("All tests pass.")
    assert (paid[-1], sum(paid), info["success"], info["stop_reason"]) == (1.0, 1.0, True, "solved")
    assert info["metrics"]["resolved"] == 1.0
    env.reset(seed=0)
    text, reward, terminated, _, info = env.step("submit")
    assert text.endswith("The problem is not mended.")
    assert (reward, terminated, info["success"], info["stop_reason"], info["fault"]) == (
        0.0,
        True,
        False,
        "failed",
        "no_patch",
    )


def test_at_the_limit_of_turns_the_work_is_graded_as_it_stands(envs):
    env = envs("sparse", max_steps=2)
    env.reset(seed=0)
    env.step("true")
    _, reward, terminated, truncated, info = env.step("true")
    assert (reward, terminated, truncated, info["stop_reason"]) == (0.0, False, True, "max_steps")
    env.reset(seed=0)
    env.step(env.expert())
    _, reward, terminated, truncated, info = env.step("true")
    assert (reward, terminated, truncated, info["stop_reason"]) == (1.0, True, False, "solved")


def test_the_limit_of_time_truncates(envs):
    env = envs(seconds=0.01)
    env.reset(seed=0)
    *_, terminated, truncated, info = env.step("sleep 0.05")
    assert (terminated, truncated, info["stop_reason"]) == (False, True, "timeout")


def test_paid_by_the_turn_is_paid_as_a_difference(envs):
    env = envs(pay="turn")
    env.reset(seed=0)
    assert env.step("true")[1] == 0.0
    assert env.step(env.expert())[1] == 1.0
    assert env.step("git stash")[1] == -1.0
    assert env.step("git stash pop")[1] == 1.0
    assert env.step("submit")[1] == 0.0
    assert env.success


def test_shaped_rewards_sum_to_the_start_potential(envs):
    env = envs("shaped")
    for detour in ([], ["echo 'x = 1' >> uritemplate/api.py", "true"]):
        env.reset(seed=0)
        total, discount, over = 0.0, 1.0, False
        commands = [*detour]
        while not over:
            _, reward, over, _, info = env.step(commands.pop(0) if commands else env.expert())
            total += discount * (reward - float(info["success"]))
            discount *= env.shaping.gamma
        assert info["success"]
        assert total == pytest.approx(1.0)


def test_hidden_tests_are_not_in_the_copy_and_still_grade(envs):
    env = envs("sparse", tests="hidden", statement="names")
    text, _ = env.reset(seed=0)
    assert "not in your copy" in text
    task = {task.instance_id: task for task in tasks.manifest()}[SMALL]
    name = task.fail_to_pass[0].split("::")[-1].split("[")[0]
    assert name in text
    assert env.step(f"search 'def {name}\\b'")[0] == "No match."
    assert " failed" not in env.step("run_tests")[0]
    env.step(env.expert())
    assert env.step("submit")[1] == 1.0


def test_a_summary_of_the_tests_is_given_on_request(envs):
    env = envs()
    env.reset(seed=0)
    task = {task.instance_id: task for task in tasks.manifest()}[SMALL]
    text = env.step("run_tests")[0]
    assert f"{len(task.fail_to_pass)} failed" in text
    assert task.fail_to_pass[0].partition("[")[0] in text
    assert env.step(f"run_tests '{task.pass_to_pass[0]}'")[0] == "1 passed."
    assert "no test of that name" in env.step("run_tests nowhere.py")[0]


def test_the_patch_is_a_diff_that_git_takes(envs):
    env = envs()
    env.reset(seed=0)
    env.step("printf 'no line end' > new.txt; rm LICENSE.BSD; sed -i 's/import/import /' setup.py")
    patch = env.patch()
    env.reset(seed=0)
    env.workspace.session.run("git apply -", stdin=patch.encode())
    assert env.patch() == patch
    assert set(env.changes()) == {"new.txt", "LICENSE.BSD", "setup.py"}


@pytest.mark.parametrize(
    "driver", [pytest.param(name, marks=[pytest.mark.slow] * (name == "docker")) for name in drivers.DRIVERS]
)
def test_every_driver_plays_and_judges_alike(driver):
    need_driver(driver)
    env = registry.build("SWEGym-easy-v0", sandbox=driver, instances=(SMALL,))
    try:
        assert env.reset(seed=0)[1]["labels"]["isolation"] == driver
        assert env.step("pwd; git log --oneline | wc -l; ls /testbed/setup.py")[0] == (
            "exit code 0, in /testbed\n/testbed\n1\n/testbed/setup.py\n"
        )
        assert env.step("python -m pytest -q tests/test_uritemplate.py::TestURITemplate::test_str_repr | tail -1")[
            0
        ].count("1 passed")
        env.step(env.expert())
        assert env.step("submit")[1] == 1.0
        env.reset(seed=0)
        assert env.step("git status --short")[0].endswith("(no output)")
    finally:
        env.close()


# ---- the expert's commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc\n", b"a\nB\nc\n"),
        (b"a\na\na\n", b"a\na\n"),
        (b"x\n", b"x\ny\n"),
        (None, b"new\n"),
        (b"a", b"a\nb"),
        (b"a\r\n", b"b\r\n"),
        (b"", b"a\n\n"),
        (b"old\n", None),
        (b"\xff\x00", b"\xfe"),
        (b"<<<<<<<\n=======\n", b"<<<<<<<\n"),
    ],
)
def test_the_experts_command_makes_the_file_it_wants(envs, before, after):
    env = envs(max_steps=1000)
    env.reset(seed=0)
    if before is not None:
        env.workspace.write("dir/it.txt", before)
    else:
        env.step("mkdir dir")
    (command,) = expert.plan({"dir/it.txt": before}, {"dir/it.txt": after})
    env.step(command)
    assert env.workspace.read("dir/it.txt") == after


# ---- knobs ----------------------------------------------------------------------------------------------------------


def test_train_and_test_share_no_package():
    train, test = (
        {name.split("-")[0] for name in registry.panel(registry.TASKS[task]).games}
        for task in ("SWEGym-medium-train-v0", "SWEGym-medium-v0")
    )
    assert train and test and not train & test


def test_what_cannot_be_played_is_said_at_once(tmp_path):
    for knobs, error, word in (
        ({"bugs": 9}, BadKnob, "bugs"),
        ({"package": ("numpy",)}, UsageError, "no tasks of the package 'numpy'"),
        ({"bugs": 3, "size": 1}, UsageError, "No SWE-Gym task fits"),
        ({"instances": ("nowhere-1",)}, UsageError, "no instance 'nowhere-1'"),
        ({"records": str(tmp_path / "none.jsonl")}, DataError, "does not exist"),
        ({"records": str(tmp_path)}, DataError, "contains no NAME/instance.json"),
    ):
        with pytest.raises(error, match=word):
            registry.build("SWEGym-medium-v0", sandbox=DRIVER, **knobs)


def test_the_pytest_of_the_agents_shell_is_a_copy_that_holds_nothing_else():
    site = planted_problem.pytest_site()
    assert (site / "_pytest").is_dir()
    assert not any("uritemplate" in str(path) for path in site.rglob("*"))
    assert not (site / "_pytest").is_symlink()
