"""Sessions of every driver: runs, limits, workspaces, and errors of the sandbox itself."""

import os
import shutil
import signal
import threading
import time
import uuid
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from envsuite import sandbox
from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox import session as session_module
from envsuite.sandbox.inside import wire
from envsuite.sandbox.pool import Lease
from envsuite.sandbox.session import Excerpt, _tail
from tests.sandbox.conftest import LIMITS, PROGRAM, working

ECHO = Path(__file__).with_name("echo.py")


@pytest.fixture(scope="module", params=sandbox.DRIVERS)
def workspace(request):
    """Yields a sandbox with a workspace that persists between runs."""
    spec = sandbox.Spec(workspace="/testbed", fresh=False, limits=LIMITS)
    with sandbox.open(spec, working(request.param)) as opened:
        yield opened


@pytest.fixture
def clean(workspace):
    workspace.reset()
    return workspace


def test_a_command_gets_stdin_folder_and_environment_and_returns_status_and_streams(clean):
    result = clean.run("cat; pwd; echo $WORD; echo oops >&2; exit 3", b"in\n", environment={"WORD": "hello"})
    assert (result.fate, result.exit_code) == ("exited", 3)
    assert result.stdout.decode().split() == ["in", clean.workspace, "hello"]
    assert result.stderr == b"oops\n"


def test_a_command_may_be_a_list_and_a_missing_command_exits_with_127(clean):
    assert clean.run(["echo", "a  b", "$HOME"]).stdout == b"a  b $HOME\n"
    missing = clean.run(["no-such-command"])
    assert missing.exit_code == 127
    assert b"no-such-command" in missing.stderr


def test_the_workspace_persists_between_runs_and_processes_do_not(clean):
    clean.run("echo 1 > a; mkdir -p sub; (sleep 0.3; echo late > b) & disown")
    time.sleep(0.5)
    assert clean.run("cat a; ls").stdout.split() == [b"1", b"a", b"sub"]


def test_a_working_directory_below_the_workspace_can_be_given(clean):
    clean.run("mkdir -p sub")
    assert clean.run("pwd", cwd=f"{clean.workspace}/sub").stdout.decode().strip() == f"{clean.workspace}/sub"


def test_the_temporary_folder_persists_between_runs_but_not_over_a_reset(clean):
    clean.run("echo 1 > $TMPDIR/kept")
    assert clean.run("cat $TMPDIR/kept").stdout == b"1\n"
    clean.reset()
    assert clean.run("ls $TMPDIR").stdout == b""


def test_a_command_may_change_times_and_modes_of_its_own_files(clean):
    shown = clean.run(
        "mkdir d; touch a d/b; touch -d @1000000000 a; cd d; touch -d @1100000000 b; chmod 640 b; cd ..; "
        "chmod 600 $PWD/a; touch -h -d @1200000000 d; stat -c '%Y %a' a d/b; stat -c %Y d"
    )
    assert shown.stdout.decode().split("\n")[:3] == ["1000000000 600", "1100000000 640", "1200000000"], shown


