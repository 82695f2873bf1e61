"""The one loop: draw games, play them, learn, measure, save.

    {output_dir}/{run}/
        recipe.json     the recipe with every default, and where it ran
        metrics.jsonl   a line per update, and one per measurement on held-out seeds; appended and flushed
        checkpoint.pt   everything the next update depends on; replaced atomically (as are the others: `store`)
        model/          the latest model as a plain Hugging Face folder; best/ the one that measured best

Games and dice are addressed by the number of the update, so that a run killed anywhere and resumed goes on with the very
same update (on a CPU with fixed threads: to the bit).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch

from baselines import recipe as recipes
from baselines.algorithms import sft
from baselines.algorithms.policy_step import NonFiniteLoss, Optimisers
from baselines.collection import fixed_turns
from baselines.collection.actor import Actor, template
from baselines.collection.env_cache import EnvCache
from baselines.collection.sampler import Games
from baselines.collection.servers import Servers
from baselines.distributed import collectives
from baselines.logging import checkpoints
from baselines.model import Model
from baselines.recipe import Recipe
from baselines.run_log import RunLog, Say
from envsuite.errors import DataError, UsageError
from envsuite.types import StopReason
from harness.demos import demonstrations
from harness.evaluate import Execution, RunConfig
from harness.policies import make_policy
from harness.rollout.loop import rollout
from harness.stats.intervals import wilson
from harness.types import Episode, Trajectory

DEMONSTRATION_COST, EPISODE_COST = 10, 1
"""units of the Practitioner's Guide's budget rule (its Table 9)"""

FREE = ("updates", "budget", "eval_every", "save_every", "stop_at", "generation", "fsdp")
"""keys of a recipe that may be others when its run goes on"""

CONCURRENT = 64
"""so many episodes are played at once"""


class Run:
    """A training run: what it is (`recipe`), where it lies (`folder`), and where it stands."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        resume: bool = False,
        say: Say = lambda line: None,
        execution: Execution | None = None,
        environments: EnvCache | None = None,
    ) -> None:
        """`execution` says where the environments live; what is learned does not depend on it. `environments`: open ones, to
        be used and left open for the next run.
        """
        self.recipe, self.folder = recipe, folder
        self.execution = execution or Execution(max_concurrent=CONCURRENT)
        self.games = Games(recipe)
        kept = folder / "checkpoint.pt"
        if kept.exists() and not resume:
            raise UsageError(f"{folder} exists: go on with --resume, remove it, or choose another --output-dir.")
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = filelock.FileLock(folder / ".lock")
        try:
            if collectives.first():  # of several processes that train together
                self.lock.acquire(timeout=0)
        except filelock.Timeout:
            raise UsageError(
                f"{folder} is in use by another process: wait for it, or choose another --output-dir."
            ) from None
        self.model = Model.load(recipe.model)
        if recipe.fsdp and collectives.size() > 1:
            self.model.shard(self._refers, bool(getattr(recipe.config, "target_tau", 0.0)))
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.optimisers: Optimisers | None = None
        self.update, self.spent, self.best, self.tuned = 0, 0, -1.0, False
        self.success, self.measured = -1.0, -1  # the last measured success, and after which update that was
        self.rung = 0 if recipe.advance_at else len(self.games.configs) - 1  # the last of the tasks that are played
        self.lanes = [fixed_turns.Lane() for _ in range(recipe.episodes if recipe.turns else 0)]
        self.environments = environments or EnvCache()
        self.mine = environments is None
        self.notes = RunLog(recipe, folder, say)
        self.servers = Servers(recipe, folder) if recipe.generation.base_url else None
        if collectives.first():
            checkpoints.tidy(folder)
        if kept.exists():
            self._restore(kept)
        else:
            self.notes.begin()

    @property
    def _refers(self) -> bool:
        """Whether the updates need the weights that training begins with."""
        return self.recipe.algorithm != "sft" and bool(self.recipe.config.kl_coef)

    def train(self) -> float:
        """Everything the recipe asks for; returns the last measured success on held-out seeds."""
        recipe = self.recipe
        try:
            if not self.tuned:
                self._tune()
            if recipe.algorithm != "sft":
                self._ready()
                if self.update == 0 > self.measured:
                    self.measure()
                while not self._over():
                    self._step()
                    if recipe.eval_every and self.update % recipe.eval_every == 0:
                        self.measure()
                    if self.update % recipe.save_every == 0:
                        self.save()
            if self.measured < self.update:
                self.measure()
            self.save()
            return self.success
        finally:
            self.close()

    def close(self) -> None:
        """Ends the environments, and leaves the folder to others."""
        if self.mine:
            self.environments.close()
        if self.servers is not None:
            self.servers.close()
        self.lock.release()

    def _over(self) -> bool:
        recipe = self.recipe
        if recipe.stop_at and self.success >= recipe.stop_at:
            return True
        if recipe.budget:
            return self.spent + recipe.episodes * EPISODE_COST > recipe.budget
        return self.update >= recipe.updates

    def _tune(self) -> None:
        """Supervised fine-tuning on the expert's games, where the recipe asks for it."""
        asked = self.recipe.sft
        found = sft.read(Path(asked.file)) if asked.file else self._demonstrations()
        if found:
            # With a window of history a line is one turn: what it remembers has a line of its own.
            how = dataclasses.replace(
                asked.train, last_only=asked.train.last_only or self.recipe.prompting.history >= 0
            )
            for line in sft.train(
                self.model, sft.rows_of(found), template(self.model, self.recipe.prompting), how, self.generator
            ):
                self.notes.line({"kind": "sft", **line})
            games = {(one["task"], one["seed"]) if "seed" in one else place for place, one in enumerate(found)}
            self.spent += DEMONSTRATION_COST * len(games)
            self.model.start_critic()  # actor and critic both start from the tuned weights (docs/specs/algorithms.md)
            self._changed()
        self.tuned = True

    def _demonstrations(self) -> list[dict[str, Any]]:
        """The expert's games from the first training seeds, as chats."""
        asked = self.recipe.sft
        found: list[dict[str, Any]] = []
        for config, todo in self.games.shown(asked.episodes) if asked.episodes else []:
            found += demonstrations(self._play(config, todo, make_policy(asked.expert)), self.recipe.prompting)
        return sorted(found, key=lambda one: (one["task"], one["seed"]))

    def _ready(self) -> None:
        """The reference and the optimisers, once the weights are those training begins with."""
        if self.optimisers is None:
            if self._refers:
                self.model.keep_reference()
            if getattr(self.recipe.config, "target_tau", 0.0):
                self.model.keep_target()
            self.optimisers = Optimisers(self.model, self.recipe.config)

    def _step(self) -> None:
        recipe, began = self.recipe, time.monotonic()
        actor = self.actor()
        with self._gathered():
            taken = self._batch(actor)
        runs = [run for run, _ in taken]
        kept = [one for one in taken if not one[0].broken and any(turn.reply.ids for turn in one[0].turns[one[1] :])]
        if not kept:
            raise DataError(f"update {self.update + 1}: {_nothing_said(runs)}")
        finals = [actor.next_prompt(run) if run.truncated and not run.terminated else [] for run, _ in kept]
        usable = [fixed_turns.since(run, first) if first else run for run, first in kept]
        over = [run for run, _ in kept if not (self.lanes and fixed_turns.unfinished(run, recipe.max_turns))]
        actor.close()  # the memory of the rollout is wanted for the update
        played = time.monotonic() - began
        gap = self._gap(usable, recipe.acting.temperature)
        assert self.optimisers is not None
        done = self.spent / recipe.budget if recipe.budget else self.update / max(1, recipe.updates)
        self.optimisers.anneal(done)
        try:
            log = recipe.module.update(
                self.model, self.optimisers, usable, recipe.config, self.generator, finals,
                recipe.acting.temperature, self.update,
            )  # fmt: skip
        except NonFiniteLoss as error:
            saved = self.folder / "checkpoint.pt"
            left = f"{saved} is of an earlier update" if saved.exists() else "nothing had been saved"
            raise NonFiniteLoss(f"Update {self.update + 1} of {self.folder}: {error} Stopped; {left}.") from error
        self.update += 1
        self._changed()
        # A batch of so many turns may hold the end of no episode: then there is nothing to say about ends.
        ends: dict[str, list[float]] = {
            "reward": [run.total_reward for run in over],
            "success": [float(run.success) for run in over],
        }
        won = float(np.mean(ends["success"])) if over else 0.0
        if recipe.advance_at and won >= recipe.advance_at:
            self.rung = min(self.rung + 1, len(self.games.configs) - 1)
        self.spent += EPISODE_COST * (len(runs) - (len(kept) - len(over)))  # what goes on is not paid for twice
        turns = [turn for run in usable for turn in run.turns]
        sampled = sum(len(turn.reply.ids) for turn in turns)
        self.notes.line(
            {
                "kind": "update",
                "update": self.update,
                "episodes": self.update * recipe.episodes,
                "env_steps": len(turns),
                **{name: float(np.mean(found)) for name, found in ends.items() if found},
                "over": len(over),
                "tasks": self.rung + 1,
                "turns": len(turns) / len(usable),
                "invalid": float(np.mean([bool(turn.fault) for turn in turns])),
                "broken": len(runs) - len(usable),
                "tokens": sampled,
                "dropped_turns": sum(turn.reply.dropped_turns for turn in turns),
                "too_long": sum(run.stop_reason is StopReason.CONTEXT for run in runs),
                "rollout_seconds": round(played, 3),
                "update_seconds": round(time.monotonic() - began - played, 3),
                **gap,
                **{key: float(value) for key, value in log.items()},
            }
        )

    def _batch(self, actor: Actor) -> list[tuple[Trajectory, int]]:
        """What an update learns from: episodes, each with the number of its first turn that is new."""
        play = lambda todo, policy, cap=None: [
            run
            for config in self.games.configs
            if (mine := [episode for episode in todo if episode.task.id == config.task.id])
            for run in self._play(config, mine, policy, cap)
        ]
        if self.lanes:
            most = self.recipe.max_turns
            following = lambda lane, number: self.games.following(lane, number, self.rung)
            taken = fixed_turns.collect(self.lanes, self.recipe.turns, most, following, play, actor)
        else:
            taken = [(run, 0) for run in play(self.games.drawn(self.update, self.rung), actor)]
        return sorted(taken, key=lambda one: one[0].episode.key)

    def measure(self) -> float:
        """Success on held-out seeds, greedily unless the recipe says otherwise; keeps the best model."""
        recipe, began = self.recipe, time.monotonic()
        actor = self.actor(recipe.acting.eval_temperature)
        with self._gathered():
            runs = [run for config, todo in self.games.measured() for run in self._play(config, todo, actor)]
        actor.close()
        scored = [run for run in runs if not run.broken]
        if not scored:
            raise DataError(f"all {len(runs)} episodes of the measurement broke: {runs[0].error}")
        gap = self._gap(scored, recipe.acting.eval_temperature)
        wins = sum(run.success for run in scored)
        interval = wilson(wins, len(scored))
        names = sorted({name for run in scored for name in run.metrics})
        self.notes.line(
            {
                "kind": "eval",
                "update": self.update,
                "episodes": self.update * recipe.episodes,
                "spent": self.spent,
                "n": len(scored),
                "held_out": self.games.held_out,
                "success": interval.value,
                "low": interval.low,
                "high": interval.high,
                "reward": float(np.mean([run.total_reward for run in scored])),
                "turns": float(np.mean([len(run.turns) for run in scored])),
                "metrics": {n: float(np.mean([run.metrics[n] for run in scored if n in run.metrics])) for n in names},
                "seconds": round(time.monotonic() - began, 3),
                **gap,
            }
        )
        if interval.value > self.best:
            self.best = interval.value
            self._export("best")
        self.success, self.measured = interval.value, self.update
        return interval.value

    def actor(self, temperature: float | None = None) -> Actor:
        acting = self.recipe.acting
        chosen = acting.temperature if temperature is None else temperature
        if self.servers is not None:
            self.servers.follow(self.model)
        return Actor(self.model, acting, self.recipe.prompting, chosen, self.servers.options if self.servers else None)

    def _gathered(self) -> contextlib.AbstractContextManager[None]:
        """Within, this process can play by itself, where it is not servers that do."""
        return contextlib.nullcontext() if self.servers else self.model.gathered()

    def _changed(self) -> None:
        """The weights did: servers must load them before they play again."""
        if self.servers is not None:
            self.servers.stale = True

    def _gap(self, runs: Sequence[Trajectory], temperature: float) -> dict[str, float]:
        """For metrics.jsonl: how far the servers that played were from the weights that learn."""
        if self.servers is None or not any(turn.reply.ids for run in runs for turn in run.turns):
            return {}
        return {"server_gap": self.servers.check(self.model, runs, temperature)}

    def _play(
        self, config: RunConfig, todo: Sequence[Episode], policy: Any, cap: fixed_turns.Cap | None = None
    ) -> list[Trajectory]:
        mine = collectives.share(todo)
        runs: list[Trajectory] = []
        if mine:
            slots = self.environments.slots(
                config, self.execution, len(mine), policy.advice_kind, self.recipe.shaping_gamma
            )
            runs = list(rollout(policy, mine, slots, self.recipe.prompting, cap or self.recipe.max_turns or None))
        return sorted(collectives.gather(runs), key=lambda run: run.episode.key)

    # ---- on disk ----------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Replaces the checkpoint; a crash leaves the old one or the new one."""
        if not (collectives.first() or self.model.cut):
            return
        state = {
            "recipe": recipes.plain(self.recipe),
            "model": self.model.state(),
            "optimisers": self.optimisers.state() if self.optimisers else None,
            "generator": self.generator.get_state(),
            "update": self.update,
            "spent": self.spent,
            "best": self.best,
            "success": self.success,
            "measured": self.measured,
            "rung": self.rung,
            "lanes": self.lanes,
            "lines": self.notes.count(),
        }
        if collectives.first():
            checkpoints.save(self.folder / "checkpoint.pt", state)
        self._export("model")

    def _export(self, name: str) -> None:
        weights = self.model.weights()
        if collectives.first():
            checkpoints.export(self.folder / name, lambda path: self.model.save(path, weights))

    def _restore(self, kept: Path) -> None:
        state = checkpoints.load(kept)
        mine, theirs = recipes.plain(self.recipe), state["recipe"]
        for key in mine:
            if mine[key] != theirs.get(key) and key not in FREE:
                raise UsageError(f"{kept.parent} was trained with {key} = {theirs.get(key)!r}, not {mine[key]!r}.")
        self.model.load_state(state["model"])
        self.tuned = True
        if state["optimisers"] is not None:
            self.optimisers = Optimisers(self.model, self.recipe.config)
            self.optimisers.load_state(state["optimisers"])
        self.generator.set_state(state["generator"])
        self.update, self.spent, self.best = state["update"], state["spent"], state["best"]
        self.success, self.measured = state["success"], state["measured"]
        self.rung, self.lanes = state["rung"], state["lanes"]
        self.notes.cut(state["lines"])


def _nothing_said(runs: Sequence[Trajectory]) -> str:
    """Why no episode of a batch holds a sampled token."""
    if all(run.stop_reason is StopReason.CONTEXT for run in runs):
        return "all prompts are too long for a reply: raise acting.context, or show less history."
    return f"all {len(runs)} episodes broke: {runs[0].error}"
