"""`TableVectorEnv`: many games of one small deterministic task, played by table look-up.

Each edge of the state graph is simulated once: the first time a command is given in a state, the environment's own
`step` runs it, and text, reward, offers and info of the result are stored under the command. From then on the step is
a dictionary look-up. Results are those of `SyncVectorEnv`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from envsuite.core import TextEnv
from envsuite.types import StopReason
from envsuite.vector.base import TextVectorEnv, VectorStep

MAX_EDGES = 100_000  # stored results; the table starts anew beyond
_LONGEST = 200  # characters of a command whose result is stored
_KEPT_ROWS = 500  # turns after which the log is cut


class Node(dict[str, "Edge"]):
    """A state between two commands: command -> result. `key` restores the state in an environment."""

    __slots__ = ("key",)

    def __init__(self, key: tuple[Any, ...]) -> None:
        super().__init__()
        self.key = key


class Edge(NamedTuple):
    """Result of a command in a state, without what counts turns or time."""

    after: Node
    text: str
    reward: float
    terminated: bool
    success: bool
    valid: bool
    progression: float
    steps: int
    commands: tuple[str, ...]
    change: Hashable
    """what the command adds to the sums behind the metrics"""
    extra: tuple[Any, ...] = ()
    """values of the family's `extra_keys`"""