def test_copied_files_can_be_copied_out_again(clean, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.txt").write_text("ä")
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("deep/a.txt")
    clean.copy_in(source)
    clean.copy_in(source / "deep" / "a.txt", "other")
    assert clean.run("./run.sh; cat link other/a.txt").stdout.decode() == "ran\nää"
    clean.run("echo new > deep/b.txt")
    clean.copy_out("deep", tmp_path / "out")
    clean.copy_out("run.sh", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.*")) == ["a.txt", "b.txt", "run.sh"]


def test_a_hostile_link_is_not_followed_when_copied_out(clean, tmp_path):
    (tmp_path / "target").write_text("secret")
    clean.run(f"mkdir bad; ln -s {tmp_path}/target bad/link; ln -s /etc bad/etc; mkfifo bad/pipe")
    with pytest.raises(DataError, match="cannot be copied out"):
        clean.copy_out("bad", tmp_path / "out")
    assert not any(path.is_file() and path.read_text() == "secret" for path in (tmp_path / "out").rglob("*"))
    with pytest.raises(DataError, match="nothing"):
        clean.copy_out("nothing", tmp_path / "out")


@pytest.mark.parametrize("driver", ["bwrap", "landlock"])
def test_a_closed_session_leaves_no_open_file(driver):
    working(driver)

    def opened() -> int:
        with sandbox.open(sandbox.Spec(workspace="/testbed", limits=LIMITS), driver) as session:
            assert session.run("true").exit_code == 0
        return len(os.listdir("/proc/self/fd"))

    first = opened()
    assert [opened(), opened()] == [first, first]


def test_reset_restores_the_snapshot_after_any_change(clean):
    clean.run("echo old > a; mkdir d; echo x > d/x; ln -s a l; chmod 700 a")
    clean.snapshot()
    clean.run("echo new > a; rm -r d; touch b; rm l; mkfifo p; mkdir -p k/k; chmod 0 k")
    clean.reset()
    assert clean.run("cat a d/x; readlink l; ls; stat -c %a a").stdout.split() == [
        *(b"old", b"x", b"a"),
        *(b"a", b"d", b"l"),
        b"700",
    ]
    clean.run("rm -rf *")
    clean.snapshot()
    clean.reset()
    assert clean.run("ls").stdout == b""


def test_a_reset_with_forget_empties_the_workspace_and_the_snapshot(clean):
    clean.run("echo old > a")
    clean.snapshot()
    clean.reset(forget=True)
    assert clean.run("ls").stdout == b""
    clean.run("echo new > b")
    clean.reset()
    assert clean.run("ls").stdout == b""


@pytest.mark.parametrize("driver", sandbox.DRIVERS)
def test_a_spare_replaces_the_sandbox_on_reset(driver):
    spec = sandbox.Spec(workspace="/testbed", fresh=False, limits=LIMITS)
    with sandbox.open(spec, working(driver), spare=True) as session:
        session.run("echo 1 > $TMPDIR/a; echo 1 > b")
        first, spare = session._process, session._spare
        spare._thread.join()
        ready = spare._process
        assert ready is not None and ready is not first
        session.reset()
        assert session.run("cat $TMPDIR/a b").stdout == b""
        assert session._process is ready
        spare._thread.join()
        assert spare.retired == []
        with pytest.raises(OSError, match=r"closed|Bad file descriptor"):
            os.write(first.commands, b"") if driver != "docker" else first._socket.getpeername()
        session.reset()
        assert session.run("echo still").stdout == b"still\n"


def test_long_output_keeps_head_and_tail_with_a_note(clean):
    result = clean.run("seq 1 10000")
    assert result.cut
    assert result.stdout.startswith(b"1\n2\n")
    assert result.stdout.endswith(b"9999\n10000\n")
    assert b"bytes left out" in result.stdout
    assert not clean.run("seq 1 10").cut


def test_a_command_over_its_time_limit_is_killed_with_its_children(clean):
    mark = f"777.{uuid.uuid4().int % 10**12:012}"  # under `process` the other workers' processes are seen too
    result = clean.run(f"sleep {mark} & sleep {mark}", limits=sandbox.Limits(seconds=0.5))
    assert result.fate == "timeout"
    assert clean.run(f"pgrep -f {mark}").stdout == b""


def test_a_killed_command_reports_its_signal(clean):
    assert clean.run("kill -9 $$").exit_code in (
        -signal.SIGKILL,
        0,
    )  # the first process of a namespace cannot kill itself
    assert clean.run("bash -c 'kill -9 $$'; echo $?").stdout == b"137\n"


def test_the_process_limit_applies_to_root(session, play):
    code = (
        "import os, time\nmade = 0\ntry:\n    while made < 500:\n"
        "        if os.fork() == 0: time.sleep(60)\n        made += 1\n"
    )
    code += "except OSError: pass\nif made > 64: breaches.append(made)\nsaid = made"
    result, breaches = play(code)
    assert result.fate in ("exited", "processes")
    assert not breaches


def test_a_killed_zygote_is_an_engine_failure_and_the_next_run_works(clean):
    clean.run("true")
    begun = clean._home / "workspace" / "begun"

    def kill():
        deadline = time.monotonic() + 120
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        clean._process.force()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(EngineFailure, match=f"The {clean.driver} sandbox broke down"):
        clean.run("touch begun; sleep 1000", limits=sandbox.Limits(seconds=200))
    killer.join()
    assert begun.exists()
    assert clean.run("echo again").stdout == b"again\n"


def test_a_program_that_cannot_be_loaded_is_an_engine_failure(tmp_path, session):
    (tmp_path / "bad.py").write_text("import no_such_module\n")
    tmp_path.chmod(0o755)
    with sandbox.open(sandbox.Spec(program=tmp_path / "bad.py"), session.driver) as bad:
        with pytest.raises(EngineFailure, match="no_such_module"):
            bad.call(b"")


def test_a_closed_session_and_a_missing_method_raise_clear_errors(session, tmp_path):
    opened = sandbox.open(sandbox.Spec(), session.driver)
    with pytest.raises(UsageError, match="without a program"):
        opened.call(b"")
    for needs_workspace in (
        opened.reset,
        opened.snapshot,
        lambda: opened.copy_in(tmp_path),
        lambda: opened.copy_out("a", tmp_path),
    ):
        with pytest.raises(UsageError, match="without a workspace"):
            needs_workspace()
    opened.close()
    with pytest.raises(UsageError, match="closed"):
        opened.run("true")


def test_a_hundred_parallel_submissions_all_return_their_own_result(session):
    lease = Lease(sandbox.Spec(program=ECHO, limits=LIMITS), session.driver)
    answers: dict[int, bytes] = {}

    def submit(number: int) -> None:
        answers[number] = lease.pool.call(str(number).encode() * 1000).value

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(100)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        lease.close()
    assert answers == {number: str(number).encode()[::-1] * 1000 for number in range(100)}


def test_a_pool_is_shared_and_closes_with_its_last_lease():
    spec = sandbox.Spec(program=PROGRAM)
    driver = drivers.choose("auto", (*drivers.SAFE, "process"))
    first, second = Lease(spec, driver), Lease(spec, driver)
    assert first.pool is second.pool
    first.close()
    first.close()
    assert second.pool.call(b'{"code": "", "world": {}}').exit_code == 0
    second.close()
    with pytest.raises(UsageError, match="closed"):
        second.pool.call(b"")


def test_a_missing_sandbox_raises_one_line_with_a_remedy_and_process_is_never_a_silent_fallback():
    assert "process" not in drivers.SAFE
    with pytest.raises(UsageError, match="apt-get install bubblewrap") as caught:
        drivers.choose("auto", order=())
    assert "--set sandbox=process" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="auto, bwrap"):
        drivers.choose("chroot")


def test_a_missing_bwrap_is_named(monkeypatch):
    from envsuite.sandbox import bwrap

    monkeypatch.setenv("PATH", "")
    assert bwrap.available() == "bwrap is not installed"


def test_bwrap_is_started_wherever_path_finds_it(monkeypatch, tmp_path):
    installed = Path(shutil.which(working("bwrap")))
    (tmp_path / "bwrap").write_text(f'#!/bin/sh\ntouch {tmp_path}/started\nexec {installed} "$@"\n')
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}/nowhere")
    with sandbox.open(sandbox.Spec(), "bwrap") as session:
        assert session.run(["/bin/echo", "here"]).stdout == b"here\n"
    assert (tmp_path / "started").exists()


