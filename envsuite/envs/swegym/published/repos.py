"""Test commands of each repository, the tests to run, and the parser of the log: facts of the data
sets, one row each.

SWE-Gym's rows are the constants of its fork of the harness; later SWE-bench releases do not
contain them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from envsuite import reading
from envsuite.envs.swegym.published.records import Record
from envsuite.errors import DataError

START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
_NO_TESTS = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")


class Repo(NamedTuple):
    """One row: the command before the tests' names, and the parser of its log."""

    command: str
    parser: str = "pytest"
    before: str = ""
    """shell command to run first"""
    older: tuple[tuple[int, ...], str] = ((), "")
    """versions below the first element use the second as their command"""


_XDIST = "pytest -n0 -rA"
SWE_GYM: dict[str, Repo] = {
    "getmoto/moto": Repo(_XDIST),
    "modin-project/modin": Repo(_XDIST),
    "bokeh/bokeh": Repo("pytest -rA -n0"),
    "conan-io/conan": Repo(_XDIST, before='export PYTHONPATH="$PYTHONPATH:$(pwd)"'),
    "dask/dask": Repo("pytest -n0 -rA --color=no"),
    "python/mypy": Repo("pytest -rA -k", older=((1, 7), "pytest -n0 -rA -k")),
    "project-monai/monai": Repo("pytest -rA"),
    "iterative/dvc": Repo("pytest -rA"),
    "pydantic/pydantic": Repo(
        "pytest -rA --tb=short -vv -o console_output_style=classic --no-header", "pytest_progress"
    ),
    "pandas-dev/pandas": Repo("pytest -rA --tb=long"),
    "facebookresearch/hydra": Repo("pytest -rA --tb=long"),
}
_ASTROPY = "pytest -rA -vv -o console_output_style=classic --tb=no"
SWE_BENCH: dict[str, Repo] = {
    "astropy/astropy": Repo(_ASTROPY, "pytest_plain"),
    "django/django": Repo("./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1", "django"),
    "marshmallow-code/marshmallow": Repo("pytest -rA"),
    "matplotlib/matplotlib": Repo("pytest -rA", "matplotlib"),
    "mwaskom/seaborn": Repo("pytest --no-header -rA", "seaborn"),
    "pallets/flask": Repo("pytest -rA"),
    "psf/requests": Repo("pytest -rA", "pytest_options"),
    "pvlib/pvlib-python": Repo("pytest -rA"),
    "pydata/xarray": Repo("pytest -rA"),
    "pydicom/pydicom": Repo("pytest -rA", "pytest_options"),
    "pylint-dev/astroid": Repo("pytest -rA"),
    "pylint-dev/pylint": Repo("pytest -rA", "pytest_options"),
    "pytest-dev/pytest": Repo("pytest -rA"),
    "pyvista/pyvista": Repo("pytest -rA"),
    "scikit-learn/scikit-learn": Repo("pytest -rA", "pytest_plain"),
    "sphinx-doc/sphinx": Repo("tox --current-env -epy39 -v --", "pytest_plain"),
    "sqlfluff/sqlfluff": Repo("pytest -rA"),
    "sympy/sympy": Repo("PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose", "sympy"),
}
REPOS = {**SWE_GYM, **SWE_BENCH}
_REBENCH_PARSERS = {
    "parse_log_pytest": "pytest",
    "parse_log_pytest_options": "pytest_options",
    "parse_log_pytest_v2": "pytest_progress",
}
"""SWE-rebench's names of log parsers, and ours"""


def repo_of(record: Record) -> Repo:
    """Returns the row of a record's repository, at its version. Raises DataError if it is unknown."""
    row = REPOS.get(record.repo.lower())
    if row is None:
        raise DataError(f"{record.instance_id}: how the tests of {record.repo!r} are run is not known.")
    below, command = row.older
    version = tuple(map(int, re.findall(r"\d+", record.version)[:2]))
    return row._replace(command=command) if version and version < below else row


def row_of(record: Record, setup: Mapping[str, Any]) -> Repo:
    """Returns the row of a record: its setup's `test_cmd` and `parser`, otherwise its own, otherwise its repository's.

    Raises DataError if none is known.
    """
    if "test_cmd" not in setup:
        own = stated_command(record.extra)
        return Repo(*own) if own else repo_of(record)
    known = REPOS.get(record.repo.lower())
    return Repo(setup["test_cmd"], setup.get("parser") or (known.parser if known else "pytest"))


def stated_command(extra: Mapping[str, Any]) -> tuple[str, str] | None:
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
    return command, _REBENCH_PARSERS.get(str(settings.get("log_parser", "parse_log_pytest")), "pytest")


def test_files(patch: str) -> list[str]:
    """Returns the files that a test patch changes, in order."""
    return list(dict.fromkeys(new for _, new in re.findall(r"^diff --git a/(.*?) b/(.*)$", patch, re.MULTILINE)))


def image_name(record: Record) -> str:
    """Returns the name of a record's published image, in lower case.

    SWE-Gym: `xingyaoww/sweb.eval.x86_64.<id>` with `_s_` for `__`; SWE-bench: `swebench/...` with
    `_1776_`. A record's own field `image`, `image_name` or `docker_image` takes precedence.
    """
    for key in ("image", "image_name", "docker_image"):
        if isinstance(record.extra.get(key), str) and record.extra[key]:
            return str(record.extra[key])
    owner, mark = ("xingyaoww", "_s_") if record.repo.lower() in SWE_GYM else ("swebench", "_1776_")
    return f"{owner}/sweb.eval.x86_64.{record.instance_id.replace('__', mark)}:latest".lower()


def directives(record: Record) -> list[str]:
    """Returns the tests to run: files of the test patch, spelled for the repository's runner."""
    repo = record.repo.lower()
    if repo == "python/mypy":
        cases = re.findall(r"\[case ([^\]]+)\]", record.test_patch)
        return [f'"{" or ".join(dict.fromkeys(cases))}"']
    names = [name for name in test_files(record.test_patch) if not name.endswith(_NO_TESTS)]
    if not record.test_patch:  # the tests are in the repository
        tests = [*record.fail_to_pass, *record.pass_to_pass]
        names = list(dict.fromkeys(test.partition("::")[0] for test in tests if "::" in test))
    if repo == "django/django":
        return [name.removesuffix(".py").removeprefix("tests/").replace("/", ".") for name in names]
    return names


def test_command(record: Record, row: Repo) -> str:
    """Returns the shell command that runs a record's tests; `row` is what `row_of` returns."""
    command = " ".join([row.command, *directives(record)])
    return f"{row.before}; {command}" if row.before else command
