"""envsuite-eval against a loopback server: flags, API key, faults, and changed weights."""

import contextlib
import io
import json
from types import SimpleNamespace

import pytest

import examples.hilo  # noqa: F401  registers HiLo
from envsuite import registry
from harness import records
from harness.cli import eval as evaluation
from harness.cli import replay
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies.openai import OpenAIPolicy
from tests.api.server import answer, completion, cut, drip, garbage, hang, hang_up, refuse, running, send

KEY = "sk-very-secret-0123456789"


def run(out, server, *words, model="some/name", **environment):
    """Runs envsuite-eval in this process; returns its exit code and what it printed."""
    arguments = ["-m", model, "-e", "hilo", "--module", "examples.hilo", "-n", "3", "-o", str(out)]
    arguments += ["--base-url", server.url, "--served-model-name", "small-model"]
    arguments += ["--baselines", "none", "--num-workers", "0", *words]
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            with pytest.raises(SystemExit) as done:
                evaluation.main(arguments)
    return SimpleNamespace(returncode=done.value.code or 0, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def errors(done):
    """Returns the lines of stderr that are not the progress of a slow run."""
    return [line for line in done.stderr.splitlines() if not line.startswith("HiLo-v0 some/name: ")]


def test_the_api_key_is_sent_in_the_header_only(tmp_path):
    with running() as server:
        server.says = "<action>3</action>"
        done = run(tmp_path, server, "--api-key-var", "MY_KEY", "--price", "1,2", MY_KEY=KEY)
        assert done.returncode == 0, done.stderr
        body, headers, _ = server.requests[-1]
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body["model"] == "small-model"
    assert KEY not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(KEY.encode() in path.read_bytes() for path in files)
    (results,) = tmp_path.glob("**/results.jsonl")
    assert {record["model"] for record in records.read_results(results)} == {"some/name"}


def test_a_run_with_the_servers_own_temperature_stores_it_and_never_a_header(tmp_path):
    with running() as server:
        server.says = "<action>3</action>"
        words = ["--temperature", "default", "--extra-body", '{"b": 1, "a": [2]}', "--header", f"X-Key: {KEY}"]
        done = run(tmp_path, server, *words)
        assert done.returncode == 0, done.stderr
        assert "temperature" not in server.requests[-1][0] and server.requests[-1][0]["a"] == [2]
        assert server.requests[-1][1]["X-Key"] == KEY
        refused = run(tmp_path, server, "--extra-body", '{"seed": 1}')
    (config,) = tmp_path.glob("**/config.json")
    sampling = json.loads(config.read_text())["sampling"]
    assert sampling["temperature"] is None and sampling["extra_body"] == '{"a": [2], "b": 1}'
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert refused.returncode == 2 and "--extra-body cannot set seed" in refused.stderr


def test_fields_that_a_server_changed_are_in_config_json_also_after_a_resume(tmp_path):
    newer = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with running() as server:
        server.says = "<action>3</action>"
        question = answer("ant")
        server.script = [question, question, refuse(400, "Unknown parameter: 'seed'"), refuse(400, newer)]
        words = ("--temperature", "default", "-c", "1")
        assert run(tmp_path, server, *words).returncode == 0
        (config,) = tmp_path.glob("**/config.json")
        changes = {
            "dropped": ["seed"],
            "defaulted": ["temperature"],
            "renamed": {"max_tokens": "max_completion_tokens"},
        }
        assert json.loads(config.read_text())["request_fields"] == changes
        assert run(tmp_path, server, *words, "--resume").returncode == 0
    assert json.loads(config.read_text())["request_fields"] == changes


def test_thinking_that_is_cut_off_is_a_fault_of_its_own_and_reasoning_is_counted(tmp_path):
    def play(handler):
        """Thinks for too long on the first turn of an episode, and answers on the second one."""
        first = len(handler.body["messages"]) == 2
        usage = {"prompt_tokens": 9, "completion_tokens": 8, "completion_tokens_details": {"reasoning_tokens": 5}}
        thought = {"reasoning_content": "Half of a hundred is"}
        text = completion("", "length", usage, **thought) if first else completion("<action>50</action>", usage=usage)
        send(handler, 200, text)

    with running() as server:
        server.script = [answer("ant"), answer("ant"), *[play] * 6]
        assert run(tmp_path, server, "--max-turns", "2").returncode == 0
        (results,) = tmp_path.glob("**/results.jsonl")
        games = records.read_results(results)
        assert games[0]["steps"][0]["fault"] == "thinking"
        assert games[0]["steps"][0]["reasoning"] == "Half of a hundred is" and games[0]["steps"][0]["reply"] == ""
        assert games[0]["faults"]["thinking"] == 1 and games[0]["faults"]["length"] == 0
        assert games[0]["reasoning_tokens"] == 10
        again = server.requests[-1][0]["messages"]
        assert again[2] == {"role": "assistant", "content": "<think>Half of a hundred is</think>"}
    (summary,) = tmp_path.glob("**/summary.json")
    summary = json.loads(summary.read_text())
    assert summary["faults"]["thinking"] == 0.5 and summary["reasoning_tokens"] == 30
    with pytest.raises(SystemExit) as done:
        replay.main(["--check", str(results), "--module", "examples.hilo"])
    assert not done.value.code


def test_the_share_of_cached_prompt_tokens_is_printed(tmp_path):
    usage = {"prompt_tokens": 100, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 64}}
    with running() as server:
        server.script = [answer("<action>50</action>", usage=usage)] * 1000
        done = run(tmp_path, server)
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert "64 % of prompts cached" in output and "prompt tokens (64%) were cached" in output, output