@pytest.mark.parametrize("pieces", [[b""], [b"abcdef"], [b"a"] * 9, [b"x" * 50, b"y" * 50], [b"0123456789" * 10]])
def test_an_excerpt_is_the_head_and_the_tail(pieces):
    excerpt, complete = Excerpt(20), b"".join(pieces)
    for piece in pieces:
        excerpt.add(piece)
    if len(complete) <= 20:
        assert excerpt.text() == complete
    else:
        assert (
            excerpt.text() == complete[:10] + b"\n[... %d bytes left out ...]\n" % (len(complete) - 20) + complete[-10:]
        )


@pytest.mark.parametrize(("said", "reason"), [(b"", ""), (b"no room\n", "no room"), (b"first\nlast\n\n", "last")])
def test_the_reason_of_a_failure_is_the_last_line_that_was_said(said, reason):
    assert _tail(said) == reason


@pytest.mark.parametrize("announced", [True, False])
def test_the_removal_of_a_runs_files_may_take_longer_than_the_run(announced, monkeypatch):
    monkeypatch.setattr(session_module, "GRACE_SECONDS", 0.1)
    (replies, answers), commands = os.pipe(), os.open(os.devnull, os.O_WRONLY)

    def answer():
        if announced:
            wire.write_frame(answers, b"c", b"")
        time.sleep(0.5)
        wire.write_frame(answers, b"x", b'{"fate": "disk", "status": -9, "seconds": 0.01}')

    zygote = threading.Thread(target=answer)
    zygote.start()
    process = SimpleNamespace(commands=commands, replies=replies)
    with nullcontext() if announced else pytest.raises(OSError, match="stopped answering"):
        assert session_module._exchange(process, b"job", sandbox.Limits(seconds=0.01)).fate == "disk"
    zygote.join()
    for handle in (replies, answers, commands):
        os.close(handle)
