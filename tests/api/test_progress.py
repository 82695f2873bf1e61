"""The progress of a run on a server: visible from the first turn on, also while the server does not answer."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsuite import registry
from harness import cli
from harness.cli.terminal.progress import RunProgress, duration
from harness.policies import make_policy
from harness.rollout.activity import WINDOW, Activity, Heartbeat
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Reply, episode
from tests import toys  # noqa: F401  registers the toys
from tests.api.server import answer, refuse, running

ROOT = Path(__file__).resolve().parents[2]
QUICK = (
    "from harness.cli import eval; from harness.cli.terminal.progress import RunProgress; "
    "from harness.rollout.activity import Heartbeat; RunProgress.FIRST = Heartbeat.EVERY = 0.2; eval.main()"
)
"""envsuite-eval that prints a line every 0.2 seconds"""


def start(out, url, *words, **options):
    command = [sys.executable, "-c", QUICK, "-m", "some/name", "-e", "HiLo-v0", "--module", "tests.toys", "-n", "3"]
    command += ["--base-url", url, "--served-model-name", "small-model", "--baselines", "none", "-o", str(out)]
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*command, *words], text=True, cwd=ROOT, **options)


def line_with(process, *words):
    """Returns the first line of stderr that contains all words."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if all(word in line for word in words):
            return line
    pytest.fail(f"no line with {words} in {lines}")


def test_a_server_that_asks_to_wait_is_named_before_the_first_episode_ends_and_sigterm_names_resume(tmp_path):
    with running() as server:
        server.says = "<action>16</action>"  # the number of none of the three games, whichever asks first
        server.script = [answer(server.says)] * 3 + [refuse(429, "slow \x1b[2Jdown", Retry_After="86400")] * 1000
        process = start(tmp_path, server.url)
        line = line_with(process, "0/3", "1 turn (", "tok/s", "3 in flight", "3 retrying within ")
        assert r"/v1 answered 429: slow \x1b[2Jdown" in line, line
        while not (heartbeats := list(tmp_path.glob("**/progress.json"))):  # another thread writes it
            time.sleep(0.05)
        (heartbeat,) = heartbeats
        while (beat := json.loads(heartbeat.read_text()))["retrying"] < 3:
            time.sleep(0.05)
        assert (beat["in_flight"], beat["turns"]) == (3, 1) and "429" in beat["reason"]
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait() == 143
        assert rest.endswith("stopped by SIGTERM: finished episodes are kept, and --resume continues from there\n")
        assert "Traceback" not in rest and not heartbeat.exists()
        server.script = []
        process = start(tmp_path, server.url, "--resume")
        line_with(process, "3/3", "success")
        process.communicate()
        assert process.returncode == 0


def test_a_dead_server_is_named_while_its_requests_are_retried(tmp_path):
    with running() as gone:
        pass
    process = start(tmp_path, gone.url, "--json")
    line_with(process, "0/3  0 turns (0/s)  3 in flight  3 retrying within ", gone.url, "ConnectError")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143


def test_a_terminal_shows_requests_and_retries_from_the_first_turn_on(tmp_path):
    ours, theirs = pty.openpty()
    with running() as server:
        server.says = "<action>16</action>"  # the number of none of the three games, whichever asks first
        server.script = [answer(server.says)] * 3 + [refuse(503, "no room", Retry_After="86400")] * 1000
        process = start(tmp_path, server.url, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "200"})
        os.close(theirs)
        shown = b""
        while not (b"no room" in shown and b"0/3" in shown and b"3 retrying" in shown):
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGTERM)
        process.wait()
    os.close(ours)


def test_an_activity_counts_what_a_rollout_does():
    activity = Activity()
    todo = [episode(registry.TASKS["HiLo-v0"], seed) for seed in range(5)]
    activity.episodes, activity.most_turns = 5, 50
    assert activity.seconds_left() is None
    turns = 0
    for run in rollout(make_policy("random"), todo, LocalExecutor(2, advice_kind="random"), activity=activity):
        seconds, at_most = activity.seconds_left()
        assert at_most is (not turns)
        assert {each["task"] for each in activity.snapshot()["playing"]} <= {"HiLo-v0"}
        turns += len(run.turns)
        activity.recorded(len(run.turns), run.broken)
    assert (activity.turns, activity.in_flight, activity.ended) == (turns, 0, 5)
    assert activity.seconds_left() == (0.0, False)


def test_rates_are_those_of_the_last_seconds():
    activity = Activity()
    assert activity.rates() == (0.0, 0.0)
    for _ in range(30):
        activity.asked()
        activity.replied(Reply("x", estimated=(5, 10, 0.0)))
    activity.began -= 10.0
    turns, tokens = activity.rates()
    assert turns == pytest.approx(3.0, rel=0.1) and tokens == pytest.approx(30.0, rel=0.1)
    activity._samples = type(activity._samples)((at - WINDOW - 20.0, *counts) for at, *counts in activity._samples)
    activity.rates()
    assert activity.rates() == (0.0, 0.0), "nothing happened since"


@pytest.mark.parametrize("resumes", ["", "--resume"])
def test_sigterm_ends_a_command_once_and_restores_the_handler(resumes, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def command(argv):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # the second signal does not interrupt cleaning up

    with pytest.raises(SystemExit) as done:
        cli.run(command, [], resumes)
    assert done.value.code == 143 and ("--resume continues" in capsys.readouterr().err) is bool(resumes)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_forked_child_still_dies_of_sigterm():
    statuses = []

    def command(argv):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, b"!")  # from now on, the child handles signals
            time.sleep(60)
            os._exit(0)
        os.read(reading, 1)
        os.kill(child, signal.SIGTERM)
        statuses.append(os.waitpid(child, 0)[1])

    with pytest.raises(SystemExit):
        cli.run(command, [])
    assert os.WTERMSIG(statuses[0]) == signal.SIGTERM


def test_durations_are_readable():
    assert [duration(seconds) for seconds in (0.4, 59.6, 3600)] == ["0 s", "1 min 00 s", "1 h 00 min"]
    assert RunProgress.FIRST <= RunProgress.EVERY and Heartbeat.EVERY > 0
