"""Searches all families for commands that can be repeated at a profit under the dense reward.

    python -m benchmarks.farming                  # all parts
    python -m benchmarks.farming exact            # graphs of the published kitchens and homes, every cycle
    python -m benchmarks.farming sampled          # episodes of the other tasks
    python -m benchmarks.farming programs         # SWE-Gym and DataSciCoding, whose commands are programs

A loop pays if its rewards, discounted as the learner discounts, add up to more than 0. `tests/test_farming.py` holds a
sample of each part.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.envs.overcooked.salad.graph import Graph, explore

REPEATS = 3  # repetitions of a loop that must all pay
CYCLE = 6  # commands in the longest cycle of a kitchen
EPISODES = 20
SAMPLED = (
    "TextWorld-simple-dense-v0",
    "TextWorld-w2-o3-q4-v0",
    "BabyAI-level-GoToLocal-v0",
    "ALFWorld-generated-easy-v0",
    "ALFWorld-generated-hard-v0",
    "VirtualHome-medium-v0",
    "VirtualHome-easy-v0",
    "VirtualHome-hard-v0",
    "Overcooked-easy-v0",
    "Overcooked-tomato_salad-v0",
)
DISCOUNTS = {
    "0.99 a primitive step": (0.99, False),
    "0.95 a command": (0.95, True),
    "0.99 a command": (0.99, True),
    "plain sum": (1.0, True),
}


# ---- exact: every cycle of a graph ------------------------------------------------------------------------------


def kitchen(task: str) -> Graph:
    """Returns the complete graph of a published kitchen with the dense reward."""
    env = registry.build(task, "dense")
    env.reset(seed=0)
    graph: Graph = explore(env.sim, env.macros)
    return graph


def best_cycle(graph: Graph, gamma: float, per_command: bool, longest: int = CYCLE) -> tuple[float, list[int]]:
    """Returns the highest return of a cycle of up to `longest` commands, and its macro-actions.

    `value[s, end]` is the best return of a walk from s to `end` in a number of commands; cycles are its diagonal.
    """
    count = len(graph.states)
    running = ~graph.done
    discount = np.full_like(graph.reward, gamma) if per_command else gamma**graph.steps
    value = np.full((count, count), -np.inf)
    np.fill_diagonal(value, 0.0)
    value[graph.done] = -np.inf
    choices: list[npt.NDArray[np.int8]] = []
    best = -np.inf, 0, 0
    for length in range(1, longest + 1):
        new, choice = np.full_like(value, -np.inf), np.zeros(value.shape, dtype=np.int8)
        for macro in range(graph.to.shape[1]):
            each = graph.reward[:, macro, None] + discount[:, macro, None] * value[graph.to[:, macro]]
            better = (each > new) & running[:, None]
            new[better], choice[better] = each[better], macro
        value = new
        choices.append(choice)
        start = int(value.diagonal().argmax())
        if value[start, start] > best[0] + 1e-12:
            best = float(value[start, start]), start, length
    total, state, length = best
    end, path = state, []
    for choice in reversed(choices[:length]):
        path.append(int(choice[state, end]))
        state = int(graph.to[state, path[-1]])
    return total, path


class HomeGraph(NamedTuple):
    """Complete graph of a published home with what the dense reward has paid already."""

    states: int
    edges: int
    paying: int
    """edges with a reward above 0"""
    repeatable: int
    """of these, edges from whose end a walk leads back to their start"""


def home(task: str) -> HomeGraph:
    """Explores all states that offered commands reach, with what has been paid."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    env = registry.build(task, "dense")
    env.reset(seed=0)
    game = env.game
    states = [game.save()]
    index: dict[Hashable, int] = {states[0]: 0}
    edges: list[tuple[int, int, float]] = []
    for number, state in enumerate(states):  # the list grows during the loop
        game.load(state)
        for command in game.admissible():
            game.load(state)
            outcome = game.act(command)
            if outcome.done:
                continue
            after = game.save()
            if after not in index:
                index[after] = len(states)
                states.append(after)
            edges.append((number, index[after], outcome.reward))
    rows, columns, rewards = map(np.array, zip(*edges, strict=True))
    matrix = csr_matrix((np.ones(len(edges)), (rows, columns)), shape=(len(states), len(states)))
    component = connected_components(matrix, connection="strong")[1]
    paying = rewards > 0
    return HomeGraph(
        len(states), len(edges), int(paying.sum()), int((paying & (component[rows] == component[columns])).sum())
    )


# ---- sampled: episodes in which loops are looked for and repeated -------------------------------------------------


class Search(NamedTuple):
    """Result of a search for paying loops."""

    episodes: int
    commands: int
    loops: int
    """loops with a positive sum that were repeated"""
    paying: int
    """of these, loops that paid in each repetition"""
    most: float
    """highest dense return of an episode"""
    example: tuple[str, ...] = ()


