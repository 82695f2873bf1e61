"""Policies of one command call, and the evaluation of a run with progress output."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from typing import Any

import filelock
from rich.console import Console

from envsuite.errors import DataError, UsageError
from harness import cli
from harness.cli.arguments.flags import Call
from harness.cli.terminal.progress import RunProgress
from harness.episodes.settings import settings_of
from harness.episodes.store import EpisodeStore, Series
from harness.evaluate import Budget, Execution, RunConfig, Sampling, evaluate
from harness.policies import (
    POLICIES,
    TEAM,
    find,
    is_model,
    make_policy,
    members,
    on_server,
    policy_options,
    starts_server,
)
from harness.prompting import protocols
from harness.prompting.grammars import GRAMMARS
from harness.records import Record, Results, is_broken
from harness.rollout.activity import Activity
from harness.servers.pool import SERVERS
from harness.settings import omissions, spelled
from harness.stats.summary import Summary
from harness.types import Policy, Trajectory, WatchesWeights


class Players:
    """Policies of one command call, which share its budget.

    Keeps one policy per name in memory, and recreates it only when a run needs different settings.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._made: dict[str, tuple[dict[str, Any], Policy]] = {}
        self._last_team: tuple[str, dict[str, Policy], Any] = "", {}, None
        self._began, self._used = time.monotonic(), dict[str, Summary]()

    def left(self, budget: Budget, config: RunConfig) -> Budget:
        """Returns the budget that earlier runs of the call have left."""
        return budget.after(self._began, [summary for run_id, summary in self._used.items() if run_id != config.run_id])

    def spend(self, config: RunConfig, summary: Summary) -> None:
        self._used[config.run_id] = summary

    def get(self, name: str, config: RunConfig) -> Policy:
        options = run_options(self.call, config)
        return self._team(name, options) if name.startswith(TEAM) else self._player(name, options)

    def _team(self, name: str, options: dict[str, Any]) -> Policy:
        """Returns a team, whose members belong to `self`: pairs of the same players share them."""
        made = {player: self._player(player, policy_options(player, options)) for player in members(name)}
        last, policies, team = self._last_team
        if last != name or policies != made:
            team = make_policy(name, made, **options)
            self._last_team = name, made, team
        return team

    def _player(self, name: str, options: dict[str, Any]) -> Policy:
        if name in self._made and self._made[name][0] != options:
            self._made.pop(name)[1].close()
        if name not in self._made:
            self._made[name] = options, make_policy(name, **options)
        return self._made[name][1]

    def stored(self, name: str, config: RunConfig, console: Console) -> Series | None:
        """Returns the stored episodes with the settings of a run, to reuse them and to add to them.

        Returns None with --reuse off, for a model that cannot be identified, and with a notice for a store
        that cannot be used. With --reuse new the run reads nothing, and what it plays replaces older episodes.
        """
        if self.call.reuse == "off":
            return None
        settings = self._settings(name, config)
        if settings is None:
            return None
        # A server is asked which weights it holds, unless this process starts it with known weights.
        known = starts_server(name) and settings["policy"]["weights"]
        policy = self.get(name, config) if on_server(name, self.call.connection.base_url) and not known else None
        anew = self.call.reuse == "new"
        journal = config.folder(self.call.output_dir) / "journal.jsonl"
        begins = not journal.exists() or not journal.stat().st_size
        try:
            weights = policy.served_weights() if isinstance(policy, WatchesWeights) else None
            series = EpisodeStore().open(settings, weights, anew and begins)
        except (OSError, DataError, filelock.Timeout) as error:
            notice = f"{name}: finished episodes are neither reused nor stored: {error}"
            console.print(notice, style="yellow", highlight=False, soft_wrap=True)
            return None
        series.readable = not anew
        return series

    def _settings(self, name: str, config: RunConfig) -> dict[str, Any] | None:
        """Returns what decides the episodes of a run; None if a part of it cannot be identified."""
        options = run_options(self.call, config)
        settings = settings_of(config.protocol(), config.task, config.knobs, options)
        if settings is None and is_model(name):
            self.get(name, config)  # may download the weights
            settings = settings_of(config.protocol(), config.task, config.knobs, options)
        return settings

    def __enter__(self) -> Players:
        self._servers = contextlib.ExitStack()
        self._servers.enter_context(SERVERS.held())
        return self

    def __exit__(self, *error: object) -> None:
        with self._servers:
            for _, policy in self._made.values():
                policy.close()


