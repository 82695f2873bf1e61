"""Replays recorded episodes for what a record lacks: prompts, admissible commands, the expert's moves, and pictures.

A replay executes the recorded commands only. It stops with a message at the first answer that differs from the record.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import EnvsuiteError
from harness.prompting.prompting import Prompting
from harness.records import Record, is_broken, reply_text
from harness.stats.compare import Run
from harness.types import Reply, Turn

WIDEST = 1280
"""pixels; wider pictures are scaled down to it"""
COLOURS = 48


def choose(records: Sequence[Record], count: int) -> set[int]:
    """Returns the indices of the records to replay: failures and successes in turn, so that a reader sees both."""
    wins = [i for i, record in enumerate(records) if record["success"] and not is_broken(record)]
    losses = [i for i, record in enumerate(records) if not record["success"] and not is_broken(record)]
    mixed = [index for pair in zip(losses, wins, strict=False) for index in pair]
    shorter = min(len(wins), len(losses))
    return set((mixed + losses[shorter:] + wins[shorter:])[:count])


class Replayer:
    """Replays records of one run in one environment. `trusted` holds the user's own settings of restricted knobs."""

    def __init__(self, run: Run, trusted: Mapping[str, Any] = {}) -> None:
        self.prompting = Prompting(**run.config["prompting"]) if run.config.get("prompting") else None
        self.refused = ""
        """the reason why this run cannot be replayed; '' if it can"""
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
        """Replays a record and returns what it lacks, turn by turn.

        `expert` [turns] str or None, `admissible` [turns], `prompts` [turns] of [role, index into `strings`], `shots`
        [turns + 1] indices into `images` (PNG, base64), `difference` in words if the environment answered differently.
        """
        assert self.env is not None
        try:
            return self._play(self.env, record, pictures and self.env.render_mode is not None)
        except Exception as error:  # the report is written whatever an engine raises
            return {"difference": f"it broke on replay: {type(error).__name__}: {error}"}

    def _play(self, env: TextEnv, record: Record, pictures: bool) -> dict[str, Any]:
        text, info = env.reset(seed=record["seed"], options={"attempt": record["attempt"]})
        result: dict[str, Any] = {"expert": [], "admissible": [], "prompts": [], "shots": [], "difference": ""}
        strings, images = Words(), Words()
        drawn: dict[bytes, str] = {}  # many commands change nothing, and their picture is reused

        def shoot() -> None:
            frame: Any = env.render()
            key = frame.tobytes()
            drawn[key] = drawn.get(key) or _png(frame)
            result["shots"].append(images.number(drawn[key]))

        turns: list[Turn] = []
        if text != record["first_observation"]:
            return {"difference": "the first observation differs today"}
        for number, step in enumerate(record["steps"], 1):
            result["expert"].append(env.expert() if env.experts else None)
            result["admissible"].append([strings.number(command) for command in info["admissible_commands"]])
            if pictures:
                shoot()
            turn = self._turn(step, text, info["admissible_commands"])
            if self.prompting is not None:
                messages = self.prompting.messages(
                    env.instructions, env.objective, turns, turn.observation, turn.admissible
                )
                result["prompts"].append([[m["role"], strings.number(m["content"])] for m in messages])
            texts, over = [], False
            for command in step["commands"] or [""]:
                text, _, terminated, truncated, info = env.step(command)
                texts.append(text)
                over = terminated or truncated
            text = "\n".join(texts)
            if text != step["observation"]:
                result["difference"] = f"turn {number} has another answer today"
                break
            turns.append(turn)
            if over:
                break
        if pictures:
            shoot()
        return {**result, "strings": strings.items, "images": images.items}

    def _turn(self, step: dict[str, Any], seen: str, admissible: Sequence[str]) -> Turn:
        parsed = self.prompting.parse(reply_text(step)) if self.prompting else None
        note = parsed.note if parsed and not step["commands"] else ""
        return Turn(
            observation=seen,
            reply=Reply(reply_text(step)),
            commands=tuple(step["commands"]),
            reward=step["reward"],
            info={},
            fault=step["fault"],
            note=note,
            admissible=admissible,
        )

    def close(self) -> None:
        if self.env is not None:
            self.env.close()


class Words:
    """A table of strings, each stored once, because prompts and pictures repeat from turn to turn."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.items)
            self.items.append(text)
        return self._numbers[text]


def _png(frame: Any) -> str:
    """Returns a frame [height, width, 3] as PNG in base64, at most WIDEST pixels wide and with COLOURS colours."""
    from PIL import Image  # comes with the extras of environments that draw

    image = Image.fromarray(frame)
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
