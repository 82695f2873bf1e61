"""Hash chains bind replies to prompts and weights, and resampling tells a file's model from another one."""

import json
import shutil

import pytest

from envsuite import registry
from envsuite.errors import DataError
from harness.cli.replay import main
from harness.evaluate import Execution, RunConfig, Sampling, evaluate
from harness.policies.openai import OpenAIPolicy
from harness.prompting.prompting import Prompting
from harness.provenance import replay
from harness.provenance.resample import Resampled, describe, upper_bound
from harness.records import read_results
from tests import toys  # noqa: F401  registers the toys
from tests.api.hashing import hashing

PROMPTING = Prompting(history=2, admissible="all", thinking=True)


def play(out, server, prompting=PROMPTING, **execution):
    """Plays a run against a server whose reply is a hash of the prompt; returns its results file."""
    run = RunConfig(
        registry.TASKS["HiLo-v0"],
        "openai:stub",
        episodes=5,
        max_turns=4,
        prompting=prompting,
        sampling=Sampling(max_tokens=16),
    )
    policy = OpenAIPolicy("stub", base_url=server.url, first_pause=0.01, watch=True)
    try:
        evaluate(run, out, lambda: policy, Execution(**execution))
    finally:
        policy.close()
    return run.folder(out) / "results.jsonl"


@pytest.fixture(scope="module")
def server():
    with hashing(0.0) as running:
        yield running


@pytest.fixture(scope="module")
def genuine(server, tmp_path_factory):
    return play(tmp_path_factory.mktemp("genuine"), server)


@pytest.fixture
def results(genuine, tmp_path):
    """A copy of the run folder, for tests that change files."""
    return shutil.copytree(genuine.parent, tmp_path / "run") / genuine.name


def change(file, edit):
    """Applies `edit` to the first record of a file with several turns."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    edit(next(record for record in lines if record["num_turns"] > 2))
    file.write_text("".join(json.dumps(record) + "\n" for record in lines))


def differences(file):
    return [verdict.difference for verdict in replay.check(file) if verdict.difference]


def test_every_reply_of_a_model_is_chained_and_the_chains_hold(genuine):
    for record in read_results(genuine):
        assert record["weights"]
        assert all(len(step["link"]) == len(step["prompt_hash"]) == 32 for step in record["steps"])
    assert differences(genuine) == []


@pytest.mark.parametrize(
    "prompting",
    [
        Prompting(),
        Prompting(history=0, admissible="none"),
        Prompting(history_reasoning=1, admissible="latest"),
        Prompting(grammar="tool", history_reasoning=False),  # the stub's replies hold no tool call: notes follow
        Prompting(grammar="bare", wording="plain", thinking=False),
    ],
    ids=["default", "no history", "short history", "notes", "bare"],
)
def test_a_replay_builds_the_same_prompts(server, tmp_path, prompting):
    file = play(tmp_path, server, prompting)
    assert differences(file) == []


def test_chains_do_not_depend_on_latencies_or_slots(genuine, tmp_path):
    with hashing(0.03) as slow:
        assert play(tmp_path, slow, max_concurrent=3).read_bytes() == genuine.read_bytes()


@pytest.mark.parametrize(
    "edit",
    [
        lambda record: record["steps"][1].update(reasoning="0" + record["steps"][1]["reasoning"]),
        lambda record: record["steps"][0].update(prompt_hash="0" * 32),
        lambda record: record["steps"][2].update(link=record["steps"][1]["link"]),
        lambda record: record.update(weights="0" * 12),
        lambda record: record["steps"][1].pop("link"),
    ],
    ids=["a thought", "a prompt's hash", "a link", "the weights", "a link removed"],
)
def test_a_changed_record_breaks_its_chain_even_without_the_run_folder(results, tmp_path, edit):
    change(results, edit)
    alone = shutil.copy(results, tmp_path / "alone.jsonl")
    (difference,) = differences(alone)
    assert "the hash chain breaks" in difference


def test_another_prompt_than_the_config_describes_is_named(results):
    config = results.with_name("config.json")
    values = json.loads(config.read_text())
    values["prompting"]["history"] = 0
    config.write_text(json.dumps(values))
    assert any("turn 2: the prompt has another hash" in difference for difference in differences(results))


@pytest.mark.parametrize("field", ["history_reasoning", "grammar"])
def test_a_config_with_values_of_another_type_is_refused(results, field):
    config = results.with_name("config.json")
    values = json.loads(config.read_text())
    values["prompting"][field] = ["all"]
    config.write_text(json.dumps(values))
    with pytest.raises(DataError, match="no valid prompting settings"):
        differences(results)


def test_the_hash_of_all_records_covers_their_order(results):
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
    assert differences(results) == ["one record or more: the hash of the records differs from summary.json"]


def resampled(capsys, file, url, *more):
    """Runs the command; returns its exit code and output."""
    flags = ["--resample", "8", "--seed", "3", "-m", "openai:stub", "--base-url", url]
    with pytest.raises(SystemExit) as stopped:
        main([str(file), *flags, *more])
    return stopped.value.code, capsys.readouterr()


def test_resampling_agrees_with_the_server_that_played(genuine, server, capsys):
    code, output = resampled(capsys, genuine, server.url)
    assert code == 0
    assert "8 of 8 stored replies are the model's; asked twice, it repeats itself in 8" in output.out
    assert "for the model" in output.out


def test_resampling_speaks_against_another_model(genuine, capsys):
    with hashing(0.0) as rival:
        rival.salt = "another model"
        code, output = resampled(capsys, genuine, rival.url)
    assert code == 1
    assert "against the model" in output.out and "the records name weights" in output.out


def test_resampling_needs_a_model_that_the_user_names(genuine, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([str(genuine), "--resample", "3"])
    assert stopped.value.code == 2
    assert "--resample needs --model" in capsys.readouterr().err


def test_a_file_of_equal_replies_says_nothing():
    """A player that always replies the same would agree as well."""
    result = Resampled(["a"] * 10, ["a"] * 10, ["a"] * 10, total=100, chance=1.0, recorded_weights="", weights="")
    assert result.agree == 10 and result.log10_odds < 1


def test_a_model_that_never_repeats_itself_says_nothing():
    drawn = [str(number) for number in range(10)]
    result = Resampled(["a"] * 10, drawn, drawn[::-1], total=100, chance=0.3, recorded_weights="", weights="")
    assert result.log10_odds == 0.0
    assert "shows little" in describe(result, seed=0)


@pytest.mark.parametrize(("failures", "n", "bound"), [(0, 30, 1 - 0.05 ** (1 / 30)), (1, 10, 0.3942), (10, 10, 1.0)])
def test_the_bound_is_that_of_clopper_and_pearson(failures, n, bound):
    assert upper_bound(failures, n) == pytest.approx(bound, abs=1e-4)
