"""GraphGPO: graph-based group policy optimisation (Cheng et al., 2026, arXiv 2605.26684), optionally
with the trajectory graph of SALT (Li et al., 2025, arXiv 2510.20022).

    edges: s_t -> s_{t+1} of all episodes of a group; a won episode ends at the goal
    d(s): fewest edges from s to the goal; farthest finite d + 1 if no path was seen
    r_t = 10 * decay**(d(s_{t+1}) + 1)
    A^G_{i,t} = (r_t - mean) / (std + eps)      over the turns of the group that saw the same s_t
    A_{i,t} = episode_weight * A^E_i + graph_weight * A^G_{i,t}

A state is the observation's exact text (`state = "text"`), A^E is that of GRPO. A turn whose state occurs once has
A^G = 0, and so have all turns of a group without a won episode. The published code uses
10 * decay**d(s_{t+1}), the paper the formula above (its equation 4): after normalisation they differ
by eps alone. The code counts an episode once per turn in A^E; here it counts once, as in GiGPO.

`merge = true` adds SALT: A^E of a turn becomes the mean of A^E over all turns of the group with the
same state, commands and next state, so that steps which won and lost episodes share are neutral.
With `graph_weight = 0` this is SALT on GRPO. Its rule is implemented as Yao et al. (2026, "Back to
the definition: estimating step-level advantages via trajectory graphs", appendix A.3) describe it.

Texts can be equal where the game is not: "you arrive at the table" says nothing about what is carried, so
that a table reached with empty hands gets the distance of one reached with the object. With `state = "commands"`
(ours) a state is the text and the admissible commands, which change with what is carried. The state that a turn
limit cuts off has its text alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.math.advantages import group_normalised, members
from baselines.math.estimators import anchor_cells, cell_means, compared_in_cells, shared_turns
from baselines.ranges import NonNegative, Share
from harness.types import Trajectory


@dataclass(frozen=True)
class GraphGPO(GroupConfig):
    """Graph-based group policy optimisation: turns compared by their distance to the goal."""

    decay: Share = 0.1
    """Factor of a turn's step reward per transition between its next state and the goal."""
    episode_weight: NonNegative = 1.0
    graph_weight: NonNegative = 1.0
    merge: bool = False
    """Average the episode advantages over equal transitions of a group (SALT)."""
    state: Literal["text", "commands"] = "text"
    """text: turns with equal observations are in one state | commands: their admissible commands are equal too."""
    std: bool = True
    """Divide by the standard deviation of the group and of the turns with the same state."""
    kl_coef: NonNegative = 0.01
    whole: bool = False


Config = GraphGPO


GOAL = None
"""The state after a won episode; every other state is a text, which may list commands."""

SUCCESS_REWARD = 10.0
"""Factor of the step rewards in the paper; only its size relative to eps matters if `std` is set."""

Transition = tuple[str, tuple[str, ...], str | None]
"""State, commands and next state of a turn."""


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups. Logs the share of turns whose state occurs again in their
    group (`shared_anchors`) and the share from whose next state a way to the goal was seen."""
    config = inputs.config
    logged: dict[str, float] = {}

    def compare(
        trajectories: Sequence[Trajectory], rewards: list[list[float]], groups: list[Hashable]
    ) -> list[list[float]]:
        transitions = [transitions_of(run, config.state == "commands") for run in trajectories]
        turns = sum(map(len, transitions))
        logged["shared_anchors"] = shared_turns(anchor_cells(states_of(transitions), groups))
        known = 0
        for group in members(groups):
            steps = [step for i in group for step in transitions[i]]
            distances = goal_distances(steps)
            known += sum(after in distances for _, _, after in steps)
        logged["goal_known"] = known / turns
        return advantages(rewards, transitions, groups, config)

    return {**update_groups(inputs, compare), **logged}


def transitions_of(run: Trajectory, with_commands: bool = False) -> list[Transition]:
    """Returns the state, commands and next state of each turn of an episode."""
    states = [turn.observation for turn in run.turns]
    if with_commands:
        states = ["\n".join([turn.observation, *sorted(turn.admissible)]) for turn in run.turns]
    after: list[str | None] = [*states[1:], GOAL if run.success else run.final_observation]
    return [(state, turn.commands, s) for state, turn, s in zip(states, run.turns, after, strict=True)]


def states_of(transitions: Sequence[Sequence[Transition]]) -> list[list[str]]:
    """Returns the state before each turn. [E][T_e]"""
    return [[state for state, _, _ in row] for row in transitions]


def goal_distances(transitions: Iterable[Transition]) -> dict[str | None, int]:
    """Returns for each state from which the goal was reached its distance in transitions."""
    before: dict[str | None, set[str | None]] = defaultdict(set)
    for state, _, after in transitions:
        before[after].add(state)
    distances: dict[str | None, int] = {}
    frontier: set[str | None] = {GOAL} if GOAL in before else set()
    distance = 0
    while frontier:
        distances.update(dict.fromkeys(frontier, distance))
        frontier = {state for after in frontier for state in before[after]} - distances.keys()
        distance += 1
    return distances


def advantages(
    rewards: Sequence[Sequence[float]],
    transitions: Sequence[Sequence[Transition]],
    groups: Sequence[Hashable],
    config: Config,
) -> list[list[float]]:
    """Returns an advantage per episode and turn. [E][T_e], [E][T_e], [E] -> [E][T_e]"""
    scores = torch.tensor([sum(row) for row in rewards], dtype=torch.float64)
    episode = group_normalised(scores, groups, config.std).tolist()
    of_episode = [[value] * len(row) for value, row in zip(episode, transitions, strict=True)]
    if config.merge:
        of_episode = cell_means(of_episode, anchor_cells(transitions, groups))
    of_graph = graph_advantages(transitions, groups, config)
    return [
        [config.episode_weight * a + config.graph_weight * b for a, b in zip(*rows, strict=True)]
        for rows in zip(of_episode, of_graph, strict=True)
    ]


def graph_advantages(
    transitions: Sequence[Sequence[Transition]], groups: Sequence[Hashable], config: Config
) -> list[list[float]]:
    """Compares the step rewards of the turns of a group that saw the same state. [E][T_e]"""
    step = [[0.0] * len(row) for row in transitions]
    for group in members(groups):
        distances = goal_distances(edge for i in group for edge in transitions[i])
        unreached = max(distances.values(), default=0) + 1
        for i in group:
            for t, (_, _, after) in enumerate(transitions[i]):
                step[i][t] = SUCCESS_REWARD * config.decay ** (distances.get(after, unreached) + 1)
    return compared_in_cells(step, anchor_cells(states_of(transitions), groups), config.std)
