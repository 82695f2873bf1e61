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
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch

from baselines import lanes, sft, store, trackers, world
from baselines import recipe as recipes
from baselines.actor import Actor
from baselines.descent import NonFiniteLoss, Optimisers
from baselines.environments import Environments
from baselines.model import Model
from baselines.recipe import Recipe
from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.errors import DataError, MissingData, UsageError
from envsuite.types import StopReason, Task, knobs_json
from harness.demos import demonstrations
from harness.evaluate import Execution, RunConfig
from harness.policies import make_policy
from harness.rollout import rollout
from harness.stats import wilson
from harness.types import Episode, Trajectory

DEMONSTRATION_COST, EPISODE_COST = 10, 1
"""units of the Practitioner's Guide's budget rule (its Table 9)"""

CONCURRENT = 64
"""so many episodes are played at once"""

Log = Callable[[dict[str, Any]], None]


class Run:
    """A training run: what it is (`recipe`), where it lies (`folder`), and where it stands."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        resume: bool = False,
        say: Log = lambda line: None,
        execution: Execution | None = None,
        environments: Environments | None = None,
    ) -> None:
        """`execution` says where the environments live; what is learned does not depend on it. `environments`: open ones, to
        be used and left open for the next run.
        """
        self.recipe, self.folder, self.say = recipe, folder, say
        self.execution = execution or Execution(max_concurrent=CONCURRENT)
        self.tasks = [task for pattern in recipe.tasks for task in registry.tasks(pattern)]
        self.configs = [self._config(task) for task in self.tasks]
        kept = folder / "checkpoint.pt"
        if kept.exists() and not resume:
            raise UsageError(f"{folder} exists: go on with --resume, remove it, or choose another --output-dir.")
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = filelock.FileLock(folder / ".lock")
        try:
            if world.first():  # of several processes that train together
                self.lock.acquire(timeout=0)
        except filelock.Timeout:
            raise UsageError(
                f"{folder} is in use by another process: wait for it, or choose another --output-dir."
            ) from None
        self.model = Model.load(recipe.model)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.optimisers: Optimisers | None = None
        self.update, self.spent, self.best, self.tuned = 0, 0, -1.0, False
        self.success, self.measured = -1.0, -1  # the last measured success, and after which update that was
        self.rung = 0 if recipe.advance_at else len(self.configs) - 1  # the last of the tasks that are played
        self.lanes = [lanes.Lane() for _ in range(recipe.episodes if recipe.turns else 0)]
        self.environments = environments or Environments()
        self.mine = environments is None
        self.trackers: list[trackers.Tracker] = []
        if world.first():
            self.trackers = [trackers.TRACKERS[name](folder, recipes.plain(recipe)) for name in recipe.trackers]
        if world.first():
            store.tidy(folder)
        if kept.exists():
            self._restore(kept)
        elif world.first():
            (folder / "metrics.jsonl").unlink(missing_ok=True)  # of a run that was killed before its first checkpoint
            self._describe()

    def _config(self, task: Task) -> RunConfig:
        knobs = registry.overrides(task, dict(self.recipe.knobs))
        return RunConfig(task, self.recipe.algorithm, knobs, reward_mode=self.recipe.reward_mode)

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
            actor = self.actor()
            # With a window of history a line is one turn: what it remembers has a line of its own.
            how = dataclasses.replace(
                asked.train, last_only=asked.train.last_only or self.recipe.prompting.history >= 0
            )
            for line in sft.train(self.model, sft.rows_of(found), actor.template, how, self.generator):
                self._note({"kind": "sft", **line})
            games = {(one["task"], one["seed"]) if "seed" in one else place for place, one in enumerate(found)}
            self.spent += DEMONSTRATION_COST * len(games)
            if self.model.critic is not None and self.recipe.model.critic == "own":
                # Actor and critic both start from the tuned weights (specs of the Guide's code).
                self.model.critic.trunk.load_state_dict(self.model.lm.base_model.state_dict())
        self.tuned = True

    def _demonstrations(self) -> list[dict[str, Any]]:
        """The expert's games from the first training seeds, as chats."""
        asked = self.recipe.sft
        found: list[dict[str, Any]] = []
        for config in self.configs if asked.episodes else []:
            share = -(-asked.episodes // len(self.configs))
            todo = [Episode(config.task, knobs_json(config.knobs), seed) for seed in self._seeds(config)[:share]]
            found += demonstrations(self._play(config, todo, make_policy(asked.expert)), self.recipe.prompting)
        return sorted(found, key=lambda one: (one["task"], one["seed"]))

    def _ready(self) -> None:
        """The reference and the optimisers, once the weights are those training begins with."""
        if self.optimisers is None:
            if self.recipe.config.kl_coef and self.model._reference is None:
                self.model.keep_reference()
            if getattr(self.recipe.config, "target_tau", 0.0):
                self.model.keep_target()
            self.optimisers = Optimisers(self.model, self.recipe.config)

    def _step(self) -> None:
        recipe, began = self.recipe, time.monotonic()
        actor = self.actor()
        taken = self._batch(actor)
        runs = [run for run, _ in taken]
        kept = [one for one in taken if not one[0].broken and any(turn.reply.ids for turn in one[0].turns[one[1] :])]
        if not kept:
            raise DataError(f"update {self.update + 1}: {_nothing_said(runs)}")
        finals = [actor.next_prompt(run) if run.truncated and not run.terminated else [] for run, _ in kept]
        usable = [lanes.since(run, first) if first else run for run, first in kept]
        over = [run for run, _ in kept if not (self.lanes and lanes.unfinished(run, recipe.max_turns))]
        actor.close()  # the memory of the rollout is wanted for the update
        played = time.monotonic() - began
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
        # A batch of so many turns may hold the end of no episode: then there is nothing to say about ends.
        ends: dict[str, list[float]] = {
            "reward": [run.total_reward for run in over],
            "success": [float(run.success) for run in over],
        }
        won = float(np.mean(ends["success"])) if over else 0.0
        if recipe.advance_at and won >= recipe.advance_at:
            self.rung = min(self.rung + 1, len(self.configs) - 1)
        self.spent += EPISODE_COST * (len(runs) - (len(kept) - len(over)))  # what goes on is not paid for twice
        turns = [turn for run in usable for turn in run.turns]
        sampled = sum(len(turn.reply.ids) for turn in turns)
        self._note(
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
                **{key: float(value) for key, value in log.items()},
            }
        )

    def _batch(self, actor: Actor) -> list[tuple[Trajectory, int]]:
        """What an update learns from: episodes, each with the number of its first turn that is new."""
        play = lambda todo, policy, cap=None: [
            run
            for config in self.configs
            if (mine := [episode for episode in todo if episode.task.id == config.task.id])
            for run in self._play(config, mine, policy, cap)
        ]
        if self.lanes:
            most = self.recipe.max_turns
            taken = lanes.collect(self.lanes, self.recipe.turns, most, self._following, play, actor)
        else:
            taken = [(run, 0) for run in play(self.games(self.update), actor)]
        return sorted(taken, key=lambda one: one[0].episode.key)

    def _following(self, lane: int, number: int) -> Episode:
        """The `number`-th game of a lane."""
        rng = np.random.default_rng([self.recipe.seed, lane, number])
        config = self.configs[int(rng.integers(self.rung + 1))]
        seeds = self._seeds(config)
        attempt = number * self.recipe.episodes + lane
        return Episode(config.task, knobs_json(config.knobs), seeds[int(rng.integers(len(seeds)))], attempt)

    def games(self, update: int) -> list[Episode]:
        """The episodes of an update: groups of one game each, every attempt with dice of its own."""
        recipe = self.recipe
        size = int(getattr(recipe.config, "group_size", 1))
        rng = np.random.default_rng([recipe.seed, update])
        found = []
        for group in range(recipe.episodes // size):
            config = self.configs[int(rng.integers(self.rung + 1))]
            seeds = self._seeds(config)
            seed = seeds[int(rng.integers(len(seeds)))]
            first = (update * recipe.episodes) + group * size
            found += [Episode(config.task, knobs_json(config.knobs), seed, first + k) for k in range(size)]
        return found

    def _seeds(self, config: RunConfig) -> Sequence[int]:
        panel = config.panel
        splits = config.task.splits
        span: Sequence[int] = range(len(panel)) if panel else splits.get("train", next(iter(splits.values())))
        return span[: self.recipe.train_seeds] if self.recipe.train_seeds else span

    def measure(self) -> float:
        """Success on held-out seeds, greedily unless the recipe says otherwise; keeps the best model."""
        recipe, began = self.recipe, time.monotonic()
        actor = self.actor(recipe.acting.eval_temperature)
        runs: list[Trajectory] = []
        for config, span, _ in map(self._held_out, self.configs):
            share = -(-recipe.eval_episodes // len(self.configs))
            todo = [Episode(config.task, knobs_json(config.knobs), seed) for seed in span[:share]]
            runs += self._play(config, todo, actor)
        scored = [run for run in runs if not run.broken]
        if not scored:
            raise DataError(f"all {len(runs)} episodes of the measurement broke: {runs[0].error}")
        wins = sum(run.success for run in scored)
        interval = wilson(wins, len(scored))
        names = sorted({name for run in scored for name in run.metrics})
        self._note(
            {
                "kind": "eval",
                "update": self.update,
                "episodes": self.update * recipe.episodes,
                "spent": self.spent,
                "n": len(scored),
                "held_out": self.held_out,
                "success": interval.value,
                "low": interval.low,
                "high": interval.high,
                "reward": float(np.mean([run.total_reward for run in scored])),
                "turns": float(np.mean([len(run.turns) for run in scored])),
                "metrics": {n: float(np.mean([run.metrics[n] for run in scored if n in run.metrics])) for n in names},
                "seconds": round(time.monotonic() - began, 3),
            }
        )
        if interval.value > self.best:
            self.best = interval.value
            if world.first():
                self._export("best")
        self.success, self.measured = interval.value, self.update
        return interval.value

    @property
    def held_out(self) -> bool:
        """Whether all it is measured on are games it does not train on."""
        return all(apart for *_, apart in map(self._held_out, self.configs))

    def _held_out(self, config: RunConfig) -> tuple[RunConfig, Sequence[int], bool]:
        """The games a task is measured on, and whether none of them is trained on.

        Of a panel: another split's, the last one named that is on this machine; else those beyond `train_seeds`; else there
        are none but its own.
        """
        if not config.panel:
            return config, config.task.splits[registry.default_split(config.task)], True
        for name in reversed([name for name in config.task.split_ids.values() if name != config.task.id]):
            other = self._config(registry.TASKS[name])
            with contextlib.suppress(MissingData):
                if other.panel:
                    return other, range(len(other.panel)), True
        beyond = range(len(config.panel))[self.recipe.train_seeds :] if self.recipe.train_seeds else range(0)
        return (config, beyond, True) if beyond else (config, self._seeds(config), False)

    def actor(self, temperature: float | None = None) -> Actor:
        acting = self.recipe.acting
        chosen = acting.temperature if temperature is None else temperature
        return Actor(self.model, acting, self.recipe.prompting, chosen)

    def _play(
        self, config: RunConfig, todo: Sequence[Episode], policy: Any, cap: lanes.Cap | None = None
    ) -> list[Trajectory]:
        mine = world.share(todo)
        runs: list[Trajectory] = []
        if mine:
            slots = self.environments.slots(config, self.execution, len(mine), policy.asks, self.recipe.shaping_gamma)
            runs = list(rollout(policy, mine, slots, self.recipe.prompting, cap or self.recipe.max_turns or None))
        return sorted(world.gather(runs), key=lambda run: run.episode.key)

    # ---- on disk ----------------------------------------------------------------------------------------------------

    def _note(self, line: dict[str, Any]) -> None:
        if not world.first():
            return
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        numbers = {f"{line['kind']}/{key}": value for key, value in line.items() if isinstance(value, (int, float))}
        for tracker in self.trackers:
            tracker.log(numbers, int(line.get("update", 0)))
        self.say(line)

    def _describe(self) -> None:
        found = {
            "recipe": recipes.plain(self.recipe),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processes": world.size(),
            "host": platform.platform(),
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        write_atomically(self.folder / "recipe.json", json.dumps(found, indent=2) + "\n")

    def save(self) -> None:
        """Replaces the checkpoint; a crash leaves the old one or the new one."""
        if not world.first():
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
            "lines": sum(1 for _ in (self.folder / "metrics.jsonl").open()),
        }
        store.save(self.folder / "checkpoint.pt", state)
        self._export("model")

    def _export(self, name: str) -> None:
        store.export(self.folder / name, self.model.save)

    def _restore(self, kept: Path) -> None:
        state = store.load(kept)
        mine, theirs = recipes.plain(self.recipe), state["recipe"]
        for key in mine:
            if mine[key] != theirs.get(key) and key not in ("updates", "budget", "eval_every", "save_every", "stop_at"):
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
        metrics = self.folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        write_atomically(metrics, "".join(lines[: state["lines"]]))


def _nothing_said(runs: Sequence[Trajectory]) -> str:
    """Why no episode of a batch holds a sampled token."""
    if all(run.stop_reason is StopReason.CONTEXT for run in runs):
        return "all prompts are too long for a reply: raise acting.context, or show less history."
    return f"all {len(runs)} episodes broke: {runs[0].error}"
