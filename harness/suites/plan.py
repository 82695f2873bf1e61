"""Planning of runs: `RunRequest` holds the settings that a caller names, `plan` turns it into `RunConfig`s.

The commands, the leaderboards and the tables of published numbers all describe runs with a `RunRequest`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.reading import parse_json
from envsuite.types import Task, knobs_json
from harness.evaluate import RunConfig, Sampling, resolve_split
from harness.policies import TEAM, gguf_file, members, record_name
from harness.prompting import protocols
from harness.prompting.prompting import Prompting
from harness.prompting.rewording import check_wording
from harness.suites import suites

OWN_FIELDS = {
    "model",
    "messages",
    "prompt",
    "tools",
    "stream",
    "n",
    "seed",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
}
"""fields of a request that have flags of their own or belong to the harness"""


NO_FLAGS = ("model", "knobs", "team", "explicit")
"""fields of a request that no flag of the same name sets"""


@dataclass(frozen=True)
class RunRequest:
    """Settings of one run, named as the flags of `envsuite-eval`. Together they decide what the run measures."""

    model: str
    knobs: tuple[str, ...] = ()
    """KNOB=VALUE, as after --set"""
    split: str = ""
    episodes: int | None = None
    repeats: int = 1
    seed: int = 0
    reward: str = "sparse"
    max_turns: int | None = None
    temperature: float | None = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    action_mode: str = "write"
    normalisation: str = "word"
    dtype: str = "auto"
    reasoning_effort: str = ""
    extra_body: str = ""
    thinking_budget: int = 0
    history: int = -1
    thinking: str = "on"
    history_reasoning: str = "on"
    admissible: str = "latest"
    action_grammar: str = "action"
    prompt_wording: str = "plain"
    protocol: str = ""
    """a name in `harness.prompting.protocols.names()`; it fixes most of the settings above"""
    baseline_episodes: int | None = None
    team: int = 0
    """number of players, if each agent of the game has its own; 0: one player commands all of them"""
    explicit: frozenset[str] = frozenset()
    """fields that the caller set on purpose; a suite refuses those that contradict its protocol"""

    def replace(self, **changes: object) -> RunRequest:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


class Planned(NamedTuple):
    """A checked run, and the number of games that the random player and the expert play (None: the same number)."""

    config: RunConfig
    baseline_episodes: int | None = None


def plan(request: RunRequest, patterns: Iterable[str], notices: list[str] | None = None) -> list[Planned]:
    """Returns one checked run per task that the patterns name: families, task ids, globs or `suite:NAME`.

    `notices` receives one line for each family name whose task depends on this machine. Raises UsageError.
    """
    runs: dict[str, Planned] = {}
    for pattern in patterns:
        if pattern.startswith(suites.PREFIX):
            name = pattern.removeprefix(suites.PREFIX)
            settings = with_protocol(request, name)
            tasks = suites.tasks(name)
        else:
            name = ""
            settings = request
            tasks = registry.tasks(pattern, notices)
        for task in tasks:
            config = configure(task, settings)
            if name and config.panel:
                suites.check_panel(name, config.task, config.panel)
            runs[config.run_id] = Planned(config, settings.baseline_episodes)
    return list(runs.values())


def prescribed(suite: str, protocol: str = "") -> dict[tuple[str, str], Planned]:
    """Returns the runs of a suite by (task, canonical knobs), with our prompt or under its published one."""
    request = RunRequest("random", protocol=protocol, explicit=frozenset({"protocol"} if protocol else ()))
    runs = plan(request, [suites.PREFIX + suite])
    return {(run.config.task.id, knobs_json(run.config.knobs)): run for run in runs}


def with_protocol(request: RunRequest, name: str) -> RunRequest:
    """Returns the request under a suite's protocol. Raises UsageError if an explicit setting contradicts it."""
    fixed = suites.published_settings(name, request.protocol) if request.protocol else suites.suite(name)
    needs = fixed.get("needs", [])
    by_word = {word: word.partition("=")[0].strip() for word in request.knobs}
    for knob in needs:
        if knob not in by_word.values():
            raise UsageError(f"Suite {name!r} needs --set {knob}=...: {fixed['after']}.")
    free = tuple(word for word, knob in by_word.items() if knob in (*needs, *fixed.get("free", [])))
    restricted = tuple(word for word in request.knobs if word not in free)
    changes: dict[str, object] = {}
    flags = {"set", *(field.name for field in dataclasses.fields(request))}.difference(NO_FLAGS)
    for key, value in fixed.items():
        if key in suites.NOT_FLAGS:
            continue
        field = "knobs" if key == "set" else key
        if key not in flags:
            raise UsageError(f"Suite {name!r} sets {key!r}, which is no flag of envsuite-eval.")
        current = restricted if key == "set" else getattr(request, field)
        expected = tuple(value) if key == "set" else value
        flag = "--" + key.replace("_", "-")
        if key in suites.FEWER and current is not None:
            if current > expected:
                raise UsageError(f"Suite {name!r} plays {expected} episodes a task; {flag} {current} is more.")
            continue
        if field in request.explicit and current not in ((), expected):
            raise UsageError(
                f"Suite {name!r} fixes {flag} {_in_words(expected)}, not {_in_words(current)}: "
                "drop the flag, or name the tasks with --env."
            )
        changes[field] = expected
    knobs = (*changes.pop("knobs", ()), *free)  # type: ignore[misc]
    return request.replace(**changes, knobs=knobs)


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(value) or "nothing"
    return "unset" if value is None or value == "" else str(value)


