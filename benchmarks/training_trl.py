"""Measures a step of GRPO against TRL's, with the same weights, task, prompts and sampled tokens.

    python -m benchmarks.training_trl [--size xs] [--steps 4]

16 episodes in groups of 4, with one reply of at most 32 tokens each: random weights make no
readable tool call, so that TRL's loop over tools ends after the first reply, and ours is limited to
one turn. No KL term on either side. Prompts differ in a few words, since TRL declares the tool by
the chat template; both counts are printed. Seconds are CPU seconds of this process on one core
(`time.process_time`), without the first step.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen2_5_chat_template

from baselines.algorithms import grpo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.collection.actor import Actor
from baselines.networks.model import Model, ModelConfig
from baselines.recipe import Acting
from baselines.studies import tiny_model
from envsuite import registry
from harness.interop.trl import factory, games
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode

TASK, EPISODES, GROUP, TOKENS = "VirtualHome-food_preparation-v0", 16, 4, 32
PROMPTING = Prompting("tool", False, -1, admissible="none")


def network(folder: Path, size: str) -> tuple[Any, Any]:
    """Makes a tiny model with a chat template that declares tools, as TRL requires."""
    schema = str(get_json_schema(factory(TASK)().act))
    tiny_model.make(
        folder, [qwen2_5_chat_template, schema, *tiny_model.texts([TASK], 4)], size, vocabulary=1024, context=2048
    )
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token, tokenizer.chat_template = "<|im_end|>", qwen2_5_chat_template
    model.resize_token_embeddings(len(tokenizer))
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model, tokenizer


class Timed(trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, with the seconds of its rollouts and the tokens it sampled and read."""

    rollouts: list[float]
    tokens: tuple[int, int]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.process_time()
        outputs = super()._generate_and_score_completions(inputs)
        self.rollouts.append(time.process_time() - began)
        sampled = int(outputs["completion_mask"].sum())
        self.tokens = sampled, sampled + int(outputs["prompt_mask"].sum())
        return outputs


class Clock(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.steps: list[float] = []

    def on_step_begin(self, *args: Any, **more: Any) -> None:
        self.began = time.process_time()

    def on_step_end(self, *args: Any, **more: Any) -> None:
        self.steps.append(time.process_time() - self.began)


def theirs(model: Any, tokenizer: Any, steps: int, folder: Path) -> tuple[float, float, int, int]:
    """Returns seconds of a rollout and of an update, and tokens sampled and read per step."""
    settings = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=EPISODES, num_generations=GROUP, max_steps=steps,
        max_completion_length=TOKENS, max_tool_calling_iterations=1, temperature=1.0, top_k=0, beta=0.0,
        learning_rate=1e-6,
        report_to=[], use_cpu=True, save_strategy="no", logging_strategy="no", bf16=False, gradient_checkpointing=False,
        disable_tqdm=True,
    )  # fmt: skip
    clock = Clock()
    trainer = Timed(
        model=model,
        args=settings,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(games(TASK, count=EPISODES)),
        environment_factory=factory(TASK, show_admissible=False),
        callbacks=[clock],
    )
    trainer.rollouts = []
    trainer.train()
    rolled = sum(trainer.rollouts[1:]) / (steps - 1)
    return rolled, sum(clock.steps[1:]) / (steps - 1) - rolled, *trainer.tokens  # a step includes its rollout


def ours(lm: Any, tokenizer: Any, steps: int) -> tuple[float, float, int, int]:
    model = Model(lm, tokenizer, ModelConfig("tiny", critic="none"))
    config = grpo.Config(group_size=GROUP, kl_coef=0.0, learning_rate=1e-6)
    optimisers, generator = Optimisers(model, config), torch.Generator().manual_seed(0)
    rolled, updated, sampled, read = [], [], 0, 0
    for step in range(steps):
        began = time.process_time()
        actor = Actor(model, Acting(max_tokens=TOKENS), PROMPTING, 1.0)
        todo = [episode(registry.TASKS[TASK], k // GROUP, GROUP * step + k % GROUP) for k in range(EPISODES)]
        runs = sorted(rollout(actor, todo, LocalExecutor(EPISODES), PROMPTING, 1), key=lambda run: run.episode.key)
        actor.close()
        rolled.append(time.process_time() - began)
        for number, run in enumerate(runs):  # rewards that differ within each group
            run.turns[-1].reward = float(number % GROUP)
        sampled = sum(len(turn.reply.ids) for run in runs for turn in run.turns)
        read = sampled + sum(len(turn.reply.prompt_ids) for run in runs for turn in run.turns)
        began = time.process_time()
        grpo.update(UpdateInput(model, optimisers, runs, config, generator))
        updated.append(time.process_time() - began)
    return sum(rolled[1:]) / (steps - 1), sum(updated[1:]) / (steps - 1), sampled, read


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="xs")
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        lm, tokenizer = network(Path(work) / "tiny", args.size)
        a = ours(lm, tokenizer, args.steps)
        b = theirs(lm, tokenizer, args.steps, Path(work) / "trl")
    count = sum(p.numel() for p in lm.parameters())
    print(
        f"tiny {args.size}, {count / 1e6:.1f} million parameters, {TASK}, {EPISODES} episodes in "
        f"groups of {GROUP}, one reply "
        f"of at most {TOKENS} tokens, one core, torch {torch.__version__}, TRL {trl.__version__}\n"
    )
    print("| | tokens sampled | sampled/s in the rollout | tokens read | read/s in the update | CPU s a step |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, (rolled, updated, sampled, read) in (("TRL", b), ("ours", a)):
        print(
            f"| {name} | {sampled} | {sampled / rolled:.0f} | {read} | {read / updated:.0f} | {rolled + updated:.2f} |"
        )
    rates = [(a[2] / a[0]) / (b[2] / b[0]), (a[3] / a[1]) / (b[3] / b[1]), (b[0] + b[1]) / (a[0] + a[1])]
    print(f"| times | | {rates[0]:.1f} | | {rates[1]:.1f} | {rates[2]:.1f} |")


if __name__ == "__main__":
    main()
