"""Measures packed sequences against padded rows, with and without length bucketing.

    python -m benchmarks.packing [--tasks TASK ...] [--sizes xs ...] [--episodes 16] [--turns 8]

Episodes of a task become one row each (the whole conversation); replies are 12 random tokens, and
episodes end at different turns. One GRPO gradient is computed from the same rows in four ways.
`computed` counts tokens that go through the model. Seconds are CPU seconds of this process on one
core (`time.process_time`), the least of `--repeats`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from baselines.batch import Batch, collate
from baselines.collection.actor import Actor
from baselines.microbatch import crop, split
from baselines.networks.model import Model, ModelConfig
from baselines.recipe import Acting
from baselines.studies import tiny_model
from envsuite import registry
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode

TOKENS = 12
PROMPTING = Prompting("bare", False, -1, admissible="none")
WAYS = {
    "padded, one pass": (False, 0),
    "padded, 4 rows of similar length a pass": (False, 4),
    "packed, one pass": (True, 0),
    "packed, 4 rows of similar length a pass": (True, 4),
}


def batch_of(folder: Path, task: str, size: str, episodes: int, turns: int) -> Batch:
    """Plays conversations of 1 to `turns` turns with a random model and returns them as rows."""
    tiny_model.make(folder, tiny_model.texts([task], 4), size, vocabulary=1024, context=4096)
    model = Model.load(ModelConfig(str(folder), critic="none"))
    actor = Actor(model, Acting(max_tokens=TOKENS), PROMPTING, 1.0)
    todo = [episode(registry.TASKS[task], seed) for seed in range(episodes)]
    runs = sorted(rollout(actor, todo, LocalExecutor(episodes), PROMPTING, turns), key=lambda run: run.episode.key)
    actor.close()
    for number, run in enumerate(runs):
        del run.turns[1 + number % turns :]
    return collate(runs, whole=True)


def gradient(model: Model, batch: Batch, micro_rows: int) -> tuple[Tensor, int, float]:
    """Returns the gradient of the mean log-prob, the tokens computed, and CPU seconds."""
    model.lm.zero_grad()
    counts: list[int] = []
    embeddings = model.lm.get_input_embeddings()
    handle = embeddings.register_forward_pre_hook(lambda module, arguments: counts.append(arguments[0].numel()))
    began = time.process_time()
    for part in split(batch, torch.arange(len(batch.ids)), micro_rows):
        ids, valid, sampled, _ = crop(batch, part)
        logprobs, _ = model.logprobs(ids, valid, 1.0, sampled, False)
        (logprobs.sum() / batch.sampled.sum()).backward()
    seconds = time.process_time() - began
    handle.remove()
    flat = torch.cat([p.grad.flatten() for p in model.actor_parameters() if p.grad is not None])
    return flat, sum(counts), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["BabyAI-goto-v0", "TextWorld-easy-v0"])
    parser.add_argument("--sizes", nargs="+", default=["xs", "m"])
    parser.add_argument("--episodes", type=int, default=16, help="conversations (16)")
    parser.add_argument("--turns", type=int, default=8, help="turns of the longest conversation (8)")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| task | parameters | rows | tokens | way | computed | CPU s | gradient differs by |")
    print("|---|--:|--:|--:|---|--:|--:|--:|")
    for task in args.tasks:
        for size in args.sizes:
            with tempfile.TemporaryDirectory() as work:
                folder = Path(work) / "tiny"
                batch = batch_of(folder, task, size, args.episodes, args.turns)
                plain = None
                for name, (packing, micro_rows) in WAYS.items():
                    model = Model.load(ModelConfig(str(folder), critic="none", packing=packing))
                    results = [gradient(model, batch, micro_rows) for _ in range(args.repeats)]
                    flat, computed, _ = results[0]
                    plain = flat if plain is None else plain
                    count = sum(p.numel() for p in model.lm.parameters()) / 1e6
                    seconds = min(seconds for *_, seconds in results)
                    difference = ((flat - plain).norm() / plain.norm()).item()
                    cells = [task, f"{count:.1f}M", len(batch.ids), int(batch.valid.sum()), name, computed]
                    print(f"| {' | '.join(map(str, cells))} | {seconds:.2f} | {difference:.1e} |", flush=True)


if __name__ == "__main__":
    main()
