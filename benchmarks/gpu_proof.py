"""Checks on one GPU, in at most nine minutes, what a CPU cannot show: precision, memory and speed
of training.

    python -m benchmarks.gpu_proof [-o benchmarks/gpu.md] [--minutes 8] [--shapes 0.5B,3B]
    python -m benchmarks.gpu_proof --shapes tiny --minutes 3 -o /tmp/gpu.md  # on a CPU, with a tiny model

Needs no network and no files: models have the published Qwen2.5 shapes and random weights made on
the device, and a tokenizer of bytes. Each section runs by itself, prints what it measures, and writes it to the page.
A section that fails, that has no time left, or that the time limit stops is reported as such.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import platform
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM

from baselines import memory
from baselines import recipe as recipes
from baselines.algorithms import grpo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.policy_step import Targets, learn
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate
from baselines.distributed import fsdp
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from baselines.train import TrainingRun
from benchmarks.peak_memory import PeakMemory
from benchmarks.qwen_shapes import bytes_tokenizer
from benchmarks.timed_page import TimedPage, process_seconds
from envsuite.types import StopReason, Task
from harness.policies.hf import HFPolicy, pick_device
from harness.types import Episode, Prompt, Reply, Trajectory, Turn

SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 1024},
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151_936},
    "3B": {"hidden_size": 2048, "intermediate_size": 11_008, "num_hidden_layers": 36, "num_attention_heads": 16,
           "num_key_value_heads": 2, "vocab_size": 151_936},
}  # fmt: skip
"""The published shapes of Qwen2.5, and one for tests."""
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


NO_GPU = (
    "No GPU was available. These are the sections of `make gpu-proof`, which replaces this page where there is a GPU, "
    "run on a CPU with tiny shapes: they show that the checks work and that the numbers agree, and nothing about the "
    "memory or the speed of a GPU."
)


class Proof(TimedPage):
    """The page, the time left and the device."""

    def __init__(self, output: Path, minutes: float, device: torch.device) -> None:
        super().__init__(output, 60 * minutes)
        self.device = device

    def section(self, title: str, needed: float, function: Callable[..., None], *arguments: Any) -> None:
        """Runs a section and frees its memory."""
        super().section(title, needed, function, *arguments)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def qwen(shape: str, device: torch.device, dtype: torch.dtype, layers: int = 0) -> Any:
    """Returns a Qwen2.5 with random weights; `layers` shortens it."""
    settings = {**SHAPES[shape], **({"num_hidden_layers": layers} if layers else {})}
    config = Qwen2Config(
        **settings,
        max_position_embeddings=32_768,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
        dtype=dtype,
    )
    config.architectures = ["Qwen2ForCausalLM"]
    torch.manual_seed(0)
    with torch.device(device):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            lm = Qwen2ForCausalLM(config)
        finally:
            torch.set_default_dtype(previous)
    return lm.to(dtype).eval()


def tokenizer() -> Any:
    """Returns a tokenizer with a token per byte and a chat template."""
    result = bytes_tokenizer()
    result.chat_template = TEMPLATE
    return result


def episodes(count: int, prompt: int, reply: int, turns: int = 1, seed: int = 0) -> list[Trajectory]:
    """Returns groups of four episodes of random tokens, with distinct prompts and with rewards that
    differ in a group."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(number: int) -> list[int]:
        return torch.randint(1, 256, (number,), generator=generator).tolist()

    runs = []
    for k in range(count):
        run = Trajectory(
            Episode(Task(id="Random-v0", entry_point=""), "{}", k // 4, k % 4), stop_reason=StopReason.SOLVED
        )
        history: list[int] = []
        for turn in range(turns):
            history = history + tokens(prompt)
            ids = tokens(reply)
            record = Reply("", list(history), ids, [-5.5] * reply)
            run.turns.append(Turn(f"{turn}", record, ("",), float(k % 4), {}))
            history = history + ids
        run.terminated = True
        runs.append(run)
    return runs


def with_logprobs(model: Model, runs: list[Trajectory]) -> list[Trajectory]:
    """Sets the log-probs of sampled tokens to the model's own."""
    batch = collate(runs)
    with torch.no_grad():
        logprobs, _ = model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled)
    flat = batch.flat(logprobs).tolist()
    for run in runs:
        for turn in run.turns:
            turn.reply.logprobs = [flat.pop(0) for _ in turn.reply.ids]
    return runs


# ---- Sections
# -------------------------------------------------------------------------------------------------------


def machine(proof: Proof) -> None:
    """Writes hardware and versions."""
    name = platform.processor() or platform.machine()
    if proof.device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    proof.write(
        f"{name}; {versions}. Random weights of the published shapes: nothing here says how well a model plays."
    )


