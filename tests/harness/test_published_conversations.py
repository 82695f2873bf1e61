"""Conversations of published set-ups, held byte for byte to builders that are written apart from the code."""

import itertools
import json
import random
import shlex
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from envsuite.errors import UsageError
from harness import records
from harness.cli.replay import main as replay_main
from harness.policies.score import ScorePolicy
from harness.prompting import protocols, words
from harness.suites.plan import plan
from harness.types import Prompt, Reply, Turn
from tests.api.server import running
from tests.harness.test_protocols import GRID, episode, prompting, texts
from tests.lm.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(3)
TOKENIZER = tiny_tokenizer()
TASK = "Put it there {now}."
THOUGHTS = ("think: where is it?", "go to desk 1", "take pen 1 from desk 1", "think: {it} is here")


def ours(name, turns, number, labels=None):
    """Returns the conversation before turn `number`."""
    now = turns[number]
    return prompting(name).messages("rules", TASK, turns[:number], now.observation, now.admissible, labels=labels)


def tales(turns, number):
    """The messages of TALES' zero-shot agent: its history of (observation, action) pairs."""
    history = [(f"{turn.observation}\n> ", f"{turn.commands[0]}\n") for turn in turns[:number]]
    chat = [{"role": "system", "content": texts("tales", "instructions")}]
    for observation, action in history:
        chat += [{"role": "user", "content": observation}, {"role": "assistant", "content": action}]
    return [*chat, {"role": "user", "content": turns[number].observation + "\n> "}]


def guide(turns, number):
    """The messages of the Practitioner's Guide: its data generator writes the first one, its agent the others."""
    first = texts("practitioners-guide", "opening").replace("{task}", TASK)
    first = first.replace("{interactions}", f"current state: {turns[0].observation}\n\n") + "your action: "
    chat = [{"role": "user", "content": first}]
    for turn, after in itertools.pairwise(turns[: number + 1]):
        chat.append({"role": "assistant", "content": turn.reply.text})
        chat.append({"role": "user", "content": f"current state: {after.observation}\n\nyour action: "})
    return chat


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "expected"), [("tales", tales), ("practitioners-guide", guide)])
def test_every_byte_of_a_chat_with_its_whole_history_follows_the_published_structure(name, expected, seed):
    turns = episode(seed, GRID)
    for number in range(len(turns)):
        assert ours(name, turns, number) == expected(turns, number)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_byte_of_reacts_text_follows_its_notebook(seed):
    turns = episode(seed, THOUGHTS)
    task_type, kind = random.Random(seed).choice([*protocols.load("react").conversation.variants.items()])
    prompt = texts("react", "prefix", **{"0": texts("react", f"{kind}_1"), "1": texts("react", f"{kind}_0")})
    prompt += turns[0].observation + "\n>"
    for number, turn in enumerate(turns[:-1]):
        assert ours("react", turns, number, {"task_type": task_type}) == [{"role": "completion", "content": prompt}]
        (action,) = turn.commands
        observation = "OK." if action.startswith("think:") else turns[number + 1].observation
        prompt += f" {action}\n{observation}\n>"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["twosome", "poad"])
def test_prompts_of_twosome_and_poad_are_the_state_alone(name, seed):
    turns = episode(seed, GRID)
    for number, now in enumerate(turns):
        assert ours(name, turns, number) == [{"role": "completion", "content": now.observation}]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "key"), protocols.load("balrog-textworld").conversation.variants.items())
def test_every_byte_of_balrogs_textworld_follows_its_history_builder(kind, key, seed):
    turns = episode(seed, GRID)
    turns[0].observation = f"Welcome!\n\n{TASK}\n\n-= Attic =-\nA ladder.\n\n>"
    queue = deque(maxlen=32)
    for number, turn in enumerate(turns):
        observation = turn.observation.split(TASK)[-1].strip()
        events = [*queue, ("user", observation)][-32:]
        expected = [
            {"role": "user", "content": protocols.load("balrog-textworld").neutral["instructions"][key].strip()}
        ]
        for role, text in events[:-1]:
            expected.append({"role": role, "content": ("Observation:\n" if role == "user" else "") + text})
        closing = texts("balrog-textworld", "closing")
        expected.append({"role": "user", "content": f"Current Observation:\n{observation}\n\n{closing}"})
        assert ours("balrog-textworld", turns, number, {"task_type": kind}) == expected
        queue += ("user", observation), ("assistant", turn.commands[0])


def test_an_episode_that_a_protocol_has_no_words_for_ends_in_one_line():
    with pytest.raises(UsageError, match="no prompt for task_type 'custom', only for treasure_hunter, cooking"):
        ours("balrog-textworld", episode(0, GRID), 0, {"task_type": "custom"})


