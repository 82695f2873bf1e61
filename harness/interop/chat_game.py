"""Games as conversations that only grow, which trainers of other projects record token by token.

A conversation has the rules as its system message, and then an observation and a reply in turn. It uses the prompts
and parsers of `envsuite-eval --history -1 --admissible all`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from envsuite import registry
from envsuite.errors import UsageError, did_you_mean
from envsuite.types import knobs_json
from harness.evaluate import RunConfig
from harness.interop.engine import Engine
from harness.rollout.loop import EpisodeState
from harness.suites.plan import changed, configure
from harness.types import Episode, Message, Reply, Trajectory

FLAGS = ("set", "reward", "max_turns", "thinking", "admissible", "action_grammar")
"""settings of a game, named as the flags of `envsuite-eval`; `set` takes KNOB=VALUE or a list of them"""


def run_config(tool: str, env: str, *, set: str | Sequence[str] = (), **flags: Any) -> RunConfig:
    """Returns the settings of one task's games; `flags` are those of `envsuite-eval`. Raises UsageError, BadKnob."""
    (selected, *more) = registry.tasks(env)
    if more:
        raise UsageError(f"{env!r} matches {len(more) + 1} tasks: name exactly one.")
    knobs = (set,) if isinstance(set, str) and set else tuple(set)
    config = configure(selected, tool, changed({**flags, "set": knobs}))
    check_one_player(config)
    return config


def check_one_player(config: RunConfig) -> None:
    """Raises UsageError if several agents of the game have separate players."""
    agents = registry.agents(config.task, config.knobs)
    if agents > 1:
        raise UsageError(
            f"{config.task.id} with these settings has a player for each of {agents} agents, and a conversation is of "
            "one: use partner=policy, or a scripted partner."
        )


def chat_config(
    tool: str, env: str, split: str = "", count: int | None = None, first: int = 0, **flags: Any
) -> RunConfig:
    """Returns the settings of conversations that only grow. Raises UsageError for a flag that is not in FLAGS."""
    for name in flags:
        if name not in FLAGS:
            raise UsageError(f"Unknown setting {name!r}: choose {', '.join(FLAGS)}.{did_you_mean(name, FLAGS)}")
    if flags.setdefault("admissible", "all") == "latest":
        raise UsageError("A conversation that only grows lists admissible commands in all messages or in none.")
    config = run_config(tool, env, split=split, episodes=count, seed=first, **flags)
    if config.prompting.declares_tools:
        raise UsageError("action_grammar=tools declares tools, which this task does not: use action_grammar=tool.")
    return config


class ChatGame:
    """Environment that plays one game at a time as a conversation."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._engine: Engine | None = None
        self._state: EpisodeState | None = None
        self.messages: list[Message] = []
        """the conversation; while the game runs, its last message is an observation"""

    @property
    def run(self) -> Trajectory:
        """The episode so far."""
        assert self._state is not None, "no game has begun"
        return self._state.run

    @property
    def done(self) -> bool:
        return self.run.stop_reason is not None

    @property
    def info(self) -> dict[str, Any]:
        """The environment's `info` after its latest answer."""
        assert self._state is not None, "no game has begun"
        return self._state.result.info

    def begin(self, seed: int, attempt: int = 0) -> list[Message]:
        """Starts a game and returns its first prompt: a system and a user message. Raises EngineFailure."""
        self._engine = self._engine or Engine(self._config)
        episode = Episode(self._config.task, knobs_json(self._config.knobs), seed, attempt)
        self._state = EpisodeState.begin(episode, self._engine.start(episode))
        self.messages = self._prompt()
        return list(self.messages)

    def reply(self, text: str, finish_reason: str = "stop") -> float:
        """Carries out a reply and returns its reward. Raises EngineFailure.

        `finish_reason` is "length" for a reply that was cut off.
        """
        state, engine = self._state, self._engine
        assert state is not None and engine is not None and not self.done, "no game is running"
        state.answer(Reply(text, finish_reason=finish_reason), self._config.prompting, advised=False)
        state.take(engine.step(state.parsed.commands, len(state.run.turns)), self._config.max_turns)
        self.messages.append({"role": "assistant", "content": text})
        if not self.done:
            self.messages.append(self._prompt()[-1])
        return state.run.turns[-1].reward

    def metrics(self) -> dict[str, float]:
        """Returns success, progression, turns, invalid replies and the task's own figures."""
        run = self.run
        own = {name: float(value) for name, value in run.metrics.items()}
        invalid = sum(bool(turn.fault) for turn in run.turns)
        return {
            "success": float(run.success),
            "progression": float(run.progression),
            "turns": float(len(run.turns)),
            "invalid": float(invalid),
            **own,
        }

    def close(self) -> None:
        """Closes the environment; a later `begin` opens it again."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _prompt(self) -> list[Message]:
        assert self._state is not None
        return list(self._state.prompt(self._config.prompting).messages)


def rows(env: str, split: str = "train", count: int = 100, first: int = 0, **flags: Any) -> list[dict[str, Any]]:
    """Returns rows of a dataset for SkyRL and verl: one game each, from number `first` of a split.

    The columns `env_class` (SkyRL) and `agent_name` (verl) name the adapter, and `game` describes the game. Both
    replace the prompt by the game's own. Raises UsageError, BadKnob.
    """
    config = chat_config("rows", env, split, count, first, **flags)
    return [
        {
            "prompt": [{"role": "user", "content": f"{config.task.id}, seed {seed}"}],
            "data_source": config.task.id,
            "env_class": "envsuite",
            "agent_name": "envsuite",
            "game": json.dumps({"env": config.task.id, "seed": seed, **flags}, sort_keys=True),
            "reward_model": {"style": "environment", "ground_truth": ""},
            "extra_info": {"index": index},
        }
        for index, seed in enumerate(config.seeds)
    ]


def open_row(tool: str, game: str, max_turns: int | None = None) -> tuple[ChatGame, int]:
    """Returns the environment of a row's column `game`, and the seed of the game."""
    settings = json.loads(game)
    seed = int(settings.pop("seed"))
    limits = [limit for limit in (max_turns, settings.pop("max_turns", None)) if limit is not None]
    config = chat_config(tool, settings.pop("env"), max_turns=min(limits, default=None), **settings)
    return ChatGame(config), seed
