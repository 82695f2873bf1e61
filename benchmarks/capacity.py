"""The simulation of `harness.capacity` against runs that were made: fitted on 1 and 2 workers, held out on 4.

    python -m benchmarks.capacity [--episodes 48] [--repeats 3] [--markdown benchmarks/capacity.md]

Engine and policy sleep for fixed times, so that four workers are four workers on a machine of two cores; what is real is
Ray, the rollout, the journal, and how they wait for each other. Two constants are fitted: what a message costs, and what a
round costs the head.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from envsuite import Knob, Outcome, Task, TextEnv, register, registry
from harness.capacity.profile import load
from harness.capacity.simulate import Cluster, Simulated, Work, simulate
from harness.cluster import connect
from harness.evaluate import Execution, RunConfig, open_slots
from harness.records import Journal, record
from harness.rollout import rollout
from harness.types import Prompt, Reply

TURN, RESET, LATENCY = 0.2, 0.1, 0.1
SLOTS = 12


class Sleepy(TextEnv):
    """An engine that sleeps; episodes of 3 to 9 turns by the seed."""

    isolate = True
    knobs = (Knob("max_steps", 50, "turns", low=1),)

    def _reset(self, seed: int) -> str:
        time.sleep(RESET)
        self.objective, self.left = "Wait.", length(seed)
        return "Asleep."

    def _act(self, command: str) -> Outcome:
        time.sleep(TURN)
        self.left -= 1
        return Outcome("Asleep.", done=not self.left, success=not self.left)

    def admissible(self) -> list[str]:
        return ["wait"]


register(Task(id="Sleepy-v0", entry_point="benchmarks.capacity:Sleepy"))


def length(seed: int) -> int:
    return 3 + seed * 2654435761 % 7


class Slow:
    """A policy that takes a fixed time, however many ask."""

    name, asks, deterministic = "slow", "", True

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        time.sleep(LATENCY)
        return [Reply("wait", commands=("wait",)) for _ in prompts]

    def close(self) -> None:
        pass


def played(address: str, workers: int, episodes: int, repeats: int) -> list[float]:
    """Seconds of runs through the executor, the journal included; starting the workers left out."""
    config = RunConfig(registry.TASKS["Sleepy-v0"], "slow", episodes=episodes)
    how = Execution(executor="ray", ray_address=address, max_concurrent=SLOTS, num_workers=workers)
    slots, spans = open_slots(config, how, episodes, ""), []
    try:
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                journal, began = Journal(Path(folder) / "journal.jsonl"), time.monotonic()
                for run in rollout(Slow(), config.all_episodes(), slots):
                    journal.append(record(run, "slow", "sparse"))
                spans.append(time.monotonic() - began)
                journal.close()
    finally:
        slots.close()
    return spans


def modelled(workers: int, episodes: int, message: float = 0.0, round_s: float = 0.0) -> Simulated:
    seeds = RunConfig(registry.TASKS["Sleepy-v0"], "slow", episodes=episodes).seeds
    work = Work(RESET, TURN, [length(seed) for seed in seeds], 1000.0)
    head, _ = load()
    return simulate(
        work,
        Cluster(
            workers=workers,
            slots=SLOTS,
            latency_s=LATENCY,
            batched=False,
            message_s=message,
            head_turn_s=head.turn_s + head.answer_s,
            head_message_s=head.message_s,
            head_round_s=round_s,
            journal_s_per_mb=head.journal_s_per_mb,
        ),
    )


def fitted(measured: dict[int, float], episodes: int) -> tuple[float, float]:
    """Seconds of a message and of a round that bring the simulation nearest to what was measured."""

    def misfit(constants: tuple[float, float]) -> float:
        return sum(
            (modelled(workers, episodes, *constants).seconds / seconds - 1) ** 2
            for workers, seconds in measured.items()
        )

    grid = [0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16]
    return min(product(grid, grid), key=misfit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray
    from ray.cluster_utils import Cluster as Nodes

    for left in (2, 1, 0):  # Ray gives its own parts 30 s to start, which a loaded machine may not manage
        try:
            nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
            break
        except Exception:
            if not left:
                raise
    measured: dict[int, float] = {}
    spread: dict[int, list[float]] = {}
    try:
        connect.connect(nodes.address)
        for workers in (1, 2, 4):
            spread[workers] = played(nodes.address, workers, args.episodes, args.repeats)
            measured[workers] = statistics.median(spread[workers])
            print(f"{workers} workers: {measured[workers]:.1f} s", flush=True)
    finally:
        ray.shutdown()
        nodes.shutdown()
    message, round_s = fitted({workers: measured[workers] for workers in (1, 2)}, args.episodes)
    rows = ["| workers | measured s (median; least, most) | simulated s | error | used for |", "|--:|--:|--:|--:|---|"]
    for workers, seconds in measured.items():
        found = modelled(workers, args.episodes, message, round_s).seconds
        low, high = min(spread[workers]), max(spread[workers])
        use = "held out" if workers == 4 else "fit"
        rows.append(
            f"| {workers} | {seconds:.1f} ({low:.1f}, {high:.1f}) | {found:.1f} | {100 * (found / seconds - 1):+.1f} % | {use} |"
        )
    rows.append(f"\nFitted: {1000 * message:.0f} ms for a message, {1000 * round_s:.0f} ms of the head for a round.")
    text = "\n".join(rows)
    print(text)
    if args.markdown:
        args.markdown.write_text(
            f"""# The capacity model against runs

`python -m benchmarks.capacity`: {args.episodes} episodes of 3 to 9 turns through `--executor ray`, {SLOTS} slots; the engine sleeps
{RESET} s for a reset and {TURN} s for a turn, the policy {LATENCY} s for a batch (sleeps, so that four workers are four on {os.cpu_count()}
cores); medians of {args.repeats}, load {os.getloadavg()[0]:.0f}. The run with 4 workers had no part in the fit.

{text}
"""
        )


if __name__ == "__main__":
    main()