def run_options(call: Call, config: RunConfig) -> dict[str, Any]:
    """Returns the options of the run's policy, from the command line and the run's settings."""
    _check_flags(call, config)
    prompting = config.prompting
    lead = close = ""
    if not prompting.declares_tools:
        lead, _, close = GRAMMARS[prompting.grammar].spell("\0", "").partition("\0")
    elif config.sampling.action_mode == "score":
        raise UsageError("--action-mode score chooses texts, and --action-grammar tools has none: use another grammar.")
    if prompting.protocol:
        lead, close = protocols.load(prompting.protocol).lead, ""
    settings = {
        **dataclasses.asdict(call.connection),
        "max_concurrent": call.execution.max_concurrent,
        **dataclasses.asdict(config.sampling),
        "thinking": prompting.thinking,
        "stop": prompting.stop,
        "lead": lead,
        "close": close,
        "watch": call.connection.base_url is not None or starts_server(config.model),
        "say": _say,
        "gguf_file": config.gguf_file,
    }
    return policy_options(config.model, settings)


def _check_flags(call: Call, config: RunConfig) -> None:
    """Raises UsageError for a flag that only some kinds of models know, because ignoring it would change results."""
    model = config.model
    if not is_model(model):
        return
    row = find(model, call.connection.base_url, config.sampling.action_mode)[0]
    if call.execution.budget.cost and "price" in row.options and not call.connection.price:
        raise UsageError(
            f"--max-cost needs --price IN,OUT for {model}: without a price, a server that sends no cost would never "
            "reach the limit."
        )
    for name, default in omissions(Sampling).items():
        if getattr(config.sampling, name) != default and name not in row.options:
            kinds = [f"{kind}:" for kind, other in POLICIES.items() if name in other.options]
            raise UsageError(f"{spelled(name)} needs a model of {', '.join(kinds)}, not {model}: leave it out.")


def _say(line: str) -> None:
    cli.print_safely(line, sys.stderr)


def play(config: RunConfig, name: str, players: Players, execution: Execution | None = None) -> tuple[Results, Summary]:
    """Carries out one run, with its progress on stderr, within the budget that earlier runs of `players` have left."""
    call = players.call
    execution = execution or call.execution
    how = dataclasses.replace(execution, budget=players.left(execution.budget, config))
    console, activity = cli.console(stderr=True), Activity()
    with RunProgress(console, f"{config.task.id} {name}", len(config.all_episodes()), activity) as progress:

        def ended(record: Record, run: Trajectory | None) -> None:
            progress(record, run)
            if call.verbose or is_broken(record):
                _tell(console, record, reused=run is None)

        records, summary = evaluate(
            config,
            call.output_dir,
            lambda: players.get(name, config),
            how,
            ended,
            activity=activity,
            open_series=lambda: players.stored(name, config, console),
        )
        if progress.cached:
            console.print(
                f"{name}: {progress.cached:,} of {progress.read:,} prompt tokens "
                f"({progress.cached / progress.read:.0%}) were cached: "
                "read in an earlier turn, not again",
                highlight=False,
                soft_wrap=True,
            )
    players.spend(config, summary)
    if summary["broken"]:
        count = f"{summary['broken']} of {len(config.all_episodes())}"
        note = f"{config.task.id} {name}: broken episodes: {count}. They have no score, and --resume plays them again."
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    if "reused" in summary:
        console.print(
            _reused(f"{config.task.id} {name}", summary, len(config.all_episodes())), highlight=False, soft_wrap=True
        )
    return records, summary


def _reused(run: str, summary: Summary, episodes: int) -> str:
    """Returns a line about the episodes that earlier runs have played."""
    first, last = summary["reused"]["played"]
    when = f"on {first}" if first == last else f"between {first} and {last}"
    return (
        f"{run}: {summary['reused']['episodes']} of {episodes} episodes were reused: they were played {when} with "
        "the same settings (--reuse new plays them again)"
    )


def _tell(console: Console, record: Record, reused: bool) -> None:
    reason = record["stop_reason"] + (", reused" if reused else "")
    line = (
        f"  {record['task']} seed {record['seed']} attempt {record['attempt']}: {reason}, "
        f"{cli.plural(record['num_turns'], 'turn')}"
    )
    console.print(line + (f": {record['error']}" if record["error"] else ""), highlight=False, soft_wrap=True)
