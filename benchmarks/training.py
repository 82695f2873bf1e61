"""Measures the speed of rollouts and updates against plain implementations of both.

    python -m benchmarks.training [--episodes 16] [--size s]

Rollout: 16 episodes at once against a loop that plays one environment at a time with
`model.generate`; the same model, task, number of turns and tokens per reply. Weights are random, so
that a reply ends early only once in a hundred. Update: one GRPO step from those episodes against
one that computes every turn's row alone with all of its logits; the gradients are compared. Seconds
are CPU seconds of this process on one core (`time.process_time`), so that other load matters
little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from baselines.algorithms import grpo
from baselines.algorithms.groups import group_of
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate, turn_rewards
from baselines.collection.actor import Actor
from baselines.math.losses import aggregate, clipped_surrogate
from baselines.networks.model import Model, ModelConfig
from baselines.recipe import Acting
from baselines.studies import tiny_model
from envsuite import registry
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Trajectory, episode

TASK, TURNS, TOKENS = "VirtualHome-food_preparation-v0", 8, 12
PROMPTING = Prompting("bare", False, 2, admissible="none")


def network(folder: Path, size: str) -> Model:
    tiny_model.make(folder, tiny_model.texts([TASK], 4), size, vocabulary=1024, context=2048)
    return Model.load(ModelConfig(str(folder), critic="none"))


def together(model: Model, episodes: int) -> list[Trajectory]:
    actor = Actor(model, Acting(max_tokens=TOKENS), PROMPTING, 1.0)
    todo = [episode(registry.TASKS[TASK], seed // 4, seed % 4) for seed in range(episodes)]
    return list(rollout(actor, todo, LocalExecutor(episodes), PROMPTING, TURNS))


@torch.inference_mode()
def one_by_one(model: Model, episodes: int) -> int:
    """Plays one environment at a time; returns the number of sampled tokens."""
    lm, tokenizer, sampled_tokens = model.lm, model.tokenizer, 0
    for seed in range(episodes):
        env = registry.make(TASK)
        observation, _ = env.reset(seed=seed // 4)
        past: list[dict[str, str]] = [{"role": "system", "content": env.unwrapped.instructions}]
        for _ in range(TURNS):
            past.append({"role": "user", "content": observation})
            visible = [past[0], *past[1:][-5:]]
            ids = tokenizer.apply_chat_template(
                visible, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            out: Any = lm.generate(**ids, max_new_tokens=TOKENS, do_sample=True, top_k=0, pad_token_id=0)
            reply = out[0, ids["input_ids"].shape[1] :]
            sampled_tokens += len(reply)
            past.append({"role": "assistant", "content": tokenizer.decode(reply, skip_special_tokens=True)})
            observation, _, terminated, truncated, _ = env.step(past[-1]["content"])
            if terminated or truncated:
                break
        env.close()
    return sampled_tokens


def plain_update(model: Model, runs: list[Trajectory], advantages: list[list[float]]) -> None:
    """Accumulates the gradient of the same loss from each turn's row alone, with all logits."""
    batch = collate(runs, whole=False)
    model.lm.eval()
    model.lm.zero_grad()
    total = batch.sampled.sum()
    place = {(e, t): advantages[e][t] for e, row in enumerate(advantages) for t in range(len(row))}
    for row in range(len(batch.ids)):
        width = int(batch.valid[row].sum())
        ids, mask = batch.ids[row : row + 1, :width], batch.sampled[row : row + 1, :width]
        logp = model.lm(input_ids=ids, use_cache=False).logits[:, :-1].float().log_softmax(-1)
        logprobs = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
        mine = (batch.where[:, 0] == row).nonzero()[0, 0]
        value = place[int(batch.episode[mine]), int(batch.turn[mine])]
        per, _ = clipped_surrogate(logprobs, batch.logprobs[row : row + 1, 1:width], torch.full_like(logprobs, value))
        (aggregate(per, mask[:, 1:]) * mask.sum() / total).backward()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--size", default="s")
    args = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time
    with tempfile.TemporaryDirectory() as work:
        model = network(Path(work) / "tiny", args.size)
    parameters = sum(p.numel() for p in model.lm.parameters())
    print(
        f"tiny {args.size}, {parameters / 1e6:.1f} million parameters, {TASK}, {args.episodes} "
        f"episodes of at most {TURNS} turns, ",
        end="",
    )
    print(f"{TOKENS} tokens a reply, history 2, one core, torch {torch.__version__}\n")
    together(model, 1), one_by_one(model, 1)  # work that is done only once is not measured
    began = clock()
    runs = sorted(together(model, args.episodes), key=lambda run: run.episode.key)
    fast = clock() - began
    ours = sum(len(turn.reply.ids) for run in runs for turn in run.turns)
    began = clock()
    theirs = one_by_one(model, args.episodes)
    slow = clock() - began
    print("| | tokens | CPU s | tokens/s | times |\n|---|--:|--:|--:|--:|")
    print(f"| rollout, one environment at a time | {theirs} | {slow:.2f} | {theirs / slow:.0f} | 1 |")
    print(
        f"| rollout, {args.episodes} together | {ours} | {fast:.2f} | {ours / fast:.0f} | "
        f"{ours / fast / (theirs / slow):.1f} |"
    )
    generator = torch.Generator().manual_seed(0)
    for number, run in enumerate(runs):  # rewards that differ within each group
        run.turns[-1].reward = float(number % 4)
    config = grpo.Config(group_size=4, kl_coef=0.0, whole=False, aggregation="token-mean", max_grad_norm=1e9)
    rewards = turn_rewards(runs)
    groups = [group_of(run, 4) for run in runs]
    advantages = grpo.advantages(rewards, groups, config)
    read = int(collate(runs, whole=False).valid.sum())
    began = clock()
    plain_update(model, runs, advantages)
    slow = clock() - began
    plain = torch.cat([p.grad.flatten() for p in model.actor_parameters() if p.grad is not None])
    began = clock()
    grpo.update(UpdateInput(model, Optimisers(model, config), runs, config, generator))
    fast = clock() - began
    once = torch.cat([p.grad.flatten() for p in model.actor_parameters() if p.grad is not None])
    gap = float((once - plain).norm() / plain.norm())
    print(f"| update, each turn alone | {read} | {slow:.2f} | {read / slow:.0f} | 1 |")
    print(f"| update, what rows share once | {read} | {fast:.2f} | {read / fast:.0f} | {slow / fast:.1f} |")
    print(f"\nGradients of the two updates differ by {gap:.1e} of their norm.")


if __name__ == "__main__":
    main()
