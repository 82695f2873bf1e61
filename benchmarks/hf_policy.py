"""Time that a local model saves by reusing a conversation's keys and values.

python -m benchmarks.hf_policy [MODEL]

A policy with reuse and one without play the same conversations greedily, alternating turn by turn; the
replies are compared. Seconds on a CPU are CPU time of this process over all cores, which other
processes hardly affect; on a GPU they are wall-clock time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from harness.policies.hf import HFPolicy, load
from harness.types import Prompt, Reply

RULES = (
    "You play a household game. Each turn, answer with one command between <action> and </action>, and nothing else."
)
SEEN = (
    "You are in the middle of a room. Looking quickly around you, you see a cabinet {0}, a countertop 1, a fridge 1, "
    "a microwave 1 and a sinkbasin 1.\nAdmissible commands: go to cabinet {0}, go to countertop 1, go to fridge 1, "
    "go to microwave 1, go to sinkbasin 1, examine cabinet {0}, inventory, look"
)


def prompts(histories: Sequence[Sequence[Reply]], turn: int) -> list[Prompt]:
    """Builds the next prompt of each conversation."""
    results = []
    for number, replies in enumerate(histories):
        messages: list[dict[str, Any]] = [{"role": "system", "content": RULES}]
        for past, reply in enumerate(replies):
            messages.append({"role": "user", "content": SEEN.format(number + past)})
            messages.append({"role": "assistant", "content": reply.text})
        messages.append({"role": "user", "content": SEEN.format(number + turn)})
        results.append(Prompt(messages, key=str(number), turn=turn))
    return results


def main(model: str = "smollm2-135m", batch: int = 4, turns: int = 6, max_tokens: int = 12) -> None:
    network, tokenizer = load(model, "auto", "auto")
    clock = time.process_time if network.device.type == "cpu" else time.perf_counter
    both = {
        name: HFPolicy.of(network, tokenizer, name=model, max_tokens=max_tokens, prefix_reuse=name == "reuse")
        for name in ("plain", "reuse")
    }
    for policy in both.values():  # the first call reads the weights from disk
        policy.act([Prompt([{"role": "user", "content": "look"}])])
    histories: list[list[Reply]] = [[] for _ in range(batch)]
    total = dict.fromkeys(both, 0.0)
    same = True
    print(f"{model}, {batch} conversations, {max_tokens} tokens a reply, {next(network.parameters()).dtype}\n")
    print("| turn | prompt tokens | plain s | reuse s | times faster |\n|--:|--:|--:|--:|--:|")
    sampled = 0
    for turn in range(turns):
        batch_prompts = prompts(histories, turn)
        seconds, replies = {}, {}
        for name, policy in both.items():
            began = clock()
            replies[name] = policy.act(batch_prompts)
            seconds[name] = clock() - began
            total[name] += seconds[name]
        same &= [reply.text for reply in replies["plain"]] == [reply.text for reply in replies["reuse"]]
        for talk, reply in zip(histories, replies["plain"], strict=True):
            talk.append(reply)
        sampled += sum(reply.output_tokens for reply in replies["plain"])
        length = sum(reply.input_tokens for reply in replies["plain"]) // batch
        ratio = seconds["plain"] / seconds["reuse"]
        print(f"| {turn + 1} | {length} | {seconds['plain']:.2f} | {seconds['reuse']:.2f} | {ratio:.1f} |", flush=True)
    rates = {name: sampled / total[name] for name in both}
    print(
        f"\nplain {rates['plain']:.1f} sampled tokens per second, reuse {rates['reuse']:.1f}: "
        f"{rates['reuse'] / rates['plain']:.1f} times faster over the whole; replies equal: {same}"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
