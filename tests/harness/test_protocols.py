"""Published set-ups: every byte of their conversations, their parsers, and where their words come from."""

import dataclasses
import json
import random
import re
from collections import deque

import pytest

from envsuite import registry
from envsuite.errors import DataError, UsageError
from harness import records, steps
from harness.cli.eval import main as eval_main
from harness.cli.replay import main as replay_main
from harness.prompting import protocols, words
from harness.prompting.prompting import Prompting
from harness.suites.plan import plan
from harness.types import Reply, Turn
from tests.api.server import running

GRID = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")


def prompting(name):
    flags = protocols.load(name).flags
    return Prompting(
        flags["action_grammar"],
        flags["thinking"] == "on",
        flags["history"],
        admissible=flags["admissible"],
        protocol=name,
        words="neutral",
    )


def episode(seed, commands):
    """Returns 20 turns with observations of several lines, braces and quotes, and the list of commands of each."""
    dice = random.Random(seed)
    turns = []
    for number in range(20):
        seen = f"You see a {{box}} {dice.random()}\nYou see 'it' {number}"
        command = dice.choice(commands)
        listed = tuple(dice.sample([*commands, "help"], 3))
        turns.append(Turn(seen, Reply(f"I think {number}. ACTION: {command}"), (command,), 0.0, {}, admissible=listed))
    return turns


def texts(name, key, **slots):
    text = protocols.load(name).neutral[key]
    for slot, value in slots.items():
        text = text.replace("{" + slot + "}", str(value))
    return text


def verl_agent(turns, number):
    """The conversation before turn `number`, written apart from the code after env_manager.py and memory.py."""
    now = turns[number]
    listed = "\n ".join(f"'{command}'" for command in now.admissible if command != "help")
    slots = {"current_observation": now.observation, "admissible_actions": listed}
    if number == 0:
        return [{"role": "user", "content": texts("verl-agent", "first", **slots)}]
    lines = [
        f"[Observation {j + 1}: '{turns[j].observation}', Action {j + 1}: '{turns[j].commands[0]}']"
        for j in range(number)
    ][-2:]
    more = {
        "task_description": "Put it there.",
        "step_count": number,
        "history_length": len(lines),
        "action_history": "\n".join(lines),
        "current_step": number + 1,
    }
    return [{"role": "user", "content": texts("verl-agent", "later", **more, **slots)}]


def history_builder(name, role, length, plans):
    """The conversations of BALROG's and Verlog's history builder, with the bounded queue that they use."""

    def build(turns, number):
        actions = ",\n".join(f"{key}: {value}" for key, value in protocols.load(name).neutral["actions"].items())
        queue = deque(maxlen=length)
        for turn in turns[:number]:
            queue.append(["user", turn.observation.replace("You see ", "")])
            queue.append(["assistant", turn.commands[0], turn.reply.text])
        queue.append(["user", turns[number].observation.replace("You see ", "")])
        left = plans
        for event in reversed(queue):
            if event[0] == "assistant":
                if left > 0:
                    event[1] = "Previous plan:\n" + event[2]
                left -= 1
        start = texts(name, "instructions", mission="put it there", action_strings=actions)
        messages = [{"role": role, "content": start}]
        for place, event in enumerate(queue):
            content = event[1]
            if event[0] == "user":
                content = ("Current Observation:\n" if place == len(queue) - 1 else "Observation:\n") + content
            messages.append({"role": event[0], "content": content})
        messages[-1]["content"] += "\n\n" + texts(name, "closing")
        return messages

    return build


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("verl-agent", verl_agent),
        ("balrog", history_builder("balrog", "user", 32, 0)),
        ("verlog", history_builder("verlog", "system", 3, 1)),
    ],
)
def test_every_byte_of_a_conversation_follows_the_published_structure(name, expected, seed):
    turns = episode(seed, GRID)
    ours = prompting(name)
    for number, now in enumerate(turns):
        messages = ours.messages("rules", "Put it there.", turns[:number], now.observation, now.admissible)
        assert messages == expected(turns, number)


@pytest.mark.parametrize(
    ("name", "text", "command", "understood"),
    [
        ("verl-agent", "<think>so</think><action> Go To Desk 1 </action>", "go to desk 1", True),
        ("verl-agent", "<action>look</action>", "look", False),  # played, but its format is wrong
        ("verl-agent", "<think>a</think><action>x</action><action>y</action>", "x", True),
        ("verl-agent", "<think>\u597d</think><action>look</action>", "look", False),
        ("verl-agent", "I would rather like to Go to the Kitchen now", " like to go to the kitchen now", False),
        ("balrog", "turn left", "turn left", True),
        ("balrog", " **turn left**!\n", "turn left", True),
        ("balrog", "Turn left", "go forward", False),
        ("balrog", "I turn left", "go forward", False),
        ("verlog", "It is there. ACTION: Pick_up", "pick up", True),
        ("verlog", "action: turnleft", "turn left", True),
        ("verlog", "ACTION: drop\nACTION: toggle", "toggle", True),
        ("verlog", "ACTION: jump", "go forward", False),
        ("verlog", "toggle", "toggle", True),
        ("verlog", "", "go forward", False),
    ],
)
def test_replies_are_parsed_as_published(name, text, command, understood):
    parsed = prompting(name).parse(text)
    assert (parsed.commands, parsed.substitute) == ((command,), not understood)


