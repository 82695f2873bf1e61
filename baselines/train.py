"""The training loop: play episodes, learn from them, evaluate, save.

    {output_dir}/{run}/
        recipe.json     the recipe with every default, and the host
        metrics.jsonl   a line per update and per evaluation; appended and flushed
        checkpoint.pt   everything that the next update depends on, as plain data
        model/          the latest model as a plain Hugging Face folder; best/ the one with the best evaluation
        adapter/        with LoRA, the latest adapter for peft
        trackers.json   the ids of the run in its trackers, if it has any

Games and sampling seeds are addressed by the number of the update, so that a run killed at any
moment and resumed continues with the very same update (on a CPU with a fixed number of threads, to
the bit). Entry point: `TrainingRun(...).train()`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import torch

from baselines import recipe as recipes
from baselines.algorithms import sft
from baselines.algorithms.actor_critic import ActorCriticConfig
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.collection import fixed_turns
from baselines.collection.actor import template
from baselines.collection.ahead import RolloutAhead
from baselines.collection.collector import Collected, Collector
from baselines.collection.env_cache import EnvCache
from baselines.collection.sampler import check_choice
from baselines.distributed import collectives
from baselines.logging import checkpoints
from baselines.math.losses import NonFiniteLoss
from baselines.metrics import episode_metrics, evaluation_metrics, outcome_metrics
from baselines.networks.model import Model
from baselines.networks.tinker import TinkerModel
from baselines.recipe import Recipe
from baselines.run_log import Display, RunLog
from envsuite.errors import DataError, UsageError
from harness.evaluate import Execution

DEMONSTRATION_COST, EPISODE_COST = 10, 1
"""Units of the budget rule in the Practitioner's Guide (its Table 9)."""

MAY_CHANGE = (
    *("updates", "budget", "eval_every", "save_every", "stop_at"),
    *("generation", "fsdp", "trackers"),
)
"""Keys of a recipe that may differ when its run is resumed."""

CONCURRENT = 64
"""Episodes that are played at once, by default."""


