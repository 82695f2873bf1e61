"""Measures the overhead of our TextEnv on the stock engine, against the engine set up as in
ALFWorld.

    python -m benchmarks.alfworld_stock [games]

Times are processor seconds, because the machine may be shared. Both sides load, reset and play
every game with the same commands in alternating order. Games are official if $ALFWORLD_DATA is
set, else generated.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from envsuite import registry
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.envs.alfworld.games.data import data_folder

STEPS = 20


def main() -> None:
    games = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    task = "ALFWorld-valid_seen-v0" if data_folder() else "ALFWorld-generated-v0"
    ours = registry.build(task, "dense", engine="textworld")
    assert isinstance(ours, AlfworldEnv)
    guide = registry.build(task)

    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs.pddl import PddlEnv

    raw = AlfredInfos(AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))))
    times: dict[str, list[tuple[float, float]]] = {"reset": [], "step": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "game.tw-pddl"
        for seed in range(games):
            rng = np.random.default_rng(seed)
            guide.reset(seed=seed)
            commands: list[str] = []
            while len(commands) < STEPS:
                commands.append(guide.random_command(rng))
                _, _, terminated, truncated, _ = guide.step(commands[-1])
                if terminated or truncated:
                    break
            file.write_text(ours._find(seed).text)
            pair = {}
            for who in ("raw", "ours") if seed % 2 else ("ours", "raw"):
                log_starts = time.process_time()
                if who == "raw":
                    raw.load(str(file))
                    raw.reset()
                else:
                    ours.reset(seed=seed)
                started = time.process_time()
                for command in commands:
                    (raw if who == "raw" else ours).step(command)
                pair[who] = started - log_starts, (time.process_time() - started) / len(commands)
            for index, label in enumerate(times):
                times[label].append((pair["raw"][index], pair["ours"][index]))
            print(
                f"game {seed}: "
                + ", ".join(f"{w} x{o / r:.3f}" for w, (r, o) in ((w, t[-1]) for w, t in times.items()))
            )
    print(
        f"\n{task}, {games} games, {STEPS} commands each\n\n"
        "| | stock engine | our TextEnv on it | ratio, median of pairs |\n|---|---|---|---|"
    )
    for label, pairs in times.items():
        r, o = (median(side) for side in zip(*pairs, strict=False))
        print(f"| {label} | {r * 1e3:.1f} ms | {o * 1e3:.1f} ms | {median(ours / raw for raw, ours in pairs):.3f} |")
    print(
        json.dumps({label: round(sum(o for _, o in t) / sum(r for r, _ in t), 4) for label, t in times.items()}),
        "ratio of sums",
    )


if __name__ == "__main__":
    main()