class TableVectorEnv(TextVectorEnv):
    """`num_envs` games of one deterministic task in which every episode starts alike.

    Each sub-environment (`envs[i]`) is a complete environment. Reading `envs` brings all of them to the present states
    of their games, and the next step reads the states back.
    """

    extra_keys: tuple[str, ...] = ()
    """entries of the family's own info that depend on state and command alone"""
    clock_key: str = ""
    """entry of the family's own info that counts primitive steps since the start"""
    horizon: int | None = None
    """primitive steps after which an episode is truncated"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._envs: list[TextEnv] = []
        self._exposed = True  # somebody may have changed the sub-environments
        super().__init__(*args, **kwargs)
        n = self.num_envs
        self._last_turn = self._envs[0].settings.max_steps
        self._table: dict[Hashable, Node] = {}
        self._size = 0
        self._values: dict[Hashable, Any] = {}  # parts of results, each stored once
        self._start: tuple[Edge, dict[str, Any]] | None = None  # the first observation, and what only its info has
        self._nodes = [Node(()) for _ in range(n)]
        self._current = [True] * n  # the sub-environment is in the state of its game
        self._resets = [0] * n  # resets that the sub-environment has not seen
        self._turns, self._times = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
        self._rows: list[list[Edge]] = []  # the latest turns
        self._since = [0] * n  # row in which each episode, or what is known of it, begins
        self._sums: list[Any] = [None] * n  # sums behind the metrics of each game before that row

    # ---- for subclasses -------------------------------------------------------------------------------------------

    @abstractmethod
    def _state(self, env: Any) -> Hashable:
        """Returns the state of a game without turns, time and the sums behind its metrics."""

    @abstractmethod
    def _load(self, env: Any, state: Any) -> None:
        """Restores a state in a sub-environment, which has its sums already."""

    def _add(self, env: Any, sums: Any, changes: list[Any]) -> None:
        """Gives a sub-environment the sums behind its metrics; `changes` have been added to `sums` since."""

    def _time(self, env: Any) -> int:
        """Returns the primitive steps since the start."""
        return 0

    def _sums_of(self, env: Any) -> Any:
        """Returns the sums behind the metrics."""
        return None

    def _change(self, env: Any, before: Any) -> Hashable:
        """Returns what the last command has added to the sums `before`."""
        return None

    # ---- sub-environments -----------------------------------------------------------------------------------------

    @property
    def envs(self) -> list[Any]:
        """The sub-environments, in the states of their games."""
        if not self._exposed:
            for i in range(self.num_envs):
                self._env(i)
            self._exposed = True
        return self._envs

    @envs.setter
    def envs(self, envs: list[Any]) -> None:
        self._envs = envs

    def _env(self, i: int) -> TextEnv:
        """Returns sub-environment i after bringing it to the state of its game."""
        env = self._envs[i]
        if self._current[i]:
            return env
        for _ in range(self._resets[i]):
            env.episode_seed, env.attempt = env._take_seed(), 0
        self._resets[i] = 0
        self._count(i)
        state, env.progression, env._potential, env._initial_remaining = self._nodes[i].key
        self._load(env, state)
        self._current[i] = True
        return env

    def _count(self, i: int) -> TextEnv:
        """Returns sub-environment i after giving it everything but the state of its game."""
        env, since = self._envs[i], self._since[i]
        env.turn = int(self._turns[i])
        if since < len(self._rows):
            last = self._rows[-1][i]
            late = self.horizon is not None and self._times[i] >= self.horizon
            env.primitive_steps, env.success = last.steps, last.success
            env._over = bool(last.terminated or late or env.turn >= self._last_turn)
        else:
            env.success = env._over = False
            if not env.turn:
                env.primitive_steps = 1
        self._add(env, self._sums[i], [row[i].change for row in self._rows[since:]])
        return env

    def _read_back(self) -> None:
        """Reads the state of every game from its sub-environment."""
        self._exposed = False
        self._rows.clear()
        for i, env in enumerate(self._envs):
            self._current[i], self._since[i], self._resets[i] = True, 0, 0
            if env._over:  # its own step() raises, or the next step resets it
                self._nodes[i] = Node(())
            else:
                self._nodes[i] = self._node(env)
                self._turns[i], self._times[i], self._sums[i] = env.turn, self._time(env), self._sums_of(env)

    def _node(self, env: TextEnv) -> Node:
        key = self._state(env), env.progression, env._potential, env._initial_remaining
        node = self._table.get(key)
        if node is None:
            node = self._table[key] = Node(key)
        return node

    # ---- steps ----------------------------------------------------------------------------------------------------

    def step(self, actions: Sequence[str]) -> VectorStep:  # type: ignore[override]
        """Executes `actions[i]` in game i; with NEXT_STEP, finished games are reset instead."""
        resetting = self._games_to_reset(actions)
        if self._exposed:
            self._read_back()
        found = [node.get(command) for node, command in zip(self._nodes, actions, strict=True)]
        extras: dict[int, dict[str, Any]] = {}  # game -> info entries that other games lack
        explored = []
        for i in resetting:
            found[i], extras[i] = self._reset_game(i)
        if None in found:
            explored = [i for i, edge in enumerate(found) if edge is None]
            for i in explored:
                found[i] = self._explore(i, actions[i])
        edges: list[Edge] = found  # type: ignore[assignment]
        columns: Any = Edge(*zip(*edges, strict=True))  # type: ignore[arg-type]
        self._nodes = list(columns.after)
        self._current = [False] * self.num_envs
        for i in explored:
            self._current[i] = True
        self._turns += 1
        steps = np.array(columns.steps)
        self._times += steps
        self._log(edges, resetting)
        rewards, terminated = np.array(columns.reward, dtype=float), np.array(columns.terminated)
        truncated = (self._turns >= self._last_turn) & ~terminated
        if self.horizon is not None:
            truncated |= (self._times >= self.horizon) & ~terminated
        over = terminated | truncated
        infos = self._infos(columns, steps)
        texts = columns.text
        if over.any():
            texts = self._end(np.flatnonzero(over).tolist(), columns, truncated, infos, extras)
        elif extras:
            for i, extra in extras.items():
                infos = self._add_info(infos, extra, i)
        self._env_obs = list(texts)
        self._terminations, self._truncations, self._autoreset_envs = terminated, truncated, over
        return texts, rewards, terminated.copy(), truncated.copy(), infos

    def _log(self, edges: list[Edge], resetting: list[int]) -> None:
        """Appends a turn to the log, and begins the episodes of games that were reset."""
        rows = self._rows
        rows.append(edges)
        for i in resetting:
            self._begin(i)
        if len(rows) % _KEPT_ROWS == 0 and (first := min(self._since)):
            del rows[:first]
            self._since = [row - first for row in self._since]

    def _begin(self, i: int) -> None:
        self._turns[i], self._times[i], self._sums[i], self._since[i] = 0, 0, None, len(self._rows)

    def _reset_game(self, i: int) -> tuple[Edge, dict[str, Any]]:
        """Resets game i. Returns the first observation, and the entries that only its info has."""
        if self._start is None:
            env = self._env(i)
            text, info = env.reset()
            edge = self._edge(env, text, 0.0, False, info, None)
            self._start = edge, {key: info[key] for key in ("objective", "labels")}
        else:
            self._resets[i] += 1
        return self._start

    def _edge(self, env: TextEnv, text: str, reward: float, terminated: bool, info: dict[str, Any], sums: Any) -> Edge:
        once = self._values.setdefault
        offers, change = tuple(info["admissible_commands"]), self._change(env, sums)
        return Edge(
            self._node(env),
            once(text, text),
            reward,
            terminated,
            info["success"],
            info["is_action_valid"],
            info["progression"],
            info["primitive_steps"],
            once(offers, offers),
            once(change, change),
            tuple(info[key] for key in self.extra_keys),
        )

    def _explore(self, i: int, command: str) -> Edge:
        """Executes a command in the engine, and stores its result."""
        env, node = self._env(i), self._nodes[i]
        sums = self._sums_of(env)
        text, reward, terminated, _, info = env.step(command)
        edge = self._edge(env, text, reward, terminated, info, sums)
        if len(command) <= _LONGEST:
            self._size += 1
            if self._size > MAX_EDGES:
                self._table.clear()
                self._values.clear()
                self._size, self._start = 0, None
            node[command] = edge
        return edge

    def _infos(self, columns: Any, steps: np.ndarray) -> dict[str, Any]:
        """Returns the info entries that all games have."""
        n = self.num_envs
        arrays = {
            "success": np.array(columns.success),
            "is_action_valid": np.array(columns.valid),
            "admissible_commands": np.fromiter([[*offers] for offers in columns.commands], dtype=object, count=n),
            "progression": np.array(columns.progression),
            "stop_reason": np.full(n, None, dtype=object),
            "primitive_steps": steps,
        }
        for key, values in zip(self.extra_keys, zip(*columns.extra, strict=True), strict=True):
            arrays[key] = np.array(values)
        if self.clock_key:
            arrays[self.clock_key] = self._times.copy()
        infos: dict[str, Any] = {}
        for key, array in arrays.items():
            infos[key], infos[f"_{key}"] = array, self._all
        return infos

    def _end(
        self,
        ended: list[int],
        columns: Any,
        truncated: np.ndarray,
        infos: dict[str, Any],
        extras: dict[int, dict[str, Any]],
    ) -> tuple[str, ...]:
        """Completes `infos` for games that have ended, and resets them if the mode says so. Returns all texts."""
        texts = list(columns.text)
        for i in ended:
            solved = StopReason.SOLVED if columns.success[i] else StopReason.FAILED
            infos["stop_reason"][i] = StopReason.MAX_STEPS if truncated[i] else solved
            extras[i] = {"metrics": self._count(i).metrics()}
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                shared = {key: infos[key][i] for key in infos if not key.startswith("_")}
                final = {key: value.item() if isinstance(value, np.generic) else value for key, value in shared.items()}
                edge, start = self._reset_game(i)
                start = {"final_obs": texts[i], "final_info": {**final, **extras[i]}, **start}
                texts[i], extras[i] = edge.text, start
                self._nodes[i], self._current[i] = edge.after, False
                self._begin(i)
                values = edge.success, edge.valid, [*edge.commands], edge.progression, None, edge.steps, *edge.extra
                keys = "success", "is_action_valid", "admissible_commands", "progression", "stop_reason"
                for key, value in zip((*keys, "primitive_steps", *self.extra_keys), values, strict=True):
                    infos[key][i] = value
                if self.clock_key:
                    infos[self.clock_key][i] = 0
        for i, extra in extras.items():
            self._add_info(infos, extra, i)
        return tuple(texts)
