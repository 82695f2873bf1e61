"""Policies by name. To add one, write its module and add one row to `POLICIES`.

random | blind | expert | expert:KIND | idle | replay:FILE | hf:MODEL | openai:MODEL | vllm:MODEL |
llamacpp:FILE.gguf | inspect:PROVIDER/MODEL. A name without a known prefix is an alias, a folder or
`org/name`, and means `hf:`, or `openai:` if a server's address is given. `team:PLAYER+PLAYER` has one
player for each agent of a game.

Optional capabilities of policies are protocols that the harness checks with `isinstance`:
`harness.waiting.Asynchronous` and `harness.types.WatchesWeights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import MissingExtra, UsageError
from harness.lm import model_files
from harness.types import Policy

_SAMPLING = ("temperature", "top_p", "max_tokens", "thinking")
_LOCAL = (*_SAMPLING, "dtype", "device")
_REQUESTS = (
    "stop",
    "timeout",
    "max_retries",
    "requests_per_minute",
    "watch",
    "reasoning_effort",
    "extra_body",
)
SERVER_OPTIONS = (
    "server_python",
    "server_context",
    "server_gpu_share",
    "server_tensor_parallel",
    "server_args",
    "dtype",
    "max_concurrent",
    "say",
)
"""Options for starting a managed server."""
_MANAGED = (*_SAMPLING, *_REQUESTS, "thinking_budget", *SERVER_OPTIONS)
_FILES = "harness.policies.identities:of_files"


@dataclass(frozen=True)
class PolicyRow:
    """One kind of policy: where its class is and which settings it accepts.

    The entry point "module:callable" is called with the text after the prefix and the options.
    """

    entry_point: str
    options: tuple[str, ...] = ()
    """settings of an evaluation that the policy accepts"""
    is_model: bool = False
    """a language model, whose results depend on prompting and sampling"""
    on_server: bool = False
    extra: str = ""
    """the extra of envsuite that installs its dependencies"""
    keeps_prefix: bool = False
    """the callable receives the complete name, including the prefix"""
    starts_server: bool = False
    """starts a server itself, so that an address cannot be given"""
    identity: str = ""
    """"module:function" for `identity`; a model without one is never identified"""


POLICIES = {
    "random": PolicyRow("harness.policies.advised:AdvisedPolicy", keeps_prefix=True),
    "expert": PolicyRow("harness.policies.advised:AdvisedPolicy", keeps_prefix=True),
    "blind": PolicyRow("harness.policies.advised:AdvisedPolicy", keeps_prefix=True),
    "idle": PolicyRow("harness.policies.advised:IdlePolicy", keeps_prefix=True),
    "replay": PolicyRow("harness.policies.recorded:ReplayPolicy"),
    "hf": PolicyRow("harness.policies.hf:HFPolicy", (*_LOCAL, "stop"), is_model=True, extra="hf", identity=_FILES),
    "score": PolicyRow(
        "harness.policies.score:ScorePolicy",
        (*_LOCAL, "normalisation", "lead", "close"),
        is_model=True,
        extra="hf",
        identity=_FILES,
    ),
    "openai": PolicyRow(
        "harness.policies.openai:OpenAIPolicy",
        (
            *_SAMPLING,
            *_REQUESTS,
            "base_url",
            "api_key_var",
            "served_model_name",
            "price",
            "headers",
        ),
        is_model=True,
        on_server=True,
        extra="api",
        identity="harness.policies.identities:of_server",
    ),
    "inspect": PolicyRow(
        "harness.policies.inspect_models:InspectPolicy",
        (
            "temperature",
            "top_p",
            "max_tokens",
            "stop",
            "base_url",
            "api_key_var",
            "timeout",
            "max_retries",
            "max_concurrent",
            "price",
            "reasoning_effort",
            "thinking_budget",
            "extra_body",
            "headers",
        ),
        is_model=True,
        on_server=True,
        extra="hosted",
        identity="harness.policies.inspect_models:identity_of",
    ),
    "vllm": PolicyRow(
        "harness.policies.managed:ManagedPolicy",
        _MANAGED,
        is_model=True,
        on_server=True,
        extra="api",
        keeps_prefix=True,
        starts_server=True,
        identity="harness.policies.managed:identity_of",
    ),
    "llamacpp": PolicyRow(
        "harness.policies.managed:ManagedPolicy",
        (*_MANAGED, "gguf_file"),
        is_model=True,
        on_server=True,
        extra="api",
        keeps_prefix=True,
        starts_server=True,
        identity="harness.policies.managed:identity_of",
    ),
}
SETTINGS = frozenset(name for row in POLICIES.values() for name in row.options) | {"action_mode"}
"""Every setting that at least one kind of policy accepts."""
ADVISED = ("random", "blind", "expert", "idle")
"""Policies that use neither a model nor a file."""
TEAM = "team:"
"""Prefix of a team, as in team:expert+random."""
WITHOUT_ARGUMENT = ("random", "blind", "idle")
"""Policies whose name is complete; `expert` may have a kind."""


def members(name: str) -> tuple[str, ...]:
    """Returns the players of a team, in the order of its agents; the name itself for any other player."""
    return tuple(name.removeprefix(TEAM).split("+")) if name.startswith(TEAM) else (name,)


def member(name: str, agent: int) -> str:
    """Returns the player of an agent of a game, counted from 1; 0 if the game has no such agents."""
    players = members(name)
    return players[agent - 1] if 1 <= agent <= len(players) else players[0]


def team_name(players: Sequence[str]) -> str:
    """Returns the name of the player that has one of `players` for each agent of a game.

    Raises UsageError for a player that can be no member of a team.
    """
    players = ["expert:greedy" if player == "greedy" else player for player in players]
    for player in players:
        if not player or "+" in player or player.startswith((TEAM, "replay:")) or gguf_file(player):
            raise UsageError(
                f"{player!r} cannot play one agent of several: name random, blind, greedy, expert, idle, or a model "
                "without '+' in its name; serve a GGUF file, and name it openai:NAME with --base-url."
            )
    return players[0] if len(set(players)) == 1 else TEAM + "+".join(players)


def _team(rows: Sequence[PolicyRow]) -> PolicyRow:
    """Returns the row of a team whose members have the given rows."""
    return PolicyRow(
        "harness.policies.team:TeamPolicy",
        tuple(dict.fromkeys(option for row in rows for option in row.options)),
        is_model=any(row.is_model for row in rows),
        on_server=any(row.on_server for row in rows),
        starts_server=any(row.starts_server for row in rows),
        keeps_prefix=True,
    )


def find(name: str, base_url: str | None = None, action_mode: str = "write") -> tuple[PolicyRow, str]:
    """Returns the row of a policy's name, and the text that its entry point receives.

    Raises UsageError if a model on a server is asked to score commands.
    """
    if name.startswith(TEAM):
        return _team([find(player, base_url, action_mode)[0] for player in members(name)]), name
    prefix, _, argument = name.partition(":")
    kind = prefix
    if prefix not in POLICIES:
        kind, argument = "hf", name
    if POLICIES[kind].is_model:
        if base_url is not None and POLICIES[kind].starts_server:
            raise UsageError(f"{name} starts a server of its own: remove --base-url, or the prefix {kind}:.")
        if base_url is not None and not POLICIES[kind].on_server:
            kind, argument = "openai", name
        if action_mode == "score":
            if POLICIES[kind].on_server:
                raise UsageError(
                    "--action-mode score needs a model in this process: servers have no common way to return the "
                    "log-probs of a prompt. Use a local model, or --action-mode write."
                )
            kind = "score"
    row = POLICIES[kind]
    return row, name if row.keeps_prefix else argument


def is_model(name: str) -> bool:
    """Returns True if `name` is a language model, so that prompting and sampling settings matter."""
    return find(name)[0].is_model


def weights_path(name: str) -> str:
    """Returns a model's name without the prefix of its kind: for models on this machine, an alias or a path."""
    prefix, _, argument = name.partition(":")
    return argument if prefix in POLICIES and POLICIES[prefix].is_model else name


