"""Experts of the compatibility layer: `handcoded` and `planner`.

`handcoded` runs the rule-based agent of the alfworld package on our engine's states, so its plans
equal the stock ones. `planner` returns a shortest plan of the exact solver. The stock one asks Fast
Downward, whose plans also win but may be longer.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from envsuite.envs.alfworld.engine import NativeEngine
from envsuite.envs.alfworld.games import solver
from envsuite.errors import MissingExtra

EXPERT_TYPES = ("handcoded", "planner")
HANDCODED_MAX_STEPS = 200
"""Steps after which the handcoded agent raises an error, as in the stock environment."""


class HumanFact(NamedTuple):
    """A fact with display names, as the handcoded agent reads it."""

    name: str
    names: tuple[str, ...]


def planner_plan(engine: NativeEngine) -> list[str]:
    """Returns a shortest plan from the current state; empty if the game is won or lost."""
    return solver.commands(engine.game, engine.get_state()) or []


class HandcodedExpert:
    """The handcoded agent of the alfworld package, for one game.

    It makes some choices at random, from Python's global generator.
    """

    def __init__(self) -> None:
        self._agent = _agent_class()(max_steps=HANDCODED_MAX_STEPS)

    def reset(self, path: str, engine: NativeEngine) -> list[str]:
        """Starts the game at `path` and returns the plan for its first observation."""
        self._agent.reset(path)
        self._agent.observe(engine.opening)
        return ["look"]

    def plan(self, engine: NativeEngine, feedback: str, command: str) -> list[str]:
        """Returns the plan after `command`: one admissible command, or `look`."""
        commands = engine.admissible()
        state = {"feedback": feedback, "admissible_commands": list(commands), "facts": _facts(engine)}
        action = self._agent.act(state, 0, engine.won, command)
        return [action] if action in commands else ["look"]


def _facts(engine: NativeEngine) -> list[HumanFact]:
    """Returns the facts that the handcoded agent reads: contents, object in hand, and conditions."""
    game = engine.game
    facts = [
        HumanFact("inreceptacle", (game.objects[o], game.receptacles[r]))
        for r, row in enumerate(engine.contents)
        for o in row
    ]
    if engine.held >= 0:
        facts.append(HumanFact("holds", ("agent1", game.objects[engine.held])))
    for name, mask in (("ishot", engine.hot), ("iscool", engine.cool), ("isclean", engine.clean)):
        facts += [HumanFact(name, (game.objects[o],)) for o in range(len(game.objects)) if mask >> o & 1]
    return facts


def _agent_class() -> Any:
    """Imports the agent; the import sets $ALFWORLD_DATA, which is undone here."""
    data = os.environ.get("ALFWORLD_DATA")
    try:
        from alfworld.agents.expert import HandCodedTWAgent
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "The handcoded expert needs the alfworld package: pip install 'envsuite[alfworld-stock]'"
        ) from error
    finally:
        if data is None:
            os.environ.pop("ALFWORLD_DATA", None)
    return HandCodedTWAgent
