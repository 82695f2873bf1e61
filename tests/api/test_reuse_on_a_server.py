"""Reuse of episodes that a served model has played: requests, budgets, changed weights, replies of a server that is away."""

import json

import pytest

import examples.hilo  # noqa: F401  registers HiLo
from harness.cli import eval as eval_cli
from harness.policies.connections.server_weights import QUESTION
from tests.api.server import refuse, running


@pytest.fixture
def evaluates(tmp_path, monkeypatch, capsys):
    """Returns a function that evaluates a server's model, with an empty cache: it returns exit code, row and messages."""
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENVSUITE_REUSE", "on")

    def run(server, out, *words):
        base = [
            "-m",
            "small-model",
            "-e",
            "hilo",
            "--base-url",
            server.url,
            "--max-turns",
            "2",
            "--max-retries",
            "0",
            "--num-workers",
            "0",
        ]
        with pytest.raises(SystemExit) as ended:
            eval_cli.main([*base, "--baselines", "none", "--json", "-o", str(tmp_path / out), *words])
        output = capsys.readouterr()
        rows = json.loads(output.out)[0]["rows"]["small-model"] if output.out else None
        return ended.value.code, rows, output.err

    return run


def asked(server):
    """Returns the number of requests that episodes sent, not the checks of the weights; forgets all requests."""
    count = sum(body["messages"][-1]["content"] != QUESTION for body, _, _ in server.requests)
    server.requests.clear()
    return count


def test_a_longer_run_asks_the_server_for_the_new_episodes_only(tmp_path, evaluates):
    with running() as server:
        server.says = "<action>3</action>"
        evaluates(server, "a", "-n", "2")
        first = asked(server)
        _, summary, text = evaluates(server, "b", "-n", "3")
        assert summary["reused"]["episodes"] == 2 and "2 of 3 episodes were reused" in text
        assert 0 < asked(server) <= first
        evaluates(server, "c", "-n", "3", "--reuse", "off")
    files = [next((tmp_path / name).rglob("results.jsonl")).read_bytes() for name in "bc"]
    assert files[0] == files[1]


def test_a_budget_counts_only_what_the_server_answers_now(evaluates):
    with running() as server:
        server.says = "<action>3</action>"
        _, summary, _ = evaluates(server, "a", "-n", "4")
        tokens = summary["input_tokens"] + summary["output_tokens"]
        code, summary, _ = evaluates(server, "b", "-n", "5", "--max-tokens-total", str(tokens))
    assert code == 0 and summary["episodes"] == 5
    assert 0 < summary["spent"]["input_tokens"] < summary["input_tokens"]


def test_a_server_that_holds_other_weights_plays_its_own_episodes(evaluates):
    def weights(name):
        return lambda body: name if body["messages"][-1]["content"] == QUESTION else "<action>3</action>"

    with running() as server:
        for folder, name, reused in (("a", "ant", 0), ("b", "bee", 0), ("c", "ant", 2), ("d", "bee", 2)):
            server.says = weights(name)
            _, summary, _ = evaluates(server, folder, "-n", "2")
            assert summary.get("reused", {"episodes": 0})["episodes"] == reused
            assert bool(asked(server)) is not bool(reused)


def test_another_server_price_or_sampling_shares_nothing(evaluates):
    with running() as server, running() as second:
        server.says = second.says = "<action>3</action>"
        evaluates(server, "a", "-n", "2")
        for folder, where, words in (
            ("b", second, ()),
            ("c", server, ("--price", "1,2")),
            ("d", server, ("--temperature", "0.5")),
            ("e", server, ("--history", "1")),
        ):
            _, summary, _ = evaluates(where, folder, "-n", "2", *words)
            assert "reused" not in summary, folder


def test_a_server_that_does_not_answer_ends_the_run_as_without_a_store(evaluates):
    with running() as server:
        server.script = [refuse(503)] * 100
        code, _, text = evaluates(server, "a", "-n", "2")
    assert code == 2 and "neither reused nor stored" in text and "503" in text
