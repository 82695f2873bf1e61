"""Teams: a player and a conversation for each cook, their records and replays, and the cross-play matrix."""

import csv
import io
import json

import pytest

from envsuite import registry
from envsuite.errors import UsageError
from harness import hash_chain, records
from harness.cli import eval as eval_command
from harness.cli import table as table_command
from harness.evaluate import RunConfig, evaluate
from harness.interop.chat_game import chat_config
from harness.policies import is_model, make_policy, record_name, team_name
from harness.policies.team import TeamPolicy
from harness.prompting.demos import conversations
from harness.prompting.prompting import Prompting
from harness.provenance import replay
from harness.provenance.resample import draw
from harness.rollout.executors import LocalExecutor, ProcessExecutor
from harness.rollout.loop import rollout
from harness.stats.summary import summarise
from harness.suites import leaderboards
from harness.types import Reply, episode

TASK = "Overcooked-AI-cramped_room-v0"
KNOBS = {"partner": "team", "horizon": 12}
SHORT = ["--set", "horizon=12"]


def command(module, *argv):
    """Runs a command that must succeed."""
    with pytest.raises(SystemExit) as done:
        module.main(list(argv))
    assert done.value.code == 0


def played(name, executor, seeds=range(1)):
    policy = make_policy(name)
    todo = [episode(registry.TASKS[TASK], seed, **KNOBS) for seed in seeds]
    runs = {run.episode.seed: run for run in rollout(policy, todo, executor(policy.advice_kind))}
    return [runs[seed] for seed in seeds]


def test_each_cook_reads_its_own_turns_and_no_others():
    (run,) = played("team:expert:greedy+random", lambda kind: LocalExecutor(1, advice_kind=kind))
    assert {turn.agent for turn in run.turns} == {1, 2}
    for number, prompt in enumerate(hash_chain.prompts(run, Prompting(admissible="none"))):
        turn = run.turns[number]
        own = [past for past in run.turns[:number] if past.agent == turn.agent]
        system, *messages = prompt.messages
        assert [message["content"] for message in messages[::2]] == [past.observation for past in [*own, turn]]
        assert [message["content"] for message in messages[1::2]] == [past.reply.text for past in own]
        assert (
            f"You are cook {turn.agent} of 2," in turn.observation and "You are one of the cooks" in system["content"]
        )
        assert (prompt.turn, prompt.agent) == (len(own), turn.agent)


def test_every_cook_follows_its_own_player_in_this_process_and_in_workers():
    (run,) = played("team:expert+blind", lambda kind: LocalExecutor(1, advice_kind=kind))
    (other,) = played("team:blind+expert", lambda kind: ProcessExecutor(1, 1, advice_kind=kind))
    env = registry.build(TASK, **KNOBS)
    for players, found in ((("expert", "blind"), run), (("blind", "expert"), other)):
        env.reset(seed=0)
        for turn in found.turns:
            assert turn.agent == env.active_cook + 1
            advice = env.expert() if players[turn.agent - 1] == "expert" else env.blind()
            assert turn.commands == (advice,)
            env.step(advice)


def test_a_run_of_a_team_is_recorded_resumed_and_replayed(tmp_path, capsys):
    argv = ["-e", TASK, "-m", "greedy", "--agent", "2=random", "-n", "3", "-o", str(tmp_path), "--baselines", "none"]
    argv += ["--reuse", "off", *SHORT]
    command(eval_command, *argv)
    (folder,) = (tmp_path / f"{TASK}--team_expert_greedy+random").iterdir()
    file = folder / "results.jsonl"
    first = file.read_bytes()
    for record in records.read_results(file):
        assert record["model"] == "team:expert:greedy+random" and record["knobs"] == KNOBS
        assert {step["agent"] for step in record["steps"]} == {1, 2}
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])  # as after an interruption
    command(eval_command, *argv, "--resume")
    assert file.read_bytes() == first
    assert not any(difference for _, difference in replay.check(file))
    assert not any(difference for _, difference in replay.check(file, players={"team:expert:greedy+random"}))
    lines = [json.loads(line) for line in first.splitlines()]
    lines[0]["steps"][0]["agent"] = 2
    forged = tmp_path / "forged.jsonl"
    forged.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [bool(difference) for _, difference in replay.check(forged)].count(True) == 1


class Hesitant:
    """A player with conversations: gives its first offered command, and no command in every third turn."""

    name, advice_kind, deterministic = "some/model", "", True

    def __init__(self):
        self.prompts = []

    def act(self, prompts):
        self.prompts += prompts
        texts = ["hm" if prompt.turn % 3 == 2 else f"<action>{prompt.admissible[0]}</action>" for prompt in prompts]
        return [Reply(text, input_tokens=1, output_tokens=1) for text in texts]

    def close(self):
        pass


