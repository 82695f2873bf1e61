"""Vector environments whose games are shared out among processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite import registry
from envsuite.errors import BadKnob, EngineFailure, MissingExtra, UsageError
from tests.envs.test_tables import compare, same
from tests.processes import obey_interrupts
from tests.toys import Faulty, Holding

FAULTY, HOLDING = (f"{toy.__name__}-v0" for toy in (Faulty, Holding))

SCRIPT = """
import sys
import time
from envsuite import registry

def main():
    envs = registry.make_vec("VirtualHome-easy-v1", 4, processes=2)
    envs.reset(seed=0)
    print(*(process.pid for process in envs._processes), flush=True)
    while True:
        envs.step(["look around"] * 4)

if {guard}:
    main()
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("task", "knobs", "mode", "turns"),
    [
        ("VirtualHome-easy-v1", {"max_steps": 9}, AutoresetMode.SAME_STEP, 40),
        ("Overcooked-tomato_salad-v0", {"max_steps": 25}, AutoresetMode.NEXT_STEP, 80),
        ("VirtualHome-medium-v1", {"max_steps": 12}, AutoresetMode.DISABLED, 30),
    ],
)
def test_results_do_not_depend_on_the_number_of_processes(
    task: str, knobs: dict[str, Any], mode: AutoresetMode, turns: int
) -> None:
    ours = registry.make_vec(task, 5, "dense", autoreset_mode=mode, processes=2, **knobs)
    theirs = SyncVectorEnv([partial(registry.build, task, "dense", **knobs)] * 5, autoreset_mode=mode)
    try:
        assert compare(ours, theirs, turns) > 5
        assert ours.single_observation_space == theirs.single_observation_space
        assert ours.metadata == theirs.metadata
        assert same(ours.get_attr("turn"), theirs.get_attr("turn"))
        assert ours.call("admissible") == theirs.call("admissible")
        assert ours.np_random_seed == theirs.np_random_seed
    finally:
        ours.close()


def test_an_entry_that_one_process_lacks_is_empty_for_its_games() -> None:
    """The three games end at different times, so that only one process has the entries of an end."""
    plain, shared = (registry.make_vec("HiLo-v0", 3, processes=processes) for processes in (1, 3))
    try:
        assert same(plain.reset(seed=[0, 1, 2]), shared.reset(seed=[0, 1, 2]))
        alone = 0
        for guess in range(1, 9):
            expected = plain.step([str(guess)] * 3)
            assert same(expected, shared.step([str(guess)] * 3))
            alone += (expected[2] | expected[3]).sum() == 1
        assert alone
    finally:
        plain.close()
        shared.close()


def test_an_error_in_a_game_is_raised_and_all_games_can_be_reset() -> None:
    envs = registry.make_vec(FAULTY, 4, processes=2, autoreset_mode=AutoresetMode.DISABLED)
    try:
        envs.reset(seed=[1, 2, 4, 3])
        with pytest.raises(RuntimeError, match="the engine broke") as caught:
            envs.step(["1"] * 4)
        assert "toys.py" in caught.value.__notes__[0]  # the traceback in the process
        with pytest.raises(gym.error.ResetNeeded, match="reset\\(\\) all games"):
            envs.step(["1"] * 4)
        with pytest.raises(gym.error.ResetNeeded, match="without a reset_mask"):
            envs.reset(options={"reset_mask": np.array([True, False, False, False])})
        texts, _ = envs.reset(seed=[1, 2, 4, 5])
        assert all(texts)
        assert len(envs.step(["1"] * 4)[0]) == 4
    finally:
        envs.close()


def test_a_process_that_dies_is_an_engine_failure_that_names_its_games() -> None:
    envs = registry.make_vec(FAULTY, 4, processes=2, how="exit")
    pids = [process.pid for process in envs._processes]
    envs.reset(seed=[1, 2, 4, 3])
    with pytest.raises(EngineFailure, match=r"Process 2 of 2, with games 2 to 3, has died \(exit code 3\)"):
        envs.step(["1"] * 4)
    wait_for_end(pids)
    with pytest.raises(UsageError, match="closed, because a process has died: make a new one"):
        envs.step(["1"] * 4)