def weights(name: str, gguf_path: str = "") -> str:
    """Returns the fingerprint of a model's weights on this machine; "" for other players and hosted models.

    `gguf_path` is the file of a model whose name does not hold it. A folder here with the name of a hosted model says
    nothing about what the server holds.
    """
    if name.startswith(TEAM):
        return "+".join(map(weights, members(name)))
    if not is_model(name) or (on_server(name, None) and not starts_server(name)):
        return ""
    return model_files.fingerprint(gguf_path or weights_path(name))


def is_computed(name: str) -> bool:
    """Returns True for players that use neither a model nor a file, alone or as a team."""
    return all(player.partition(":")[0] in ADVISED for player in members(name))


def advice_kind(team: str) -> str:
    """Returns `Policy.advice_kind` for the members without a model beside a model; "" for any other player."""
    kinds = ["" if is_model(player) else player for player in members(team)]
    return "+".join(kinds) if any(kinds) and not all(kinds) else ""


def starts_server(name: str) -> bool:
    """Returns True if this process starts a server for the model `name`."""
    return find(name)[0].starts_server


def on_server(name: str, base_url: str | None) -> bool:
    """Returns True if a server answers for this name, and False if the weights are in this process."""
    return find(name, base_url)[0].on_server


def policy_options(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Selects from `settings` the options that the policy `name` accepts, ready for `make_policy`."""
    mode = settings.get("action_mode", "write")
    row, _ = find(name, settings.get("base_url"), mode)
    options = {option: settings[option] for option in row.options if option in settings}
    return {**options, "action_mode": mode} if row.is_model else options


def record_name(name: str) -> str:
    """Returns the policy's name in records, which is the same on every machine. Raises UsageError for a name that
    no policy has.
    """
    _refuse_argument(name)
    if name.startswith(TEAM):
        if (same := team_name(players := members(name))) != name:
            raise UsageError(f"There is no player {name!r}: write {same}.")
        return TEAM + "+".join(map(record_name, players))
    prefix, _, argument = name.partition(":")
    if prefix == "replay":
        from harness.policies.recorded import canonical

        return canonical(argument)
    return f"{prefix}:{Path(argument).stem}" if gguf_file(name) else name


def gguf_file(name: str) -> str:
    """Returns the path in the name `llamacpp:FILE.gguf`; '' for other names. Records have the file's name alone."""
    prefix, _, argument = name.partition(":")
    return argument if prefix == "llamacpp" and argument.endswith(".gguf") else ""


def _refuse_argument(name: str) -> None:
    """Raises UsageError for a name such as "random:x": tables would show it as another player."""
    prefix, colon, argument = name.partition(":")
    if colon and (prefix in WITHOUT_ARGUMENT or (prefix == "expert" and not argument)):
        raise UsageError(f"There is no player {name!r}: write {prefix}.")


def identity(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what, besides name, prompt and sampling, decides the policy's replies; None if that is unknown.

    `options` are the options of `make_policy`. The weights of a local model must be on this machine.
    """
    row, argument = find(name, options.get("base_url"), options.get("action_mode", "write"))
    if not row.is_model:
        return {}
    if not row.identity:
        return None
    result: dict[str, Any] | None = registry.load(row.identity)(argument, options)
    return result


def make_policy(name: str, made: Mapping[str, Policy] | None = None, **options: Any) -> Policy:
    """Creates the policy `name`. Ignores settings that belong to other kinds of policies.

    `action_mode="score"` makes a local model choose among admissible commands. `base_url` is the
    address of a server. `made` are the policies of a team's players, by name. Raises MissingExtra if a
    dependency is not installed.

    Examples:
        >>> make_policy("expert").name
        'expert'
    """
    _refuse_argument(name)
    if name.startswith(TEAM):
        from harness.policies.team import TeamPolicy

        if options.get("served_model_name") and sum(map(is_model, set(members(name)))) > 1:
            raise UsageError("--served-model-name is the name of one model: leave it out for several.")
        made = made or {player: make_policy(player, **options) for player in dict.fromkeys(members(name))}
        return TeamPolicy(name, [made[player] for player in members(name)])
    row, argument = find(name, options.get("base_url"), options.get("action_mode", "write"))
    accepted = {key: value for key, value in options.items() if key in row.options or key not in SETTINGS}
    try:
        create = registry.load(row.entry_point)
        policy: Policy = create(argument, **(accepted if row.is_model else {}))
    except ModuleNotFoundError as error:
        if not row.extra:
            raise
        raise MissingExtra(
            f"The model {name!r} needs the package {error.name!r}, which is not installed: "
            f"pip install 'envsuite[{row.extra}]'"
        ) from error
    return policy
