"""A person plays, and is recorded like any policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envsuite.core import TextEnv
from envsuite.errors import UsageError
from envsuite.types import StopReason
from harness.types import Episode, Reply, Trajectory, Turn

HELP = ":undo takes the last command back, :actions lists what is admissible, :quit leaves; Tab completes"


def play(
    env: TextEnv,
    episodes: Sequence[Episode],
    ask: Callable[[list[str]], str],
    say: Callable[[str], None],
    max_turns: int | None = None,
) -> Iterator[Trajectory]:
    """Plays each episode by asking for commands; an episode left by :quit (EOFError) is not recorded.

    `ask(admissible)` returns a line. Undo goes back in the engine where it can; the record holds the commands that
    remain, which replay to the same game.
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
    say(f"{env.instructions}\n\n{info['objective']}\n\n{text}")
    past: list[tuple[Any, str, dict[str, Any]]] = []
    while run.stop_reason is None:
        admissible = info["admissible_commands"]
        try:
            line = ask(admissible).strip()
        except EOFError:
            return None
        if line == ":quit":
            return None
        if line == ":help":
            say(HELP)
        elif line == ":actions":
            say(", ".join(admissible) or "anything may be said here")
        elif line == ":undo":
            if not past:
                say("There is nothing to take back.")
                continue
            snapshot, text, info = past.pop()
            env.restore(snapshot)
            run.turns.pop()
            run.final_observation = text
            say(text)
        else:
            try:
                past.append((env.snapshot(), text, info))
            except UsageError:  # this engine cannot go back
                past.clear()
            text, info = _turn(env, run, line, text, info)
            say(text)
            if run.stop_reason is None and max_turns is not None and len(run.turns) >= max_turns:
                run.truncated, run.stop_reason = True, StopReason.MAX_TURNS
    say(f"[{run.stop_reason}] after {len(run.turns)} turns, reward {run.total_reward:g}")
    run.seconds = time.monotonic() - began
    return run


def _turn(env: TextEnv, run: Trajectory, line: str, text: str, info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    commands = (line,) if line else ()
    after, reward, run.terminated, run.truncated, told = env.step(line)
    fault = "format" if not line else "" if told["is_action_valid"] else "invalid"
    run.turns.append(
        Turn(
            text,
            Reply(line, commands=commands),
            commands,
            reward,
            told,
            fault=fault,
            admissible=info["admissible_commands"],
        )
    )
    run.final_observation, run.success, run.progression = after, told["success"], told["progression"]
    run.stop_reason, run.metrics = told["stop_reason"], told.get("metrics", {})
    return after, told
