"""A failure of an environment breaks its episode alone and is never a score."""

import subprocess
import sys
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import EngineFailure, UsageError
from harness import records
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy
from tests.harness import broken_envs  # noqa: F401  registers Breaking

ROOT = Path(__file__).resolve().parents[2]


def ends(played):
    return [record["stop_reason"] for record in played]


def config(how, model="expert", **settings):
    return RunConfig(
        registry.TASKS["Breaking-v0"], model, knobs={"how": how}, **{"episodes": 4, "reward_mode": "dense", **settings}
    )


EXPECTED = ["solved" if seed % 3 else "broken" for seed in config("exception").seeds]


def play(tmp_path, how, model="expert", **execution):
    run = config(how, model)
    evaluate(run, tmp_path, lambda: make_policy(model), Execution(**execution))
    return records.read_results(run.folder(tmp_path) / "results.jsonl")


@pytest.mark.parametrize("how", ["exception", "system-exit", "nan", "infinity", "observation", "metric"])
def test_a_failure_in_this_process_breaks_its_episode_alone(tmp_path, how):
    played = play(tmp_path, how, num_workers=0)
    assert ends(played) == EXPECTED
    assert all(record["error"] and not record["reward"] for record in played if records.is_broken(record))


@pytest.mark.parametrize("how", ["nan", "nan-progression"])
def test_a_number_that_is_not_finite_breaks_an_episode_also_in_a_mode_that_ignores_rewards(how):
    task = registry.TASKS["Breaking-v0"]
    env = registry.build(task, "sparse", how=how)
    env.reset(seed=0)
    with pytest.raises(EngineFailure, match="is nan, not a finite number"):
        env.step("1")


@pytest.mark.parametrize(
    ("how", "error"),
    [("system-exit", "SystemExit"), ("os-exit", "exit code 0"), ("segfault", "SIGSEGV"), ("nan", "reward is nan")],
)
def test_a_failure_in_a_worker_breaks_its_episode_alone(tmp_path, how, error):
    played = play(tmp_path, how, num_workers=1, max_concurrent=2)
    assert ends(played) == EXPECTED
    assert all(error in record["error"] for record in played if records.is_broken(record))


def test_a_hang_breaks_its_episode_alone_after_the_timeout(tmp_path):
    played = play(tmp_path, "hang", env_timeout=1.0, max_concurrent=1)
    assert ends(played) == EXPECTED
    assert all("no answer within" in record["error"] for record in played if records.is_broken(record))


def test_the_command_plays_environments_of_others_in_workers(tmp_path):
    command = [sys.executable, "-m", "harness.cli.eval", "-m", "expert", "-e", "breaking", "-n", "4", "-c", "1"]
    command += ["--module", "tests.harness.broken_envs", "--set", "how=segfault", "-o", str(tmp_path)]
    command += ["--baselines", "none"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "broken episodes: 1 of 4. They have no score, and --resume plays them again." in done.stderr
    (file,) = tmp_path.rglob("results.jsonl")
    assert ends(records.read_results(file)) == EXPECTED


def test_a_timeout_without_workers_is_refused():
    with pytest.raises(UsageError, match="--env-timeout needs worker processes"):
        Execution(num_workers=0, env_timeout=5.0)


@pytest.mark.parametrize("name", ["expert:nonsense", "expert:greedy"])
def test_an_expert_that_the_environment_does_not_have_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=f"no expert '{name}': it has expert"):
        play(tmp_path, "exception", name)
    assert not list(tmp_path.rglob("config.json")), "a run that cannot be played leaves no folder"
