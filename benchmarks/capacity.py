"""Compares the simulation of `harness.capacity` with real runs: fitted on 1 and 2 workers, tested on 3 and 4.

    python -m benchmarks.capacity [--episodes 48] [--repeats 3] [--markdown benchmarks/capacity.md]

Engine and policy sleep for fixed times, so that four workers run in parallel on two cores. Ray, the
rollout, the journal and their waiting times are real. One constant is fitted: the time of a message.
The head's time for a turn and a message is measured (`harness/capacity/profiles.json`). The head's
time for a round cannot be fitted from runs of 1 and 2 workers, because nothing waits for it there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from envsuite import Knob, Outcome, Task, TextEnv, register, registry
from harness.capacity.profile import load
from harness.capacity.simulate import Cluster, Simulated, Work, simulate
from harness.cluster import connect
from harness.evaluate import Execution, RunConfig, open_slots
from harness.records import Journal, record
from harness.rollout.loop import rollout
from harness.types import Prompt, Reply

TURN, RESET, LATENCY = 0.2, 0.1, 0.1
SLOTS = 12
FIT, HELD_OUT = ((1, SLOTS), (2, SLOTS)), ((3, SLOTS), (4, SLOTS), (4, 2 * SLOTS))
"""(workers, slots)"""


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

    name, advice_kind, deterministic = "slow", "", True

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        time.sleep(LATENCY)
        return [Reply("wait", commands=("wait",)) for _ in prompts]

    def close(self) -> None:
        pass


def played(address: str, workers: int, slot_count: int, episodes: int, repeats: int) -> list[float]:
    """Seconds of runs through the executor, the journal included; starting the workers left out."""
    config = RunConfig(registry.TASKS["Sleepy-v0"], "slow", episodes=episodes)
    how = Execution(executor="ray", ray_address=address, max_concurrent=slot_count, num_workers=workers)
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


def modelled(workers: int, slots: int, episodes: int, message: float) -> Simulated:
    seeds = RunConfig(registry.TASKS["Sleepy-v0"], "slow", episodes=episodes).seeds
    work = Work(RESET, TURN, [length(seed) for seed in seeds], 1000.0)
    head, _ = load()
    return simulate(
        work,
        Cluster(
            workers=workers,
            slots=slots,
            latency_s=LATENCY,
            batched=False,
            message_s=message,
            head_turn_s=head.turn_s + head.answer_s,
            head_message_s=head.message_s,
            journal_s_per_mb=head.journal_s_per_mb,
        ),
    )


def fitted(measured: dict[tuple[int, int], float], episodes: int) -> float:
    """Seconds of a message that bring the simulation nearest to what was measured."""

    def misfit(message: float) -> float:
        return sum((modelled(*run, episodes, message).seconds / seconds - 1) ** 2 for run, seconds in measured.items())

    return min((number * 0.0005 for number in range(81)), key=misfit)


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
    spread: dict[tuple[int, int], list[float]] = {}
    try:
        connect.connect(nodes.address)
        for run in (*FIT, *HELD_OUT):
            spread[run] = played(nodes.address, *run, args.episodes, args.repeats)
            print(f"{run[0]} workers, {run[1]} slots: {statistics.median(spread[run]):.1f} s", flush=True)
    finally:
        ray.shutdown()
        nodes.shutdown()
    measured = {run: statistics.median(seconds) for run, seconds in spread.items()}
    message = fitted({run: measured[run] for run in FIT}, args.episodes)
    rows = [
        "| workers | slots | measured s (median; least, most) | simulated s | error | used for |",
        "|--:|--:|--:|--:|--:|---|",
    ]
    for run, seconds in measured.items():
        simulated = modelled(*run, args.episodes, message).seconds
        low, high = min(spread[run]), max(spread[run])
        use = "fit" if run in FIT else "held out"
        rows.append(
            f"| {run[0]} | {run[1]} | {seconds:.1f} ({low:.1f}, {high:.1f}) | {simulated:.1f} | "
            f"{100 * (simulated / seconds - 1):+.1f} % | {use} |"
        )
    rows.append(f"\nFitted: {1000 * message:.1f} ms for a message.")
    text = "\n".join(rows)
    print(text)
    if args.markdown:
        args.markdown.write_text(
            f"""# The capacity model compared with runs

`python -m benchmarks.capacity`: {args.episodes} episodes of 3 to 9 turns through `--executor ray`; the engine sleeps
{RESET} s for a reset and {TURN} s for a turn, the policy {LATENCY} s for a batch (they sleep, so that four
workers run in parallel on {os.cpu_count()} cores); medians of {args.repeats},
load {os.getloadavg()[0]:.0f}, niceness {os.nice(0)}.
The runs with 3 and 4 workers were not used for the fit. The head's times are measured, not fitted
(`harness/capacity/profiles.json`).

{text}
"""
        )


if __name__ == "__main__":
    main()
