"""Planning of runs: turns the settings that a caller names into checked `RunConfig`s.

The commands, the leaderboards and the tables of published numbers describe a run by a model, task patterns and the
settings that they name: a mapping from flags of `envsuite-eval`, with underscores, to values. All others keep their
defaults. `set` is a sequence of KNOB=VALUE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import Task, knobs_json
from harness.evaluate import RunConfig, Sampling, resolve_split
from harness.policies import TEAM, gguf_file, members, record_name
from harness.prompting import protocols
from harness.prompting.prompting import Prompting
from harness.prompting.rewording import check_wording
from harness.settings import check, declared, read, spelled, values
from harness.suites import suites

Flags = Mapping[str, Any]
"""settings that a caller names"""
DECLARED = declared(RunConfig, Sampling, Prompting)
"""every setting that decides what a run measures"""
KNOWN = {"set", "baseline_episodes", *DECLARED}


def changed(flags: Flags) -> dict[str, Any]:
    """Returns the settings that differ from their defaults, for callers whose parameters have defaults too."""
    return {
        flag: value
        for flag, value in flags.items()
        if flag not in DECLARED or DECLARED[flag].read(value) != DECLARED[flag].default
    }


class Planned(NamedTuple):
    """A checked run, and the number of games that the random player and the expert play (None: the same number)."""

    config: RunConfig
    baseline_episodes: int | None = None


def plan(
    model: str, flags: Flags, patterns: Iterable[str], notices: list[str] | None = None, team: int = 0
) -> list[Planned]:
    """Returns one checked run per task that the patterns name: families, task ids, globs or `suite:NAME`.

    `notices` receives one line for each family name whose task depends on this machine. `team` is the number of
    players if each agent of a game has its own; 0: one player commands all of them. Raises UsageError.
    """
    runs: dict[str, Planned] = {}
    for pattern in patterns:
        if pattern.startswith(suites.PREFIX):
            name = pattern.removeprefix(suites.PREFIX)
            settings = under_suite(flags, name)
            tasks = suites.tasks(name)
        else:
            name = ""
            settings = flags
            tasks = registry.tasks(pattern, notices)
        for task in tasks:
            config = configure(task, model, settings, team)
            if name and config.panel:
                suites.check_panel(name, config.task, config.panel)
            runs[config.run_id] = Planned(config, settings.get("baseline_episodes"))
    return list(runs.values())


def prescribed(suite: str, protocol: str = "") -> dict[tuple[str, str], Planned]:
    """Returns the runs of a suite by (task, canonical knobs), with our prompt or under its published one."""
    runs = plan("random", {"protocol": protocol} if protocol else {}, [suites.PREFIX + suite])
    return {(run.config.task.id, knobs_json(run.config.knobs)): run for run in runs}


def under_suite(flags: Flags, name: str) -> dict[str, Any]:
    """Returns the settings of a suite's runs. Raises UsageError if a named one contradicts the suite."""
    protocol = flags.get("protocol")
    fixed = suites.published_settings(name, protocol) if protocol else suites.suite(name)
    words = tuple(flags.get("set", ()))
    by_word = {word: word.partition("=")[0].strip() for word in words}
    for knob in fixed.get("needs", ()):
        if knob not in by_word.values():
            raise UsageError(f"Suite {name!r} needs --set {knob}=...: {fixed['after']}.")
    free = tuple(word for word, knob in by_word.items() if knob in (*fixed.get("needs", ()), *fixed.get("free", ())))
    settings = {**flags, "set": tuple(word for word in words if word not in free)}
    for flag, value in fixed.items():
        if flag in suites.NOT_FLAGS:
            continue
        if flag not in KNOWN:
            raise UsageError(f"Suite {name!r} sets {flag!r}, which is no flag of envsuite-eval.")
        settings[flag] = _fixed(name, flag, tuple(value) if flag == "set" else value, settings)
    return {**settings, "set": (*settings["set"], *free)}


