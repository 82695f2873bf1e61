"""Builds dataclasses from plain tables such as TOML's, with errors that name the key and the
nearest valid one.

Every key must be a field. Values are checked against the field's type, and numbers against the
`Range` in its annotation; a default value is always accepted, also outside the range.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

from baselines.ranges import Range
from envsuite.errors import UsageError, did_you_mean


def build(cls: type, table: Any, where: str, substitutes: dict[str, type] | None = None, separator: str = ".") -> Any:
    """Builds `cls` from `table`. Raises UsageError for unknown or missing keys and for bad values.

    `where` and `separator` stand before the key in each message. `substitutes` names fields whose
    table is read as another dataclass than the annotated one; such a field gets that dataclass's
    defaults if the table has no entry for it.
    """
    if not isinstance(table, dict):
        raise UsageError(f"{where}: expected a table of {cls.__name__}'s settings, not {table!r}.")
    substitutes = substitutes or {}
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            hint = did_you_mean(key, fields) or f" It knows {', '.join(fields)}."
            raise UsageError(f"{where}: unknown key {key!r}.{hint}")
        full_key = f"{where}{separator}{key}"
        values[key] = _typed(substitutes.get(key, hints[key]), value, full_key)
        if values[key] != fields[key].default:
            _check_range(hints[key], values[key], full_key)
    for name, field in fields.items():
        if name in values:
            continue
        if name in substitutes:
            values[name] = substitutes[name]()
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UsageError(f"{where}: {name!r} is missing.")
    return cls(**values)


def range_of(hint: Any) -> Range | None:
    """Returns the range in an annotation, or in that of a tuple's items; None if there is none."""
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Range):
            return extra
    return None


def _check_range(hint: Any, value: Any, where: str) -> None:
    limits = range_of(hint)
    if limits is None:
        return
    for number in value if isinstance(value, tuple) else [value]:
        if number not in limits:
            raise UsageError(f"{where} cannot be {number!r}: it is {limits}.")


def _typed(kind: Any, value: Any, where: str) -> Any:
    """Returns `value` as the type `kind`, converted where TOML has no such type (tuples, floats
    without a point)."""
    if hasattr(kind, "__metadata__"):  # Annotated
        kind = typing.get_args(kind)[0]
    if dataclasses.is_dataclass(kind):
        return build(kind, value, where)  # type: ignore[arg-type]
    origin = typing.get_origin(kind)
    if origin is tuple:
        items = [value] if isinstance(value, (str, int)) else value
        if not isinstance(items, (list, tuple)):
            raise UsageError(f"{where} cannot be {value!r}: it is a list.")
        return tuple(_typed(typing.get_args(kind)[0], item, where) for item in items)
    if origin is dict:
        if not isinstance(value, dict):
            raise UsageError(f"{where}: expected a table, not {value!r}.")
        return dict(value)
    if origin is Literal:
        return _choice(typing.get_args(kind), value, where)
    if origin is types.UnionType:
        if not isinstance(value, kind):
            raise UsageError(f"{where} cannot be {value!r}: it is {kind}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{where} cannot be {value!r}: its type is {kind.__name__}.")
    return value


def _choice(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise UsageError(f"{where} cannot be {value!r}: it is one of {', '.join(choices)}.{hint}")
    return value
