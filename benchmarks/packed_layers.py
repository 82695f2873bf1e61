"""Decoding on a CPU with torch's linear layers and with packed ones (`harness.lm.packed`), in turns.

    python -m benchmarks.packed_layers [--model smollm2-135m] [--rows 1 4 10 32] [--context 500]

Seconds are the shortest of each side's steps, which other programs disturb least.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from harness.lm.decode import Job, Settings
from harness.lm.packed import pack_linears
from harness.lm.resident import ResidentBatch
from harness.policies.hf import load

STEPS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 10, 32])
    parser.add_argument("--context", type=int, default=500, help="tokens of each prompt (500)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (3)")
    arguments = parser.parse_args()
    networks = {name: load(arguments.model, "cpu", "float32")[0] for name in ("torch's", "packed")}
    pack_linears(networks["packed"])
    print(
        f"{arguments.model}, contexts of {arguments.context} tokens, {torch.get_num_threads()} threads: milliseconds\n"
    )
    print("| rows | a prompt, torch's | packed | ratio | a token of each row, torch's | packed | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for rows in arguments.rows:
        best = {name: [float("inf")] * 2 for name in networks}
        for _ in range(arguments.rounds):
            for name, network in networks.items():
                best[name] = list(map(min, best[name], seconds(network, rows, arguments.context)))
        cells = [f"{rows}"]
        for part in (0, 1):
            plain, packed = best["torch's"][part], best["packed"][part]
            cells += [f"{plain * 1e3:.0f}", f"{packed * 1e3:.0f}", f"{plain / packed:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def seconds(network: Any, rows: int, context: int) -> tuple[float, float]:
    """Returns the seconds of a prompt's computation, for one row, and of the shortest step of all rows."""
    batch = ResidentBatch(network, Settings(), lambda ids: "")
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(1000, 4000, (context,), generator=generator).tolist()
    began = time.perf_counter()
    for number in range(rows):
        batch.add(Job([*prompt, 1000 + number], STEPS, number))
        if not number:
            batch.step()
            first = time.perf_counter() - began
    steps = []
    while batch.busy:
        began = time.perf_counter()
        batch.step()
        steps.append(time.perf_counter() - began)
    return first, min(steps[-STEPS // 2 :])


if __name__ == "__main__":
    main()
