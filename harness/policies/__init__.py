"""Policies by name; each module is imported when asked for.

random | expert | expert:KIND | idle | replay:FILE | hf:MODEL | openai:MODEL, else an alias, a path or org/name for `hf:`.
"""

from __future__ import annotations

from typing import Any

from envsuite.errors import MissingExtra, UsageError
from harness.types import Policy

ADVISED = ("random", "expert", "idle")


def is_model(name: str) -> bool:
    """Whether `name` stands for a language model, which prompting and sampling settings change."""
    return name.partition(":")[0] not in (*ADVISED, "replay")


def on_server(name: str, base_url: str | None) -> bool:
    """Whether a server answers for this name rather than weights in this process."""
    return is_model(name) and (name.startswith("openai:") or base_url is not None)


def record_name(name: str) -> str:
    """How records spell the policy: the same on every machine."""
    kind, _, rest = name.partition(":")
    if kind == "replay":
        from harness.policies.recorded import canonical

        return canonical(rest)
    return name


def make_policy(name: str, **options: Any) -> Policy:
    """The policy `name` stands for. `options` are those of a model (`harness.evaluate.Sampling`, device, dtype, ...).

    `action_mode="score"` chooses among admissible commands; `base_url` names a server. Policies that are no models
    ignore them all.

    Examples:
        >>> make_policy("expert").name
        'expert'
    """
    kind, _, rest = name.partition(":")
    if kind in ADVISED:
        from harness.policies.advised import AdvisedPolicy, IdlePolicy

        return IdlePolicy() if kind == "idle" else AdvisedPolicy(name)
    if kind == "replay":
        from harness.policies.recorded import ReplayPolicy

        if not rest:
            raise UsageError("replay: needs a file, as in replay:runs/.../results.jsonl")
        return ReplayPolicy(rest)
    score = options.pop("action_mode", "write") == "score"
    scoring = {key: options.pop(key) for key in ("normalisation", "lead", "close") if key in options}
    try:
        if on_server(name, options.get("base_url")):
            from harness.policies.chat_completions import Price
            from harness.policies.openai import OpenAIPolicy

            if score:
                raise UsageError(
                    "--action-mode score needs the model in this process: servers do not give the log-probs of a prompt "
                    "in a common way. Give a local model, or let it write."
                )
            price = options.pop("price", None)
            options.pop("dtype", None)
            return OpenAIPolicy(
                rest if kind == "openai" else name, price=Price.parse(price) if price else None, **options
            )
        options.pop("base_url", None)
        model = rest if kind == "hf" else name
        if score:
            from harness.policies.score import ScorePolicy

            return ScorePolicy(model, **scoring, **{key: value for key, value in options.items() if key != "stop"})
        from harness.policies.hf import HFPolicy

        return HFPolicy(model, **options)
    except ModuleNotFoundError as error:
        extra = "api" if on_server(name, options.get("base_url")) else "hf"
        raise MissingExtra(
            f"The model {name!r} needs the package {error.name!r}, which is not installed: pip install 'envsuite[{extra}]'"
        ) from error
