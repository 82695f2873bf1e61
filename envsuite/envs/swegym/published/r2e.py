"""Rows of R2E-Gym as rows of SWE-Gym.

A row has the changed files of a commit, whole, before and after it (`parsed_commit_content`), and the tests
with the logs of their runs on both sides (`execution_result_content`). The two lists of tests are made from
the logs. R2E-Gym names a test by the words after its file, joined by dots; `expected_output_json` has the
results that it expects by these names.

Source: Jain et al., R2E-Gym, 2025.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from envsuite.envs.swegym.judge import tampering
from envsuite.envs.swegym.published.logs import PARSERS

FIELDS = ("parsed_commit_content", "expected_output_json")
"""fields that only its rows have"""
FOLDER = "r2e_tests"
"""folder of the held-out tests"""
COMMAND = "python -W ignore -m pytest -rA"
OWNER = "r2e-gym"
"""owner of the records' repositories; the rows name a repository without its owner"""
_NONE = "/dev/null"


def converted(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of R2E-Gym in SWE-Gym's schema. Raises ValueError with the reason."""
    commit, execution, expected = (
        _object(row, name) for name in ("parsed_commit_content", "execution_result_content", "expected_output_json")
    )
    name, new = str(row.get("repo_name", "")), str(row.get("commit_hash") or commit.get("new_commit_hash") or "")
    fail, passing = _tests(execution, expected)
    kept = {key: value for key, value in row.items() if key not in (*FIELDS, "execution_result_content", "prompt")}
    return {
        "problem_statement": "",
        **kept,
        "instance_id": f"{name}__{new}",
        "repo": f"{OWNER}/{name}",
        "base_commit": str(commit.get("old_commit_hash") or f"{new}^"),
        "patch": "".join(_diffs(commit)),
        "test_patch": "".join(_held_out(execution)),
        "FAIL_TO_PASS": fail,
        "PASS_TO_PASS": passing,
        "install_config": {"test_cmd": COMMAND, "log_parser": "parse_log_pytest"},
    }


def _object(row: dict[str, Any], name: str) -> dict[str, Any]:
    value = row.get(name)
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, dict):
        raise ValueError(f"field {name!r} of R2E-Gym is not an object")
    return value


def _tests(execution: dict[str, Any], expected: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the tests that must pass and did not, and those that passed before, by their ids.

    A test counts if it passed on the new side and is expected to.
    """
    before, after = (
        PARSERS["pytest"](str(execution.get(f"{side}_commit_res_stdout") or "")) for side in ("old", "new")
    )
    wanted = [
        test
        for test, status in after.items()
        if status == "PASSED" and expected.get(".".join(test.split("::")[1:])) == "PASSED"
    ]
    fail = [test for test in wanted if before.get(test) != "PASSED"]
    if not fail:
        raise ValueError("the logs of this row of R2E-Gym name no test that changes from failing to passing")
    return fail, [test for test in wanted if test not in fail]


def _diffs(commit: dict[str, Any]) -> Iterator[str]:
    """Yields the unified diffs of the commit's files that are no tests."""
    for entry in commit.get("file_diffs") or []:
        path = ((entry.get("header") or {}).get("file") or {}).get("path")
        if not isinstance(path, str):
            raise ValueError("a file of 'parsed_commit_content' has no path")
        sides = [(entry.get(f"{sign}_file") or {}).get("path") for sign in ("minus", "plus")]
        texts = [entry.get(f"{side}_file_content") or "" for side in ("old", "new")]
        if not tampering.is_test(path):
            yield diff(path, *(None if side == _NONE else text for side, text in zip(sides, texts, strict=True)))


def _held_out(execution: dict[str, Any]) -> Iterator[str]:
    """Yields the diffs that add the held-out tests."""
    names, codes = execution.get("test_file_names") or [], execution.get("test_file_codes") or []
    if not names or len(names) != len(codes):
        raise ValueError("this row of R2E-Gym does not contain the text of its tests")
    for name, text in sorted({"__init__.py": "", **dict(zip(names, codes, strict=True))}.items()):
        yield diff(f"{FOLDER}/{name}", None, text)


def diff(path: str, old: str | None, new: str | None) -> str:
    """Returns the unified diff of one file, as git writes it; None for a side on which it does not exist."""
    if old == new:
        return ""
    lines = [f"diff --git a/{path} b/{path}\n"]
    if old is None or new is None:
        lines.append("new file mode 100644\n" if old is None else "deleted file mode 100644\n")
    sides = _NONE if old is None else f"a/{path}", _NONE if new is None else f"b/{path}"
    for line in difflib.unified_diff(_lines(old), _lines(new), *sides):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _lines(text: str | None) -> list[str]:
    """Returns the lines of a text, which end only at line feeds, as git sees them."""
    parts = (text or "").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