def precision(proof: Proof, shape: str, updates: int) -> None:
    """Compares training in float32, in bfloat16 with masters, and in bfloat16 without."""
    layers = 4 if shape != "tiny" else 0
    proof.write(
        f"{updates} policy steps at a learning rate of 1e-6 on the same batch (Qwen2.5-{shape}"
        f"{f', {layers} layers' if layers else ''}; 8 rows of 128 tokens). Change: of the weights that "
        "are trained (the masters).",
        "",
        "| weights | loss at first | loss at last | weights that moved | size of the change | cosine with float32's |",
        "|---|--:|--:|--:|--:|--:|",
    )
    exact: torch.Tensor | None = None
    ways = (("float32", torch.float32, True), ("bfloat16, float32 masters", torch.bfloat16, True),
            ("bfloat16, no masters", torch.bfloat16, False))  # fmt: skip
    for way, dtype, masters in ways:
        lm = qwen(shape, proof.device, torch.float32, layers).to(torch.bfloat16).to(dtype)  # the same first weights
        model = Model(lm, None, ModelConfig(shape, critic="none"))
        before = _flat(model)
        losses = list(_train(model, updates, masters))
        trained = model.actor_masters.masters if masters and dtype is torch.bfloat16 else model.actor_parameters()
        change = torch.cat([weights.detach().float().flatten() for weights in trained]) - before
        moved = (_flat(model) != before).float().mean().item()
        exact = change if exact is None else exact
        cosine = torch.nn.functional.cosine_similarity(change, exact, dim=0).item()
        proof.write(
            f"| {way} | {losses[0]:.5f} | {losses[-1]:.5f} | {100 * moved:.1f} % | "
            f"{(change.norm() / exact.norm()).item():.3f} | {cosine:.3f} |"
        )
        del model, lm, before, trained
        gc.collect()


def _flat(model: Model) -> torch.Tensor:
    return torch.cat([parameter.detach().float().flatten() for parameter in model.actor_parameters()])


def _train(model: Model, updates: int, masters: bool) -> Iterator[float]:
    """Takes steps on one batch with fixed advantages; without `masters` by AdamW on the model's own
    weights."""
    runs = with_logprobs(model, episodes(8, 96, 32))
    batch = collate(runs)
    generator = torch.Generator().manual_seed(0)
    config = grpo.GRPO(learning_rate=1e-6, kl_coef=0.0, clip_low=1.0, clip_high=1e3, max_grad_norm=1e9, adam_eps=1e-8)
    advantages = torch.linspace(-1, 1, len(batch.episode))
    if masters:
        inputs = UpdateInput(model, Optimisers(model, config), runs, config, generator)
        for _ in range(updates):
            yield learn(inputs, batch, Targets(advantages))["policy_loss"]
        return
    adam = torch.optim.AdamW(model.actor_parameters(), lr=1e-6, eps=1e-8, weight_decay=0.0)
    weights = batch.spread(advantages)
    for _ in range(updates):
        adam.zero_grad()
        new, _ = model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled, False)
        ratio = (new - batch.logprobs).exp()
        rows = -(weights * ratio * batch.sampled).sum(1) / batch.sampled.sum(1)
        loss = rows.mean()
        loss.backward()
        adam.step()
        yield loss.item()


