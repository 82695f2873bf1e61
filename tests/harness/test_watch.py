"""envsuite watch: reads run folders while they grow, and shows them on this machine only."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.escaping import embedded, visible
from harness import records
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.watch import command
from harness.watch.server import PageServer, Runs
from harness.watch.tail import RunTail
from tests import toys  # noqa: F401  registers the toys
from tests.api.server import serving
from tests.processes import obey_interrupts

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    """Returns the folder of a finished run of six episodes."""
    config = RunConfig(registry.TASKS["HiLo-v0"], "random", episodes=6)
    evaluate(config, tmp_path / "runs", lambda: make_policy("random"))
    return config.folder(tmp_path / "runs")


def lines(folder):
    return (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)


def broken(line):
    return records.dump({**json.loads(line), "stop_reason": "broken", "error": "no room\nTraceback", "success": False})


def refreshed(tail):
    tail.refresh()
    return tail.details(0)


def test_a_growing_journal_is_read_line_by_line(run):
    written = lines(run)
    (run / "summary.json").unlink()
    journal = run / "journal.jsonl"
    journal.write_bytes(written[0] + broken(written[1]) + written[2][:50])
    tail = RunTail(run)
    details = refreshed(tail)
    assert (details["ended"], details["episodes"], details["broken"], details["lines"]) == (1, 6, 1, 2)
    assert details["errors"] == [("no room", 1)] and details["state"] == "stopped"
    with journal.open("ab") as file:
        file.write(written[2][50:] + written[1])  # the broken episode was played again
    details = refreshed(tail)
    assert (details["ended"], details["broken"], details["lines"], details["errors"]) == (3, 0, 4, [])
    assert [row["line"] for row in tail.details(2)["rows"]] == [2, 3]
    assert tail.episode(2)["steps"][0]["o"] == json.loads(written[2])["steps"][0]["observation"]
    with journal.open("ab") as file:
        file.writelines(written[3:])
    (run / "summary.json").write_text("{}")
    details = refreshed(tail)
    assert (details["ended"], details["state"]) == (6, "finished")
    journal.write_bytes(written[3])  # the run was started again
    details = refreshed(tail)
    assert (details["ended"], details["lines"]) == (1, 1)
    assert details["rows"][0]["seed"] == json.loads(written[3])["seed"]


def test_a_damaged_line_is_named_and_the_episodes_before_it_stay(run):
    written = lines(run)
    (run / "journal.jsonl").write_bytes(written[0] + b'{"schema_version": "other"}\n' + written[1])
    details = refreshed(RunTail(run))
    assert details["lines"] == 1 and "journal.jsonl:2" in details["problem"] and "\n" not in details["problem"]


ODD = ["", "[]", "{}", "[" * 10_000, '{"seeds": 3}', '{"time": 1e999}', '{"time": "<b>"}', "\x00", '"\\ud800"']


@pytest.mark.parametrize("name", ["config.json", "progress.json"])
@pytest.mark.parametrize("text", ODD)
def test_an_odd_file_of_a_stranger_never_stops_the_page(run, name, text):
    (run / name).write_text(text)
    runs = Runs(run)
    answer = visible(runs.answer("state", {}))
    assert embedded(answer) and (answer["details"]["beat"] is None)
    assert bool(answer["details"]["problem"]) is (name == "config.json")


def test_counters_of_a_stranger_are_numbers(run):
    beat = dict.fromkeys(
        ("time", "episodes", "ended", "turns", "tokens", "in_flight", "turns_per_second", "retrying", "pause"), 1
    )
    beat |= {"time": time.time(), "tokens_per_second": 2.5, "seconds_left": None, "at_most": 0, "reason": "x" * 10_000}
    game = {"task": "T", "seed": 1, "attempt": 0, "turns": 2, "seconds": 0.5, "command": "look", "more": [[]]}
    (run / "progress.json").write_text(json.dumps({**beat, "playing": [game]}))
    details = refreshed(RunTail(run))
    assert details["state"] == "playing" and len(details["beat"]["reason"]) == 300
    assert details["beat"]["playing"] == [{name: game[name] for name in game if name != "more"}]
    for change in ({"turns": "<b>"}, {"seconds_left": "soon"}, {"playing": [{**game, "seed": "<b>"}]}, {"time": 1.0}):
        (run / "progress.json").write_text(json.dumps({**beat, "playing": [game], **change}))
        assert RunTail(run).heartbeat() is None, change


def get(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode(), answer.headers


def test_the_page_is_served_on_this_machine_below_a_secret_path_only(run):
    with serving(PageServer(Runs(run.parent))) as server:
        assert server.server_address[0] == "127.0.0.1"
        page, headers = get(server.address)
        assert "<title>envsuite watch" in page and "default-src 'none'" in headers["Content-Security-Policy"]
        text, headers = get(f"{server.address}state?run=&after=4")
        state = json.loads(text)
        assert headers["Content-Type"].startswith("application/json") and headers["X-Content-Type-Options"] == "nosniff"
        assert [row["line"] for row in state["details"]["rows"]] == [4, 5] and len(state["runs"]) == 1
        name = state["run"]
        assert json.loads(get(f"{server.address}episode?run={name}&line=0")[0])["steps"]
        base = server.address.removesuffix(f"{server.token}/")
        for path in (
            "",
            "x/",
            "/[",
            f"{server.token}x/state",
            f"{server.token}/../state",
            f"{server.token}/config.json",
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(base + path)
        wrong = ("episode?run=../..&line=0", f"episode?run={name}&line=99", "episode", "state?run=&after=x")
        for path in (*wrong, f"episode?run={name}&line=-1"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                get(server.address + path)


def test_the_run_that_changed_last_is_shown_first(run):
    config = RunConfig(registry.TASKS["Signpost-v0"], "random", episodes=2)
    runs = Runs(run.parents[1])
    evaluate(config, run.parents[1], lambda: make_policy("random"))
    os.utime(config.folder(run.parents[1]) / "journal.jsonl", (time.time() + 60,) * 2)
    state = runs.answer("state", {})
    assert state["details"]["task"] == "Signpost-v0" and len(state["runs"]) == 2
    first = next(each["run"] for each in state["runs"] if each["task"] == "HiLo-v0")
    assert runs.answer("state", {"run": first})["details"]["task"] == "HiLo-v0"


def test_text_of_strangers_is_escaped_in_one_place():
    text = "</script><b>&\u202e\x1b[2J\u2028"
    assert visible({text: [text]}) == {"</script><b>&\\u202e\\x1b[2J\\u2028": ["</script><b>&\\u202e\\x1b[2J\\u2028"]}
    assert not set("<>&") & set(embedded(text)) and json.loads(embedded(text)) == text


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 0, ""), (signal.SIGTERM, 143, "stopped by SIGTERM")]
)
def test_a_signal_ends_the_command_and_a_wrong_folder_or_port_is_one_line(run, capsys, number, code, message):
    words = [sys.executable, "-m", "harness", "watch", str(run)]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=obey_interrupts,
    )
    address = process.stdout.readline().split()[0]
    assert "envsuite watch" in get(address)[0]
    port = address.split(":")[2].partition("/")[0]
    for words, fault in (([str(run), "--port", port], f"--port {port}"), ([str(run / "no")], "There is no folder")):
        with pytest.raises(SystemExit) as stop:
            command.main(words)
        error = capsys.readouterr().err
        assert stop.value.code == 2 and fault in error and error.count("\n") == 1
    process.send_signal(number)
    assert process.communicate(timeout=60)[1].strip() == message and process.returncode == code
