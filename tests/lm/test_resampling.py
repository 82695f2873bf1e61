"""A local model's sampled replies can be drawn again, and other weights are told apart."""

import pytest

from envsuite import registry
from harness.cli.replay import main
from harness.evaluate import Execution, RunConfig, Sampling, evaluate
from harness.lm import model_files
from harness.policies import make_policy
from harness.prompting.prompting import Prompting
from harness.records import read_results
from tests import toys  # noqa: F401  registers the toys
from tests.lm.tiny import tiny_model, tiny_tokenizer


def saved_model(folder, seed):
    """Saves a model of random weights; returns its folder as a name."""
    tokenizer = tiny_tokenizer()
    tiny_model(len(tokenizer), seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Returns the results file of a run at temperature 1, and its model."""
    folder = tmp_path_factory.mktemp("played")
    model = saved_model(folder / "model", seed=0)
    sampling = Sampling(temperature=1.0, max_tokens=6)
    # Without history: random replies hold broken characters, which other tokens spell when they are read again.
    prompting = Prompting(thinking=False, history=0)
    run = RunConfig(registry.TASKS["HiLo-v0"], model, episodes=4, max_turns=3, sampling=sampling, prompting=prompting)
    options = {"temperature": 1.0, "max_tokens": 6, "thinking": False, "stop": prompting.stop, "device": "cpu"}
    evaluate(run, folder / "runs", lambda: make_policy(model, **options), Execution(max_concurrent=3))
    return run.folder(folder / "runs") / "results.jsonl", model


def run_command(capsys, file, *flags):
    """Runs envsuite replay; returns its exit code and output."""
    with pytest.raises(SystemExit) as stopped:
        main([str(file), *flags])
    return stopped.value.code, capsys.readouterr().out


def test_records_name_the_hash_of_the_weights(played, capsys):
    file, model = played
    assert {record["weights"] for record in read_results(file)} == {model_files.weights_hash(model)}
    code, output = run_command(capsys, file, "--check")
    assert code == 0 and "4 hash chains hold" in output


def test_sampled_replies_are_drawn_again_with_the_same_seeds(played, capsys):
    file, model = played
    code, output = run_command(capsys, file, "--resample", "12", "-m", model, "--device", "cpu")
    assert code == 0
    assert "12 of 12 stored replies are the model's; asked twice, it repeats itself in 12" in output


def test_other_weights_give_other_replies(played, capsys, tmp_path):
    file, _ = played
    rival = saved_model(tmp_path / "rival", seed=1)
    code, output = run_command(capsys, file, "--resample", "12", "-m", rival, "--device", "cpu")
    assert code == 1
    assert "against the model" in output and "the records name weights" in output
