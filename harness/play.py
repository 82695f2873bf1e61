"""Interactive play by a person, recorded like a policy's episodes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from envsuite.core import TextEnv
from envsuite.errors import UsageError
from envsuite.types import StopReason
from harness.types import Episode, Reply, Trajectory, Turn

HELP = (
    ":undo takes the last command back, :actions lists what is admissible, :edit writes several lines in your editor, "
    "a line of ``` begins a command that ends with another, :quit leaves; Tab completes"
)
FENCE = "```"


def play(
    env: TextEnv,
    episodes: Sequence[Episode],
    ask: Callable[[list[str]], str],
    say: Callable[[str], None],
    max_turns: int | None = None,
) -> Iterator[Trajectory]:
    """Plays each episode with the commands that `ask(admissible)` returns, and yields its
    trajectory.

    :quit or EOFError ends play without recording the current episode. :undo restores the engine's
    snapshot, or plays the remaining commands again if the engine has none; the record contains only
    the remaining commands. Another word with a colon in front is refused, and costs no turn.
    """
    for episode in episodes:
        run = _episode(env, episode, ask, say, max_turns)
        if run is None:
            return
        yield run


def _episode(
    env: TextEnv, episode: Episode, ask: Callable[[list[str]], str], say: Callable[[str], None], max_turns: int | None
) -> Trajectory | None:
    began = time.monotonic()
    text, info = env.reset(seed=episode.seed, options={"attempt": episode.attempt})
    run = Trajectory(episode, env.instructions, info["objective"], dict(info["labels"]), final_observation=text)
    say("\n\n".join(filter(None, (env.instructions, info["objective"], text, env.play_help()))))
    past: list[tuple[Any, str, dict[str, Any]]] = []
    edited = ""
    while run.stop_reason is None:
        admissible = info["admissible_commands"]
        try:
            line = ask(admissible).strip()
            if line == ":edit":
                line = edited = edit(edited)
                say(line)
            elif line.startswith(FENCE):
                line = _block(line, ask)
        except EOFError:
            return None
        except UsageError as error:
            say(str(error))
            continue
        if line == ":quit":
            return None
        if line == ":help":
            say("\n".join(filter(None, (HELP, env.play_help()))))
        elif line == ":actions":
            say(", ".join(admissible) or "anything may be said here")
        elif line == ":undo":
            if not past:
                say("There is nothing to take back.")
                continue
            snapshot, text, info = past.pop()
            run.turns.pop()
            if snapshot is None:
                _play_again(env, run)
            else:
                env.restore(snapshot)
            run.final_observation = text
            say(text)
        elif re.fullmatch(r":[a-z]+", line):
            say(f"There is no {line}. {HELP}.")
        else:
            past.append((_snapshot(env), text, info))
            text, info = _turn(env, run, env.typed_command(line), text, info)
            say(text)
            if run.stop_reason is None and max_turns is not None and len(run.turns) >= max_turns:
                run.truncated, run.stop_reason = True, StopReason.MAX_TURNS
    say(f"[{run.stop_reason}] after {len(run.turns)} turns, reward {run.total_reward:g}. {env.play_result()}".rstrip())
    run.seconds = time.monotonic() - began
    return run


def _block(first: str, ask: Callable[[list[str]], str]) -> str:
    """Returns a command of several lines: from its first line to the line that closes its fence."""
    fence = first[: len(first) - len(first.lstrip("`"))]
    lines = [first]
    while len(lines) == 1 or lines[-1].strip() != fence:
        lines.append(ask([]).rstrip())
    return "\n".join(lines)


def edit(text: str = "") -> str:
    """Opens `text` in the editor that VISUAL or EDITOR names; returns the text as it was saved.

    Raises UsageError without an editor, or if it fails.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("No editor is set: export EDITOR=nano, or begin with a line of ``` and end with another.")
    with tempfile.TemporaryDirectory(prefix="envsuite-edit-") as folder:
        path = Path(folder) / "command.py"
        path.write_text(text)
        try:
            done = subprocess.run([*shlex.split(editor), str(path)])
        except (OSError, ValueError) as error:
            raise UsageError(f"The editor {editor!r} cannot be started: {error}.") from error
        if done.returncode:
            raise UsageError(f"The editor {editor!r} ended with {done.returncode}: nothing was sent.")
        return path.read_text(errors="replace")


def _snapshot(env: TextEnv) -> Any:
    """Returns the state of the episode; None if the engine cannot save it."""
    try:
        return env.snapshot()
    except UsageError:
        return None


def _play_again(env: TextEnv, run: Trajectory) -> None:
    """Starts the episode again and plays the commands of its turns."""
    env.reset(seed=run.episode.seed, options={"attempt": run.episode.attempt})
    for turn in run.turns:
        env.step("".join(turn.commands))


def _turn(env: TextEnv, run: Trajectory, line: str, text: str, info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    commands = (line,) if line else ()
    after, reward, run.terminated, run.truncated, new_info = env.step(line)
    fault = "format" if not line else "" if new_info["is_action_valid"] else "invalid"
    run.turns.append(
        Turn(
            text,
            Reply(line, commands=commands),
            commands,
            reward,
            new_info,
            fault=fault,
            admissible=info["admissible_commands"],
        )
    )
    run.final_observation = after
    run.success = new_info["success"]
    run.progression = new_info["progression"]
    run.stop_reason = new_info["stop_reason"]
    run.metrics = new_info.get("metrics", {})
    run.artifacts = new_info.get("artifacts", {})
    return after, new_info