def test_a_protocol_sets_its_flags_and_refuses_others():
    (run,) = plan("smollm2-135m", {"protocol": "balrog"}, ["BabyAI-goto-v0"])
    assert run.config.prompting.history == 16 and run.config.knobs["wording"] == "babyai-text"
    assert run.config.prompting.words == "neutral" and run.config.sampling.max_tokens == 1024
    for flags, message in [
        ({"protocol": "balrog", "history": 3}, "fixes --history 16, not 3"),
        ({"protocol": "balrog", "set": ["wording=ours"]}, "fixes --set wording=babyai-text"),
        ({"protocol": "balrog", "action_mode": "score"}, "leave out --action-mode"),
        ({"protocol": "verl-agent"}, "is for alfworld"),
        ({"protocol": "balrg"}, "Did you mean 'balrog'"),
    ]:
        with pytest.raises(UsageError, match=message):
            plan("x", flags, ["BabyAI-goto-v0"])


def test_an_ordinary_run_keeps_its_id_and_a_protocol_has_one_of_its_own():
    plain, under = (
        plan("openai:m", {"protocol": name} if name else {}, ["BabyAI-goto-v0"])[0].config for name in ("", "balrog")
    )
    assert "protocol" not in plain.identity()["prompting"] and "words" not in plain.identity()["prompting"]
    assert under.identity()["prompting"]["protocol"] == "balrog"
    assert plain.run_id != under.run_id


SOURCE = '''
"""A module with prompts."""
NAMES = {"up": "goes up", "down": "goes down"}
FIRST = """
See {this}.
"""
class Agent:
    def act(self, mission):
        raise SystemExit("never executed")
        start = f"""
Go to {mission}: {{not a slot}}.
""".strip()
'''


def test_words_are_read_from_source_without_running_it(tmp_path):
    found = words.extract(SOURCE, ["NAMES", "FIRST", "start"], "a.py")
    assert found["NAMES"] == {"up": "goes up", "down": "goes down"}
    assert found["FIRST"] == "\nSee {this}.\n"
    assert found["start"] == "Go to {mission}: {not a slot}."
    with pytest.raises(DataError, match=r"a\.py assigns no text to OTHER"):
        words.extract(SOURCE, ["OTHER"], "a.py")
    with pytest.raises(DataError, match="not the Python source"):
        words.extract("def (", ["OTHER"], "a.py")


def test_fetched_words_are_checked_stored_and_used(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.py").write_text(SOURCE)
    expected = words.digest({"first": "\nSee {this}.\n"})
    source = words.SourceFiles("", {"a.py": {"first": "FIRST"}}, expected)
    with pytest.raises(DataError, match="are not the published ones"):
        words.fetch("one", dataclasses.replace(source, sha256="0" * 64), tmp_path)
    assert words.stored("one", expected) is None
    words.fetch("one", source, tmp_path)
    assert words.stored("one", expected) == {"first": "\nSee {this}.\n"}
    (tmp_path / "cache/prompts/one.json").write_text('{"first": "other"}')
    with pytest.raises(DataError, match="does not hold the published words"):
        words.stored("one", expected)


def test_each_file_of_published_words_can_have_its_own_commit():
    source = words.SourceFiles("https://host/repository", {}, "", {"a.py": "0123"})
    assert source.address("a.py") == "https://host/repository/0123/a.py"
    files = protocols.load("verlog").source_files
    assert files.commits.keys() == files.files.keys() and all(len(commit) == 40 for commit in files.commits.values())


@pytest.mark.parametrize("name", [name for name in protocols.names() if protocols.load(name).source_files])
def test_published_words_come_from_fixed_versions(name):
    files = protocols.load(name).source_files
    assert files.commits.keys() <= files.files.keys()
    for path in files.files:
        assert re.search(r"/([0-9a-f]{40}|v\d+\.\d+\.\d+)/", files.address(path)), "a branch changes under its hash"


def test_published_words_that_are_not_here_end_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    ours = prompting("balrog")
    published = Prompting(**{**vars(ours), "words": protocols.load("balrog").published_id})
    with pytest.raises(DataError, match="run `envsuite data get prompts/balrog`"):
        published.messages("", "", [], "", ())


@pytest.mark.parametrize(("fault", "stored"), [("", False), ("invalid", False), ("format", True), ("thinking", True)])
def test_a_reply_that_was_not_understood_is_stored_even_if_it_equals_the_command(fault, stored):
    """verl-agent sends the end of such a reply to the game, which can be all of it."""
    turn = Turn("", Reply("<think>a key"), ("<think>a key",), 0.0, {}, fault=fault)
    assert ("reply" in steps.step(turn, "")) == stored


def test_a_reply_that_is_not_understood_plays_the_default_and_its_run_passes_the_check(tmp_path, capsys):
    with running() as server:
        server.says = "I wonder where to go"
        command = ["-m", "m", "-e", "BabyAI-goto-v0", "-n", "2", "--protocol", "balrog"]
        command += ["--base-url", server.url, "--baselines", "none", "-o", str(tmp_path)]
        with pytest.raises(SystemExit) as ended:
            eval_main(command)
        assert not ended.value.code
        sent = server.requests[-1][0]["messages"]
    output = capsys.readouterr()
    assert "protocol balrog in neutral words" in output.out + output.err
    assert [message["role"] for message in sent[:3]] == ["user", "assistant", "user"] and len(sent) == 33
    (results,) = tmp_path.glob("**/results.jsonl")
    for record in records.read_results(results):
        assert record["faults"]["format"] == record["num_turns"] > 16
        assert all(step["commands"] == ["go forward"] for step in record["steps"])
    with pytest.raises(SystemExit) as ended:
        replay_main(["--check", str(results.parent)])
    assert not ended.value.code
    config = json.loads((results.parent / "config.json").read_text())
    assert config["prompting"]["protocol"] == "balrog" and config["prompting"]["words"] == "neutral"
    assert registry.TASKS["BabyAI-goto-v0"].family == "babyai"
