"""Speed of scoring admissible commands: as one tree after a shared prefix, or one command at a time.

python -m benchmarks.scoring [MODEL]

Seconds on a CPU are CPU time of this process over all cores, which other processes hardly affect; on a
GPU they are wall-clock time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.lm.cache import take_row
from harness.lm.likelihood import token_logprobs, token_logprobs_apart
from harness.policies.hf import load
from harness.policies.score import ScorePolicy

SEEN = "You arrive at cabinet {0}. The cabinet {0} is open. In it, you see a cloth 1, a soapbar 2, and a plate {0}."
THINGS = [f"{kind} {number}" for kind in ("cabinet", "drawer", "countertop", "fridge") for number in range(1, 6)]


def main(model: str = "smollm2-135m", turns: int = 5) -> None:
    network, tokenizer = load(model, "auto", "auto")
    who = ScorePolicy.of(network, tokenizer, name=model)
    clock = time.process_time if network.device.type == "cpu" else time.perf_counter
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Play a household game, one command a turn."}]
    for turn in range(1, turns + 1):
        messages.append({"role": "user", "content": SEEN.format(turn)})
        messages.append({"role": "assistant", "content": f"go to cabinet {turn}"})
    messages.append({"role": "user", "content": SEEN.format(turns + 1)})
    commands = [f"go to {thing}" for thing in THINGS]
    ids, candidates = who.tokens(messages, commands)

    def timed(work: Callable[[], Any]) -> tuple[Any, float]:
        began = clock()
        value = work()
        if network.device.type == "cuda":
            torch.cuda.synchronize()
        return value, clock() - began

    with torch.inference_mode():
        token_logprobs(
            network, ids[:20], [candidate._replace(keeps=20) for candidate in candidates[:2]]
        )  # reads the weights
        apart, slow = timed(lambda: token_logprobs_apart(network, ids, candidates))
        (tree, cache), cold = timed(lambda: token_logprobs(network, ids, candidates))
        before = len(ids) - 50  # what the previous turn left behind
        prefix = take_row(cache, 0, 0, before)
        (again, _), warm = timed(lambda: token_logprobs(network, ids, candidates, prefix, before))
    worst = max(float((a - b).abs().max()) for x in (tree, again) for a, b in zip(apart, x, strict=True))
    tokens = sum(len(candidate.ids) for candidate in candidates)
    print(f"{model}, prompt of {len(ids)} tokens, {len(candidates)} commands of {tokens} tokens, {network.dtype}\n")
    print("| | s | times faster |\n|---|--:|--:|")
    print(f"| one command at a time | {slow:.2f} | 1.0 |")
    print(f"| one tree, first turn | {cold:.2f} | {slow / cold:.1f} |")
    print(f"| one tree, the prompt but 50 tokens known | {warm:.2f} | {slow / warm:.1f} |")
    print(f"\nlargest difference of a log-prob: {worst:.1e}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