def test_a_model_beside_an_expert_has_its_own_conversation_and_a_hash_chain_that_replays(tmp_path):
    name, model = "team:some/model+expert", Hesitant()
    config = RunConfig(registry.TASKS[TASK], name, knobs=KNOBS, episodes=2)
    evaluate(config, tmp_path, lambda: TeamPolicy(name, [model, make_policy("expert")]))
    assert {prompt.agent for prompt in model.prompts} == {1}
    assert not any("cook 2 of 2" in message["content"] for prompt in model.prompts for message in prompt.messages)
    notes = [message["content"] for prompt in model.prompts for message in prompt.messages[3::2]]
    assert any(not text.startswith(("XX", "This command is unknown")) for text in notes)  # the harness's about "hm"
    file = config.folder(tmp_path) / "results.jsonl"
    assert all(hash_chain.has_chain(record) for record in records.read_results(file))
    assert not [difference for _, difference in replay.check(file) if difference]


@pytest.mark.parametrize("script", ["random", "blind", "expert", "idle"])
def test_a_replay_finds_a_changed_command_of_a_player_without_a_model_beside_a_model(script, tmp_path):
    name = f"team:some/model+{script}"
    config = RunConfig(registry.TASKS[TASK], name, knobs=KNOBS, episodes=1)
    evaluate(config, tmp_path, lambda: TeamPolicy(name, [Hesitant(), make_policy(script)]))
    file = config.folder(tmp_path) / "results.jsonl"
    assert not [difference for _, difference in replay.check(file) if difference]
    (record,) = records.read_results(file)
    last = max(turn for turn, step in enumerate(record["steps"]) if step["agent"] == 2)
    (forged,) = records.read_results(file)
    forged["steps"] = forged["steps"][: last + 1]
    forged["steps"][last]["commands"] = ["dance"]
    copy = tmp_path / "forged.jsonl"
    copy.write_bytes(records.dump(forged))
    (verdict,) = replay.check(copy)
    assert f"turn {last + 1}, commands: stored ['dance']" in verdict.difference


class Hasty(Hesitant):
    """A player that gives two commands in every reply."""

    def act(self, prompts):
        return [Reply(HASTE, input_tokens=1, output_tokens=1) for _ in prompts]


HASTE = "<action>left</action><action>interact</action>"


def test_a_reply_with_several_commands_moves_nobody_but_its_own_cook(tmp_path):
    name = "team:some/model+idle"
    prompting = Prompting(grammar="actions")
    config = RunConfig(registry.TASKS[TASK], name, knobs=KNOBS, episodes=1, prompting=prompting)
    evaluate(config, tmp_path, lambda: TeamPolicy(name, [Hasty(), make_policy("idle")]))
    file = config.folder(tmp_path) / "results.jsonl"
    (record,) = records.read_results(file)
    env = registry.build(TASK, **KNOBS)
    env.reset(seed=record["seed"])
    for step in record["steps"]:
        for given in step["commands"] or [""]:
            assert env.active_cook + 1 == step["agent"]
            env.step(given)
    assert record["steps"][0]["commands"] == ["left"]  # the second command came too late
    assert not [difference for _, difference in replay.check(file) if difference]


def test_a_resample_draws_turns_of_the_model_alone():
    steps = [{"agent": 1}, {"agent": 2}, {"agent": 1}]
    drawn, total = draw([{"model": "team:some/model+random", "steps": steps}], 9, seed=0)
    assert total == 2 and [turn for _, turn in drawn] == [0, 2]


def test_demonstrations_of_a_team_have_a_conversation_for_each_cook():
    (run,) = played("expert", lambda kind: LocalExecutor(1, advice_kind=kind))
    chats = conversations(run, Prompting(admissible="none"))
    assert len(chats) == 2 and sum(len(chat) for chat in chats) == 2 + 2 * len(run.turns)
    for number, chat in enumerate(chats, 1):
        seen = [message["content"] for message in chat if message["role"] == "user"]
        assert all(f"You are cook {number} of 2," in text for text in seen)


def test_a_conversation_of_one_player_is_refused_for_several():
    with pytest.raises(UsageError, match="a player for each of 2 agents"):
        chat_config("test", TASK, set="partner=team")


@pytest.mark.parametrize("name", ["team:expert", "random:gpt4", "expert:greedy2", "team:some/model+expert:greedy2"])
def test_a_name_that_no_player_has_is_a_fault_of_its_row_and_the_check_goes_on(name, tmp_path):
    assert leaderboards.misnamed(name, registry.TASKS[TASK], KNOBS)
    (run,) = played("expert", lambda kind: LocalExecutor(1, advice_kind=kind))
    record = records.record(run, "expert", "sparse")
    file = tmp_path / "results.jsonl"
    file.write_bytes(records.dump({**record, "model": name}) + records.dump(record))
    verdicts = list(replay.check(file, players={name, "expert"}))
    assert [verdict.record["model"] for verdict in verdicts if verdict.difference] == [name]


