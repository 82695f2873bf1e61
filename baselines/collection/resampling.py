"""Dynamic sampling (DAPO, Yu et al., 2025, arXiv 2503.14476): groups whose episodes all earned the same
teach nothing and are replaced by groups of other games.

DAPO samples until the batch is full. Here `rounds` bounds the extra rollouts, and the flat groups of
the last round stay in the batch, so that every update has the same number of groups. A group with
fewer than two usable episodes counts as flat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from baselines.math.advantages import members
from harness.types import Trajectory


def replace_flat_groups(
    runs: Sequence[Trajectory],
    size: int,
    rounds: int,
    score: Callable[[Trajectory], float | None],
    play: Callable[[int, int], list[Trajectory]],
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Returns the episodes of a batch after at most `rounds` replacements, and the episodes that
    were replaced.

    `score` returns None for an episode that is not usable; `play(number, groups)` plays that many
    new groups in round `number`, counted from 1.
    """
    groups = _groups(runs, size)
    replaced: list[Trajectory] = []
    for number in range(1, rounds + 1):
        informative: list[list[Trajectory]] = []
        flat: list[list[Trajectory]] = []
        for group in groups:
            (flat if _is_flat([score(run) for run in group]) else informative).append(group)
        if not flat:
            break
        replaced += [run for group in flat for run in group]
        groups = informative + _groups(play(number, len(flat)), size)
    return [run for group in groups for run in group], replaced


def _groups(runs: Sequence[Trajectory], size: int) -> list[list[Trajectory]]:
    """Attempts of one update are numbered consecutively, group by group."""
    return [[runs[i] for i in group] for group in members([run.episode.attempt // size for run in runs])]


def _is_flat(scores: Sequence[float | None]) -> bool:
    return len({round(value, 9) for value in scores if value is not None}) < 2
