"""No episode waits for another one, and results do not depend on the order in which replies arrive."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import DataError
from envsuite.types import knobs_json
from harness import evaluate
from harness.cli import eval as eval_cli
from harness.evaluate import Execution, RunConfig
from harness.policies.openai import OpenAIPolicy
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Episode
from tests import toys  # noqa: F401  registers the toys
from tests.api.hashing import hashing
from tests.api.server import refuse, running

ROOT = Path(__file__).resolve().parents[2]
ALFWORLD = "ALFWorld-generated-v0"


def config(task="HiLo-v0", **settings):
    return RunConfig(registry.TASKS[task], "openai:stub", **{"episodes": 12, "max_turns": 6, **settings})


def results(run, out, server, **execution):
    policy = OpenAIPolicy("stub", base_url=server.url, first_pause=0.01)
    try:
        evaluate.evaluate(run, out, lambda: policy, Execution(**execution))
    finally:
        policy.close()
    return (run.folder(out) / "results.jsonl").read_bytes()


def replies(turns):
    return [turn.reply.text for turn in turns]


def test_results_do_not_depend_on_latencies_slots_or_workers(tmp_path):
    with hashing(0.0) as quick, hashing(0.05) as slow:
        expected = results(config(), tmp_path / "one", quick, max_concurrent=1)
        assert expected.count(b"\n") == 12
        for number, execution in enumerate(
            [{"max_concurrent": 5}, {"max_concurrent": 12}, {"max_concurrent": 5, "num_workers": 2}]
        ):
            assert results(config(), tmp_path / str(number), slow, **execution) == expected


def test_no_episode_waits_for_a_slow_reply():
    """The server holds one conversation until all other episodes have ended."""
    run = config(episodes=8)
    with hashing(0.01) as server:
        policy = OpenAIPolicy("stub", base_url=server.url)
        held = registry.TASKS["HiLo-v0"], knobs_json({"size": 777})
        episodes = [Episode(*held, seed=0), *run.all_episodes()]
        server.held = ("to 777",)
        ended = []
        for trajectory in rollout(policy, episodes, LocalExecutor(2), max_turns=2):
            ended.append(trajectory.episode)
            if len(ended) == 8:
                server.release()
        policy.close()
    assert ended[-1] == episodes[0] and len(ended) == 9


def test_closing_a_rollout_cancels_its_prompts_and_the_policy_can_play_again():
    run = config()
    with hashing(0.05) as server:
        policy = OpenAIPolicy("stub", base_url=server.url)
        expected = {
            episode.episode.key: episode.turns for episode in rollout(policy, run.all_episodes(), LocalExecutor(4))
        }
        unfinished = rollout(policy, run.all_episodes(), LocalExecutor(8))
        next(unfinished)
        unfinished.close()
        again = {
            episode.episode.key: episode.turns for episode in rollout(policy, run.all_episodes(), LocalExecutor(8))
        }
        policy.close()
    assert {key: replies(turns) for key, turns in again.items()} == {
        key: replies(turns) for key, turns in expected.items()
    }


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_at_any_moment_ends_in_the_same_bytes(tmp_path, kills):
    run = config(episodes=20)
    with hashing(0.02) as server:
        words = ["-m", "stub", "-e", "HiLo-v0", "--module", "tests.toys", "-n", "20", "--max-turns", "6"]
        words += ["--base-url", server.url, "--baselines", "none", "-c", "7", "--num-workers", "0"]
        command = [sys.executable, "-m", "harness.cli.eval", *words]
        folders = [tmp_path / "once", tmp_path / "killed"]
        with pytest.raises(SystemExit) as ended:
            eval_cli.main([*words, "-o", str(folders[0])])
        assert not ended.value.code
        for kill in range(kills):
            process = subprocess.Popen(
                [*command, "-o", str(folders[1]), *(["--resume"] if kill else [])], cwd=ROOT, stderr=subprocess.DEVNULL
            )
            before = server.requests
            while process.poll() is None and server.requests < before + 15 + 10 * kill:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = subprocess.run([*command, "-o", str(folders[1]), "--resume"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    files = [next(folder.rglob("results.jsonl")).read_bytes() for folder in folders]
    assert files[0] == files[1] and files[0].count(b"\n") == len(run.all_episodes())


def test_a_server_that_only_fails_ends_the_run_and_single_failures_break_episodes(tmp_path):
    """Failures count in a row: as many as prompts in flight at first, three times as many once the server answered."""
    with running() as server:
        server.says = "<action>3</action>"
        server.script = [refuse(400, "refused by a filter")] * 2
        policy = OpenAIPolicy("stub", base_url=server.url, max_retries=0, first_pause=0.01)
        ends = [episode.broken for episode in rollout(policy, config().all_episodes(), LocalExecutor(4), max_turns=2)]
        assert sum(ends) == 2 and len(ends) == 12
        server.script = [refuse(500)] * 100
        with pytest.raises(DataError, match="--resume"):
            list(rollout(policy, config().all_episodes(), LocalExecutor(4)))
        assert len(server.script) > 100 - 3 * 4 - 8, "the run ends before every episode is broken"
        policy.close()


def test_declared_tools_are_part_of_an_estimate():
    from harness.types import Prompt
    from tests.api.server import answer

    messages = [{"role": "user", "content": "x" * 40}]
    tools = [{"type": "function", "function": {"name": "act", "description": "y" * 400}}]
    with running() as server:
        server.script = [answer("go", usage={})] * 2
        policy = OpenAIPolicy("stub", base_url=server.url)
        without, declared = policy.act([Prompt(messages), Prompt(messages, tools=tools)])
        policy.close()
    assert declared.estimated[0] - without.estimated[0] >= 100 and without.estimated[0] < 20


def test_budgets_count_estimated_tokens_of_a_server_without_usage(tmp_path):
    from tests.api.server import answer

    run = config(episodes=6)
    with running() as server:
        server.script = [answer("<action>3</action>", usage={})] * 100
        policy = OpenAIPolicy("stub", base_url=server.url, price="1,1")
        budget = evaluate.Budget(tokens=500)
        with pytest.raises(evaluate.BudgetReached, match=r"500 is used up after \d of 6 .* they are estimated"):
            evaluate.evaluate(run, tmp_path, lambda: policy, Execution(max_concurrent=1, budget=budget))
        policy.close()
    line = (run.folder(tmp_path) / "journal.jsonl").read_text().splitlines()[0]
    record = evaluate.json.loads(line)
    assert record["input_tokens"] == record["cost"] == 0
    assert record["estimated"]["input_tokens"] > record["estimated"]["output_tokens"] > 0
    assert record["estimated"]["cost"] > 0
