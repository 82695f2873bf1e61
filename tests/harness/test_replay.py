"""The replay check passes genuine files and names what is forged or stale in others."""

import json
import shutil
from pathlib import Path

import pytest

from envsuite import registry
from harness import records
from harness.cli.replay import main
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.provenance import replay
from harness.types import Reply
from tests import toys  # noqa: F401


@pytest.fixture
def results(tmp_path):
    config = RunConfig(task=registry.TASKS["HiLo-v0"], model="random", episodes=6, attempts=2, max_turns=3)
    evaluate(config, tmp_path, lambda: make_policy("random"))
    return config.folder(tmp_path) / "results.jsonl"


@pytest.fixture
def alone(results, tmp_path):
    """The results file without the run folder's other files, as someone would publish it."""
    return Path(shutil.copy(results, tmp_path / "alone.jsonl"))


def change(file, edit):
    """Applies `edit` to the records of a results file."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    edit(lines)
    file.write_text("".join(json.dumps(record) + "\n" for record in lines))


def differences(file):
    return [verdict.difference for verdict in replay.check(file) if verdict.difference]


def loser(lines):
    return next(record for record in lines if not record["success"])


def test_a_genuine_file_replays_the_same(results, alone):
    for file in (results, alone):
        verdicts = list(replay.check(file))
        assert len(verdicts) == 12
        assert not any(verdict.difference for verdict in verdicts)


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda record: record.update(success=True, reward=1.0), "success"),
        (lambda record: record["steps"][1].update(observation="Correct!"), "turn 2, observation"),
        (lambda record: record["steps"][0].update(reward=1.0), "turn 1, reward"),
        (lambda record: record["steps"][0].update(fault="invalid"), "turn 1, fault: stored 'invalid', replayed ''"),
        (lambda record: record["faults"].update(format=1), "its turns have {'format': 0"),
        (lambda record: record.update(first_observation="hello"), "first_observation"),
        (lambda record: record["steps"].append(dict(record["steps"][-1])), "steps: stored 4"),
        (lambda record: record.update(stop_reason="broken", error="server gone"), "broken, so it has no score"),
    ],
)
def test_the_first_difference_of_a_forged_record_is_named(alone, forge, message, capsys):
    change(alone, lambda lines: forge(loser(lines)))
    with pytest.raises(SystemExit) as stop:
        main([str(alone)])
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sampling", "parses"), [(None, False), ({"action_mode": "score"}, False), ({"action_mode": "write"}, True)]
)
def test_commands_were_parsed_only_where_a_model_wrote_them(sampling, parses):
    assert replay.RunFolder(Path(), {"sampling": sampling}).parses is parses


def remark(lines):
    next(record for record in lines if record["success"]).update(stop_reason="broken", error="server gone")


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda lines: lines.remove(loser(lines)), "missing: config.json lists this episode"),
        (lambda lines: lines.append({**lines[0], "seed": 99}), "config.json does not list this episode"),
        (lambda lines: [record.update(model="expert") for record in lines], "config.json has 'random'"),
        (remark, "marked broken, but journal.jsonl has a score"),
        (remark, "marked broken, but its replies end the episode with 'solved'"),
        (lambda lines: lines[0].update(output_tokens=1), "output_tokens: differs from journal.jsonl"),
        (lambda lines: lines[0].update(cost=0.5), "cost: differs from journal.jsonl"),
        (lambda lines: cut(loser(lines), 2, "max_turns"), "it ends by max_turns after 2 turns, and config.json has 3"),
        (lambda lines: lines.remove(loser(lines)), "episodes: summary.json has 12, the records give 11"),
    ],
)
def test_results_that_contradict_their_run_folder_are_found(results, forge, message):
    change(results, forge)
    assert any(message in difference for difference in differences(results))


@pytest.mark.parametrize(
    ("name", "forge", "messages"),
    [
        (
            "config.json",
            lambda values: values.update(seeds=[1_000_000, 5]),
            ["run_id", "seeds: config.json and summary"],
        ),
        (
            "config.json",
            lambda values: values.update(max_turns=2),
            ["run_id", "it has 3 turns, and config.json allows 2"],
        ),
        (
            "summary.json",
            lambda values: values["success"].update(value=1.0),
            ["success.value: summary.json has 1.0, the"],
        ),
        ("summary.json", lambda values: values.update(stop_reasons={"solved": 12}), ["stop_reasons: summary.json has"]),
    ],
)
def test_a_changed_config_or_summary_is_found(results, name, forge, messages):
    path = results.with_name(name)
    values = json.loads(path.read_text())
    forge(values)
    path.write_text(json.dumps(values))
    reports = differences(results)
    assert all(any(message in difference for difference in reports) for message in messages), reports


def test_replies_that_contradict_their_commands_are_found(tmp_path):
    """Also when the journal was forged in the same way."""
    config = RunConfig(task=registry.TASKS["HiLo-v0"], model="some/model", episodes=3, max_turns=2)
    evaluate(config, tmp_path, Talkative)
    folder = config.folder(tmp_path)
    assert differences(folder / "results.jsonl") == []

    def forge(lines):
        min(lines, key=lambda record: record["seed"])["steps"][0]["reply"] = "<action>16</action>"

    for name in ("results.jsonl", "journal.jsonl"):
        change(folder / name, forge)
    reports = differences(folder / "results.jsonl")
    assert "turn 1: the reply gives ['16'], the commands are ['2']" in reports
    assert len(reports) == 3, "the hash of the records and the chain of the episode differ too"


class Talkative:
    """A policy that writes its command in the default grammar."""

    name, advice_kind, deterministic = "some/model", "", True

    def act(self, prompts):
        return [Reply("<action>2</action>", input_tokens=9, output_tokens=3) for _ in prompts]

    def close(self):
        pass


def cut(record, turns, reason):
    """Changes a record to one that the harness ended after `turns` turns."""
    record["steps"] = record["steps"][:turns]
    record.update(num_turns=turns, stop_reason=reason, terminated=False, truncated=True, success=False)
    record.update(reward=0.0, progression=record["progression"] if turns else 0.0)


def test_an_episode_without_room_for_its_first_prompt_replays_the_same(alone):
    change(alone, lambda lines: cut(loser(lines), 0, "context"))
    assert differences(alone) == []


def test_a_reply_that_was_cut_off_replays_as_one_without_a_command(alone):
    config = RunConfig(task=registry.TASKS["HiLo-v0"], model="idle", episodes=1, max_turns=2)
    evaluate(config, alone.parent / "idle", lambda: make_policy("idle"))
    (record,) = records.read_results(config.folder(alone.parent / "idle") / "results.jsonl")
    assert record["faults"] == {"format": 2, "invalid": 0, "length": 0}
    record["steps"][1]["fault"] = "length"
    record["faults"] = {"format": 1, "invalid": 0, "length": 1}
    change(alone, lambda lines: lines.append(record))
    assert len(list(replay.check(alone))) == 13
    assert differences(alone) == []


def test_a_sample_replays_a_fixed_part_of_each_file(alone, capsys):
    def replayed(*words):
        with pytest.raises(SystemExit) as done:
            main([str(word) for word in words])
        return done.value.code, capsys.readouterr()

    code, printed = replayed("--check", "--sample", 5, "-v", alone)
    lines = printed.out.splitlines()
    assert code == 0 and len(lines) == 7 and "5 episodes replayed the same, 0 differ (a sample of 12)" in lines[-2]
    assert "no config.json is beside it" in lines[-1]
    assert sorted(replayed("--sample", 5, "-v", alone)[1].out.splitlines()) == sorted(lines)
    code, printed = replayed("--sample", 100, alone)
    assert code == 0 and "12 episodes replayed the same, 0 differ\n" in printed.out
    code, printed = replayed("--sample", 0, alone)
    assert code == 2 and "--sample must be at least 1" in printed.err


def test_a_folder_of_folders_is_replayed_and_one_without_episodes_is_named(results, tmp_path, capsys):
    empty = tmp_path / "grids"
    empty.mkdir()
    with pytest.raises(SystemExit) as done:
        main(["--check", str(empty), str(results.parents[1])])
    printed = capsys.readouterr().out
    assert done.value.code == 0
    assert f"{empty}: skipped, it holds no records of episodes" in printed and "12 episodes replayed" in printed
    with pytest.raises(SystemExit) as done:
        main([str(empty)])
    assert done.value.code == 2 and "Nothing to replay" in capsys.readouterr().err
