"""vLLM's engine in the process that trains, on the same device: `generation.engine = "vllm"`.

The engine generates between updates. Before a rollout it wakes and receives the actor's weights in
memory; after it, where the platform can, it sleeps: its weights move to main memory and its cache is
freed, so that the update has the GPU. vLLM's CPU build cannot sleep.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import torch

from baselines.distributed import collectives
from baselines.networks.model import Model
from baselines.recipe import Recipe
from envsuite.errors import MissingExtra, UsageError
from harness.lm import model_files
from harness.lm.decode import Decoder, Job, Settings, TextOf


class VLLMEngine:
    """vLLM with one model, whose weights are replaced before each rollout."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        if collectives.size() > 1:
            raise UsageError(
                f"generation.engine = 'vllm' works in a single process, and {collectives.size()} train: use servers "
                "(generation.base_url), or one process."
            )
        # Only an engine in this process can take weights from its memory.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            import vllm
            from vllm.platforms import current_platform
        except ImportError as error:
            raise MissingExtra(f"generation.engine = 'vllm' needs vLLM ({error}): pip install vllm.") from error
        self.can_sleep = bool(current_platform.is_sleep_mode_available())
        self.sampling, self.final = vllm.SamplingParams, vllm.sampling_params.RequestOutputKind.FINAL_ONLY
        limit = getattr(model.lm.config.get_text_config(), "max_position_embeddings", None)
        on_gpu = {"gpu_memory_utilization": recipe.generation.gpu_share} if model.device.type == "cuda" else {}
        self.llm: Any = vllm.LLM(
            model=str(model_files.folder(recipe.model.name, lambda line: None)),
            dtype=str(model.lm.dtype).removeprefix("torch."),
            max_model_len=recipe.acting.context or limit,
            generation_config="vllm",
            logprobs_mode="processed_logprobs",
            enable_sleep_mode=self.can_sleep,
            enforce_eager=not on_gpu,
            **on_gpu,
        )
        self.asleep = False
        self.sleep()

    @torch.no_grad()
    def load(self, model: Model) -> None:
        """Wakes the engine and hands over the actor's present weights."""
        if self.asleep:
            self.llm.wake_up()
            self.asleep = False
        weights = iter(model.all_weights().items())
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self.llm.reset_prefix_cache()

    def sleep(self) -> None:
        """Frees the device's memory until `load`, where the platform can."""
        if self.can_sleep and not self.asleep:
            self.llm.sleep(level=1)
            self.asleep = True

    def decoder(self, settings: Settings, text_of: TextOf) -> Decoder:
        """Returns a decoder that has this engine sample."""
        return VLLMDecoder(self, settings)


class VLLMDecoder:
    """Decodes jobs with an `VLLMEngine`, which batches them itself."""

    max_rows = 2**31

    def __init__(self, engine: VLLMEngine, settings: Settings) -> None:
        self.engine, self.settings = engine, settings
        self._jobs: dict[str, Job] = {}
        self._names = (f"{id(self)}-{number}" for number in itertools.count())

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        name, settings = next(self._names), self.settings
        self._jobs[name] = job
        sampling = self.engine.sampling(
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=job.room,
            seed=job.seed % 2**63,
            logprobs=1,
            stop_token_ids=sorted(settings.end_ids),
            stop=list(settings.stop) or None,
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            output_kind=self.engine.final,
        )
        self.engine.llm.llm_engine.add_request(name, {"prompt_token_ids": job.prompt}, sampling)

    def step(self) -> list[Job]:
        return [
            self._finish(output)
            for output in self.engine.llm.llm_engine.step()
            if output.finished and output.request_id in self._jobs
        ]

    def _finish(self, output: Any) -> Job:
        job, (reply,) = self._jobs.pop(output.request_id), output.outputs
        job.ids = list(reply.token_ids)
        job.logprobs = [table[token].logprob for token, table in zip(job.ids, reply.logprobs, strict=True)]
        job.finish_reason = "stop" if reply.finish_reason == "stop" else "length"
        job.reused = output.num_cached_tokens or 0
        return job

    def reset(self) -> None:
        self.engine.llm.llm_engine.abort_request(list(self._jobs))
        self._jobs.clear()

    def forget(self) -> None:
        self.reset()
        self.engine.sleep()
