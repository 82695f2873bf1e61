"""Writes the digests of what alfworld's own engine answers in generated games (some minutes).

    python -m tests.golden.make_alfworld

Needs the packages alfworld, textworld and fast-downward-textworld. Each line of `alfworld/stock.jsonl` is one walk
through a game that our generator makes from a seed: its commands, and the digests of all answers.
"""

from __future__ import annotations

import json
import multiprocessing

from benchmarks.alfworld_equivalence import record
from envsuite.envs.alfworld.engine import AlfworldGame
from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.generator import generate
from envsuite.envs.alfworld.games.logic import remake
from tests.golden.digests import FOLDER, STEP, digest

SEEDS = range(6)


def walks(job: tuple[int, str]) -> list[str]:
    """The lines of one game in one dialect."""
    seed, dialect = job
    name = f"generated {seed}"
    text = generate(seed).text
    if dialect == "0.4":
        text = remake(text, "0.4")
    game = AlfworldGame.from_json(text, name)
    kinds = ("plan", "busy") if dialect == "2.1.1" else ("remade",)
    lines = []
    for walk in record(text, name, solver.commands(game, game.start), kinds, memoise=True):
        codes = [digest([point.feedback, point.admissible, point.reward, point.won, point.done]) for point in walk]
        commands = [point.command for point in walk[1:]]
        steps = "".join(code[:STEP] for code in codes)
        lines.append(json.dumps([seed, dialect, commands, steps, digest(codes)[:16]]))
    return lines


def main() -> None:
    jobs = [(seed, dialect) for seed in SEEDS for dialect in ("2.1.1", "0.4")]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=4) as pool:
        lines = []
        for job, found in zip(jobs, pool.imap(walks, jobs), strict=True):
            print(*job, len(found), flush=True)
            lines += found
    path = FOLDER / "alfworld" / "stock.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} walks")


if __name__ == "__main__":
    main()