def recipe_for(shape: str, folder: Path, lora: bool, length: int, reply: int, rows: int) -> recipes.Recipe:
    """Returns a GRPO recipe whose memory `measured_memory` measures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(qwen_settings(shape)))
    model = {"name": str(folder), "critic": "none", "gradient_checkpointing": True, "dtype": "bfloat16"}
    if lora:
        model |= {"lora_rank": 16, "lora_alpha": 32, "lora_targets": list(TARGETS)}
    return recipes.parse(
        {
            "algorithm": "grpo",
            "model": model,
            "tasks": ["VirtualHome-food_preparation-v0"],
            "episodes": 8,
            "acting": {"context": length, "max_tokens": reply},
            "config": {"group_size": 4, "kl_coef": 0.01, "micro_rows": rows, "whole": False, "learning_rate": 1e-6},
        }
    )


def qwen_settings(shape: str) -> dict[str, Any]:
    """Returns the architecture of a shape in the form of config.json."""
    with torch.device("meta"):
        config = Qwen2Config(
            **SHAPES[shape], max_position_embeddings=32_768, tie_word_embeddings=True, eos_token_id=0, dtype="bfloat16"
        )
    return {**config.to_dict(), "architectures": ["Qwen2ForCausalLM"]}


def measured_memory(proof: Proof, shape: str, lora: bool, length: int, reply: int) -> None:
    """Measures the peak memory of an update against the estimate of --dry-run, and the speed of the
    update."""
    rows = 2
    with tempfile.TemporaryDirectory() as work:
        recipe = recipe_for(shape, Path(work), lora, length, reply, rows)
        parts = memory.estimate(recipe)
    expected = memory.peak({**parts, "rollout's keys and values": 0.0})
    if proof.device.type == "cuda" and expected > torch.cuda.mem_get_info()[0]:
        proof.write(f"Not run: --dry-run expects {expected / 1e9:.1f} GB, more than is free.")
        return
    runs = episodes(8, length - reply, reply)
    with PeakMemory(proof.device) as counter:
        lm = qwen(shape, proof.device, torch.bfloat16)
        model = Model(lm, None, recipe.model_config)
        model.keep_reference()
        inputs = UpdateInput(
            model, Optimisers(model, recipe.config), runs, recipe.config, torch.Generator().manual_seed(0)
        )
        grpo.update(inputs)
        began = time.perf_counter()
        log = grpo.update(dataclasses.replace(inputs, trajectories=episodes(8, length - reply, reply, seed=1)))
        _synchronise(proof.device)
        seconds = time.perf_counter() - began
    read, sampled = 8 * length, 8 * reply
    proof.write(
        f"| Qwen2.5-{shape} {'LoRA 16' if lora else 'all weights'} | {expected / 1e9:.3g} | {counter.peak / 1e9:.3g} | "
        f"{100 * (counter.peak / expected - 1):+.0f} % | {read / seconds:,.0f} | {sampled / seconds:,.0f} | "
        f"{log['grad_norm']:.3g} |"
    )


def memory_table(proof: Proof, shapes: list[str]) -> None:
    """Writes the table of peak memory and update speed."""
    length, reply = (128, 32) if "tiny" in shapes else (1024, 256)
    proof.write(
        f"GRPO with KL, checkpointed, bfloat16 with float32 masters; 8 rows of {length:,} tokens of which {reply} are "
        "sampled, 2 rows a pass. An update reads every row twice (reference and policy) and learns once.",
        "",
        "| model | GB by --dry-run | GB measured | difference | tokens read/s | tokens sampled/s | gradient norm |",
        "|---|--:|--:|--:|--:|--:|--:|",
    )
    for shape in shapes:
        for lora in (True, False):
            if proof.left < 45:
                proof.write(f"| Qwen2.5-{shape} {'LoRA 16' if lora else 'all weights'} | no time left | | | | | |")
                continue
            with _failures(proof):
                measured_memory(proof, shape, lora, length, reply)
            gc.collect()
            if proof.device.type == "cuda":
                torch.cuda.empty_cache()


@contextlib.contextmanager
def _failures(proof: Proof) -> Iterator[None]:
    """Writes a failure into the page and continues."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        proof.write(f"| failed: {type(error).__name__}: {' '.join(str(error).split())[:200]} | | | | | | |")


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rollout_speed(proof: Proof, shapes: list[str]) -> None:
    """Measures sampled tokens per second of the local policy."""
    proof.write("| model | conversations | prompt tokens | replies | sampled/s | read/s |", "|---|--:|--:|--:|--:|--:|")
    for shape in shapes:
        lm = qwen(shape, proof.device, torch.bfloat16)
        for count in (8, 64):
            policy = HFPolicy.of(lm, tokenizer(), name=shape, temperature=1.0, max_tokens=64, thinking=False)
            text = "You see a fridge. " * (4 if shape == "tiny" else 25)
            prompts = [Prompt([{"role": "user", "content": f"{k} {text}"}], seed=k, key=str(k)) for k in range(count)]
            policy.act(prompts[:2])  # kernels are compiled and chosen at the first call
            policy.forget()
            _synchronise(proof.device)
            began = time.perf_counter()
            replies = policy.act(prompts)
            _synchronise(proof.device)
            seconds = time.perf_counter() - began
            sampled, read = sum(len(r.ids) for r in replies), sum(r.input_tokens for r in replies)
            proof.write(
                f"| Qwen2.5-{shape} | {count} | {read // count} | {sampled // count} | {sampled / seconds:,.0f} | "
                f"{read / seconds:,.0f} |"
            )
        del lm
        gc.collect()


