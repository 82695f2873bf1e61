"""Measures how well a classifier tells generated ALFWorld rooms from official ones.

    python -m benchmarks.alfworld_classifier [ROW ...]

A random forest reads the receptacles of each kind and their contents. Each official game is paired
with a generated one of the same floor plan and, where the generator can, of the same task type.
Both are in the same fold of five. Folds keep either the trials of one task together, so that the
classifier knows every floor plan, or all games of one floor plan. An area under the curve (AUC) of
0.5 means that the classifier learned nothing. Rows:

    pairs       games of train and valid_seen against generated ones
    drawn       the same, but generated from the seeds of the split test instead of in pairs
    counted-elsewhere  the counts of floor plans come from the other four fifths of the tasks
    withheld    the counts come from other floor plans, as for the floor plans of valid_unseen
    unseen      valid_unseen against generated games; skipped if it is not installed
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

from benchmarks.alfworld_plans import SPLITS, CountedGame, count, make_table, plan_of, room_of, unseen_receptacles
from envsuite.envs.alfworld.games import data
from envsuite.envs.alfworld.games.floorplans import holders
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.envs.alfworld.games.plan_counts import PlanCounts
from envsuite.errors import DataError, UsageError

FOLDS = 5
TREES = 300
DRAWS = 1
"""generated games per official one; the AUC is the mean over as many classifications"""
RESAMPLES = 200
FIRST_TEST_SEED = 1_000_000


class Official(NamedTuple):
    """An official game."""

    name: str
    game: AlfworldGame
    counted: CountedGame


class Sample(NamedTuple):
    """A game as the classifier sees it."""

    plan: int
    task: str
    """groups games that are always in one fold"""
    features: list[float]


class Separation(NamedTuple):
    """AUC with its 95 % interval, from resampled floor plans."""

    auc: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.auc:.2f} [{self.low:.2f}, {self.high:.2f}]"


def features(game: AlfworldGame) -> list[float]:
    """Returns number, contents, empty ones and the fullest one of each kind of receptacle."""
    values = []
    for kind in sorted(holders()):
        rows = [r for r, name in enumerate(game.receptacle_types) if name == kind.lower() + "type"]
        for group in ([r for r in rows if game.openable >> r & 1], [r for r in rows if not game.openable >> r & 1]):
            numbers = [len(game.start.contents[r]) for r in group]
            values += [len(numbers), sum(numbers), numbers.count(0), max(numbers, default=-1)]
    return [float(value) for value in values]


def separation(
    official: Sequence[Sample], generated: Sequence[Sequence[Sample]], by_plan: bool, trees: int = TREES
) -> Separation:
    """Returns the AUC of a random forest of `trees` trees between official and generated games.

    `generated` has one sequence per classification.
    """
    aucs, scored = [], []
    for draw, games in enumerate(generated):
        samples = [*official, *games]
        table = np.array([sample.features for sample in samples])
        labels = np.repeat([1, 0], [len(official), len(games)])
        groups = np.array([str(sample.plan) if by_plan else sample.task for sample in samples])
        score = np.zeros(len(labels))
        for train, test in GroupKFold(FOLDS, shuffle=True, random_state=draw).split(table, labels, groups):
            forest = RandomForestClassifier(trees, min_samples_leaf=2, random_state=draw)
            score[test] = forest.fit(table[train], labels[train]).predict_proba(table[test])[:, 1]
        aucs.append(roc_auc_score(labels, score))
        scored.append((np.array([sample.plan for sample in samples]), labels, score))
    rng, plans = np.random.default_rng(0), sorted({sample.plan for sample in official})
    resampled = []
    for _ in range(RESAMPLES):
        plans_labels_scores = scored[rng.integers(len(scored))]
        rows = [np.flatnonzero(plans_labels_scores[0] == plan) for plan in rng.choice(plans, len(plans))]
        chosen = np.concatenate(rows)
        resampled.append(roc_auc_score(plans_labels_scores[1][chosen], plans_labels_scores[2][chosen]))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Separation(float(np.mean(aucs)), float(low), float(high))


def official_games(splits: Sequence[str]) -> list[Official]:
    """Reads the official games of some splits."""
    games = []
    for file in (file for split in splits for file in data.games(split)):
        game = AlfworldGame.load(file.path)
        games.append(Official(file.name, game, count(file.name, game)))
    return games


def official_sample(official: Official) -> Sample:
    """Returns an official game as the classifier sees it."""
    return Sample(official.counted.plan, official.name.split("/")[1], features(official.game))


def pair(official: Official, seed: int, counts: PlanCounts | None = None) -> Sample:
    """Generates a game in the floor plan of an official one, of its task type if possible."""
    plan, task = official.counted.plan, official.name.split("/")[1]
    for task_types in ((task.split("-")[0],), GeneratorSettings.task_types):
        settings = GeneratorSettings(task_types, (room_of(plan),))
        try:
            return Sample(plan, task, features(generate(seed, settings, plan=plan, counts=counts).game))
        except UsageError:  # the room has no lamp on a table, for example
            continue
    raise UsageError(f"no game could be generated in floor plan {plan}")


def pairs(officials: Sequence[Official], counts_of: Callable[[Official], PlanCounts | None]) -> list[list[Sample]]:
    """Generates DRAWS pairs of every official game, each from the counts that `counts_of` returns."""
    return [
        [pair(official, draw * 10_000 + n, counts_of(official)) for n, official in enumerate(officials)]
        for draw in range(DRAWS)
    ]


def drawn(number: int) -> list[list[Sample]]:
    """Generates games from the seeds of the split test."""
    draws = []
    for draw in range(DRAWS):
        games = [generate(FIRST_TEST_SEED + draw * number + n) for n in range(number)]
        draws.append([Sample(plan_of(made.name), made.name, features(made.game)) for made in games])
    return draws


def tables_without(officials: Sequence[Official], by_plan: bool) -> dict[str, PlanCounts]:
    """Maps each official game to a table counted without its task, or without its floor plan.

    If floor plans are left out, their receptacles are still known, as for valid_unseen.
    """
    keys = np.array([str(o.counted.plan) if by_plan else o.name.split("/")[1] for o in officials])
    tables = {}
    for train, test in GroupKFold(FOLDS, shuffle=True, random_state=0).split(keys, groups=keys):
        known = unseen_receptacles()
        if by_plan:
            known |= {official.counted.plan: official.counted.receptacles for official in officials}
        table = PlanCounts(make_table([officials[n].counted for n in train], known))
        tables |= {officials[n].name: table for n in test}
    return tables


def measure(row: str) -> tuple[Separation, Separation | None]:
    """Returns the AUC of a row with folds of tasks, and with folds of floor plans."""
    officials = official_games(("valid_unseen",) if row.startswith("unseen") else SPLITS)
    if row == "drawn":
        generated = drawn(len(officials))
    elif row in ("counted-elsewhere", "withheld"):
        tables = tables_without(officials, row == "withheld")
        generated = pairs(officials, lambda official: tables[official.name])
    else:
        generated = pairs(officials, lambda official: None)
    samples = [official_sample(official) for official in officials]
    by_task = separation(samples, generated, by_plan=False)
    if row.startswith("unseen"):  # four floor plans are too few for five folds
        return by_task, None
    return by_task, separation(samples, generated, by_plan=True)


def main() -> None:
    rows = sys.argv[1:] or ["pairs", "drawn", "counted-elsewhere", "withheld", "unseen"]
    print("| games | AUC, folds of tasks | AUC, folds of floor plans |\n|---|---|---|")
    for row in rows:
        try:
            by_task, by_plan = measure(row)
        except DataError as error:
            print(f"| {row} | not measured: {error} | |")
            continue
        print(f"| {row} | {by_task} | {by_plan or '-'} |", flush=True)


if __name__ == "__main__":
    main()