class TrainingRun:
    """A training run: its recipe, its folder, and its state between updates."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        resume: bool = False,
        display: Display = lambda line: None,
        execution: Execution | None = None,
        environments: EnvCache | None = None,
    ) -> None:
        """Loads the model, and with `resume` the checkpoint in `folder`.

        `execution` states where environments run; results do not depend on it. `environments` are
        used and left open; by default the run opens and closes its own. Raises UsageError if the
        folder is in use or holds another run.
        """
        self.recipe, self.folder = recipe, folder
        checkpoint = folder / checkpoints.LATEST
        if checkpoint.exists() and not resume:
            raise UsageError(f"{folder} exists: continue it with --resume, remove it, or choose another --output-dir.")
        check_choice(recipe)
        if recipe.async_level and collectives.size() > 1:
            raise UsageError(
                f"async_level = {recipe.async_level} needs a single process: leave it out, or the launcher."
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = filelock.FileLock(folder / ".lock")
        try:
            if collectives.first():
                self.lock.acquire(timeout=0)
        except filelock.Timeout:
            raise UsageError(
                f"{folder} is in use by another process: wait for it, or choose another --output-dir."
            ) from None
        self.model = TinkerModel(recipe.model) if recipe.backend == "tinker" else Model.load(recipe.model_config)
        if recipe.fsdp and collectives.size() > 1:
            self.model.shard(recipe.needs_reference and not recipe.model.lora_rank, recipe.config.trains_target_critic)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.optimisers: Optimisers | None = None
        self.update, self.spent, self.tuned = 0, 0, False
        self.saved_at = 0
        """The update at the last checkpoint; -1 if there is something to save before the first update."""
        self.tuning: dict[str, Any] | None = None
        """State of an unfinished fine-tuning."""
        self.best, self.success, self.evaluated_at = -1.0, -1.0, -1
        execution = execution or Execution(max_concurrent=CONCURRENT)
        self.collector = Collector(recipe, self.model, folder, execution, environments)
        self.ahead = RolloutAhead(self.collector)
        self.stage = len(self.collector.sampler.configs) - 1 if recipe.first_stage is None else recipe.first_stage
        self.log = RunLog(recipe, folder, display, resume=checkpoint.exists())
        if collectives.first():
            checkpoints.tidy(folder)
        if checkpoint.exists():
            self._restore(checkpoint)
        else:
            self.log.begin()

    def train(self) -> float:
        """Runs everything that the recipe asks for; returns the last success rate on held-out
        games."""
        recipe = self.recipe
        try:
            if not self.tuned:
                self._fine_tune()
            if recipe.trains_policy:
                self._prepare_updates()
                if self.evaluated_at < self.update and (self.update == 0 or self._evaluates_after(self.update)):
                    self.evaluate()  # also where servers were lost in it and the run is resumed
                while not self._finished(self.update, self.spent):
                    self._step()
                    if self._evaluates_after(self.update):
                        self.evaluate()
                    if self.update % recipe.save_every == 0:
                        self.save()
            if self.evaluated_at < self.update:
                self.evaluate()
            self.save()
            return self.success
        finally:
            self.close()

    def close(self) -> None:
        """Closes environments and servers, and releases the folder."""
        self.ahead.close()
        self.log.close()
        self.collector.close()
        self.lock.release()

    def _evaluates_after(self, update: int) -> bool:
        return bool(self.recipe.eval_every) and update % self.recipe.eval_every == 0

    def _finished(self, update: int, spent: int) -> bool:
        recipe = self.recipe
        if recipe.stop_at and self.success >= recipe.stop_at:
            return True
        if recipe.budget:
            return spent + recipe.episodes * EPISODE_COST > recipe.budget
        return update >= recipe.updates

    # ---- Fine-tuning ----

    def _fine_tune(self) -> None:
        """Trains on the expert's games, if the recipe asks for it."""
        settings = self.recipe.sft
        games = sft.read(Path(settings.file)) if settings.file else self.collector.demonstrations()
        if games:
            # With a window of history a line is one turn, and each remembered turn has its own
            # line.
            last_only = settings.train.last_only or self.recipe.prompting.history >= 0
            config = dataclasses.replace(settings.train, last_only=last_only)
            chat_template = template(self.model, self.recipe.prompting)
            conversations = sft.conversations_of(games)
            tools = sft.tools_of(games)
            tuning = sft.FineTuning(self.model, conversations, chat_template, config, self.generator, tools)
            if self.tuning:
                tuning.load_state(self.tuning)
            for line in tuning.run():
                self.log.write({"kind": "sft", **line})
                if config.save_every and tuning.step % config.save_every == 0 and tuning.step < tuning.steps:
                    self.tuning = tuning.state()
                    self.save()
            distinct = {(game["task"], game["seed"]) if "seed" in game else number for number, game in enumerate(games)}
            self.spent += DEMONSTRATION_COST * len(distinct)
            self.model.start_critic()  # actor and critic both start from the tuned weights, docs/specs/algorithms.md
            self.collector.weights_changed()
            self.saved_at = -1
        self.tuned, self.tuning = True, None

    def _prepare_updates(self) -> None:
        """Makes reference, target critic and optimisers after fine-tuning, before the first update."""
        if self.optimisers is None:
            if self.recipe.needs_reference:
                self.model.keep_reference()
            if self.recipe.config.trains_target_critic:
                self.model.keep_target()
            self.optimisers = Optimisers(self.model, self.recipe.config)

    # ---- Updates ----

    def _step(self) -> None:
        """Plays one batch of episodes and learns from it."""
        started = time.monotonic()
        staleness = int(self.ahead.pending)
        with self._saved_if_it_fails():
            factor = self._warm_up_factor()
            batch = self.ahead.take() if staleness else self.collector.collect(self.update, self.stage, factor)
        waited_until = time.monotonic()
        outcomes = outcome_metrics(batch.ended)
        played = self.stage
        if self.recipe.first_stage is not None:
            tasks = len(self.collector.sampler.configs)
            self.stage = self.recipe.next_stage(played, outcomes.get("success", 0.0), tasks)
        unfinished = len(batch.learned) + batch.resampled - len(batch.ended)
        spent = self.spent + EPISODE_COST * (len(batch.played) - unfinished)  # an episode is paid for when it ends
        if self._plays_ahead(spent):
            with contextlib.suppress(DataError):  # servers load nothing: the next rollout reports it
                self.ahead.begin(self.update + 1, self.stage)
        began = time.monotonic()
        log = self._learn(batch, factor)
        for _ in range(self._further_passes(factor)):
            self.update += 1
            log = self._learn(batch, factor)
        self.update, self.spent = self.update + 1, spent
        self.collector.weights_changed()
        waited: dict[str, float] = {}
        if self.recipe.async_level:
            waited = {"staleness": staleness, "wait_seconds": round(waited_until - started, 3)}
        self.log.write(
            {
                "kind": "update",
                "update": self.update,
                "episodes": self.update * self.recipe.episodes,
                **outcomes,
                "over": len(batch.ended),
                **({"level": played} if self.recipe.success_between else {"tasks": self.stage + 1}),
                **episode_metrics(batch.played, batch.learned, batch.resampled),
                "rollout_seconds": round(batch.seconds, 3),
                "update_seconds": round(time.monotonic() - began, 3),
                **waited,
                **batch.log,
                **batch.server_gap,
                **{key: float(value) for key, value in log.items()},
            }
        )

    def _plays_ahead(self, spent: int) -> bool:
        """Returns True if the next rollout may start before this update: neither an evaluation nor a
        checkpoint nor the end lies between."""
        following = self.update + 1
        if not self.recipe.async_level or self._evaluates_after(following) or self._warm_up_factor() > 1:
            return False
        return following % self.recipe.save_every != 0 and not self._finished(following, spent)

    def _warm_up_factor(self) -> int:
        """Returns how many ordinary batches the next one is as large as: only the first warms up a critic."""
        config = self.recipe.config
        return config.critic_warmup_batch if isinstance(config, ActorCriticConfig) and self.update == 0 else 1

    def _further_passes(self, factor: int) -> int:
        """Returns how many passes over a warm-up's batch follow its first."""
        config = self.recipe.config
        return config.critic_warmup - 1 if isinstance(config, ActorCriticConfig) and factor > 1 else 0

    def _learn(self, batch: Collected, factor: int = 1) -> dict[str, float]:
        """Takes the algorithm's steps on a batch, `factor` times as large as ordinary ones, and returns
        numbers to log."""
        recipe, config, share = self.recipe, self.recipe.config, 1.0
        if factor > 1 and isinstance(config, ActorCriticConfig):
            share = config.critic_warmup_share
            config = dataclasses.replace(config, minibatches=max(1, round(config.minibatches * factor * share)))
        assert self.optimisers is not None
        done = self.spent / recipe.budget if recipe.budget else self.update / max(1, recipe.updates)
        self.optimisers.set_rates(done, self.update)
        inputs = UpdateInput(
            self.model,
            self.optimisers,
            batch.learned,
            config,
            self.generator,
            batch.final_prompts,
            recipe.acting.temperature,
            self.update,
            share,
            decoupled=self.recipe.async_level > 0,
        )
        try:
            log: dict[str, float] = recipe.module.update(inputs)
        except NonFiniteLoss as error:
            checkpoint = self.folder / checkpoints.LATEST
            saved = f"{checkpoint} is of an earlier update" if checkpoint.exists() else "nothing had been saved"
            raise NonFiniteLoss(f"Update {self.update + 1} of {self.folder}: {error} Stopped; {saved}.") from error
        return log

    def evaluate(self) -> float:
        """Returns the success rate on held-out games, and exports the model if it is the best so
        far.

        Replies are greedy unless `acting.eval_temperature` says otherwise.
        """
        began = time.monotonic()
        with self._saved_if_it_fails():
            scored, gap = self.collector.evaluation()
        metrics = evaluation_metrics(scored)
        self.log.write(
            {
                "kind": "eval",
                "update": self.update,
                "episodes": self.update * self.recipe.episodes,
                "spent": self.spent,
                "held_out": self.collector.sampler.held_out,
                **metrics,
                "seconds": round(time.monotonic() - began, 3),
                **gap,
            }
        )
        self.success, self.evaluated_at = float(metrics["success"]), self.update
        if self.success > self.best:
            self.best = self.success
            self._export("best")
        return self.success

    # ---- Files ----

    @contextlib.contextmanager
    def _saved_if_it_fails(self) -> Iterator[None]:
        """Saves the updates since the last checkpoint if a rollout fails: its weights are sound."""
        try:
            yield
        except DataError:
            if collectives.size() == 1 and self.update > self.saved_at:
                with contextlib.suppress(DataError):  # saving may need the service that just failed
                    self.save()
            raise

    def save(self) -> None:
        """Replaces the checkpoint and the exported model; a crash leaves the old ones or the new
        ones."""
        if not (collectives.first() or self.model.sharded):
            return
        state = {
            "recipe": recipes.plain(self.recipe),
            "model": self.model.state(),
            "tuning": self.tuning,
            "optimisers": self.optimisers.state() if self.optimisers else None,
            "generator": self.generator.get_state(),
            "update": self.update,
            "spent": self.spent,
            "best": self.best,
            "success": self.success,
            "evaluated_at": self.evaluated_at,
            "stage": self.stage,
            "streams": [stream.state() for stream in self.collector.streams],
            "lines": self.log.count(),
        }
        if collectives.first():
            checkpoints.save(self.folder / checkpoints.LATEST, state)
        self._export("model")
        if self.model.config.lora_rank:
            self._export("adapter", adapter=True)
        self.saved_at = self.update

    def _export(self, name: str, adapter: bool = False) -> None:
        weights = self.model.gathered_state(adapter)
        if collectives.first():
            checkpoints.export(self.folder / name, lambda path: self.model.save(path, weights, adapter))

    def _restore(self, checkpoint: Path) -> None:
        state = checkpoints.load(checkpoint)
        mine, saved = recipes.plain(self.recipe), state["recipe"]
        for key in mine:
            if mine[key] != saved.get(key) and key not in MAY_CHANGE:
                raise UsageError(f"{checkpoint.parent} was trained with {key} = {saved.get(key)!r}, not {mine[key]!r}.")
        self.model.load_state(state["model"])
        self.tuning = state["tuning"]
        self.tuned = self.tuning is None
        if state["optimisers"] is not None:
            self.optimisers = Optimisers(self.model, self.recipe.config)
            self.optimisers.load_state(state["optimisers"])
        self.generator.set_state(state["generator"])
        self.update, self.spent, self.best = state["update"], state["spent"], state["best"]
        self.success, self.evaluated_at = state["success"], state["evaluated_at"]
        self.stage, self.saved_at = state["stage"], state["update"]
        self.collector.streams = [fixed_turns.EpisodeStream.of_state(stream) for stream in state["streams"]]
        self.log.truncate(state["lines"])
