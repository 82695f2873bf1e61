"""Declarations of settings: a field of a dataclass gives a flag, its help, its default and its bound.

`setting` declares a field, `add_flags` adds the flags of a dataclass to a parser, and `read` turns what the caller
named into the dataclass. A flag that is not named is absent, so that a suite knows what the caller has fixed.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from envsuite.errors import UsageError

KEY = "setting"
NO_DEFAULTS: Mapping[str, Any] = {}
T = TypeVar("T")


class Setting(NamedTuple):
    """One declared setting."""

    field: str
    """name in the dataclass, in recipes and in config.json"""
    default: Any
    help: str
    short: tuple[str, ...]
    at_least: float | None
    read: Callable[[Any], Any]
    """turns the value of the flag into that of the field"""
    omitted: bool
    """left out of a run's identity at its default, so that runs that are older than the setting keep their ids"""
    argparse: Mapping[str, Any]
    """further arguments of `add_argument`"""


def setting(
    default: Any,
    help: str,
    flag: str = "",
    *,
    short: str = "",
    at_least: float | None = None,
    read: Callable[[Any], Any] = lambda value: value,
    omitted: bool = False,
    **options: Any,
) -> Any:
    """Declares a field of a dataclass; `flag` is its name as a flag if that is another one, `read` parses the flag.

    `options` are arguments of `add_argument`, such as choices or metavar.
    """
    entry = (flag, help, (short,) if short else (), at_least, read, omitted, options)
    return dataclasses.field(default=default, metadata={KEY: entry})


def declared(*classes: type) -> dict[str, Setting]:
    """Returns the settings of dataclasses by the name of their flag, with underscores."""
    settings = {}
    for field in (field for cls in classes for field in dataclasses.fields(cls) if KEY in field.metadata):
        flag, *entry = field.metadata[KEY]
        settings[flag or field.name] = Setting(field.name, field.default, *entry)
    return settings


def omissions(cls: type) -> dict[str, Any]:
    """Returns the fields that a run's identity omits at these defaults."""
    return {entry.field: entry.default for entry in declared(cls).values() if entry.omitted}


def types_of(cls: type) -> dict[str, Any]:
    """Returns the types that the declared fields of a dataclass may have in a file; a number may be an integer."""
    hints = get_type_hints(cls)
    wider = {name: hint | int if float in (hint, *get_args(hint)) else hint for name, hint in hints.items()}
    return {entry.field: wider[entry.field] for entry in declared(cls).values()}


def spelled(flag: str) -> str:
    """Returns a flag as users write it."""
    return "--" + flag.replace("_", "-")


def add_flags(
    parser: argparse._ActionsContainer, cls: type, only: Collection[str] = (), defaults: Mapping[str, Any] = NO_DEFAULTS
) -> None:
    """Adds the flags of a dataclass to a parser, or `only` some of them, with other `defaults`."""
    for flag, entry in declared(cls).items():
        if only and flag not in only:
            continue
        options = dict(entry.argparse)
        if not options.keys() & {"type", "choices", "action"}:
            options |= {"action": "store_true"} if entry.default is False else {"type": type(entry.default)}
        value = defaults.get(flag, entry.default)
        text = entry.help
        if not isinstance(value, bool) and value not in (None, "", ()) and not re.search(r"default:|\b0: ", text):
            text += f" (default: {value:g})" if isinstance(value, float) else f" (default: {value})"
        absent = defaults.get(flag, argparse.SUPPRESS)
        parser.add_argument(*entry.short, spelled(flag), dest=flag, default=absent, help=text, **options)


def named(args: argparse.Namespace, *classes: type) -> dict[str, Any]:
    """Returns the flags of dataclasses that the caller has named, unparsed."""
    return {flag: getattr(args, flag) for flag in declared(*classes) if hasattr(args, flag)}


def values(cls: type, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a dataclass that `flags` set. Raises UsageError for a value below its bound."""
    return {entry.field: entry.read(flags[flag]) for flag, entry in declared(cls).items() if flag in flags}


def read(cls: type[T], flags: Mapping[str, Any], **others: Any) -> T:
    """Returns a dataclass with the settings that `flags` name, and `others` that have no flag."""
    settings = cls(**values(cls, flags), **others)
    check(settings)
    return settings


def check(settings: Any) -> None:
    """Raises UsageError for a number below its bound."""
    for flag, entry in declared(type(settings)).items():
        value = getattr(settings, entry.field)
        if entry.at_least is not None and value is not None and not value >= entry.at_least:
            raise UsageError(f"{spelled(flag)} must be at least {entry.at_least:g}, not {value:g}.")
