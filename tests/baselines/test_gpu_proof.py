"""The GPU proof ends at its time limit, and its page says which sections were not finished."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from benchmarks import gpu_proof, timed_page
from benchmarks.gpu_proof import Proof
from tests.forking import ROOT


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(timed_page, "GRACE", 1000.0)  # on a loaded machine it would end the tests' process


@pytest.mark.parametrize("section", ["precision", "training_run"])
def test_a_section_is_stopped_at_the_deadline(tmp_path, section):
    """Both work for minutes where the limit leaves two seconds."""
    proof = Proof(tmp_path / "gpu.md", 2 / 60, torch.device("cpu"))
    arguments = [10**6] if section == "precision" else []
    proof.section("Long", 0, getattr(gpu_proof, section), "tiny", *arguments)
    proof.section("Next", 0, gpu_proof.machine)
    long, following = (tmp_path / "gpu.md").read_text().split("## ")[1:]
    assert "**Stopped:** the time limit was reached" in long
    assert following.startswith("Next\n\nNot run: 0 seconds were left")


def test_a_section_that_takes_no_notice_of_exceptions_is_stopped(tmp_path):
    def deaf(_):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    proof = Proof(tmp_path / "gpu.md", 1 / 60, torch.device("cpu"))
    proof.section("Deaf", 0, deaf)
    assert "**Stopped:**" in (tmp_path / "gpu.md").read_text()


def test_an_alarm_right_after_the_end_of_a_section_leaves_no_watchdog(tmp_path, monkeypatch):
    set_timer = signal.setitimer

    def late(*arguments):
        signal.raise_signal(signal.SIGALRM)
        return set_timer(*arguments)

    def work(page):
        page.deadline = time.monotonic()
        monkeypatch.setattr(signal, "setitimer", late)

    before = set(threading.enumerate())
    timed_page.TimedPage(tmp_path / "gpu.md", 60).section("Work", 0, work)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
    assert "**Stopped:**" not in (tmp_path / "gpu.md").read_text()


def test_a_section_that_never_returns_to_python_ends_with_the_process_and_leaves_the_page(tmp_path):
    code = (
        "import signal, sys, time; from pathlib import Path; from benchmarks import timed_page as t; t.GRACE = 0.2\n"
        "time.sleep(0.5); print(t.process_seconds())\n"
        "def hang(page):\n"
        "    page.write('measured')\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); time.sleep(60)\n"
        "t.TimedPage(Path(sys.argv[1]), 1).section('Hangs', 0, hang)\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "gpu.md")], cwd=ROOT, capture_output=True)
    assert done.returncode == 1
    assert 0.5 <= float(done.stdout.split()[0]) <= time.monotonic() - began  # the time limit counts imports
    lines = (tmp_path / "gpu.md").read_text().splitlines()
    assert "measured" in lines and lines[-1].startswith("**Stopped:** this section did not end")