def test_a_run_of_a_team_notes_what_each_members_server_did():
    temperatures = {"one": None, "two": None, "three": 0.0}
    models = [
        make_policy(f"openai:{name}", base_url="http://localhost:9", temperature=temperature)
        for name, temperature in temperatures.items()
    ]
    team = TeamPolicy("team", [*models, make_policy("expert"), models[0]])
    defaulted = {"defaulted": ["temperature"]}
    assert team.connection() == {"request_fields": {models[0].name: defaulted, models[1].name: defaulted}}
    team.close()


def test_cross_play_loads_every_player_once(tmp_path, monkeypatch):
    made = []

    def counted(name, *args, **options):
        made.append(name)
        return make_policy(name, *args, **options)

    monkeypatch.setattr("harness.cli.playing.players.make_policy", counted)
    argv = ["crossplay", "-e", TASK, "-n", "1", "-o", str(tmp_path), "-m", "random", "-m", "expert", "--reuse", "off"]
    argv += SHORT
    command(table_command, *argv)
    assert sorted(name for name in made if "+" not in name) == ["expert", "random"]


def test_cross_play_refuses_an_unknown_metric_after_the_first_pair(tmp_path, capsys):
    argv = [
        "crossplay",
        "-e",
        TASK,
        "-n",
        "1",
        "-o",
        str(tmp_path),
        "-m",
        "random",
        "-m",
        "expert",
        "--reuse",
        "off",
        *SHORT,
    ]
    with pytest.raises(SystemExit):
        table_command.main([*argv, "--metric", "speed"])
    assert "no metric 'speed'" in capsys.readouterr().err and len(list(tmp_path.iterdir())) == 1


def test_names_of_teams():
    assert team_name(["greedy", "random"]) == "team:expert:greedy+random"
    assert team_name(["blind", "blind"]) == "blind"
    assert is_model("team:random+smollm2-135m") and not is_model("team:random+expert")
    assert record_name("team:random+expert") == "team:random+expert"
    for players in (["a+b", "random"], ["replay:x", "random"], ["", "random"]):
        with pytest.raises(UsageError, match="cannot play one agent of several"):
            team_name(players)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-e", TASK, "-m", "team:expert+random+random"], "has 2 agents|name a team's players with --agent"),
        (["-e", "Overcooked-tomato_salad-v0", "--agent", "2=random"], "drop --agent"),
        (["-e", "BabyAI-goto-v0", "--agent", "2=random"], "drop --agent"),
        (["-e", TASK, "--agent", "3=random"], "in a game of two agents it is --agent 2=MODEL"),
        (["-e", TASK, "--agent", "2=gredy"], "it is one of greedy, random, blind, expert, idle, or a model"),
        (["-e", TASK, "--agent", "2=gredy"], "Did you mean 'greedy'"),
        (["-e", TASK, "--agent", "2"], "--agent takes N=MODEL"),
        (["-e", TASK, "--agent", "0=random"], "a number from 2"),
        (["-e", TASK, "--agent", "2=random", "--agent", "2=blind"], "each number once"),
        (["-e", TASK, "-m", "team:expert+random"], "name a team's players with --agent"),
        (["-e", TASK, "-m", "team:expert+greedy"], "write team:expert+expert:greedy."),
        (["-e", TASK, "--set", "partner=expert", "--agent", "2=random"], "drop --agent"),
    ],
)
def test_players_that_do_not_fit_the_cooks_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        eval_command.main(["-m", "expert", *words, "--dry-run"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and any(part in lines[0] for part in message.split("|"))


def test_the_cross_play_matrix_has_every_pair_and_plays_none_twice(tmp_path, capsys):
    argv = ["crossplay", "-e", TASK, *SHORT, "-n", "2", "-o", str(tmp_path)]
    argv += ["-m", "random", "-m", "greedy", "--reuse", "off", "--csv", "--metric", "primitive_steps"]
    command(table_command, *argv)
    text = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(text)))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/journal.jsonl")}
    assert len(rows) == len(files) == 4
    for row in rows:
        name = team_name([row["first"], row["others"]])
        (file,) = tmp_path.glob(f"*--{name.replace(':', '_')}/*/results.jsonl")
        summary = summarise(records.read_results(file))
        assert float(row["primitive_steps"]) == summary["metrics"]["primitive_steps"]["value"] and row["n"] == "2"
    command(table_command, *argv)
    assert capsys.readouterr().out == text
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_cross_play_needs_a_task_of_several_cooks(capsys):
    with pytest.raises(SystemExit):
        table_command.main(["crossplay", "-e", "Overcooked-tomato_salad-v0", "-m", "random"])
    assert "name a task of several agents, such as Overcooked-AI" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        table_command.main(["crossplay", "-e", "BabyAI-goto-v0", "-m", "random"])
    error = capsys.readouterr().err
    assert "name a task of several agents" in error
