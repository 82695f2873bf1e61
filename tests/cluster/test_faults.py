"""Faults of the machine, a full disk and a jumping clock: the results stay byte for byte the same."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # several complete runs in one test
ROOT = Path(__file__).resolve().parents[2]
EVAL = [sys.executable, "-m", "harness.cli.eval", "--module", "tests.toys", "-m", "random", "--baselines", "none"]
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def results(folder):
    (results_file,) = folder.glob("**/results.jsonl")
    return results_file.read_bytes()


def play(*words, **options):
    return subprocess.run([*EVAL, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=600, **options)


@pytest.mark.slow
def test_a_full_file_system_stops_the_run_with_one_line_and_it_resumes_with_more_space(tmp_path, proved):
    """Mounts a real file system of 32 kB in a new mount namespace and enlarges it before --resume."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("unshare is not installed, or may not make namespaces here: apt-get install util-linux")
    words = ["-e", "hilo", "-n", "60", "--set", "size=512", "-c", "4"]
    assert play(*words, "-o", tmp_path / "whole").returncode == 0
    small = tmp_path / "small"
    small.mkdir()
    run = " ".join(map(str, [*EVAL, *words, "-o", small]))
    script = f"""
        mount -t tmpfs -o size=32k none {small} && cd {ROOT} || exit 90
        {run} 2> {tmp_path}/said; code=$?
        wc -l < $(find {small} -name journal.jsonl) > {tmp_path}/kept
        mount -o remount,size=4m {small} || exit 91
        {run} --resume > /dev/null || exit 92
        cp $(find {small} -name results.jsonl) {tmp_path}/results.jsonl
        exit $code
    """
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=600)
    output = (tmp_path / "said").read_text()
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in output and output.count("\n") == 1
    assert 0 < int((tmp_path / "kept").read_text()) < 60
    proved(
        "a full file system, made larger before --resume",
        results(tmp_path / "whole"),
        (tmp_path / "results.jsonl").read_bytes(),
    )


@pytest.mark.slow
def test_a_wall_clock_that_jumps_by_years_changes_nothing(tmp_path, proved):
    """Fakes the wall clock of the run's processes; no time budget and no worker timeout expires."""
    if FAKETIME is None:
        pytest.skip("needs faketime: apt-get install faketime")
    words = ["-e", "Slow-v0", "-n", "40", "--set", "size=512", "--set", "delay=0.05", "-c", "4"]
    assert play(*words, "-o", tmp_path / "whole").returncode == 0
    offset = tmp_path / "offset"
    offset.write_text("+0d\n")
    fake = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    jumping = [*EVAL, *words, "-o", str(tmp_path / "jumps"), "--num-workers", "2", "--max-time", "2000"]
    run = subprocess.Popen(jumping, cwd=ROOT, env={**os.environ, **fake}, stdout=subprocess.DEVNULL)
    years = ["-1000d", "+2000d", "-30d", "+9000d"]
    while run.poll() is None:
        if list(tmp_path.glob("jumps/**/journal.jsonl")):
            years.append(years.pop(0))
            offset.write_text(years[-1] + "\n")
        time.sleep(0.05)
    assert run.returncode == 0
    (timing,) = tmp_path.glob("jumps/**/timing.jsonl")
    lines = [json.loads(line) for line in timing.read_text().splitlines()]
    stamps = [line["ended"] for line in lines]
    assert max(stamps) - min(stamps) > 1e8, "the clock did jump under the run"
    assert all(0 < line["seconds"] < 300 for line in lines)
    proved("a wall clock that jumps by years to and fro", results(tmp_path / "whole"), results(tmp_path / "jumps"))