OUTPUTS = ("", "one\ntwo\n", "a" * 12_000, "<tag> {{brace}} 'quote'", "exit code 3, in /tmp\nnested")


def shell_episode(seed):
    """Returns turns with replies of one, no and two code blocks, and the command outputs."""
    dice = random.Random(seed)
    turns = []
    for number in range(12):
        command = dice.choice(["ls -la", "cat <<'EOF' > a.py\nprint('x')\nEOF", 'cd src && grep -n "it\'s" *.py'])
        block = f"```mswea_bash_command\n{command}\n```"
        text = f"THOUGHT: {number}\n\n" + "\n".join([block] * dice.choice([1, 1, 1, 0, 2]))
        parsed = prompting("mini-swe-agent").parse(text)
        output = dice.choice(OUTPUTS)
        observation = f"exit code {number % 3}, in /testbed\n{output or '(no output)'}"
        turns.append((Turn("", Reply(text), parsed.commands, 0.0, {}, note=parsed.note), output, observation))
    for (turn, *_), before in zip(turns, ["It fails.", *(observation for *_, observation in turns)], strict=False):
        turn.observation = before
    return turns


def package_prompts(turns):
    """Returns the messages before each turn that the package's own agent makes of these replies and outputs."""
    default = pytest.importorskip("minisweagent.agents.default", reason="mini-swe-agent is not installed")
    from minisweagent.models.utils import actions_text

    form = protocols.load("mini-swe-agent").neutral
    prompts = []

    class Model:
        def query(self, messages):
            prompts.append([{key: message[key] for key in ("role", "content")} for message in messages])
            text = turns[len(prompts) - 1][0].reply.text
            actions = actions_text.parse_regex_actions(
                text,
                action_regex=r"```mswea_bash_command\s*\n(.*?)\n```",
                format_error_template=form["format_error"],
                template_kwargs={"finish_reason": "stop"},
            )
            return {"role": "assistant", "content": text, "extra": {"actions": actions}}

        def format_message(self, **message):
            return message

        def format_observation_messages(self, message, outputs, template_vars):
            return actions_text.format_observation_messages(
                outputs, observation_template=form["observation"], template_vars=template_vars
            )

        def get_template_vars(self):
            return {}

        def serialize(self):
            return {}

    class Environment(Model):
        def execute(self, action):
            turn, output, _ = turns[len(prompts) - 1]
            assert turn.commands == (f"bash -c {shlex.quote(action['command'])}",)
            return {"output": output, "returncode": (len(prompts) - 1) % 3, "exception_info": ""}

    limits = {"step_limit": len(turns), "max_consecutive_format_errors": 0}
    templates = {"system_template": form["system"], "instance_template": form["instance"]}
    default.DefaultAgent(Model(), Environment(), **templates, **limits).run("It fails.")
    return prompts


def test_every_byte_of_mini_swe_agents_messages_is_what_the_package_makes():
    for seed in SEEDS:
        turns = shell_episode(seed)
        observations = ["It fails.", *(observation for *_, observation in turns)]
        expected = package_prompts(turns)
        assert len(expected) == len(turns)
        for number, messages in enumerate(expected):
            played = [turn for turn, *_ in turns[:number]]
            assert messages == prompting("mini-swe-agent").messages("", "It fails.", played, observations[number], ())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shell_conversation_shows_commands_with_their_output_and_errors_in_place_of_other_replies(seed):
    turns = shell_episode(seed)
    played = [turn for turn, *_ in turns]
    chat = prompting("mini-swe-agent").messages("", "It fails.", played, turns[-1][2], ())
    assert [message["role"] for message in chat[:2]] == ["system", "user"] and "It fails." in chat[1]["content"]
    following = iter(chat[2:])
    for turn, output, _ in turns:
        if turn.commands:
            assert next(following) == {"role": "assistant", "content": turn.reply.text}
            assert output[:5000] in next(following)["content"]
        else:
            assert f"has {turn.reply.text.count('```mswea')} commands" in next(following)["content"]
    assert next(following, None) is None


