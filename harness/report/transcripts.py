"""Replays recorded episodes for a report, to add what records lack: prompts, admissible commands, expert and pictures.

A replay only executes the recorded commands. It stops with a message where the environment answers differently.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import EnvsuiteError
from harness.prompting.messages import shared_prefix
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import as_text
from harness.records import Record, is_broken
from harness.stats.compare import Run
from harness.steps import reply_calls, reply_text
from harness.types import Reply, Turn

MAX_WIDTH = 1280
"""width in pixels above which pictures are scaled down"""
COLOURS = 48


def choose(records: Sequence[Record], count: int) -> set[int]:
    """Chooses records of a run to replay, alternating failures and successes."""
    wins = [i for i, record in enumerate(records) if record["success"] and not is_broken(record)]
    losses = [i for i, record in enumerate(records) if not record["success"] and not is_broken(record)]
    mixed = [index for pair in zip(losses, wins, strict=False) for index in pair]
    shorter = min(len(wins), len(losses))
    return set((mixed + losses[shorter:] + wins[shorter:])[:count])


class Replayer:
    """Replays records of one run in its environment."""

    def __init__(self, run: Run, trusted: Mapping[str, Any] = {}) -> None:
        self.prompting = Prompting(**run.config["prompting"]) if run.config.get("prompting") else None
        self.refused = ""
        """reason why this run cannot be replayed; empty if it can"""
        self.env: TextEnv | None = None
        task = registry.TASKS.get(run.config["task"])
        if task is None:
            self.refused = "the task is not registered here"
            return
        try:
            draws = "rgb_array" in registry.env_class(task).metadata["render_modes"]
            mode = run.config["reward_mode"]
            knobs = registry.replay_knobs(task, run.config["knobs"], trusted)
            self.env = registry.build(task, mode, render_mode="rgb_array" if draws else None, **knobs)
        except EnvsuiteError as error:
            self.refused = str(error)

    def __call__(self, record: Record, pictures: bool = True) -> dict[str, Any]:
        """Replays a record and returns the additional data of each turn.

        `expert` [turns] str or None, `admissible` [turns], `prompts` [turns] of [n, messages]: the first n messages of
        the previous prompt, then messages as [role, number in `strings`]; `shots` [turns + 1] numbers in `images` (PNG,
        base64), `difference` (a message if the environment answered differently).
        """
        assert self.env is not None
        try:
            return self._play(self.env, record, pictures and self.env.render_mode is not None)
        except Exception as error:  # no failure of an engine prevents the report
            return {"difference": f"the replay failed: {type(error).__name__}: {error}"}

    def _play(self, env: TextEnv, record: Record, pictures: bool) -> dict[str, Any]:
        text, info = env.reset(seed=record["seed"], options={"attempt": record["attempt"]})
        replayed: dict[str, Any] = {"expert": [], "admissible": [], "prompts": [], "shots": [], "difference": ""}
        strings, images = StringTable(), StringTable()
        encoded: dict[bytes, str] = {}  # many commands change nothing

        def take_picture() -> None:
            frame: Any = env.render()
            key = frame.tobytes()
            encoded[key] = encoded.get(key) or _png(frame)
            replayed["shots"].append(images.number(encoded[key]))

        turns: list[Turn] = []
        previous: list[tuple[str, int]] = []
        if text != record["first_observation"]:
            return {"difference": "the first observation differs today"}
        for number, step in enumerate(record["steps"], 1):
            replayed["expert"].append(env.expert() if env.experts else None)
            replayed["admissible"].append([strings.number(command) for command in info["admissible_commands"]])
            if pictures:
                take_picture()
            turn = self._turn(step, number - 1, text, info["admissible_commands"])
            if self.prompting is not None:
                seen = turn.observation, turn.admissible
                messages = self.prompting.messages(
                    env.instructions, env.objective, turns, *seen, env.labels(), turn.agent
                )
                prompt = [(message["role"], strings.number(as_text(message))) for message in messages]
                shared = shared_prefix(previous, prompt)
                replayed["prompts"].append([shared, prompt[shared:]])
                previous = prompt
            texts, over = [], False
            for command in step["commands"] or [""]:
                text, _, terminated, truncated, info = env.step(command)
                texts.append(text)
                over = terminated or truncated
            text = "\n".join(texts)
            if text != step["observation"]:
                replayed["difference"] = f"the answer to turn {number} differs today"
                break
            turns.append(turn)
            if over:
                break
        if pictures:
            take_picture()
        return {**replayed, "strings": strings.items, "images": images.items}

    def _turn(self, step: dict[str, Any], number: int, seen: str, admissible: Sequence[str]) -> Turn:
        text, calls = reply_text(step), reply_calls(step)
        tools = self.env.tools if self.env is not None else ()
        parsed = self.prompting.parse(text, calls, tools, number) if self.prompting else None
        note = parsed.note if parsed and not step["commands"] else ""
        return Turn(
            observation=seen,
            reply=Reply(text, calls=calls),
            commands=tuple(step["commands"]),
            reward=step["reward"],
            info={},
            fault=step["fault"],
            note=note,
            admissible=admissible,
            agent=step.get("agent", 0),
        )

    def close(self) -> None:
        if self.env is not None:
            self.env.close()


class StringTable:
    """Numbered strings, each stored once, since prompts and pictures repeat from turn to turn."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.items)
            self.items.append(text)
        return self._numbers[text]


def _png(frame: Any) -> str:
    """Encodes a frame [height, width, 3] as a base64 PNG with at most MAX_WIDTH pixels width and COLOURS colours."""
    from PIL import Image  # from the extra of environments that draw

    image = Image.fromarray(frame)
    if image.width > MAX_WIDTH:
        image = image.resize((MAX_WIDTH, round(image.height * MAX_WIDTH / image.width)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
