"""A scripted player whose rollout in this project is the reference for adapters to other frameworks.

The player mixes the expert's commands with invalid commands, thoughts and replies without a command. `Reference`
stores its reply to each prompt as tokens. A framework that asks it with any other prompt gets a KeyError, so that a
finished game has had the same prompts, token for token.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from collections.abc import Sequence
from typing import Any

from harness.evaluate import Execution, open_slots
from harness.interop.chat_game import chat_config
from harness.lm.conversations import Conversations
from harness.lm.template import Template
from harness.rollout.executors import Executor
from harness.rollout.loop import rollout
from harness.types import Prompt, Reply, Trajectory

GAMES = (
    "BabyAI-goto-v0",
    "ALFWorld-generated-easy-v0",
    "VirtualHome-food_preparation-v0",
    "Overcooked-tomato_salad-v0",
)
"""Tasks whose engines need no compiled package."""


class Scripted:
    """Policy with a fixed reply per game and turn, as tokens with made-up log-probabilities."""

    name, advice_kind, deterministic = "scripted", "", True

    def __init__(self, tokenizer: Any, config: Any, thoughts: bool) -> None:
        self._config, self._thoughts = config, thoughts
        self._chats = Conversations(Template(tokenizer, [tokenizer.eos_token_id]), 256, 1 << 20)
        self._coach: dict[str, tuple[Executor, str]] = {}
        self.replies: dict[tuple[int, ...], Reply] = {}
        self.texts: dict[tuple[str, ...], str] = {}

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [self._answer(prompt) for prompt in prompts]

    def _answer(self, prompt: Prompt) -> Reply:
        contents = tuple(message["content"] for message in prompt.messages)
        rng = random.Random(zlib.crc32(repr(contents).encode()))
        advice = self._advice(prompt)
        text = self.texts.setdefault(
            contents, _spelled(advice, rng, self._thoughts)
        )  # other games can begin with the same prompt
        coach, _ = self._coach[prompt.key]
        coach.step(0, self._config.prompting.parse(text).commands, prompt.turn)
        ((_, result),) = coach.poll()
        self._coach[prompt.key] = coach, result.advice or ""
        encoded, _ = self._chats.fit(prompt)
        assert not encoded.rewritten, "the template rewrites replies"
        tokenizer = self._chats.template.tokenizer
        ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        assert self._chats.remember(prompt, ids) == text
        logprobs = [-rng.random() for _ in ids]
        reply = Reply(text, prompt_ids=encoded.ids, ids=ids, logprobs=logprobs)
        self.replies[tuple(encoded.ids)] = reply
        return reply

    def _advice(self, prompt: Prompt) -> str:
        """Returns the expert's next command in a game that follows this one."""
        if prompt.turn == 0:
            assert prompt.episode is not None
            coach = open_slots(self._config, Execution(max_concurrent=1), 1, "expert")
            coach.start(0, prompt.episode)
            ((_, result),) = coach.poll()
            self._coach[prompt.key] = coach, result.advice or ""
        return self._coach[prompt.key][1]

    def close(self) -> None:
        for coach, _ in self._coach.values():
            coach.close()


def _spelled(command: str, rng: random.Random, thoughts: bool) -> str:
    """Writes the expert's command as a model might, or another reply instead."""
    chance = rng.random()
    if chance < 0.15:
        return "I am not sure what to do."
    if chance < 0.3:
        return "<action>fly to the moon</action>"
    thought = "<think>The next step is clear.</think>" if thoughts and chance < 0.6 else ""
    return f"{thought}<action>{command}</action>"


class Reference:
    """Episodes of the scripted player in this project's own rollout, and its replies."""

    def __init__(self, tokenizer: Any, env: str, count: int = 5, thoughts: bool = True, **flags: Any) -> None:
        self.config = chat_config("reference", env, "train", count, **flags)
        self._player = Scripted(tokenizer, self.config, thoughts)
        slots = open_slots(self.config, Execution(), count, "")
        try:
            played = rollout(
                self._player, self.config.all_episodes(), slots, self.config.prompting, self.config.max_turns
            )
            self.runs: dict[int, Trajectory] = {run.episode.seed: run for run in played}
        finally:
            slots.close()
            self._player.close()
        assert len(self.runs) == count and not any(run.broken for run in self.runs.values())

    def reply(self, prompt_ids: Sequence[int]) -> Reply:
        """Returns the player's reply to exactly this prompt. Raises KeyError for another one."""
        return self._player.replies[tuple(prompt_ids)]

    def text(self, messages: Sequence[dict[str, Any]]) -> str:
        """Returns the player's reply to exactly these messages. Raises KeyError for others."""
        return self._player.texts[tuple(message["content"] for message in messages)]

    def prompts(self) -> list[tuple[str, ...]]:
        """Returns the contents of the messages of every prompt."""
        return list(self._player.texts)

    def tokens(self, seed: int) -> tuple[list[int], list[bool], list[float]]:
        """Returns an episode's tokens, which of them were sampled, and their log-probabilities (0 elsewhere)."""
        from baselines.batch import collate

        batch = collate([self.runs[seed]])
        assert len(batch.ids) == 1, "the conversation was rewritten"
        valid = batch.valid[0]
        return batch.ids[0][valid].tolist(), batch.sampled[0][valid].tolist(), batch.logprobs[0][valid].tolist()

    def count(self, package: str, version: str, masks: bool = True) -> None:
        """Appends the numbers of episodes, turns and tokens found equal to the file that ENVSUITE_ADAPTERS names."""
        if place := os.environ.get("ENVSUITE_ADAPTERS"):
            runs = self.runs.values()
            tokens = sum(len(self.tokens(seed)[0]) for seed in self.runs) if masks else 0
            sampled = sum(sum(self.tokens(seed)[1]) for seed in self.runs) if masks else 0
            row = {
                "package": package,
                "version": version,
                "task": self.config.task.id,
                "episodes": len(runs),
                "turns": sum(len(run.turns) for run in runs),
                "tokens": tokens,
                "sampled": sampled,
            }
            with open(place, "a") as file:
                file.write(json.dumps(row) + "\n")
