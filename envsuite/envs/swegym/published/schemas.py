"""Schemas of other data sets: their rows as rows of SWE-Gym.

SWE-rebench   as SWE-bench; `install_config` has the command of the tests and the parser of their log
NeMo Gym      a request for a model, whose `metadata` holds the instance as text in `instance_dict`
SWE-smith     `patch` plants a bug into a sound repository; the tests are in the repository
R2E-Gym       a commit's files, its tests and the logs of their runs: see `r2e`

Sources: the data sets' cards; Badertdinov et al., SWE-rebench, 2025; Yang et al., SWE-smith, 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from envsuite import reading
from envsuite.envs.swegym.published import r2e

BUG = "bug_patch"
"""field of a row made from SWE-smith: the patch that plants the bug, applied before anybody plays"""
_PARSERS = {
    "parse_log_pytest": "pytest",
    "parse_log_pytest_options": "pytest_options",
    "parse_log_pytest_v2": "pytest_progress",
}
"""SWE-rebench's names of log parsers, and ours"""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)
_EXCHANGED = (
    ("new file mode", "deleted file mode"),
    ("rename from", "rename to"),
    ("old mode", "new mode"),
)


def normal(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row in SWE-Gym's schema; a row of an unknown schema as it is. Raises ValueError with the reason."""
    if isinstance(row.get("responses_create_params"), dict):
        row = _of_nemo(row)
    if all(name in row for name in r2e.FIELDS):
        row = r2e.converted(row)
    if "image_name" in row and "test_patch" not in row and isinstance(row.get("patch"), str):
        row = _of_smith(row)
    return row


def test_command(extra: dict[str, Any]) -> tuple[str, str] | None:
    """Returns the command of the tests and our log parser from SWE-rebench's `install_config`, None without one."""
    settings = extra.get("install_config")
    if isinstance(settings, str):
        try:
            settings = reading.parse_json(settings, nan_as_none=True)
        except ValueError:
            return None
    if not isinstance(settings, dict):
        return None
    command = settings.get("test_cmd")
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
        command = " && ".join(command)
    if not isinstance(command, str) or not command.strip():
        return None
    return command, _PARSERS.get(str(settings.get("log_parser", "parse_log_pytest")), "pytest")


def _of_nemo(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the instance inside a row of NeMo Gym; outer fields have precedence."""
    metadata = row["responses_create_params"].get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    inner = row.get("instance_dict", metadata.get("instance_dict", {}))
    if isinstance(inner, str):
        try:
            inner = reading.parse_json(inner, nan_as_none=True)
        except ValueError as error:
            raise ValueError(f"field 'instance_dict' is not JSON ({error})") from None
    if not isinstance(inner, dict):
        raise ValueError("field 'instance_dict' is not an object")
    outside = {name: value for name, value in row.items() if name not in ("responses_create_params", "instance_dict")}
    merged = {**inner, **{name: value for name, value in metadata.items() if name != "instance_dict"}, **outside}
    return {name: value for name, value in merged.items() if value is not None}


def _of_smith(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of SWE-smith with the reverse of its patch as the gold patch."""
    commit = str(row.get("repo", "")).rpartition(".")[2]
    new = {"base_commit": commit, "test_patch": "", BUG: row["patch"], "patch": reverse(row["patch"])}
    return {"problem_statement": "", **row, **new}


def reverse(patch: str) -> str:
    """Returns the unified diff that undoes another one. Raises ValueError if a hunk is cut off, or for binary files."""
    return "".join(_reversed(re.findall(r"[^\n]*\n|[^\n]+", patch)))  # splitlines also splits at form feeds


def _reversed(lines: list[str]) -> Iterator[str]:
    old = new = 0  # lines that the present hunk still has
    before = ""
    for line in lines:
        if old or new:
            sign = line[:1]
            if sign not in ("+", "-", " ", "\\", "\n", "\r"):
                raise ValueError(f"a hunk of its patch is cut off before {line[:40]!r}")
            old -= sign not in ("+", "\\")
            new -= sign not in ("-", "\\")
            yield {"+": "-", "-": "+"}.get(sign, sign) + line[1:]
        elif match := _HUNK.match(line):
            old, new = int(match[2] or 1), int(match[4] or 1)
            yield f"@@ -{match[3]},{new} +{match[1]},{old} @@{match[5]}"
        elif line.startswith(("GIT binary patch", "Binary files ", "copy from ")):
            raise ValueError(f"its patch cannot be undone: it has a binary or a copied file ({line.strip()[:60]!r})")
        elif line.startswith("--- "):
            before = line[4:]
        elif line.startswith("+++ "):
            yield f"--- {_side(line[4:], 'a')}"
            yield f"+++ {_side(before, 'b')}"
        else:
            yield _header(line)
    if old or new:
        raise ValueError("the last hunk of its patch is cut off")


def _side(name: str, letter: str) -> str:
    return f"{letter}/{name[2:]}" if name[:2] in ("a/", "b/") else name


def _header(line: str) -> str:
    if match := re.match(r"index (\w+)\.\.(\w+)(.*)", line, re.DOTALL):
        return f"index {match[2]}..{match[1]}{match[3]}"
    if match := re.match(r"diff --git a/(.*) b/(.*)(\n?)", line):
        return f"diff --git a/{match[2]} b/{match[1]}{match[3]}"
    for pair in _EXCHANGED:
        for first, second in (pair, pair[::-1]):
            if line.startswith(f"{first} "):
                return second + line[len(first) :]
    return line
