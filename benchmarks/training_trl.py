"""Measures a step of GRPO against TRL's, with the same weights, task and number of turns.

    python -m benchmarks.training_trl [--size xs] [--steps 3] [--episodes 16] [--group 4] [--turns 4]

Episodes of BabyAI, whose prompts differ from game to game, have `--turns` turns of at most 12 sampled
tokens. Weights are random (or, with `--size smollm2-135m`, a real model's) and make no readable tool
call. So that TRL's episodes have several turns too, each of its replies counts as a call of the tool with
the reply's text; the environment answers that it does not understand it. No KL term on either side.
Prompts differ in some words, since TRL declares the tool by the chat template: compare tokens per
second. Seconds are CPU seconds of this process on one core (`time.process_time`), without the first step if there
are several.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen2_5_chat_template
from trl.trainer import grpo_trainer

from baselines.algorithms import grpo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate
from baselines.collection.actor import Actor
from baselines.networks.model import Model, ModelConfig
from baselines.recipe import Acting
from baselines.studies import tiny_model
from envsuite import registry
from harness.interop.trl import factory, games
from harness.lm import model_files
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode

TASK, TOKENS = "BabyAI-goto-v0", 12
SMOLLM2 = "smollm2-135m"
PROMPTING = Prompting("tool", False, -1, admissible="none")


@dataclass(frozen=True)
class Shape:
    """The size of a step."""

    steps: int
    episodes: int
    group: int
    turns: int

    def mean(self, seconds: list[float]) -> float:
        """Returns the mean over the steps after the first, or the first if there is no other."""
        measured = seconds[1:] or seconds
        return sum(measured) / len(measured)


def network(folder: Path, size: str) -> tuple[Any, Any]:
    """Makes or loads a model with a chat template that declares tools, as TRL requires."""
    if size == SMOLLM2:
        path = model_files.folder(SMOLLM2, print)
        model, tokenizer = (
            AutoModelForCausalLM.from_pretrained(path, dtype="float32"),
            AutoTokenizer.from_pretrained(path),
        )
    else:
        schema = str(get_json_schema(factory(TASK)().act))
        texts = [qwen2_5_chat_template, schema, *tiny_model.texts([TASK], 4)]
        tiny_model.make(folder, texts, size, vocabulary=1024, context=4096)
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        model.resize_token_embeddings(len(tokenizer))
    tokenizer.eos_token, tokenizer.chat_template = "<|im_end|>", qwen2_5_chat_template
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model, tokenizer


def call(tokenizer: Any, ids: list[int], **_: Any) -> dict[str, Any]:
    """Reads any reply as a call of the tool, in place of TRL's `parse_response`."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    function = {"name": "act", "arguments": {"command": text}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


