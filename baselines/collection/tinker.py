"""Replies sampled by Tinker's service, `backend = "tinker"`."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from baselines.networks.tinker import TinkerModel
from harness.lm.decode import Decoder, Job, Settings, TextOf

PATIENCE = 0.05
"""Seconds that a step waits for a reply, in which environments cannot move."""


class TinkerSampler:
    """The sampler of a model's present weights."""

    def __init__(self, model: TinkerModel) -> None:
        self.model, self.client = model, model.sampler

    def decoder(self, settings: Settings, text_of: TextOf) -> Decoder:
        """Returns a decoder that has the service sample."""
        return TinkerDecoder(self, settings)


class TinkerDecoder:
    """Decodes jobs on the service, all at once."""

    max_rows = 2**31

    def __init__(self, sampler: TinkerSampler, settings: Settings) -> None:
        self.sampler, self.settings = sampler, settings
        self._jobs: dict[Future[Any], Job] = {}
        ends = sorted(settings.end_ids)
        # The service takes tokens or strings: with strings, end tokens are named by their text.
        texts = [sampler.model.tokenizer.decode([end], skip_special_tokens=False) for end in ends]
        self.stop: list[Any] = [*settings.stop, *texts] if settings.stop else ends

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        api = self.sampler.model.api
        params = api.SamplingParams(
            max_tokens=job.room,
            seed=job.seed % 2**31,
            stop=self.stop,
            temperature=self.settings.temperature,
            top_p=self.settings.top_p,
        )
        with self.sampler.model.errors("samples nothing"):
            prompt = api.ModelInput.from_ints(job.prompt)
            future = self.sampler.client.sample(prompt=prompt, num_samples=1, sampling_params=params)
        self._jobs[future.future()] = job

    def step(self) -> list[Job]:
        done, _ = wait(self._jobs, PATIENCE, FIRST_COMPLETED)
        return [self._finish(future) for future in done]

    def _finish(self, future: Future[Any]) -> Job:
        job = self._jobs.pop(future)
        with self.sampler.model.errors("sampled no reply"):
            (reply,) = future.result().sequences
        job.ids, job.logprobs = list(reply.tokens), list(reply.logprobs)
        job.finish_reason = "stop" if reply.stop_reason == "stop" else "length"
        return job

    def reset(self) -> None:
        for future in self._jobs:
            future.cancel()
        self._jobs.clear()

    def forget(self) -> None:
        self.reset()