@pytest.mark.parametrize("grammar", ["tool", "tools"])
def test_tool_calls_in_text_are_parsed_and_only_one_grammar_declares_tools(tmp_path, grammar):
    with running() as server:
        server.says = '<tool_call>{"name": "act", "arguments": {"command": "3"}}</tool_call>'
        done = run(tmp_path, server, "--action-grammar", grammar, model="openai:some/name")
        assert done.returncode == 0, done.stderr
        declared = server.requests[-1][0].get("tools", [])
        assert [tool["function"]["name"] for tool in declared] == (["act"] if grammar == "tools" else [])
    played = records.read_results(next(tmp_path.glob("**/results.jsonl")))
    assert not any(record["faults"]["format"] for record in played)


def test_a_limit_on_the_cost_needs_a_price(tmp_path):
    with running() as server:
        done = run(tmp_path, server, "--max-cost", "1")
    assert done.returncode == 2 and "--max-cost needs --price IN,OUT for some/name" in done.stderr
    assert not server.requests and not list(tmp_path.rglob("config.json"))


def test_a_missing_key_or_scoring_on_a_server_raises_a_one_line_error(tmp_path):
    with running() as server:
        done = run(tmp_path, server, "--api-key-var", "NO_SUCH_KEY")
        assert done.returncode == 2
        assert "NO_SUCH_KEY" in done.stderr
        assert done.stderr.count("\n") == 1
        done = run(tmp_path, server, "--action-mode", "score")
        assert done.returncode == 2
        assert "log-probs" in done.stderr


def test_a_server_that_stays_down_ends_the_run_with_a_one_line_error(tmp_path):
    with running() as server:
        server.says = "<action>3</action>"
        server.script = [lambda handler: send(handler, 500, "{}")] * 2
        assert run(tmp_path / "a", server, "-c", "1", "--max-retries", "3").returncode == 0
    done = run(tmp_path / "b", server, "--max-retries", "0")  # the server is closed
    assert done.returncode == 2
    *broken, error = done.stderr.splitlines()
    assert error.startswith("error: ") and "--resume" in error
    assert all("broken, 0 turns" in line for line in broken)


