"""Plays the episodes of a training run: batches to learn from, demonstrations, and evaluations."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baselines.batch import ADVISED
from baselines.collection import fixed_turns
from baselines.collection.actor import Actor
from baselines.collection.advice import advised_demonstrations
from baselines.collection.colocated import VLLMEngine
from baselines.collection.env_cache import EnvCache
from baselines.collection.resampling import replace_flat_groups
from baselines.collection.rewards import adjusted
from baselines.collection.sampler import GameSampler
from baselines.collection.server_gap import server_gap
from baselines.collection.servers import Servers
from baselines.collection.tinker import TinkerSampler
from baselines.distributed import collectives
from baselines.networks.model import Model
from baselines.networks.snapshot import Snapshot
from baselines.networks.tinker import TinkerModel
from baselines.recipe import Recipe
from envsuite.errors import DataError
from envsuite.types import StopReason
from harness.evaluate import Execution, RunConfig
from harness.policies import make_policy
from harness.prompting.demos import demonstrations
from harness.rollout.loop import rollout
from harness.types import Episode, Trajectory


@dataclass
class Collected:
    """The episodes of one update."""

    played: list[Trajectory]
    """All episodes, broken ones included."""
    learned: list[Trajectory]
    """The new turns of each usable episode, from which the update learns."""
    final_prompts: list[list[int]]
    """For each of these the prompt that would follow; [] if the episode ended by itself."""
    ended: list[Trajectory]
    """Usable episodes that ended."""
    resampled: int = 0
    """Usable episodes that were replaced because their whole group earned the same."""
    log: dict[str, float] = field(default_factory=dict)
    """Further numbers for the log, of settings that are not the default."""
    server_gap: dict[str, float] = field(default_factory=dict)
    """For the log: how far the servers' log-probs are from the trainer's; {} without servers."""
    seconds: float = 0.0


class Collector:
    """Plays episodes with the model's present weights, in this process or on servers."""

    def __init__(
        self, recipe: Recipe, model: Model, folder: Path, execution: Execution, environments: EnvCache | None
    ) -> None:
        """`environments` are used and left open; without them the collector opens and closes its
        own."""
        self.recipe, self.model, self.execution = recipe, model, execution
        self.sampler = GameSampler(recipe)
        self.streams = [fixed_turns.EpisodeStream() for _ in range(recipe.episodes if recipe.turns else 0)]
        self.environments = environments or EnvCache()
        self.owns_environments = environments is None
        self.servers = Servers(recipe, folder) if recipe.generation.base_url else None
        self.engine: VLLMEngine | None = None

    def close(self) -> None:
        """Closes environments and servers."""
        if self.owns_environments:
            self.environments.close()
        if self.servers is not None:
            self.servers.close()

    def collect(self, update: int, stage: int, factor: int = 1) -> Collected:
        """Plays the episodes of one update with the present weights, or `factor` times as many. Raises
        DataError if nothing can be learned from them."""
        actor = self.actor()
        with self._full_actor():
            return self.collect_with(actor, update, stage, factor)

    def collect_with(self, actor: Actor, update: int, stage: int, factor: int = 1) -> Collected:
        """Plays the episodes of one update with a given policy, which is closed; else like `collect`."""
        began = time.monotonic()
        with self._unless_servers_are_lost(f"update {update + 1}"):
            pairs, replaced = self._play_informative(actor, update, stage, factor)
            played = [run for run, _ in pairs] + replaced
            self._require_servers(played)
            usable = [(run, first) for run, first in pairs if _is_usable(run, first)]
            if not usable:
                raise DataError(f"update {update + 1}: {_why_nothing_was_sampled(played)}")
            batch = self._collected(actor, update, usable, played, replaced)
            actor.close()  # the update needs the memory of the rollout
            batch.server_gap = self.server_gap(actor, batch.learned, self.recipe.acting.temperature)
        batch.seconds = time.monotonic() - began
        return batch

    def _collected(
        self,
        actor: Actor,
        update: int,
        usable: Sequence[tuple[Trajectory, int]],
        played: list[Trajectory],
        replaced: Sequence[Trajectory],
    ) -> Collected:
        """Returns what an update learns from; each usable episode comes with its first new turn."""
        usable_replaced = [run for run in replaced if _is_usable(run, 0)]
        log: dict[str, float] = {}
        if self.recipe.config.resampling_rounds:
            log["resampled"] = len(replaced)
        if self.recipe.turn_limits:
            log["turn_limit"] = self.recipe.turn_limit(update)
        if self.recipe.config.advisor:
            for run, _ in usable:
                for turn, prompt in zip(run.turns, actor.advised_prompts(run), strict=True):
                    turn.reply.extra[ADVISED] = prompt
        return Collected(
            played,
            learned=[
                adjusted(fixed_turns.turns_from(run, first) if first else run, self.recipe.rewards)
                for run, first in usable
            ],
            final_prompts=[actor.next_prompt(run) if run.truncated and not run.terminated else [] for run, _ in usable],
            ended=[run for run, _ in usable if not self._continues(run)] + usable_replaced,
            resampled=len(usable_replaced),
            log=log,
        )

    def _continues(self, run: Trajectory) -> bool:
        return bool(self.streams) and fixed_turns.unfinished(run, self.recipe.max_turns)

    def _play_informative(
        self, actor: Actor, update: int, stage: int, factor: int
    ) -> tuple[list[tuple[Trajectory, int]], list[Trajectory]]:
        """Plays the episodes of an update and, with `config.resample`, replaces groups whose episodes
        all earned the same. Returns what `_play_batch` does, and the replaced episodes."""
        pairs = self._play_batch(actor, update, stage, factor)
        rounds, size = self.recipe.config.resampling_rounds, self.recipe.config.episodes_per_group
        if not rounds:
            return pairs, []

        def score(run: Trajectory) -> float | None:
            return adjusted(run, self.recipe.rewards).total_reward if _is_usable(run, 0) else None

        def play(number: int, groups: int) -> list[Trajectory]:
            return [run for run, _ in self._play_batch(actor, update, stage, factor, number, groups)]

        informative, replaced = replace_flat_groups([run for run, _ in pairs], size, rounds, score, play)
        return sorted(((run, 0) for run in informative), key=lambda pair: pair[0].episode.key), replaced

    def _play_batch(
        self, actor: Actor, update: int, stage: int, factor: int = 1, extra: int = 0, groups: int | None = None
    ) -> list[tuple[Trajectory, int]]:
        """Plays the episodes of an update, or of an extra rollout (`GameSampler.batch`); returns each
        with the number of its first new turn."""

        def play(episodes: Sequence[Episode], policy: Any, limit: Any = None) -> list[Trajectory]:
            runs = []
            for config in self.sampler.configs:
                of_task = [episode for episode in episodes if episode.task.id == config.task.id]
                runs += self.play(config, of_task, policy, limit) if of_task else []
            return runs

        def next_episode(stream: int, number: int) -> Episode:
            return self.sampler.stream_episode(stream, number, stage)

        if self.streams:
            turns, max_turns = factor * self.recipe.turns, self.recipe.max_turns
            pairs = fixed_turns.collect(self.streams, turns, max_turns, next_episode, play, actor)
        else:
            episodes = self.sampler.batch(update, stage, factor, extra, groups)
            pairs = [(run, 0) for run in play(episodes, actor, self.recipe.turn_limit(update))]
        return sorted(pairs, key=lambda pair: pair[0].episode.key)

    def demonstrations(self) -> list[dict[str, Any]]:
        """Plays the recipe's expert on the first training seeds and returns its games as chats."""
        settings = self.recipe.sft
        games: list[dict[str, Any]] = []
        for config, episodes in self.sampler.demonstrations(settings.episodes) if settings.episodes else []:
            runs = self.play(config, episodes, make_policy(settings.expert))
            games += demonstrations(runs, self.recipe.prompting)
            if settings.advised:
                games += advised_demonstrations(runs, self.recipe.prompting)
        return sorted(games, key=lambda game: (game["task"], game["seed"]))

    def evaluation(self) -> tuple[list[Trajectory], dict[str, float]]:
        """Plays the held-out games at `acting.eval_temperature`; returns the episodes that did not
        break, and the server gap for the log.

        Raises DataError if all of them broke.
        """
        actor = self.actor(self.recipe.acting.eval_temperature)
        with self._full_actor(), self._unless_servers_are_lost("the evaluation"):
            runs = [run for config, episodes in self.sampler.evaluation() for run in self.play(config, episodes, actor)]
            self._require_servers(runs)
        scored = [run for run in runs if not run.broken]
        if not scored:
            raise DataError(f"all {len(runs)} episodes of the evaluation broke: {runs[0].error}")
        gap = self.server_gap(actor, scored, self.recipe.acting.eval_temperature)
        actor.close()
        return scored, gap

    def play(self, config: RunConfig, episodes: Sequence[Episode], policy: Any, limit: Any = None) -> list[Trajectory]:
        """Plays episodes of one task, shared between the processes; `limit` caps their turns, as
        `rollout` takes it."""
        mine = collectives.share(episodes)
        runs: list[Trajectory] = []
        if mine:
            executor = self.environments.executor(
                config, self.execution, len(mine), policy.advice_kind, self.recipe.shaping
            )
            limit = limit or self.recipe.max_turns or None
            runs = list(rollout(policy, mine, executor, self.recipe.prompting, limit))
        return sorted(collectives.gather(runs), key=lambda run: run.episode.key)

    def actor(self, temperature: float | None = None, player: Model | Snapshot | None = None) -> Actor:
        """Returns the policy with the present weights, of which `player` may be a copy; by default at
        the training temperature."""
        acting = self.recipe.acting
        options = None
        if self.servers is not None:
            self.servers.load(self.model)
            options = self.servers.options
        elif self.recipe.generation.engine:
            self.engine = self.engine or VLLMEngine(self.recipe, self.model)
            self.engine.load(self.model)
        temperature = acting.temperature if temperature is None else temperature
        engine = TinkerSampler(self.model) if isinstance(self.model, TinkerModel) else self.engine
        return Actor(
            player or self.model,
            acting,
            self.recipe.prompting,
            temperature,
            options,
            engine,
            self.recipe.config.advisor,
        )

    def _full_actor(self) -> contextlib.AbstractContextManager[None]:
        """Gathers the full actor for a local rollout; does nothing when servers generate."""
        return contextlib.nullcontext() if self.servers else self.model.gathered()

    @contextlib.contextmanager
    def _unless_servers_are_lost(self, rollout_name: str) -> Iterator[None]:
        """Names the rollout that ended because no server answers, and returns the streams to where
        they were before any rollout that failed."""
        streams = [copy.copy(stream) for stream in self.streams]
        try:
            yield
        except DataError as error:
            self.streams = streams
            if self.servers is None or self.servers.answering():
                raise
            raise DataError(
                f"{rollout_name}: no server answers any more, and its episodes count for nothing: start a server and "
                f"continue with --resume. ({error})"
            ) from error

    def _require_servers(self, runs: Sequence[Trajectory]) -> None:
        """Raises DataError if episodes broke and no server answers: the others are no fair sample."""
        errors = [run.error for run in runs if run.broken]
        if self.servers is not None and errors and not self.servers.answering():
            raise DataError(f"{len(errors)} of {len(runs)} episodes broke: {errors[0]}")

    def weights_changed(self) -> None:
        """Marks the servers' weights as stale."""
        if self.servers is not None:
            self.servers.stale = True

    def server_gap(self, actor: Actor, runs: Sequence[Trajectory], temperature: float) -> dict[str, float]:
        """Returns for the log how far log-probs of servers or an engine are from the actor's; {} without either."""
        on_tinker = self.recipe.backend == "tinker" and temperature == 1.0  # the trainer's only temperature
        if not (self.recipe.generation.elsewhere or on_tinker):
            return {}
        if not any(turn.reply.ids for run in runs for turn in run.turns):
            return {}
        return {"server_gap": server_gap(self.recipe, actor.model, runs, temperature)}


def _is_usable(run: Trajectory, first: int) -> bool:
    """Returns True if an update can learn from the episode's turns from `first` on."""
    return not run.broken and any(turn.reply.ids for turn in run.turns[first:])


def _why_nothing_was_sampled(runs: Sequence[Trajectory]) -> str:
    """Explains why no episode of a batch holds a sampled token."""
    if all(run.stop_reason is StopReason.CONTEXT for run in runs):
        return "all prompts are too long for a reply: raise acting.context, or show less history."
    return f"all {len(runs)} episodes broke: {runs[0].error}"