def _fixed(suite: str, flag: str, value: Any, settings: Flags) -> Any:
    """Returns the value of one setting under a suite. Raises UsageError if the caller named another one."""
    current = settings.get(flag)
    if flag in suites.FEWER and current is not None:
        if current > value:
            raise UsageError(f"Suite {suite!r} plays {value} episodes a task; {spelled(flag)} {current} is more.")
        return current
    if flag in settings and current not in ((), value):
        raise UsageError(
            f"Suite {suite!r} fixes {spelled(flag)} {_in_words(value)}, not {_in_words(current)}: "
            "drop the flag, or name the tasks with --env."
        )
    return value


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(value) or "nothing"
    return "unset" if value is None or value == "" else str(value)


def configure(task: Task, model: str, flags: Flags, team: int = 0) -> RunConfig:
    """Returns the run of one task, with every value checked. Raises UsageError, BadKnob."""
    words = ""
    if flags.get("protocol"):
        flags = under_protocol(task, flags)
        words = protocols.load(flags["protocol"]).available()
    sampling, prompting = read(Sampling, flags), read(Prompting, flags, words=words)
    if not 0 < sampling.top_p <= 1:
        raise UsageError(f"--top-p must be in (0, 1], not {sampling.top_p}.")
    settings = values(RunConfig, flags)
    task, settings["split"] = resolve_split(task, settings.get("split", ""))
    knobs = dict(parse_setting(word) for word in flags.get("set", ()))
    if team:
        knobs = {**registry.env_class(task).team_knobs, **knobs}
    config = RunConfig(
        task=task,
        model=record_name(model),
        gguf_file=gguf_file(model),
        knobs=registry.overrides(task, knobs),
        sampling=sampling,
        prompting=prompting,
        **settings,
    )
    check(config)
    check_wording(prompting.wording, config.task)
    check_team(config, team)
    config.seeds  # noqa: B018  raises if the task has fewer games than were requested
    return config


def check_team(config: RunConfig, players: int) -> None:
    """Raises UsageError unless the number of players is the number of the game's agents that need one."""
    cls = registry.env_class(config.task)
    agents = registry.agents(config.task, config.knobs)
    named, players = players, players or len(members(config.model))
    if players == agents or (players == 1 and not config.model.startswith(TEAM)):
        return
    if agents == 1:
        cure = "drop --agent" if named or not cls.team_knobs else "name a team's players with --agent"
        raise UsageError(f"{config.task.id} with these knobs has one player, not {players}: {cure}.")
    raise UsageError(
        f"{config.task.id} has {agents} agents, and {players} players are named: name one for each with "
        "--agent N=MODEL."
    )


def under_protocol(task: Task, flags: Flags) -> dict[str, Any]:
    """Returns the settings under their protocol. Raises UsageError if a named one contradicts it."""
    protocol = protocols.load(flags["protocol"])
    if task.family not in protocol.families:
        raise UsageError(
            f"The protocol {protocol.name} is for {', '.join(protocol.families)}; {task.id} belongs to {task.family}."
        )
    mode = protocol.flags.get("action_mode", "write")
    if flags.get("action_mode", mode) != mode:
        reads = "reads written replies" if mode == "write" else "chooses among the listed commands"
        raise UsageError(f"The protocol {protocol.name} {reads}: leave out --action-mode.")
    settings = {**flags, "set": _knobs_under(protocol, task, flags.get("set", ()))}
    for flag, value in protocol.flags.items():
        if flag == "set":
            continue
        if flag in flags and flags[flag] != value:
            raise UsageError(
                f"The protocol {protocol.name} fixes {spelled(flag)} {value}, not {flags[flag]}: drop the flag."
            )
        settings[flag] = value
    return settings


def _knobs_under(protocol: protocols.Protocol, task: Task, words: Sequence[str]) -> tuple[str, ...]:
    """Returns KNOB=VALUE words under a protocol. Raises UsageError if one contradicts it."""
    named = {parse_setting(word)[0] for word in words}
    fixed = {knob: f"{knob}={setting}" for knob, setting in protocol.knobs(task.family).items()}
    for knob in named & fixed.keys():
        if fixed[knob] not in words:
            raise UsageError(f"The protocol {protocol.name} fixes --set {fixed[knob]}: drop the other value.")
    return (*words, *(word for knob, word in fixed.items() if knob not in named))


def parse_setting(word: str) -> tuple[str, str]:
    """Splits KNOB=VALUE. Raises UsageError."""
    name, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"--set takes KNOB=VALUE, not {word!r}.")
    return name.strip(), value
