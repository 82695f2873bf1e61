"""A model in this process, through transformers: continuous batching, prefix reuse, and the sampled
tokens.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from envsuite.errors import DataError, EnvsuiteError, UsageError
from harness import waiting
from harness.lm import adapters, model_files
from harness.lm.cache import PrefixStore, can_reuse
from harness.lm.conversations import Conversations
from harness.lm.decode import Decoder, Job, LockStep, Settings, TextOf
from harness.lm.packed import pack_linears
from harness.lm.resident import ResidentBatch
from harness.lm.template import PLAIN_STOP, Encoded, Template
from harness.types import Prompt, Reply
from harness.waiting import Wakeup


class HFPolicy:
    """Samples replies of `model` (see `harness.lm.model_files`) with its own chat template.

    Options of both constructors: temperature, top_p, max_tokens, thinking, stop, context,
    prefix_reuse, cache_gb. Temperature 0 is greedy. `thinking` is passed to templates with
    `enable_thinking`. `stop` strings end a reply and stay in it. A conversation (`Prompt.key`)
    keeps its keys and values, limited to `cache_gb` gigabytes for all, so that the next turn only
    computes new tokens. A prompt that leaves no room for `max_tokens` within `context` tokens
    (default: the model's) loses its oldest turns; if the last message alone is too long, the
    reply's finish_reason is "context". `of` also takes a `decoder` that generates in place of the network.

    Each `collect` computes one step of the batch; replies are returned as they end. Replies have
    `prompt_ids`, and the sampled `ids` with their `logprobs`. If the template rewrote sampled
    replies in the prompt, `extra["rewritten"]` is their number.
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
        pack_linears(network)
        self._set_up(model, network, tokenizer, **options)
        self._weights_hash = model_files.weights_hash(model)

    @classmethod
    def of(cls, network: Any, tokenizer: Any, *, name: str = "model", **options: Any) -> Self:
        """Creates a policy for a loaded model, as trainers have it. Call `forget` after changing
        its weights.
        """
        self = cls.__new__(cls)
        self._set_up(name, network, tokenizer, **options)
        return self

    def _set_up(
        self,
        name: str,
        network: Any,
        tokenizer: Any,
        *,
        temperature: float | None = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        thinking: bool = True,
        stop: Sequence[str] = (),
        context: int | None = None,
        prefix_reuse: bool = True,
        cache_gb: float = 4.0,
        decoder: Callable[[Settings, TextOf], Decoder] | None = None,
    ) -> None:
        if temperature is None:
            raise UsageError("--temperature default is a server's own value: a local model needs a number.")
        if temperature < 0 or not 0 < top_p <= 1 or max_tokens < 1:
            raise UsageError(
                f"temperature {temperature} must be >= 0, top_p {top_p} in (0, 1] and max_tokens {max_tokens} >= 1."
            )
        self.name = name
        self._weights_hash = ""
        self.network, self.tokenizer = network, tokenizer
        end_ids = end_tokens(network, tokenizer)
        self.template = Template(tokenizer, end_ids, thinking)
        if self.template.plain:
            warnings.warn(
                f"{name} has no chat template: its prompts have the form 'User: ...' and 'Assistant: ...'.",
                stacklevel=3,
            )
            stop = (*stop, PLAIN_STOP)
        self.settings = Settings(temperature, top_p, end_ids, tuple(stop))
        self.max_tokens = max_tokens
        self.context = context or getattr(network.config.get_text_config(), "max_position_embeddings", None) or 2**31
        full_attention = can_reuse(network.config)
        self.prefix_reuse = prefix_reuse and full_attention
        self._prefixes = PrefixStore(int(cache_gb * 2**30))
        self._conversations = Conversations(self.template, max_tokens, self.context)
        self._decoder: Decoder
        if decoder is not None:
            self.prefix_reuse = False
            self._decoder = decoder(self.settings, self._conversations.text)
        elif full_attention:
            self._decoder = ResidentBatch(network, self.settings, self._conversations.text, self.prefix_reuse)
        else:
            self._decoder = LockStep(network, self.settings, self._conversations.text)
        self._queue: deque[tuple[int, Prompt]] = deque()
        self._requests: dict[Job, tuple[int, Prompt, Encoded, int]] = {}  # ticket, prompt, its tokens, dropped turns
        self._wakeup = Wakeup()

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return waiting.act(self, prompts)

    def submit(self, ticket: int, prompt: Prompt) -> None:
        self._queue.append((ticket, prompt))
        self._wakeup.set()

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        replies = self._admit()
        while self._decoder.busy:
            replies += [self._reply(job) for job in self._step()]
            if replies or timeout is not None:
                break
        self._announce()
        return replies

    def cancel(self) -> None:
        self._queue.clear()
        self._decoder.reset()
        self._requests.clear()
        self._wakeup.clear()

    def sources(self) -> Sequence[Any]:
        return (self._wakeup,)

    def weights_hash(self) -> str:
        """Returns the hash of the weights' files; '' for a model that was loaded elsewhere."""
        return self._weights_hash

    def forget(self) -> None:
        """Drops everything computed with the present weights, but no replies."""
        self._prefixes.clear()
        self._decoder.forget()

    def close(self) -> None:
        self.cancel()
        self.forget()
        self._conversations.clear()
        self.network = None
        self._decoder = LockStep(None, self.settings, self._conversations.text)  # lets go of the weights
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _announce(self) -> None:
        """Keeps the wakeup set while there is something to compute."""
        if not self._queue and not self._decoder.busy:
            self._wakeup.clear()

    def _admit(self) -> list[tuple[int, Reply]]:
        """Encodes the submitted prompts and adds them to the batch; returns replies to prompts that
        are too long.
        """
        replies = []
        while self._queue:
            ticket, prompt = self._queue.popleft()
            encoded, dropped = self._conversations.fit(prompt)
            room = self._conversations.room(encoded)
            if room < 1:
                size = len(encoded.ids)
                reply = Reply("", encoded.ids, finish_reason="context", dropped_turns=dropped, input_tokens=size)
                replies.append((ticket, reply))
                continue
            job = Job(encoded.ids, room, prompt.seed)
            if self.prefix_reuse and prompt.key:
                job.prefix, job.reusable = self._prefixes.longest(prompt.key, encoded.ids)
            self._requests[job] = ticket, prompt, encoded, dropped
            self._decoder.add(job)
        return replies

    def _step(self) -> list[Job]:
        """Computes a step; restarts all replies with half as many rows if the GPU's memory is too
        small.
        """
        try:
            return self._decoder.step()
        except torch.OutOfMemoryError as error:
            self._decoder.reset()
            jobs = list(self._requests)
            rows = min(self._decoder.max_rows, len(jobs))
            self.forget()
            torch.cuda.empty_cache()
            if rows <= 1:
                longest = max(len(job.prompt) for job in jobs)
                raise UsageError(
                    f"The GPU's memory is too small for {self.name} and one prompt of {longest} tokens: "
                    "lower --max-tokens or --history, use --dtype bfloat16, or a smaller model."
                ) from error
            self._decoder.max_rows = rows // 2
            for job in jobs:
                job.restart()
                self._decoder.add(job)
            return []

    def _reply(self, job: Job) -> tuple[int, Reply]:
        ticket, prompt, encoded, dropped = self._requests.pop(job)
        if prompt.key and job.result_prefix is not None:
            self._prefixes.put(prompt.key, job.result_prefix)
        text = self._conversations.remember(prompt, job.ids)
        return ticket, Reply(
            text,
            prompt_ids=encoded.ids,
            ids=job.ids,
            logprobs=job.logprobs,
            finish_reason=job.finish_reason,
            dropped_turns=dropped,
            input_tokens=len(encoded.ids),
            cached_tokens=job.reused,
            output_tokens=len(job.ids),
            reasoning_tokens=self._conversations.reasoning_tokens(job.ids, text),
            extra={"rewritten": encoded.rewritten} if encoded.rewritten else {},
        )


def end_tokens(network: Any, tokenizer: Any) -> frozenset[int]:
    """Returns the tokens that end a reply, according to the tokenizer and the generation config."""
    config = getattr(network, "generation_config", None)
    named = getattr(config, "eos_token_id", None)
    tokens = set(named) if isinstance(named, list) else {named}
    return frozenset(int(token) for token in tokens | {tokenizer.eos_token_id} if token is not None)


def load(
    model: str,
    device: str,
    dtype: str,
    attention: str = "sdpa",
    say: Callable[[str], None] = lambda line: None,
    merged: bool = True,
) -> tuple[Any, Any]:
    """Loads a model by name, with a LoRA adapter `merged` or left out; returns (network in evaluation
    mode, tokenizer). Never runs code from the model's files.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = pick_device(device)
    kind = pick_dtype(dtype, target)
    source = model_files.resolve(model)
    path: Path = model_files.folder(model, say)
    use_available_cores()
    # Prompts are tokenised one at a time, for which the tokenizer's threads cost more than they
    # save.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        with model_files.quiet():
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            network: Any = AutoModelForCausalLM.from_pretrained(
                path, dtype=kind, attn_implementation=attention, trust_remote_code=False
            )
        if source.kind == "adapter" and merged:
            adapters.merge(network, adapters.read(Path(source.where)))
        return network.to(target).eval(), tokenizer
    except EnvsuiteError:
        raise
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"{target} has too little memory for {model} in {kind}: use --dtype bfloat16, --device cpu or a "
            "smaller model."
        ) from error
    except Exception as error:  # readers of different formats raise many types
        raise DataError(f"Cannot load the model in {path}: {type(error).__name__}: {error}") from error


def pick_device(device: str) -> torch.device:
    """Returns the device of --device; auto prefers CUDA, then Metal. Raises UsageError."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"Unknown --device {device!r}: auto, cpu, cuda, cuda:1 or mps.") from error
    if picked.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {device}: torch {torch.__version__} finds no CUDA device; use --device cpu.")
    return picked


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Returns the data type of --dtype; auto is float32 on a CPU, and bfloat16 on GPUs that support
    it.
    """
    if dtype == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    short = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(dtype, dtype)
    picked = getattr(torch, short, None)
    if not isinstance(picked, torch.dtype) or not picked.is_floating_point:
        raise UsageError(f"Unknown --dtype {dtype!r}: auto, float32, bfloat16 or float16.")
    return picked


def use_available_cores() -> None:
    """Sets one thread per core that this process may use, unless OMP_NUM_THREADS is set; torch
    counts all cores.
    """
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