class Timed(trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, with the seconds of its rollouts and the tokens it sampled and read."""

    rollouts: list[float]
    tokens: tuple[int, int]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.process_time()
        outputs = super()._generate_and_score_completions(inputs)
        self.rollouts.append(time.process_time() - began)
        sampled = outputs.get("tool_mask", outputs["completion_mask"])
        read = int(outputs["completion_mask"].sum()) + int(outputs["prompt_mask"].sum())
        self.tokens = int((sampled * outputs["completion_mask"]).sum()), read
        return outputs


class Clock(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.steps: list[float] = []

    def on_step_begin(self, *args: Any, **more: Any) -> None:
        self.began = time.process_time()

    def on_step_end(self, *args: Any, **more: Any) -> None:
        self.steps.append(time.process_time() - self.began)


def theirs(model: Any, tokenizer: Any, shape: Shape, folder: Path) -> tuple[float, float, int, int]:
    """Returns seconds of a rollout and of an update, and tokens sampled and read per step."""
    grpo_trainer.parse_response = call
    settings = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=shape.episodes, num_generations=shape.group,
        max_steps=shape.steps, max_completion_length=2048, generation_kwargs={"max_new_tokens": TOKENS},
        max_tool_calling_iterations=shape.turns - 1, temperature=1.0, top_k=0, beta=0.0, learning_rate=1e-6,
        report_to=[], use_cpu=True, save_strategy="no", logging_strategy="no", bf16=False, gradient_checkpointing=False,
        disable_tqdm=True,
    )  # fmt: skip
    clock = Clock()
    trainer = Timed(
        model=model,
        args=settings,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(games(TASK, count=shape.episodes)),
        environment_factory=factory(TASK, show_admissible=False),
        callbacks=[clock],
    )
    trainer.rollouts = []
    trainer.train()
    rolled = shape.mean(trainer.rollouts)
    return rolled, shape.mean(clock.steps) - rolled, *trainer.tokens  # a step includes its rollout


def ours(lm: Any, tokenizer: Any, shape: Shape) -> tuple[float, float, int, int]:
    """Returns the same of this project's rollout and update."""
    model = Model(lm, tokenizer, ModelConfig("tiny", critic="none"))
    config = grpo.Config(group_size=shape.group, kl_coef=0.0, learning_rate=1e-6)
    optimisers, generator = Optimisers(model, config), torch.Generator().manual_seed(0)
    rolled, updated, sampled, read, episodes, group = [], [], 0, 0, shape.episodes, shape.group
    for step in range(shape.steps):
        began = time.process_time()
        actor = Actor(model, Acting(max_tokens=TOKENS), PROMPTING, 1.0)
        todo = [episode(registry.TASKS[TASK], k // group, group * step + k % group) for k in range(episodes)]
        played = rollout(actor, todo, LocalExecutor(episodes), PROMPTING, shape.turns)
        runs = sorted(played, key=lambda run: run.episode.key)
        actor.close()
        rolled.append(time.process_time() - began)
        for number, run in enumerate(runs):  # rewards that differ within each group
            run.turns[-1].reward = float(number % group)
        batch = collate(runs, whole=config.whole)
        sampled, read = int(batch.sampled.sum()), int(batch.valid.sum())
        began = time.process_time()
        grpo.update(UpdateInput(model, optimisers, runs, config, generator))
        updated.append(time.process_time() - began)
    return shape.mean(rolled), shape.mean(updated), sampled, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="xs", help=f"a size of `tiny`, or {SMOLLM2}")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--turns", type=int, default=4)
    args = parser.parse_args()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)
    shape = Shape(args.steps, args.episodes, args.group, args.turns)
    with tempfile.TemporaryDirectory() as work:
        lm, tokenizer = network(Path(work) / "tiny", args.size)
        a = ours(lm, tokenizer, shape)
        b = theirs(lm, tokenizer, shape, Path(work) / "trl")
    count = sum(p.numel() for p in lm.parameters())
    print(
        f"{args.size}, {count / 1e6:.1f} million parameters, {TASK}, {shape.episodes} episodes in groups of "
        f"{shape.group}, {shape.turns} turns of at most {TOKENS} tokens, one core, torch {torch.__version__}, "
        f"TRL {trl.__version__}, load {os.getloadavg()[0]:.0f}\n"
    )
    print(
        "| | sampled | sampled/s in the rollout | tokens read | read/s in the update | CPU s a step | read/s overall |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, (rolled, updated, sampled, read) in (("TRL", b), ("ours", a)):
        print(
            f"| {name} | {sampled} | {sampled / rolled:.0f} | {read} | {read / updated:.0f} | {rolled + updated:.2f} | "
            f"{read / (rolled + updated):.0f} |"
        )
    rates = [(a[2] / a[0]) / (b[2] / b[0]), (a[3] / a[1]) / (b[3] / b[1]), (b[0] + b[1]) / (a[0] + a[1])]
    overall = (a[3] / (a[0] + a[1])) / (b[3] / (b[0] + b[1]))
    print(f"| times | | {rates[0]:.1f} | | {rates[1]:.1f} | {rates[2]:.1f} | {overall:.1f} |")


if __name__ == "__main__":
    main()