FAULTS = {
    "answers 429": refuse(429, "slow down", Retry_After="0"),
    "answers 500": refuse(500),
    "answers garbage": garbage("<html>welcome</html>"),
    "hangs": hang(1.5),
    "answers a byte at a time": drip,
    "closes the connection": hang_up,
    "goes down in the middle of an answer": cut,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_transient_server_faults_change_no_episode(tmp_path, fault, proved):
    """Injects the fault three times in a row in the middle of the run."""
    config = RunConfig(registry.TASKS["HiLo-v0"], "some/name", episodes=4, max_turns=6)
    summaries = []
    with running() as server:
        server.says = "<action>3</action>"
        for script in ([], [answer(server.says)] * 9 + [FAULTS[fault]] * 3):
            server.script = script
            options = {"timeout": 1.0, "first_pause": 0.01, "max_retries": 20, "watch": True}
            who = OpenAIPolicy("small-model", base_url=server.url, **options)
            out = tmp_path / str(len(summaries))
            evaluate(config, out, lambda who=who: who, Execution(max_concurrent=2))
            who.close()
            assert not server.script, "the script was used up"
            summaries.append((config.folder(out) / "results.jsonl").read_bytes())
    proved(f"a model server that {fault}", *summaries)


def test_a_server_that_returns_with_other_weights_ends_the_run_and_it_can_resume(tmp_path, proved):
    """Changes the server's answers halfway; with the old answers restored, --resume gives the same bytes."""
    words = ("-c", "1", "--max-retries", "6")

    def restart(handler):
        handler.server.says = "<action>4</action>"
        hang_up(handler)

    with running() as server:
        server.says = "<action>3</action>"
        assert run(tmp_path / "whole", server, *words).returncode == 0
        count = len(server.requests)
        server.script = [answer(server.says)] * (count - 3) + [restart]
        done = run(tmp_path / "cut", server, *words)
        assert done.returncode == 2 and len(errors(done)) == 1
        assert "came back with other weights" in done.stderr
        (journal,) = (tmp_path / "cut").glob("**/journal.jsonl")
        stored = journal.read_bytes()
        assert stored, "finished episodes are kept"
        server.says = "<action>3</action>"
        assert run(tmp_path / "cut", server, *words, "--resume").returncode == 0
        assert journal.read_bytes().startswith(stored)
    uncut, resumed = ((tmp_path / name).glob("**/results.jsonl") for name in ("whole", "cut"))
    fault = "a model server that comes back with other weights: the run ends, and goes on with the old ones"
    proved(fault, next(uncut).read_bytes(), next(resumed).read_bytes())


def test_a_run_resumes_only_with_the_weights_it_started_with(tmp_path):
    """Refuses --resume on other weights, unless the run has no finished episode yet."""
    words = ("-c", "1", "--max-retries", "2", "--resume")
    with running() as server:
        server.says = "<action>3</action>"
        assert run(tmp_path, server, *words, "--max-time", "1e-9").returncode == 3
        (journal,) = tmp_path.glob("**/journal.jsonl")
        stored, weights = journal.read_bytes(), journal.with_name("weights.json").read_bytes()
        assert stored.count(b"\n") == 1
        server.says = "<action>4</action>"
        count = len(server.requests)
        done = run(tmp_path, server, *words)
        assert done.returncode == 2 and len(errors(done)) == 1
        assert "now holds other weights than this run began with" in done.stderr and "--output-dir" in done.stderr
        assert journal.read_bytes() == stored and journal.with_name("weights.json").read_bytes() == weights
        assert len(server.requests) - count <= 2, "only the fixed question was sent"
        journal.write_bytes(b"")
        assert run(tmp_path, server, *words).returncode == 0
        assert journal.with_name("weights.json").read_bytes() != weights
        journal.with_name("weights.json").write_text('{"root": "", "text": 3')
        journal.write_bytes(stored)
        done = run(tmp_path, server, *words)
        assert done.returncode == 2 and "weights.json" in done.stderr and len(errors(done)) == 1
