"""Finding the command in what a model writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite.errors import UsageError
from harness.prompting.grammars import GRAMMARS, JsonCommand
from harness.prompting.prompting import Prompting
from harness.types import Reply, Turn


@pytest.mark.parametrize(
    ("text", "commands", "thought"),
    [
        ("<think>why</think><action>look</action>", ("look",), "why"),
        ("<action>a</action> then <action>b</action>", ("b",), ""),
        ("<think>maybe <action>a</action></think><action> b\n</action>", ("b",), "maybe <action>a</action>"),
        ("<action>cut off", ("cut off",), ""),
        ("<think>never closed <action>a</action>", (), "never closed <action>a</action>"),
        ("look", (), ""),
        ("<action> </action>", (), ""),
        ("", (), ""),
    ],
)
def test_action_tags(text, commands, thought):
    parsed = GRAMMARS["action"].parse(text)
    assert (parsed.commands, parsed.thought) == (commands, thought)
    assert bool(parsed.note) == (not commands)


def test_a_bare_line_is_the_last_one_that_is_not_empty():
    assert GRAMMARS["bare"].parse("I think so.\n\n> go north\n").commands == ("go north",)
    assert GRAMMARS["bare"].parse("<think>x\ny</think>").commands == ()


def test_react_takes_the_first_action_and_not_what_is_dreamt_after_it():
    text = "Thought: I need it.\nAction: take a\nObservation: You take it.\nAction: win"
    assert GRAMMARS["react"].parse(text)[:3] == (("take a",), "I need it.", "")
    assert GRAMMARS["react"].parse("Act 3: look").commands == ("look",)
    assert GRAMMARS["react"].parse("Action:\n").commands == ()


def test_several_actions_are_taken_in_order_up_to_the_limit():
    text = "<action>a</action>" * 2 + "<action>b</action>" * 9
    assert GRAMMARS["actions"].parse(text).commands == ("a", "a", "b", "b", "b")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "act", "arguments": {"command": "go to desk 1"}}</tool_call>',
        'Sure: ```json\n{"name": "act", "arguments": "{\\"command\\": \\"go to desk 1\\"}"}\n```',
        '{"command": "go to desk 1"}',
        '{"type": "function", "function": {"name": "act", "arguments": {"command": "go to desk 1"}}}',
        '<think>{"command": "no"}</think> {broken {"action": "go to desk 1"}',
    ],
)
def test_a_tool_call_is_found_however_it_is_wrapped(text):
    assert GRAMMARS["tool"].parse(text).commands == ("go to desk 1",)


@pytest.mark.parametrize(
    ("text", "command", "thought"),
    [
        ("THOUGHT: look\n\n```bash\nls -a\n```", "ls -a", "THOUGHT: look"),
        ("```sh\na\nb\n```\nDone.", "a\nb", ""),
        (
            "```bash\ncat > a.md <<'EOF'\n```\ncode\n```\nEOF\necho\n```",
            "cat > a.md <<'EOF'\n```\ncode\n```\nEOF\necho",
            "",
        ),
        ("```bash\ncat <<-A <<B\n```\n\tA\n```\nB\n```", "cat <<-A <<B\n```\n\tA\n```\nB", ""),
        ("```bash\nx=$((1 << shift))\n```", "x=$((1 << shift))", ""),  # no here-document
        ("```bash\ncat <<< word\n```", "cat <<< word", ""),
        ("<think>```bash\nno\n```</think>\n```bash\nyes\n```", "yes", "```bash\nno\n```"),
        ("```bash\r\nls\r\n```\r\n", "ls", ""),
    ],
)
def test_a_fenced_command_is_read_whole(text, command, thought):
    assert GRAMMARS["bash"].parse(text) == ((command,), thought, "", False, ())


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("ls", 0),
        ("```bash\nls", 0),
        ("```python\nls\n```", 0),
        ("```bash\na\n```\n```bash\nb\n```", 2),
        ("```bash\n```", 1),
    ],
)
def test_a_reply_without_one_finished_block_has_no_command(text, blocks):
    parsed = GRAMMARS["bash"].parse(text)
    assert parsed.commands == () and f"held {blocks} code blocks" in parsed.note


@pytest.mark.parametrize("grammar", ["bash", "tools"])
def test_grammars_of_shells_and_tools_state_the_objective_once_where_no_turn_can_be_lost(grammar):
    def prompt(observation, **settings):
        messages = Prompting(**settings).messages("Rules.", "Mend it.", [], observation, [])
        return [message["content"].count("Mend it.") for message in messages]

    assert prompt("Mend it.", grammar=grammar) == prompt("Mend it.", grammar=grammar, history=2) == [1, 0]
    assert prompt("You are here.", grammar=grammar) == [1, 0]
    assert prompt("Mend it.") == [1, 1]


def test_only_the_first_observation_gives_way_to_the_objective():
    turns = [Turn("Mend it.", Reply("ls"), ("ls",), 0.0, {}) for _ in range(2)]
    shown = Prompting(grammar="bash").messages("Rules.", "Mend it.", turns, "a.py", [])
    assert [message["content"] for message in shown if message["role"] == "user"] == ["Begin.", "Mend it.", "a.py"]


@given(st.text(), st.sampled_from(sorted(GRAMMARS)))
def test_any_text_parses_to_stripped_commands(text, name):
    parsed = GRAMMARS[name].parse(text)
    assert len(parsed.commands) <= (5 if name == "actions" else 1)
    assert all(command and command == command.strip() for command in parsed.commands)


@given(st.from_regex(r"[a-z][a-z0-9 /]{0,30}[a-z0-9]", fullmatch=True), st.sampled_from(["", "because"]))
def test_what_is_spelled_is_parsed_back(command, thought):
    for grammar in (grammar for grammar in GRAMMARS.values() if not grammar.declares_tools):
        assert grammar.parse(grammar.spell(command, thought)).commands == (command,)


@pytest.mark.parametrize("bad", [{"grammar": "actoin"}, {"admissible": "some"}, {"history": -2}])
def test_a_bad_setting_is_refused_by_name(bad):
    with pytest.raises(UsageError):
        Prompting(**bad)


@pytest.mark.parametrize("thought", ["", "the desk is near"])
@pytest.mark.parametrize("command", ["look", "go to desk 1", "say é"])
def test_what_the_tool_grammar_spells_it_reads(command, thought):
    grammar = JsonCommand()
    parsed = grammar.parse(grammar.spell(command, thought))
    assert (parsed.commands, parsed.thought, parsed.note) == ((command,), thought, "")


@pytest.mark.parametrize(
    ("call", "command"),
    [
        ({"name": "act", "arguments": {"action": " go on "}}, "go on"),
        ({"name": "act", "arguments": '{"command": "look"}'}, "look"),
        ({"name": "act", "arguments": {"command": "look", "action": "wait"}}, "look"),
        ({"name": "act", "arguments": {"command": 3}}, ""),
        ({"name": "act", "arguments": [1]}, ""),
    ],
)
def test_the_command_of_a_tool_call(call, command):
    assert JsonCommand().command(call) == command