def search(task: str, episodes: int = EPISODES, **knobs: Any) -> Search:
    """Plays episodes by the expert and at random, and repeats each loop that paid.

    A loop of up to `CYCLE` commands begins and ends with the same commands on offer. If its rewards add up to more
    than 0, its commands are repeated `REPEATS` times.
    """
    env = registry.build(task, "dense", **knobs)
    commands = loops = paying = 0
    most = -np.inf
    example: tuple[str, ...] = ()
    tried: set[tuple[str, ...]] = set()
    for seed in range(episodes):
        rng = np.random.default_rng([seed, 5])
        _, info = env.reset(seed=seed)
        history: list[tuple[str, float]] = []
        offers = [tuple(sorted(info["admissible_commands"]))]
        over = False
        expert = rng.choice([0.0, 0.3, 0.6])
        while not over:
            command = env.expert() if env.experts and rng.random() < expert else None
            command = command or env.random_command(rng)
            _, reward, terminated, truncated, info = env.step(command)
            history.append((command, reward))
            over = terminated or truncated
            offers.append(tuple(sorted(info["admissible_commands"])))
            loop = () if over else _last_loop(history, offers)
            if not loop or loop in tried:
                continue
            tried.add(loop)
            loops += 1
            sums = []
            while not over and len(sums) < REPEATS:
                gain, over = _repeat(env, loop, history)
                sums.append(gain)
            if len(sums) == REPEATS and min(sums) > 0:
                paying += 1
                example = min(example or loop, loop, key=len)
            offers += [()] * (len(history) + 1 - len(offers))  # repeated commands begin no loop
        commands += len(history)
        most = max(most, sum(reward for _, reward in history))
    return Search(episodes, commands, loops, paying, float(most), example)


def _last_loop(history: list[tuple[str, float]], offers: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the shortest loop at the end of an episode whose rewards add up to more than 0, or ()."""
    total = 0.0
    for start in range(len(history) - 1, max(-1, len(history) - 1 - CYCLE), -1):
        total += history[start][1]
        if total > 1e-9 and offers[start] == offers[-1]:
            return tuple(name for name, _ in history[start:])
    return ()


def _repeat(env: TextEnv, names: tuple[str, ...], history: list[tuple[str, float]]) -> tuple[float, bool]:
    total = 0.0
    for name in names:
        _, reward, terminated, truncated, _ = env.step(name)
        history.append((name, reward))
        total += reward
        if terminated or truncated:
            return total, True
    return total, False


# ---- programs: a good and a bad answer in turn --------------------------------------------------------------------

CONSTANT = """\
import numpy as np
class Constant:
    def __init__(self, classes): self.classes_ = classes
    def predict_proba(self, x): return np.full((len(x), len(self.classes_)), 1 / len(self.classes_))
def build_model(x, y): return Constant(np.unique(y))
"""
STUMP = """\
from sklearn.tree import DecisionTreeClassifier
def build_model(x, y): return DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y)
"""


def alternate(task: str, answers: list[str], rounds: int, **knobs: Any) -> list[float]:
    """Returns the rewards of each round in which the answers are given one after the other."""
    env = registry.build(task, "dense", **knobs)
    try:
        env.reset(seed=0)
        return [sum(env.step(answer)[1] for answer in answers) for _ in range(rounds)]
    finally:
        env.close()


# ---- the tables -----------------------------------------------------------------------------------------------------


def exact() -> None:
    """Prints the tables of published kitchens and homes."""
    print("| kitchen | discount | best cycle | its commands |\n|---|---|--:|---|")
    for dish in ("tomato", "tomato_lettuce"):
        graph = kitchen(f"Overcooked-{dish}_salad-v0")
        env = registry.build(f"Overcooked-{dish}_salad-v0")
        env.reset(seed=0)
        for name, (gamma, per_command) in DISCOUNTS.items():
            total, path = best_cycle(graph, gamma, per_command)
            words = ", ".join(env.macros[macro].name for macro in path)
            print(f"| {dish} | {name} | {total:+.5f} | {words} |", flush=True)
    print("\n| home | states | edges | paying edges | of these repeatable |\n|---|--:|--:|--:|--:|")
    for task in ("food_preparation", "entertainment", "washing_plate"):
        for suffix in ("", "-fixed"):
            row = home(f"VirtualHome-{task}{suffix}-v0")
            print(
                f"| {task}{suffix} | {row.states:,} | {row.edges:,} | {row.paying:,} | {row.repeatable} |", flush=True
            )


def sampled() -> None:
    """Prints the table of sampled episodes."""
    print("| task | episodes | commands | loops repeated | paying loops | highest return |\n|---|--:|--:|--:|--:|--:|")
    for task in SAMPLED:
        row = search(task, **({"max_steps": 200} if "BabyAI" not in task else {}))
        cells = f"{row.episodes} | {row.commands:,} | {row.loops} | {row.paying} | {row.most:.3f}"
        print(f"| {task} | {cells} |", flush=True)
        if row.example:
            print(f"<!-- {task}: {', '.join(row.example)} -->", flush=True)


def programs() -> None:
    """Prints the rounds of a constant prediction and a tree of depth 2, paid for improvements."""
    rounds = alternate("DataSciCoding-breast-cancer-v0", [CONSTANT, STUMP], 3, mode="improve", attempts=8)
    print("DataSciCoding:", ", ".join(f"{reward:.3f}" for reward in rounds))


if __name__ == "__main__":
    parts = {"exact": exact, "sampled": sampled, "programs": programs}
    for part in sys.argv[1:] or parts:
        parts[part]()
        print()
