"""Task registry, kept in sync with Gymnasium's: `register`, `tasks`, `make`, `build` and `make_vec`."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from envsuite import plugins
from envsuite.core import TextEnv, check_knobs, declared_knobs
from envsuite.errors import MissingExtra, UnknownTask, UntrustedKnob, UsageError, did_you_mean
from envsuite.types import Family, Panel, RewardMode, ShapingUnit, Task
from envsuite.vector import TextVectorEnv

NAMESPACE = "envsuite"

T = TypeVar("T")

TASKS: dict[str, Task] = {}
FAMILIES: dict[str, Family] = {}


def register(task: Task) -> None:
    """Adds a task so that `envsuite.make`, `gym.make("envsuite/...")` and every command can use it."""
    if TASKS.get(task.id) == task:  # a module imported twice, or a worker that already received the task
        return
    if task.id in TASKS:
        raise UsageError(f"Task {task.id!r} is already registered: give the new one another name or version.")
    # EnvSpec checks the spelling of the id. The spec goes straight into the registry because
    # gym.register compares the id with all others, which for hundreds of tasks takes longer than
    # the rest of the import.
    spec = EnvSpec(
        id=f"{NAMESPACE}/{task.id}",
        entry_point=task.entry_point,
        kwargs=dict(task.kwargs),
        disable_env_checker=True,  # tests and envsuite check run the checker
    )
    TASKS[task.id] = task
    gym.registry[spec.id] = spec


def register_family(family: Family) -> None:
    """Adds a family with its default task; `envsuite envs` lists it."""
    FAMILIES[family.name] = family


def load(path: str) -> Any:
    """Imports and returns the object named by 'package.module:name'."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def env_class(task: Task) -> type[TextEnv]:
    """Returns the environment class of a task. Raises MissingExtra if its package is not installed."""
    cls: type[TextEnv] = _with_extra(task, lambda: load(task.entry_point))
    return cls


def agents(task: Task, knobs: Mapping[str, Any]) -> int:
    """Returns the number of agents with players of their own in a task with these knobs. Raises BadKnob."""
    cls = env_class(task)
    return cls.agents(check_knobs(cls, {**task.kwargs, **knobs}, task.id))


def panel(task: Task, /, **knobs: Any) -> Panel | None:
    """Returns the finite list of games of a task, or None if games are generated from seeds."""
    if not task.panel:
        return None
    settings = check_knobs(env_class(task), {**task.kwargs, **knobs}, task.id)
    games: Panel = _with_extra(task, lambda: load(task.panel)(**settings))
    return games


def overrides(task: Task, knobs: dict[str, Any]) -> dict[str, Any]:
    """Returns the checked and typed `knobs` that differ from the task's own values."""
    cls = env_class(task)
    base = check_knobs(cls, dict(task.kwargs))
    typed = check_knobs(cls, {**task.kwargs, **knobs}, task.id)
    return {name: typed[name] for name in knobs if typed[name] != base[name]}