def configure(task: Task, request: RunRequest) -> RunConfig:
    """Returns the run of one task, with every value checked. Raises UsageError, BadKnob."""
    for value, flag in ((request.repeats, "--repeats"), (request.max_tokens, "--max-tokens")):
        if value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}.")
    if (request.temperature or 0) < 0 or not 0 < request.top_p <= 1:
        raise UsageError(f"--temperature {request.temperature} must be >= 0 and --top-p {request.top_p} in (0, 1].")
    if request.max_turns is not None and request.max_turns < 1:
        raise UsageError(f"--max-turns must be at least 1, not {request.max_turns}.")
    words = ""
    if request.protocol:
        request = under_protocol(task, request)
        words = protocols.load(request.protocol).available()
    task, split = resolve_split(task, request.split)
    knobs = dict(parse_setting(word) for word in request.knobs)
    if request.team:
        knobs = {**registry.env_class(task).team_knobs, **knobs}
    config = RunConfig(
        task=task,
        model=record_name(request.model),
        gguf_file=gguf_file(request.model),
        knobs=registry.overrides(task, knobs),
        split=split,
        episodes=request.episodes,
        attempts=request.repeats,
        seed=request.seed,
        reward_mode=request.reward,
        max_turns=request.max_turns,
        sampling=Sampling(
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            action_mode=request.action_mode,
            normalisation=request.normalisation,
            dtype=request.dtype,
            reasoning_effort=request.reasoning_effort,
            extra_body=_canonical_body(request.extra_body),
            thinking_budget=request.thinking_budget,
        ),
        prompting=Prompting(
            grammar=request.action_grammar,
            thinking=request.thinking == "on",
            history=request.history,
            history_reasoning=_history_reasoning(request.history_reasoning),
            admissible=request.admissible,
            wording=request.prompt_wording,
            protocol=request.protocol,
            words=words,
        ),
    )
    check_wording(config.prompting.wording, config.task)
    check_team(config, request.team)
    config.seeds  # noqa: B018  raises if the task has fewer games than were requested
    return config


def check_team(config: RunConfig, players: int) -> None:
    """Raises UsageError if the number of players is not the number of the game's agents with players of their own."""
    cls = registry.env_class(config.task)
    agents = registry.agents(config.task, config.knobs)
    named, players = players, players or len(members(config.model))
    if players == agents or (players == 1 and not config.model.startswith(TEAM)):
        return
    if agents == 1:
        cure = "drop --agent" if named or not cls.team_knobs else "name a team's players with --agent"
        older = registry.TASKS.get(re.sub(r"-v\d+$", "-v0", config.task.id))
        if named and "cooks" in registry.knob_names(config.task) and "cooks" not in config.knobs:
            cure += ", or give --set cooks=2"
        if older and not cls.team_knobs and registry.env_class(older).team_knobs:
            cure += f", or play {older.id}, which has teams"
        raise UsageError(f"{config.task.id} with these knobs has one player, not {players}: {cure}.")
    raise UsageError(
        f"{config.task.id} has {agents} agents, and {players} players are named: name one for each with "
        "--agent N=MODEL."
    )


def _canonical_body(text: str) -> str:
    """Returns a JSON object with sorted keys; '' for none. Raises UsageError."""
    if not text:
        return ""
    try:
        body = parse_json(text)
    except ValueError as error:
        raise UsageError(f"--extra-body takes a JSON object, and {text[:80]!r} is none: {error}") from None
    if not isinstance(body, dict):
        raise UsageError(f'--extra-body takes a JSON object such as {{"top_k": 20}}, not {text[:80]!r}.')
    if fixed := OWN_FIELDS & body.keys():
        raise UsageError(f"--extra-body cannot set {', '.join(sorted(fixed))}: that is what the run itself sends.")
    return json.dumps(body, sort_keys=True)


def under_protocol(task: Task, request: RunRequest) -> RunRequest:
    """Returns the request with the flags that its protocol fixes. Raises UsageError if an explicit one contradicts."""
    protocol = protocols.load(request.protocol)
    if task.family not in protocol.families:
        raise UsageError(
            f"The protocol {protocol.name} is for {', '.join(protocol.families)}; {task.id} belongs to {task.family}."
        )
    mode = protocol.flags.get("action_mode", "write")
    contradicts = "action_mode" in request.explicit and request.action_mode != mode
    if contradicts or request.action_mode not in ("write", mode):
        reads = "reads written replies" if mode == "write" else "chooses among the listed commands"
        raise UsageError(f"The protocol {protocol.name} {reads}: leave out --action-mode.")
    changes: dict[str, object] = {}
    for field, value in protocol.flags.items():
        if field == "set":
            given = {parse_setting(word)[0] for word in request.knobs}
            fixed = {knob: f"{knob}={setting}" for knob, setting in protocol.knobs(task.family).items()}
            for knob in given & fixed.keys():
                if fixed[knob] not in request.knobs:
                    raise UsageError(f"The protocol {protocol.name} fixes --set {fixed[knob]}: drop the other value.")
            changes["knobs"] = (*request.knobs, *(word for knob, word in fixed.items() if knob not in given))
            continue
        current = getattr(request, field)
        if field in request.explicit and current != value:
            raise UsageError(
                f"The protocol {protocol.name} fixes --{field.replace('_', '-')} {value}, not {current}: drop the flag."
            )
        changes[field] = value
    return request.replace(**changes)


def _history_reasoning(word: str) -> bool | int:
    if word in ("on", "off"):
        return word == "on"
    if not word.isdecimal():
        raise UsageError(f"--history-reasoning is on, off or a number of replies, not {word!r}.")
    return int(word)


def parse_setting(word: str) -> tuple[str, str]:
    """Splits KNOB=VALUE. Raises UsageError."""
    name, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"--set takes KNOB=VALUE, not {word!r}.")
    return name.strip(), value
