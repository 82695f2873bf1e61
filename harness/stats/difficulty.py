"""Order of instances by measured difficulty: a ladder for a curriculum from the results of played episodes.

    rows = records.read_results(Path("runs/.../results.jsonl"))
    results = ((row["labels"]["instance"], row["success"]) for row in rows)
    ladder = by_difficulty(results, levels=4)
    curriculum = Curriculum(ladder)  # harness.stats.curriculum

Each level is a dictionary of knobs, as `envsuite.make(task, **level)` takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envsuite.errors import UsageError


def by_difficulty(results: Iterable[tuple[str, bool]], levels: int = 4) -> list[dict[str, Any]]:
    """Returns `levels` settings, from the instances that are solved most often to those solved least.

    `results`: (instance, success) of each episode, of one player or several. The share of an instance is
    estimated as (wins + 1) / (episodes + 2), so that few episodes do not make it extreme; equal
    shares are ordered by name. The levels differ by at most one in size. Raises UsageError if there
    are fewer instances than levels.
    """
    counts: dict[str, list[int]] = {}
    for instance, success in results:
        count = counts.setdefault(instance, [0, 0])
        count[0] += bool(success)
        count[1] += 1
    if not 1 <= levels <= len(counts):
        raise UsageError(f"{levels} levels need at least as many instances: the results have {len(counts)}.")
    share = {instance: (wins + 1) / (episodes + 2) for instance, (wins, episodes) in counts.items()}
    ordered = sorted(share, key=lambda instance: (-share[instance], instance))
    bounds = [len(ordered) * level // levels for level in range(levels + 1)]
    return [{"instances": tuple(ordered[bounds[level] : bounds[level + 1]])} for level in range(levels)]