def replay_knobs(task: Task, recorded: Mapping[str, Any], trusted: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Returns the knobs with which a game from somebody else's file may be replayed.

    `recorded` comes from the file, `trusted` from the user's own flags. A knob that names files must be given
    by the user again, because its value could make this machine read, install or run what the file's author
    chose. The sandbox and other restricted choices fall back to the task's own value. Raises BadKnob,
    UntrustedKnob.
    """
    declared = declared_knobs(env_class(task))
    typed = overrides(task, dict(recorded))
    given = overrides(task, {name: value for name, value in trusted.items() if name in declared})
    knobs = {}
    for name, value in typed.items():
        if not declared[name].needs_trust:
            knobs[name] = value
        elif name not in trusted and declared[name].free_text:
            raise UntrustedKnob(
                f"{task.id} was recorded with {name}={_short(value)}, which replays do not take from a "
                "file: if you trust "
                f"that value, pass --set {name}=VALUE yourself."
            )
    for name, value in given.items():
        if name in typed or not declared[name].free_text:
            knobs[name] = value
    return knobs


def check_trusted(trusted: Mapping[str, Any]) -> None:
    """Raises UsageError if a setting of the user's is no restricted knob of any task: others would change the game."""
    if not trusted:
        return
    known = {
        knob.name
        for task in TASKS.values()
        if _is_installed(task)
        for knob in declared_knobs(env_class(task)).values()
        if knob.needs_trust
    }
    for name in trusted:
        if name not in known:
            raise UsageError(
                f"--set {name} cannot change a replay, which plays what the file recorded.{did_you_mean(name, known)} "
                f"It is for {', '.join(sorted(known))}."
            )


def _is_installed(task: Task) -> bool:
    try:
        env_class(task)
    except ImportError:
        return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def tasks(pattern: str = "*", notices: list[str] | None = None) -> list[Task]:
    """Returns the tasks that `pattern` names: a family, an id (any case, version optional), or a shell
    pattern.

    If a family chooses its default task by what is installed, a line about the choice is appended
    to `notices`.

    Examples:
        >>> tasks("virtualhome-easy")[0].id
        'VirtualHome-easy-v0'
        >>> [task.level for task in tasks("overcooked-[emh]*-v0") if task.level]
        ['easy', 'medium', 'hard']
    """
    plugins.load_all()
    name_pattern = pattern.removeprefix(NAMESPACE + "/")
    lower = name_pattern.lower()
    by_lower = {name.lower(): task for name, task in TASKS.items()}
    if lower in FAMILIES:
        return [_default(FAMILIES[lower], notices)]
    if lower in by_lower:
        return [by_lower[lower]]
    if versions := [name for name in by_lower if name.rpartition("-v")[0] == lower]:
        return [by_lower[max(versions, key=lambda name: (len(name), name))]]
    matches = [task for name, task in by_lower.items() if fnmatch.fnmatchcase(name, lower)]
    if not matches:
        words = set(lower.split("-"))
        holding = [name for name in TASKS if words <= set(name.lower().split("-"))]
        hint = did_you_mean(name_pattern, holding[-1:] or [*FAMILIES, *TASKS])
        raise UnknownTask(f"No task matches {pattern!r}.{hint} `envsuite envs` lists them all.")
    return matches


def _default(family: Family, notices: list[str] | None) -> Task:
    if ":" not in family.default:
        return TASKS[family.default]
    task_id, notice = load(family.default)()
    if notice and notices is not None:
        notices.append(notice)
    return TASKS[task_id]


def make(
    task: str | Task,
    /,  # a knob may be called `task`
    reward_mode: RewardMode | str = RewardMode.SPARSE,
    *,
    shaping_gamma: float = 0.99,
    shaping_unit: ShapingUnit | str = ShapingUnit.COMMAND,
    render_mode: str | None = None,
    **knobs: Any,
) -> gym.Env[str, str]:
    """Builds a task's environment with `gym.make`; accepts every spelling that `--env` accepts.

    Examples:
        >>> env = make("overcooked-easy", reward_mode="dense", size=7)
        >>> text, info = env.reset(seed=0)
        >>> command = info["admissible_commands"][0]
        >>> text, reward, terminated, truncated, info = env.step(command)
        >>> info["success"]
        False
    """
    task = _single(task)
    settings = _settings(task, reward_mode, (shaping_gamma, shaping_unit), render_mode, knobs)
    return _with_extra(task, lambda: gym.make(f"{NAMESPACE}/{task.id}", **settings))


def build(
    task: str | Task,
    /,  # a knob may be called `task`
    reward_mode: RewardMode | str = RewardMode.SPARSE,
    *,
    shaping_gamma: float = 0.99,
    shaping_unit: ShapingUnit | str = ShapingUnit.COMMAND,
    render_mode: str | None = None,
    **knobs: Any,
) -> TextEnv:
    """Builds the environment without Gymnasium's order-enforcing wrapper, for loops that call in the
    right order.
    """
    task = _single(task)
    settings = _settings(task, reward_mode, (shaping_gamma, shaping_unit), render_mode, knobs)
    return _with_extra(task, lambda: env_class(task)(**settings))


def make_vec(
    task: str | Task,
    num_envs: int,
    /,  # a knob may be called `task`
    reward_mode: RewardMode | str = RewardMode.SPARSE,
    *,
    shaping_gamma: float = 0.99,
    shaping_unit: ShapingUnit | str = ShapingUnit.COMMAND,
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    render_mode: str | None = None,
    **knobs: Any,
) -> TextVectorEnv:
    """Builds `num_envs` games of a task that are stepped together: a `TextVectorEnv`.

    Examples:
        >>> envs = make_vec("virtualhome-easy", 2)
        >>> texts, infos = envs.reset(seed=0)
        >>> len(texts)
        2
    """
    task = _single(task)
    settings = _settings(task, reward_mode, (shaping_gamma, shaping_unit), render_mode, knobs)
    make_env = partial(env_class(task), **settings)
    return _with_extra(task, lambda: TextVectorEnv(make_env, num_envs, autoreset_mode))


def _single(task: str | Task) -> Task:
    if isinstance(task, Task):
        return task
    matches = tasks(task)
    if len(matches) > 1:
        raise UsageError(f"{task!r} names {len(matches)} tasks; make() builds one.")
    return matches[0]


def _settings(
    task: Task,
    mode: RewardMode | str,
    shaping: tuple[float, ShapingUnit | str],
    render: str | None,
    knobs: dict[str, Any],
) -> dict[str, Any]:
    settings = {**task.kwargs, **knobs}
    check_knobs(env_class(task), settings, task.id)
    gamma, unit = shaping
    return {**settings, "reward_mode": mode, "shaping_gamma": gamma, "shaping_unit": unit, "render_mode": render}


def default_split(task: Task) -> str:
    """Returns the split that evaluation uses by default: the last one."""
    return list(task.splits)[-1]


def knob_names(task: Task) -> dict[str, Any]:
    """Returns every knob of a task with its current value."""
    cls = env_class(task)
    return {name: task.kwargs.get(name, knob.default) for name, knob in declared_knobs(cls).items()}


def _with_extra(task: Task, build_env: Callable[[], T]) -> T:
    try:
        return build_env()
    except ModuleNotFoundError as error:
        if not task.requires:
            raise
        raise MissingExtra(
            f"{task.id} needs the package {error.name!r}, which is not installed: "
            f"pip install 'envsuite[{task.requires}]'"
        ) from error
