"""Tools stand for commands: arguments give the command that a text would, and commands give arguments back."""

import json

import pytest

from envsuite import registry
from envsuite.envs.swegym import edits
from envsuite.tools import ACT, BadArguments, Tool, call_of

pytest.importorskip("minigrid")
TASKS = ("ALFWorld-generated-v0", "BabyAI-medium-v0", "Overcooked-tomato_salad-v0", "VirtualHome-medium-v0")
TAKE = Tool("take", "Takes.", "take {object} from {place}", {"object": "what", "place": "where"})


@pytest.mark.parametrize("task", TASKS)
def test_every_admissible_command_is_a_call_that_gives_the_command_back(task):
    env = registry.build(task)
    _, info = env.reset(seed=3)
    by_name = {tool.name: tool for tool in env.tools}
    assert len(by_name) == len(env.tools)
    for _ in range(12):
        for command in info["admissible_commands"]:
            name, arguments = call_of(env.tools, command)
            assert by_name[name].command_of(arguments) == command
        command = env.expert()
        if command is None:
            break
        _, _, terminated, truncated, info = env.step(command)
        if terminated or truncated:
            break
    env.close()


def test_the_dialect_of_a_game_decides_the_tool_that_puts_things_down():
    names = []
    for dialect in ("2.1.1", "0.4"):
        env = registry.build("ALFWorld-generated-v0", dialect=dialect)
        env.reset(seed=0)
        names.append({tool.name for tool in env.tools})
        assert ("move" in env.instructions) == ("move" in names[-1])
    assert names[0] ^ names[1] == {"put", "move"}


def test_babyais_tools_are_its_six_actions():
    tools = registry.env_class(registry.TASKS["BabyAI-easy-v0"]).tools
    assert [tool.command_of({}) for tool in tools] == [
        "turn left", "turn right", "go forward", "pick up", "drop", "toggle",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "ls -A; git log",
        "submit",
        "search 'a b' x",
        "run_tests",
        "run_tests tests/test_a.py",
        "view a",
        "view a 1 2",
        "create a\nx = '''\n\ty\n'''",
        "insert a 3\nx",
        "undo a",
        edits.spell_replace("a", " b", "c"),
    ],
)
def test_a_text_of_swegym_is_a_call_with_the_same_meaning(command):
    name, arguments = call_of(edits.TOOLS, command)
    tool = next(tool for tool in edits.TOOLS if tool.name == name)
    assert edits.parse(tool.command_of(json.loads(json.dumps(arguments)))) == edits.parse(command)


def test_a_shell_command_in_a_call_is_never_read_as_an_edit():
    bash = next(tool for tool in edits.TOOLS if tool.name == "bash")
    assert edits.parse(bash.command_of({"command": "submit"})) == edits.EditAction("shell", "submit")


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (TAKE, {"object": "apple 1"}, "take needs the argument place"),
        (TAKE, {"object": "apple 1", "place": 3}, "place of take must be a string"),
        (TAKE, {"object": "apple 1", "place": " "}, "place of take must not be empty"),
        (ACT, {"command": ""}, "command of act must not be empty"),
        (TAKE, {"object": "a", "place": "b", "speed": "c"}, 'no argument "speed": it takes object, place'),
        (Tool("look", "", "look"), {"at": "x"}, "it takes none"),
        (edits.TOOLS[1], {"command": "delete", "path": "a"}, "must be one of view, create"),
        (edits.TOOLS[1], {"command": "insert", "path": "a", "insert_line": True}, "must be an integer"),
        (edits.TOOLS[3], {"tests": ["a", 1]}, "must be a list of strings"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_a_sentence(tool, arguments, message):
    with pytest.raises(BadArguments, match=message):
        tool.command_of(arguments)


def test_braces_in_arguments_and_lines_stay_as_they_are():
    assert TAKE.command_of({"object": "{place}", "place": "a\nb"}) == "take {place} from a\nb"
    assert TAKE.arguments_of("take {place} from a\nb") == {"object": "{place}", "place": "a\nb"}
    assert ACT.command_of(ACT.arguments_of("x = {1: 2}\n")) == "x = {1: 2}\n"
    assert call_of((TAKE,), "look") is None