@pytest.mark.parametrize(
    ("name", "text", "command", "understood"),
    [
        ("tales", " take lamp \n", "take lamp", True),
        ("tales", "take lamp\nlook", "take lamp\nlook", True),
        ("tales", " ", "", False),
        ("practitioners-guide", " open \\box\\ ", "open box", True),
        ("practitioners-guide", "\\", "", False),
        ("react", " think: it is there.\n> go", "think: it is there.", True),
        ("react", "go to desk 1\n", "go to desk 1", True),
        ("react", "\ngo to desk 1", "", False),
        ("balrog-textworld", " take the non-euclidean key!\n", "take the noneuclidean key", True),
        ("balrog-textworld", "42", "", False),
        ("mini-swe-agent", "```mswea_bash_command\necho 'a'\n```", "bash -c 'echo '\"'\"'a'\"'\"''", True),
        ("mini-swe-agent", "```mswea_bash_command\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```", "submit", True),
    ],
)
def test_other_replies_are_parsed_as_published(name, text, command, understood):
    parsed = prompting(name).parse(text)
    assert (parsed.commands, parsed.substitute) == ((command,), not understood)


def test_flags_of_a_protocol_depend_on_the_family_and_may_choose_commands_by_likelihood():
    tasks = ("TextWorld-easy-v0", "ALFWorld-generated-v0")
    (text, house) = (plan("smollm2-135m", {"protocol": "tales"}, [task])[0].config for task in tasks)
    assert text.knobs == {"observations": "raw"} and house.knobs == {}  # raw is the default there
    assert text.prompting.history == -1 and text.max_turns == 100
    (scored,) = plan("smollm2-135m", {"protocol": "twosome"}, ["Overcooked-tomato_salad-v0"])
    assert scored.config.sampling.action_mode == "score" and scored.config.sampling.normalisation == "word"
    for mode, name in (("score", "tales"), ("write", "twosome")):
        task = "TextWorld-easy-v0" if name == "tales" else "Overcooked-tomato_salad-v0"
        with pytest.raises(UsageError, match="leave out --action-mode"):
            plan("x", {"protocol": name, "action_mode": mode}, [task])


def evaluate(folder, *options):
    command = [sys.executable, "-m", "harness.cli.eval", "-m", "m", "-n", "1", "--baselines", "none", *options]
    done = subprocess.run([*command, "-o", str(folder)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (results,) = folder.glob("**/results.jsonl")
    with pytest.raises(SystemExit) as ended:
        replay_main(["--check", str(results.parent)])
    assert not ended.value.code
    return records.read_results(results)


def test_react_asks_a_completion_endpoint_and_its_run_passes_the_check(tmp_path):
    replies = itertools.cycle(["think: I look around.", "look\n> go", ""])
    with running() as server:
        server.says = lambda body: next(replies)
        task = ["-e", "ALFWorld-generated-v0", "--protocol", "react", "--base-url", server.url]
        (record,) = evaluate(tmp_path, *task)
        bodies = [body for body, *_ in server.requests if "prompt" in body]
    assert record["num_turns"] == 49 == len(bodies)
    assert {tuple(body["stop"]) for body in bodies} == {("\n",)}
    assert not any("messages" in body or "chat_template_kwargs" in body for body in bodies)
    assert "\n> think: I look around.\nOK.\n> look\n" in bodies[5]["prompt"]


def test_twosome_scores_commands_after_the_bare_state(tmp_path):
    """The prompt has the tokens of the observation, and each command begins with a space."""
    policy = ScorePolicy.of(tiny_model(len(TOKENIZER)), TOKENIZER, lead=protocols.load("twosome").lead)
    (turn, *_) = episode(0, GRID)
    messages = ours("twosome", [turn], 0)
    (reply,) = policy.act([Prompt(messages, admissible=["turn left", "drop"])])
    sequence = TOKENIZER(f"{turn.observation} {reply.commands[0]}")["input_ids"]
    assert [*reply.prompt_ids, *reply.ids] == sequence
    policy.close()


def test_words_are_read_from_notebooks_json_and_yaml():
    cells = [{"cell_type": "markdown", "source": ["("]}]
    cells += [{"cell_type": "code", "source": ["p = ''\n", "p = 'see ' + d['a'] + d[f'{b}'] + '\\nnow'\n"]}]
    notebook = json.dumps({"cells": cells})
    assert words.read_texts(notebook, ["p#2"], "a.ipynb") == {"p#2": "see {0}{1}\nnow"}
    assert words.read_texts('{"one": "1", "two": "2"}', ["two"], "a.json") == {"two": "2"}
    source = "agent:\n  first: |\n    a\n\n      b\n  other: 1\nmodel:\n  last: |\n    {% if x %}\n    c"
    assert words.read_texts(source, ["first", "last"], "a.yaml") == {"first": "a\n\n  b\n", "last": "{% if x %}\nc\n"}
    table = words.read_texts("t = dict(a='x', b='y')", ["t"], "a.py")
    assert table == {"t": {"a": "x", "b": "y"}}
