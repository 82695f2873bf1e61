"""`envsuite check --sandbox`: what holds on this machine, for root and for an ordinary user."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from envsuite.sandbox import drivers, local, selftest
from harness.cli import check
from tests.sandbox.conftest import working

ROOT = Path(__file__).resolve().parents[2]
AS_USER = ROOT / ".ci" / "as-user"
LIST = (
    "from envsuite.sandbox import selftest\nfor f in selftest.examine(('{driver}',)): print(f.holds, f.name, f.detail)"
)

OWN_FILES = """
from envsuite import sandbox
with sandbox.open(sandbox.Spec(workspace="/testbed", fresh=False), "{driver}") as session:
    result = session.run(
        "touch a; mkdir d; cd d; touch b; chmod 640 b; touch -h -d @1100000000 b; touch -h -d @1000000000 $PWD/../a;"
        "chmod 600 $PWD/../a; cd ..; chmod 750 d; touch -h -d @1200000000 d; stat -c '%Y %a' a d/b d"
    )
    print(result.stdout.decode(), result.stderr.decode(), sep="", end="")
"""
"""changes modes and times by relative and absolute paths"""


@pytest.fixture(scope="module")
def listing():
    """Returns the exit status and the lines of `envsuite check --sandbox`, which attacks every driver."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as done:
        check.main(["--sandbox"])
    return done.value.code, output.getvalue().splitlines()


@pytest.mark.parametrize("driver", drivers.SAFE)
def test_every_attack_fails_on_every_safe_driver(driver, listing):
    lines = [line for line in listing[1] if f" {working(driver)}: " in line]
    assert len(lines) == len(selftest.ATTACKS)
    assert not [line for line in lines if not line.startswith("  ok   ")]


def lines_as_user(code: str, driver: str) -> list[str]:
    """Runs Python code as an ordinary user; returns the lines that it prints."""
    open_to_others = all(folder.stat().st_mode & 0o001 for folder in (ROOT, *ROOT.parents))
    if local.unused_uid(ROOT) is None or not shutil.which("setpriv") or not open_to_others:
        pytest.skip(
            "setpriv is not installed, the tests do not run as root, there is no other user, or other users cannot "
            "enter this folder"
        )
    command = [str(AS_USER), sys.executable, "-c", code.format(driver=working(driver))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("driver", ["bwrap", "landlock"])
def test_every_attack_fails_for_an_ordinary_user_too(driver):
    lines = lines_as_user(LIST, driver)
    assert len(lines) == len(selftest.ATTACKS)
    assert not [line for line in lines if not line.startswith("True")]


@pytest.mark.parametrize("driver", ["bwrap", "landlock"])
def test_runs_of_an_ordinary_user_may_change_modes_and_times_of_their_own_files(driver):
    lines = lines_as_user(OWN_FILES, driver)
    assert lines == ["1000000000 600", "1100000000 640", "1200000000 750"]


def test_the_attacks_succeed_without_protection(listing):
    lines = [line for line in listing[1] if " process: " in line]
    assert "  open process: connects to no server of this machine: the attack succeeded" in lines
    assert "  ok   process: the limit on time holds: timeout" in lines


def test_the_command_lists_the_drivers_and_the_automatic_choice(listing):
    status, lines = listing
    text = " ".join(" ".join(lines).split())  # a narrow terminal breaks the lines
    assert f"auto chooses {drivers.choose()}" in text
    assert "reads no file of the user" in text
    assert status == 0


def test_check_without_a_task_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as done:
        check.main([])
    assert done.value.code == 2
    assert "name a task, or use --sandbox" in capsys.readouterr().err


def test_the_automatic_choice_warns_when_it_passes_over_a_driver():
    reason = drivers.probe("docker")
    if not reason:
        pytest.skip("every driver works here: one that is not installed is needed")
    drivers._report_weaker.cache_clear()
    with pytest.warns(drivers.SandboxWarning, match="docker: "):
        drivers.choose("auto", ("docker", "process"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drivers.choose("process")