def training_run(proof: Proof, shape: str) -> None:
    """Trains with LoRA on VirtualHome from a folder on disk, stops, resumes, and compares with a
    run without a stop."""
    episodes, turns = (8, 2) if shape == "tiny" else (16, 4)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        qwen(shape, proof.device, torch.bfloat16).cpu().save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        table = {
            "algorithm": "grpo",
            "model": {"name": str(folder), "lora_rank": 8, "gradient_checkpointing": True, "dtype": "bfloat16"},
            "tasks": ["VirtualHome-food_preparation-v0"],
            "updates": 2,
            "episodes": episodes,
            "max_turns": turns,
            "eval_every": 0,
            "eval_episodes": 4,
            "save_every": 1,
            "acting": {"max_tokens": 24, "eval_temperature": 1.0, "context": 4096},
            "prompting": {"grammar": "bare", "thinking": False, "history": 2, "admissible": "none"},
            "config": {"group_size": 4, "learning_rate": 1e-4, "micro_rows": 8, "entropy_coef": 0.01},
        }
        whole = TrainingRun(recipes.parse(table), Path(work) / "whole")
        whole.train()
        TrainingRun(recipes.parse({**table, "updates": 1}), Path(work) / "cut").train()
        resumed = TrainingRun(recipes.parse(table), Path(work) / "cut", resume=True)
        resumed.train()
        gaps = [
            (value - resumed.model.state()["lm"][name]).abs().max().item()
            for name, value in whole.model.state()["lm"].items()
        ]
        first = torch.load(Path(work) / "whole" / "checkpoint.pt", weights_only=True)["model"]["lm"]
        size = max(value.abs().max().item() for value in first.values())
        proof.write(
            f"GRPO with LoRA 8 on VirtualHome, Qwen2.5-{shape}, {episodes} episodes of {turns} turns with distinct "
            "attempts, two updates:",
            "",
            "| update | rollout s | update s | tokens sampled | grad norm | KL |",
            "|--:|--:|--:|--:|--:|--:|",
        )
        for text in (Path(work) / "whole" / "metrics.jsonl").read_text().splitlines():
            line = json.loads(text)
            if line["kind"] == "update":
                proof.write(
                    f"| {line['update']} | {line['rollout_seconds']} | {line['update_seconds']} | {line['tokens']} | "
                    f"{line.get('grad_norm', 0):.3g} | {line['kl']:.2g} |"
                )
        proof.write(
            "",
            f"Stopped after the first update and resumed: adapter weights differ by at most {max(gaps):.2e} "
            f"from those of the run without a stop (the largest weight is {size:.2e}).",
        )


def one_rank_fsdp(proof: Proof, shape: str) -> None:
    """Takes an update with FSDP2 on one rank and compares it with an update without."""
    import torch.distributed as dist

    updates = []
    config = grpo.GRPO(learning_rate=1e-4, kl_coef=0.0, group_size=4, micro_rows=4, whole=False)
    for sharded in (False, True):
        if sharded:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
            dist.init_process_group("cpu:gloo,cuda:nccl" if proof.device.type == "cuda" else "gloo")
        try:
            model = Model(qwen(shape, proof.device, torch.bfloat16), None, ModelConfig(shape, critic="none"))
            if sharded:
                model.shard(False, False)
                assert fsdp.is_sharded(model.lm)
            inputs = UpdateInput(
                model, Optimisers(model, config), episodes(8, 96, 32), config, torch.Generator().manual_seed(0)
            )
            log = grpo.update(inputs)
            updates.append((log["grad_norm"], model.state()["lm"]))
            del model, inputs
            gc.collect()
        finally:
            if sharded:
                dist.destroy_process_group()
                for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
                    os.environ.pop(name, None)
    (norm, plain), (sharded_norm, cut) = updates
    gap = max((plain[name] - cut[name]).abs().max().item() for name in plain)
    proof.write(
        f"Qwen2.5-{shape}, all weights, bfloat16 with masters: gradient norm {norm:.5g} without FSDP "
        f"and {sharded_norm:.5g} "
        f"with FSDP2 on one rank; weights after the step differ by at most {gap:.1e} (the learning rate is 1e-4)."
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/gpu.md"))
    parser.add_argument("--minutes", type=float, default=8.0, help="minutes for all sections together (8)")
    parser.add_argument("--shapes", default="0.5B,3B", help=f"from small to large, of {', '.join(SHAPES)}")
    parser.add_argument("--updates", type=int, default=50, help="steps of the precision check (50)")
    args = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    shapes = args.shapes.split(",")
    device = pick_device("auto")
    proof = Proof(args.output, args.minutes - process_seconds() / 60, device)
    updates = f" --updates {args.updates}" if args.updates != parser.get_default("updates") else ""
    command = f"`python -m benchmarks.gpu_proof --shapes {args.shapes}{updates}`"
    on_gpu = device.type == "cuda"
    proof.write("# Training on one GPU" if on_gpu else "# Training, checked on a CPU", "", f"{command}, one run.")
    if not on_gpu:
        proof.write("", NO_GPU)
    proof.section("Machine", 0, machine)
    proof.section("bfloat16 beside float32", 40, precision, shapes[0], args.updates)
    proof.section("Memory and speed of an update", 45, memory_table, shapes)
    proof.section("Speed of the rollout", 45, rollout_speed, shapes)
    proof.section("FSDP on one rank", 25, one_rank_fsdp, shapes[0])
    proof.section("A run that is stopped and resumed", 60, training_run, shapes[0])
    print(f"{args.output}: {process_seconds():.0f} s")


if __name__ == "__main__":
    main()
