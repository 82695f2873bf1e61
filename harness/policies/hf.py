"""A model in this process, through transformers: batched, with prefix reuse, keeping the tokens it samples."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from envsuite.errors import DataError, EnvsuiteError, UsageError
from harness.lm import model_files
from harness.lm.cache import PrefixStore, can_reuse
from harness.lm.conversations import Conversations
from harness.lm.decode import Job, Settings, decode
from harness.lm.template import PLAIN_STOP, Encoded, Template
from harness.types import Prompt, Reply


class HFPolicy:
    """Samples replies of `model` (see `harness.lm.model_files`) with its own chat template.

    Options of both constructors: temperature, top_p, max_tokens, thinking, stop, context, prefix_reuse, cache_gb.
    temperature 0 is greedy. `thinking` goes to templates that have `enable_thinking`. `stop` strings end a reply and
    stay in it. A conversation (`Prompt.key`) keeps its keys and values within `cache_gb` gigabytes, so that the next
    turn reads what is new only. A prompt that leaves no room for `max_tokens` within `context` tokens (default: the
    model's) loses its oldest turns; where the last message alone is too long, the reply's finish_reason is "context".

    Replies hold `prompt_ids`, the sampled `ids` with their `logprobs`, and where the template rewrote what had been
    sampled, `extra["rewritten"]`: how many replies of the prompt do not stand in it as they were sampled.
    """

    advice_kind = ""
    deterministic = False

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        attention: str = "sdpa",
        say: Callable[[str], None] = lambda line: None,
        **options: Any,
    ) -> None:
        network, tokenizer = load(model, device, dtype, attention, say)
        self._set_up(model, network, tokenizer, **options)

    @classmethod
    def of(cls, network: Any, tokenizer: Any, *, name: str = "model", **options: Any) -> Self:
        """Around a model that is loaded already, as trainers have it. Call `forget` after changing its weights."""
        self = cls.__new__(cls)
        self._set_up(name, network, tokenizer, **options)
        return self

    def _set_up(
        self,
        name: str,
        network: Any,
        tokenizer: Any,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        thinking: bool = True,
        stop: Sequence[str] = (),
        context: int | None = None,
        prefix_reuse: bool = True,
        cache_gb: float = 4.0,
    ) -> None:
        if temperature < 0 or not 0 < top_p <= 1 or max_tokens < 1:
            raise UsageError(
                f"temperature {temperature} must be >= 0, top_p {top_p} in (0, 1] and max_tokens {max_tokens} >= 1."
            )
        self.name = name
        self.network, self.tokenizer = network, tokenizer
        end_ids = end_tokens(network, tokenizer)
        self.template = Template(tokenizer, end_ids, thinking)
        if self.template.plain:
            warnings.warn(f"{name} has no chat template: it is shown 'User: ...' and 'Assistant: ...'.", stacklevel=3)
            stop = (*stop, PLAIN_STOP)
        self.settings = Settings(temperature, top_p, end_ids, tuple(stop))
        self.max_tokens = max_tokens
        self.context = context or getattr(network.config.get_text_config(), "max_position_embeddings", None) or 2**31
        self.prefix_reuse = prefix_reuse and can_reuse(network.config)
        self._prefixes = PrefixStore(int(cache_gb * 2**30))
        self._talks = Conversations(self.template, max_tokens, self.context)

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        replies: list[Reply | None] = [None] * len(prompts)
        jobs: dict[int, Job] = {}
        notes: dict[int, tuple[Encoded, int]] = {}
        for place, prompt in enumerate(prompts):
            encoded, dropped = self._talks.fit(prompt)
            room = self._talks.room(encoded)
            if room < 1:
                size = len(encoded.ids)
                replies[place] = Reply(
                    "", encoded.ids, finish_reason="context", dropped_turns=dropped, input_tokens=size
                )
                continue
            notes[place] = encoded, dropped
            job = jobs[place] = Job(encoded.ids, room, prompt.seed)
            if self.prefix_reuse and prompt.key:
                job.prefix, job.reusable = self._prefixes.longest(prompt.key, encoded.ids)
        self._decode(list(jobs.values()))
        for place, job in jobs.items():
            replies[place] = self._reply(prompts[place], job, *notes[place])
        return [reply for reply in replies if reply is not None]

    def forget(self) -> None:
        """Drops what was computed with the present weights. What was said is kept."""
        self._prefixes.clear()

    def close(self) -> None:
        self.forget()
        self._talks.clear()
        self.network = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _decode(self, jobs: Sequence[Job]) -> None:
        try:
            decode(self.network, jobs, self.settings, self._talks.text, self.prefix_reuse)
        except torch.OutOfMemoryError as error:
            self.forget()
            torch.cuda.empty_cache()
            if len(jobs) == 1:
                raise UsageError(
                    f"The GPU's memory does not hold {self.name} and one prompt of {len(jobs[0].prompt)} tokens: "
                    "lower --max-tokens or --history, take --dtype bfloat16, or a smaller model."
                ) from error
            for job in jobs:
                job.prefix, job.reusable, job.kept = None, 0, None
                job.ids, job.logprobs, job.finish_reason = [], [], ""
            half = len(jobs) // 2
            self._decode(jobs[:half])
            self._decode(jobs[half:])

    def _reply(self, prompt: Prompt, job: Job, encoded: Encoded, dropped: int) -> Reply:
        if prompt.key and job.kept is not None:
            self._prefixes.put(prompt.key, job.kept)
        return Reply(
            self._talks.remember(prompt, job.ids),
            prompt_ids=encoded.ids,
            ids=job.ids,
            logprobs=job.logprobs,
            finish_reason=job.finish_reason,
            dropped_turns=dropped,
            input_tokens=len(encoded.ids),
            cached_tokens=job.reused,
            output_tokens=len(job.ids),
            extra={"rewritten": encoded.rewritten} if encoded.rewritten else {},
        )


def end_tokens(network: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a reply: the tokenizer's and those of the generation config."""
    config = getattr(network, "generation_config", None)
    named = getattr(config, "eos_token_id", None)
    found = set(named) if isinstance(named, list) else {named}
    return frozenset(int(one) for one in found | {tokenizer.eos_token_id} if one is not None)


def load(
    model: str, device: str, dtype: str, attention: str = "sdpa", say: Callable[[str], None] = lambda line: None
) -> tuple[Any, Any]:
    """(network in evaluation mode, tokenizer) of a model's name; nothing of the repository's own code is run."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = pick_device(device)
    kind = pick_dtype(dtype, place)
    path: Path = model_files.folder(model, say)
    use_available_cores()
    # What is tokenised here is a prompt at a time: handing that to the tokenizer's threads costs more than it saves.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        with model_files.quiet():
            tokenizer = AutoTokenizer.from_pretrained(path)
            network: Any = AutoModelForCausalLM.from_pretrained(path, dtype=kind, attn_implementation=attention)
        return network.to(place).eval(), tokenizer
    except EnvsuiteError:
        raise
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"{place} has no room for {model} in {kind}: take --dtype bfloat16, --device cpu or a smaller model."
        ) from error
    except Exception as error:  # whatever the readers of many formats raise
        raise DataError(f"Cannot load the model in {path}: {type(error).__name__}: {error}") from error


def pick_device(device: str) -> torch.device:
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"Unknown --device {device!r}: auto, cpu, cuda, cuda:1 or mps.") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {device}: torch {torch.__version__} finds no CUDA here; take --device cpu.")
    return found


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """auto: float32 on a CPU, where bfloat16 is slow and comparisons want exactness; else bfloat16 where the GPU has it."""
    if dtype == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    short = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(dtype, dtype)
    found = getattr(torch, short, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(f"Unknown --dtype {dtype!r}: auto, float32, bfloat16 or float16.")
    return found


def use_available_cores() -> None:
    """One thread per core this process may use (torch counts the machine's), unless OMP_NUM_THREADS says otherwise."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    torch.set_num_threads(min(cores, torch.get_num_threads()))
