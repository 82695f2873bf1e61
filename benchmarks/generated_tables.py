"""Shares of the attainable score on generated tables: random and blind players, simple baselines, the expert.

    python -m benchmarks.generated_tables RESULTS.jsonl [--tables N] [--first SEED] [--seconds S] [--markdown FILE]

Plays every player on the same tables of the training split, through the sandbox. Finished games are appended to
RESULTS.jsonl and are not played again; `--seconds` ends the program early, so that it can be continued.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from envsuite import registry
from envsuite.envs.datascicoding import scoring
from envsuite.envs.datascicoding.generated import programs
from envsuite.envs.datascicoding.generated.world import World
from envsuite.envs.datascicoding.pipelines import TEMPLATE
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from harness.stats import intervals

LEVELS = ("easy", "medium", "hard")
PLAYERS = {
    "random": "a random program: half do not run, half use one random column",
    "forest, as it is": "a random forest on all columns, no note read",
    "blind": "a blend on all columns but those that alone predict too well, no note read",
    "majority": "a constant prediction",
    "tree": "one decision tree on columns prepared as the notes say",
    "linear": "a linear model on columns prepared as the notes say",
    "forest": "a random forest on columns prepared as the notes say",
    "expert": "a blend on such columns, and on features of pairs that the notes name",
}


def program(player: str, env: object, seed: int) -> str:
    """Returns a player's program for the table of an environment just reset."""
    world = env.game.world
    if player == "random":
        return programs.random_program(world.numeric, np.random.default_rng(seed))
    if player == "blind":
        return programs.blind(world.numeric)
    if player == "expert":
        return programs.expert(world)
    if player == "forest, as it is":
        return baseline("forest", world.numeric)
    if player == "majority":
        return baseline("majority", world.numeric)
    return informed(player, world)


def informed(name: str, world: World) -> str:
    """Returns the program of a simple baseline on columns prepared as the notes say."""
    text = baseline(name, world.numeric).replace("def build_model(x_train, y_train):", "def plain(x_train, y_train):")
    known = "from sklearn.base import BaseEstimator\n\n" + programs._known(world) + programs.PREPARED
    late = (
        "class Late(BaseEstimator):\n    def fit(self, x, y):\n        self.model = plain(x, y)\n        return self\n"
    )
    late += "    def predict(self, x):\n        return self.model.predict(x)\n"
    late += "    def predict_proba(self, x):\n        return self.model.predict_proba(x)\n"
    return text + "\n" + known + late + programs.FIT.format(model="Prepared(Late())")


def baseline(name: str, numeric: bool) -> str:
    """Returns the program of a simple baseline, which uses all columns as they are."""
    module, classifier, regressor, arguments = BASELINES[name]
    model = regressor if numeric else classifier
    return TEMPLATE.format(imports=f"from sklearn.{module} import {model}", model=f"{model}({arguments})")


BASELINES = {
    "majority": ("dummy", "DummyClassifier", "DummyRegressor", ""),
    "linear": ("linear_model", "LogisticRegression", "Ridge", ""),
    "tree": ("tree", "DecisionTreeClassifier", "DecisionTreeRegressor", "min_samples_leaf=10, random_state=0"),
    "forest": (
        "ensemble", "RandomForestClassifier", "RandomForestRegressor",
        "n_estimators=100, min_samples_leaf=5, random_state=0",
    ),
}  # fmt: skip
"""name -> module, class for classes, class for numbers, arguments"""


def measure(results: Path, seeds: range, seconds: float) -> None:
    """Plays the games that `results` lacks, until the time is up."""
    ended = time.monotonic() + seconds
    lease = Lease(scoring.spec(("GridSearchCV", "SVC")), drivers.choose("auto"))  # keeps the sandbox warm
    done = {(line["level"], line["seed"], line["player"]) for line in read(results)}
    for seed in seeds:
        for level in LEVELS:
            env = registry.build(f"DataSciCoding-generated-{level}-v0", "dense", seconds=300)
            try:
                for player in PLAYERS:
                    if (level, seed, player) in done:
                        continue
                    if time.monotonic() > ended:
                        lease.close()
                        return
                    env.reset(seed=seed)
                    began = time.monotonic()
                    score = env._judge(program(player, env, seed))
                    line = {"level": level, "seed": seed, "player": player, "share": score.auc}
                    line.update(verdict=score.verdict, seconds=round(time.monotonic() - began, 1))
                    line.update(
                        best=env.game.score(env.game.held.truth, env.game.held.truth), number=env.game.world.numeric
                    )
                    with results.open("a") as file:
                        file.write(json.dumps(line) + "\n")
            finally:
                env.close()
    lease.close()


