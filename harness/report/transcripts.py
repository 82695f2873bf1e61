"""Some recorded episodes played again, for what a record does not hold: the prompt, what was admissible, what the
expert would have said, and pictures.

The recorded commands are carried out and nothing else; where the environment no longer answers as it did, the replay
stops there and says so.
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
"""pixels; wider pictures are scaled down"""
COLOURS = 48


def choose(found: Sequence[Record], count: int) -> set[int]:
    """Which of a run's records to play again: failures and successes in turn, so that both can be looked at."""
    wins = [i for i, one in enumerate(found) if one["success"] and not is_broken(one)]
    losses = [i for i, one in enumerate(found) if not one["success"] and not is_broken(one)]
    mixed = [index for pair in zip(losses, wins) for index in pair]
    shorter = min(len(wins), len(losses))
    return set((mixed + losses[shorter:] + wins[shorter:])[:count])


class Replayer:
    """Plays records of one run again, in one environment after another."""

    def __init__(self, run: Run, trusted: Mapping[str, Any] = {}) -> None:
        self.prompting = Prompting(**run.config["prompting"]) if run.config.get("prompting") else None
        self.refused = ""
        """why nothing of this run can be played again; '' where it can"""
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
        """What playing `record` again adds to it, turn by turn.

        `expert` [turns] str or None, `admissible` [turns], `prompts` [turns] of [role, number in `strings`], `shots`
        [turns + 1] numbers in `images` (PNG, base64), `difference` in words where the environment answered otherwise.
        """
        assert self.env is not None
        try:
            return self._play(self.env, record, pictures and self.env.render_mode is not None)
        except Exception as error:  # whatever an engine does, the report is written
            return {"difference": f"it broke on replay: {type(error).__name__}: {error}"}

    def _play(self, env: TextEnv, record: Record, pictures: bool) -> dict[str, Any]:
        text, info = env.reset(seed=record["seed"], options={"attempt": record["attempt"]})
        found: dict[str, Any] = {"expert": [], "admissible": [], "prompts": [], "shots": [], "difference": ""}
        strings, images = Words(), Words()
        drawn: dict[bytes, str] = {}  # most commands of a bad player change nothing

        def shoot() -> None:
            frame: Any = env.render()
            key = frame.tobytes()
            drawn[key] = drawn.get(key) or _png(frame)
            found["shots"].append(images.number(drawn[key]))

        turns: list[Turn] = []
        if text != record["first_observation"]:
            return {"difference": "the first observation is another one today"}
        for number, step in enumerate(record["steps"], 1):
            found["expert"].append(env.expert() if env.experts else None)
            found["admissible"].append([strings.number(one) for one in info["admissible_commands"]])
            if pictures:
                shoot()
            turn = self._turn(step, text, info["admissible_commands"])
            if self.prompting is not None:
                asked = self.prompting.messages(
                    env.instructions, env.objective, turns, turn.observation, turn.admissible
                )
                found["prompts"].append([[m["role"], strings.number(m["content"])] for m in asked])
            texts, over = [], False
            for command in step["commands"] or [""]:
                text, _, terminated, truncated, info = env.step(command)
                texts.append(text)
                over = terminated or truncated
            text = "\n".join(texts)
            if text != step["observation"]:
                found["difference"] = f"turn {number} is answered otherwise today"
                break
            turns.append(turn)
            if over:
                break
        if pictures:
            shoot()
        return {**found, "strings": strings.items, "images": images.items}

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
    """Strings by number, each stored once: a conversation repeats itself turn by turn, and so do pictures."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.items)
            self.items.append(text)
        return self._numbers[text]


def _png(frame: Any) -> str:
    """A frame [height, width, 3] as a small PNG in base64: at most WIDEST wide, COLOURS colours."""
    from PIL import Image  # an extra of the environments that draw

    image = Image.fromarray(frame)
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