class Unreadable:
    """Can be pickled, and not be read again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("one",)


def test_no_answer_is_left_for_a_later_call() -> None:
    envs = registry.make_vec("HiLo-v0", 4, processes=2)
    try:
        envs.reset(seed=0)
        for value, error in ((lambda: 0, "pickle"), (Unreadable(), "invalid literal")):
            with pytest.raises((AttributeError, ValueError, pickle.PicklingError), match=error):
                envs.set_attr("attempt", [1, 2, value, 4])
            assert envs.get_attr("turn") == (0, 0, 0, 0)
        with pytest.raises(AttributeError, match="speed"):
            envs.get_attr("speed")
        assert len(envs.step(["1"] * 4)[0]) == 4
    finally:
        envs.close()


def test_an_exception_of_a_signal_handler_is_raised_and_hung_games_end() -> None:
    """A time limit that strikes in the middle of a step: its own error comes out, although it is an OSError."""

    def strike(number: int, frame: Any) -> None:
        raise TimeoutError("too long")

    envs = registry.make_vec(FAULTY, 3, processes=3, how="hang")
    pids = [process.pid for process in envs._processes]
    envs.reset(seed=[1, 2, 3])
    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError, match="too long"):
            envs.step(["1"] * 3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wait_for_end(pids)
    with pytest.raises(UsageError, match="closed, because TimeoutError interrupted a call: make a new one"):
        envs.call("idle")


def test_a_call_during_a_call_of_another_thread_is_refused() -> None:
    envs = registry.make_vec(FAULTY, 2, processes=2, how="hang")
    envs.reset(seed=[1, 3])

    def step_until_killed() -> None:
        with contextlib.suppress(EngineFailure):
            envs.step(["1"] * 2)

    step = threading.Thread(target=step_until_killed, daemon=True)
    step.start()
    deadline = time.monotonic() + 20
    while not envs._calls.locked():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        for call in (lambda: envs.get_attr("turn"), lambda: envs.step(["1"] * 2), envs.reset):
            with pytest.raises(UsageError, match="in use by another thread"):
                call()
    finally:
        for process in envs._processes:
            process.kill()
        step.join()
        envs.close()


def test_it_cannot_be_pickled() -> None:
    envs = registry.make_vec("HiLo-v0", 2, processes=2)
    try:
        with pytest.raises(TypeError, match="build one where it is needed"):
            pickle.dumps(envs)
    finally:
        envs.close()


def test_frames_of_all_games_are_returned() -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 2, processes=2, render_mode="ansi")
    try:
        envs.reset(seed=0)
        frames = envs.render()
        assert len(frames) == 2 and all(isinstance(frame, str) and frame for frame in frames)
    finally:
        envs.close()


def test_a_function_of_a_notebook_is_refused_with_a_cure() -> None:
    """A notebook's `__main__` is not imported by new processes, like that of `python -c`."""
    script = """
from envsuite.vector.processes import ProcessVectorEnv
def make(size):
    return None
ProcessVectorEnv(make, 2, 2)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "define its class in a module, not in a notebook" in result.stderr.strip().splitlines()[-1]


def test_an_error_of_the_environments_module_is_raised_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "games.py").write_text(
        "import multiprocessing\ndef make(size): return None\n"
        "if multiprocessing.parent_process(): multiprocessing.no_such_name\n"
    )
    script = "from envsuite.vector.processes import ProcessVectorEnv; import games; ProcessVectorEnv(games.make, 2, 2)"
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **paths})
    assert "no_such_name" in result.stderr and "games.py" in result.stderr and "notebook" not in result.stderr


def test_a_fork_of_the_parent_does_not_keep_the_processes_alive() -> None:
    envs = registry.make_vec("HiLo-v0", 2, processes=2)
    pids = [process.pid for process in envs._processes]
    fork = subprocess.Popen(["sleep", "60"], pass_fds=[pipe.fileno() for pipe in envs._pipes])
    try:
        envs.close()
        assert not any(map(alive, pids))
    finally:
        fork.kill()
        fork.wait()


def test_environments_are_closed_in_their_processes(tmp_path: Path) -> None:
    held = tmp_path / "held"
    envs = registry.make_vec(HOLDING, 2, processes=2, held=str(held))
    envs.reset(seed=0)
    assert held.exists()
    envs.set_attr("attempt", [5, 6])
    assert envs.get_attr("attempt") == (5, 6)
    envs.close()
    assert not held.exists()


def test_invalid_requests_are_refused() -> None:
    registry.make_vec("HiLo-v0", np.int64(2), processes=np.int64(2)).close()  # type: ignore[arg-type]
    refused: tuple[Any, ...] = 0, -1, 3, "2", 2.0
    for processes in refused:
        with pytest.raises(UsageError, match="use 1 to 2 processes"):
            registry.make_vec("HiLo-v0", 2, processes=processes)
    with pytest.raises(UsageError, match="num_envs=0 is no number of games"):
        registry.make_vec("HiLo-v0", 0, processes=2)
    with pytest.raises(BadKnob, match=r"Set it in envsuite\.registry\.make_vec"):
        registry.make("HiLo-v0", processes=2)
    with pytest.raises(BadKnob, match="no knob 'speed'"):
        registry.make_vec("HiLo-v0", 2, processes=2, speed=3)
    envs = registry.make_vec(FAULTY, 2, processes=2, autoreset_mode=AutoresetMode.DISABLED, max_steps=1)
    try:
        with pytest.raises(ValueError, match="2 games need 2 seeds, not 1"):
            envs.reset(seed=[4])
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": np.zeros(2, dtype=bool)})
        envs.reset(seed=[4, 5])
        with pytest.raises(gym.error.InvalidAction, match="2 games need 2 commands, not 1"):
            envs.step(["1"])
        with pytest.raises(gym.error.InvalidAction, match="not int"):
            envs.step([1, "1"])
        envs.step(["1", "1"])
        with pytest.raises(gym.error.ResetNeeded, match="Game 0 is over"):
            envs.step(["1", "1"])
    finally:
        envs.close()
    envs = registry.make_vec(FAULTY, 2, processes=2, how="extra")
    try:
        with pytest.raises(MissingExtra):
            envs.reset(seed=[1, 3])
    finally:
        envs.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard='__name__ == "__main__"'))
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=obey_interrupts,
    )
    assert parent.stdout is not None and parent.stderr is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    if number is signal.SIGINT:
        os.killpg(parent.pid, number)  # as a terminal does
    else:
        parent.kill()
    _, errors = parent.communicate(timeout=20)
    wait_for_end(pids)
    assert parent.returncode != 0
    if number is signal.SIGINT:
        assert errors.strip().endswith("KeyboardInterrupt")


def test_a_script_without_a_guard_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard="True"))
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert "below `if __name__ == '__main__':`" in result.stderr.strip().splitlines()[-1]