def read(results: Path) -> list[dict]:
    """Returns the finished games."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def interval(values: list[float]) -> str:
    """Returns the mean with a 95 % interval: Student's t, as tables are drawn independently."""
    mean = intervals.student(values)
    return f"{mean.value + 0.0:.2f} [{mean.low + 0.0:.2f}, {mean.high + 0.0:.2f}]"  # + 0.0: no negative zero


def table(lines: list[dict]) -> str:
    """Returns the page: shares by level and player, and how often each player wins."""
    played = {(line["level"], line["seed"], line["player"]) for line in lines}
    complete = [line for line in lines if all((line["level"], line["seed"], player) in played for player in PLAYERS)]
    shares = {
        level: {p: {x["seed"]: x for x in complete if (x["level"], x["player"]) == (level, p)} for p in PLAYERS}
        for level in LEVELS
    }
    counts = {level: len(shares[level]["expert"]) for level in LEVELS}
    page = ["| player | " + " | ".join(f"{level} (n={counts[level]})" for level in LEVELS) + " | what it is |"]
    page += ["|---|" + "--:|" * len(LEVELS) + "---|"]
    for player, text in PLAYERS.items():
        cells = [interval([x["share"] for x in shares[level][player].values()]) for level in LEVELS]
        page.append(f"| {player} | " + " | ".join(cells) + f" | {text} |")
    page.append("| Bayes | " + " | ".join("1" for _ in LEVELS) + " | the true chance or mean of each row |")
    page += ["", "The expert's share less another player's on the same table:", ""]
    page += ["| player | " + " | ".join(LEVELS) + " |", "|---|" + "--:|" * len(LEVELS)]
    for player in ("blind", "tree", "linear", "forest"):
        cells = []
        for level in LEVELS:
            own, expert = shares[level][player], shares[level]["expert"]
            cells.append(interval([expert[seed]["share"] - x["share"] for seed, x in own.items()]))
        page.append(f"| {player} | " + " | ".join(cells) + " |")
    page += ["", "Wins (a share of at least 0.9 times the expert's):", ""]
    page += ["| player | " + " | ".join(LEVELS) + " |", "|---|" + "--:|" * len(LEVELS)]
    for player in PLAYERS:
        cells = []
        for level in LEVELS:
            own, expert = shares[level][player], shares[level]["expert"]
            wins = sum(x["verdict"] == "ok" and x["share"] >= 0.9 * expert[seed]["share"] for seed, x in own.items())
            cells.append(f"{wins} of {len(own)}")
        page.append(f"| {player} | " + " | ".join(cells) + " |")
    page += ["", "Score of the Bayes predictor on the rows that count (mean over tables):", ""]
    page += ["| level | AUC, classes | R2, numbers |", "|---|--:|--:|"]
    for level in LEVELS:
        best = [(x["best"], x["number"]) for x in shares[level]["expert"].values()]
        auc, r2 = ([value for value, number in best if number == kind] for kind in (False, True))
        cells = [f"{np.mean(values):.3f} (n={len(values)})" if values else "–" for values in (auc, r2)]
        page.append(f"| {level} | {' | '.join(cells)} |")
    return "\n".join(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first table")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    measure(args.results, range(args.first, args.first + args.tables), args.seconds)
    page = table(read(args.results))
    print(page)
    if args.markdown:
        title = (
            "# Generated tables: shares of the attainable score\n\nFrom `benchmarks/generated_tables.py`: mean share "
            "with a 95 % interval (Student's t over tables); a score below the trivial one counts as 0. Seeds from 0 "
            "on of the training split, one program each, through the sandbox.\n\n"
        )
        args.markdown.write_text(title + page + "\n")


if __name__ == "__main__":
    main()
