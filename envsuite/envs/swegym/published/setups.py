"""Repositories and tools of published instances.

A *setup* (`replay.json` next to the record) names a source (see `sources`) and the pins of a virtual
environment. Both are created once, in the cache, and work with every driver. A record without a setup
needs its published image: the repository in /testbed, the tools in a conda environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite.cache import cache_dir
from envsuite.envs.swegym.published import interpreters, sources
from envsuite.errors import DataError

_BINARIES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONDA = "/opt/miniconda3"
"""path in the published images; the environment is called testbed"""


@dataclass(frozen=True)
class Installation:
    """Repository, tools and environment of an instance."""

    source: Path
    """the repository as published, without its history"""
    environment: tuple[tuple[str, str], ...]
    """variables of all commands, including PATH"""
    read_only: tuple[tuple[Path, str], ...] = ()
    """folders of this machine to mount: (host path, path inside)"""
    image: str = ""
    """Docker image; '' if any driver will do"""


def of_setup(setup: Mapping[str, Any]) -> Installation:
    """Returns what pip creates from a setup, in the cache.

    The setup's interpreter belongs to it, without the packages installed in it. Raises DataError if the
    interpreter is missing or pip fails.
    """
    python = python_of(setup)
    tools, source = prepare(setup)
    empty = tools.parent / "empty"
    empty.mkdir(exist_ok=True)
    path = f"{tools}/bin:{python.root}/bin:/usr/local/bin:/usr/bin:/bin"
    environment = (("PATH", path), ("VIRTUAL_ENV", str(tools)))
    return Installation(source, environment, (*python.mounts(empty), (tools, str(tools))))


def of_image(name: str) -> Installation:
    """Pulls a published image if necessary and copies its /testbed into the cache once.

    The copy has no .git, because the history contains the fix. Raises DataError, EngineFailure.
    """
    from filelock import FileLock

    from envsuite.sandbox import docker, images

    client = docker.connect()
    try:
        images.obtain(client, name)
        home = cache_dir("swegym", "images", client.images.get(name).id.partition(":")[2][:16])
        with FileLock(home / "lock"):
            if not (home / "source").is_dir():
                images.copy_out(client, name, "/testbed", home / "source", leave_out=(".git",))
    finally:
        client.close()
    tools = f"{CONDA}/envs/testbed"
    environment = (("PATH", f"{tools}/bin:{CONDA}/bin:{_BINARIES}"), ("CONDA_PREFIX", tools), ("USER", "agent"))
    return Installation(home / "source", environment, image=name)


# ---- setups ------------------------------------------------------------------------------------------------------


_TEXTS = ("python", "install", "test_cmd", "directives", "parser")
_EDITABLE = ("*.pth", "*.egg-link", "__editable__*.py", "*.dist-info/direct_url.json")
"""files of a virtual environment that hold the path of a package installed with `pip install -e`"""
WORKSPACE = "/testbed"
"""path of the repository in bubblewrap's and Docker's sandboxes"""
_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?([=<>~!]=?[\w.!+*,<>=~-]+)?")
"""requirement of pip without an address, path or option"""


def read_setup(path: Path) -> dict[str, Any]:
    """Reads a setup's file. Raises DataError with the name of the invalid field."""
    try:
        setup = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"The setup {path} cannot be used ({type(error).__name__}: {error}).") from None
    return check_setup(setup, str(path))


def check_setup(setup: Any, where: str) -> dict[str, Any]:
    """Returns a valid setup. Raises DataError with `where` and the name of the invalid field."""
    wrong = sources.fault(setup.get("source") if isinstance(setup, dict) else None)
    if wrong:
        pass
    elif "pins" not in setup:
        wrong = "field 'pins' is missing"
    else:
        texts, env = {name: setup[name] for name in _TEXTS if name in setup}, setup.get("env", {})
        pins = setup["pins"] if isinstance(setup["pins"], list) else [None]
        if not all(isinstance(pin, str) and pin and pin[0] != "-" for pin in pins):
            wrong = "field 'pins' is not a list of requirements"
        if bad := [name for name, value in texts.items() if not isinstance(value, str) or not value.strip()]:
            wrong = f"field {bad[0]!r} is not text"
        if not isinstance(env, dict) or not all(isinstance(value, (str, int, float)) for value in env.values()):
            wrong = "field 'env' is not an object of texts"
        elif any(re.search(r"[{}]", str(value).replace("{testbed}", "")) for value in env.values()):
            wrong = "field 'env' holds a brace that is not {testbed}"
    if wrong:
        raise DataError(f"The setup {where} cannot be used: {wrong}.")
    return dict(setup)


def check_named(setup: Mapping[str, Any], where: str) -> None:
    """Raises DataError unless everything that a setup installs comes from the package index by name.

    A list of records may come from a stranger, and pip would build whatever an address or a folder in it contains.
    """
    if setup["source"]["kind"] != "sdist" or "install" in setup:
        field = "install" if "install" in setup else "source"
        raise DataError(
            f"The setup {where} cannot be used: its field {field!r} is for setups in files of their own. If you "
            "trust it, play a folder with instance.json and replay.json."
        )
    requirement = setup["source"]["req"]
    is_archive = requirement.startswith("/") and requirement.endswith(".tar.gz") and Path(requirement).is_file()
    for name in (*([] if is_archive else [requirement]), *setup["pins"]):
        if not _NAMED.fullmatch(name):
            raise DataError(
                f"The setup {where} cannot be used: {name[:80]!r} is not NAME or NAME==VERSION. If you trust it, play "
                "a folder with instance.json and replay.json."
            )


def prepare(setup: Mapping[str, Any]) -> tuple[Path, Path]:
    """Creates the virtual environment and the source tree of a setup in the cache.

    Raises DataError if pip fails.
    """
    from filelock import FileLock

    home = home_of(setup)
    environment, source = environment_of(setup) / "venv", home / "source"
    with FileLock(home / "lock"):
        if not (source.is_dir() and (environment / "ready").exists()):
            print(
                f"swegym: pip installs {sources.title(setup['source'])} and its test tools for their first game; "
                f"kept in {home.parents[1]} for the next ones",
                file=sys.stderr,
                flush=True,
            )
        _install(setup, environment)
        installed = environment / "installed"  # missing if the environment was removed and made again
        if "install" in setup and not installed.exists():
            shutil.rmtree(source, ignore_errors=True)
        if not source.is_dir():
            new = home / "new"
            shutil.rmtree(new, ignore_errors=True)  # remains of a killed process
            sources.obtain(setup["source"], new)
            if "install" in setup:
                _run_install(setup["install"], new, environment)
                installed.touch()
            new.rename(source)
    return environment, source


def _run_install(command: str, source: Path, environment: Path) -> None:
    """Runs a setup's `install` in its source, with its virtual environment active. Raises DataError if it fails.

    What `pip install -e` wrote leads to the repository's path in the sandbox afterwards.
    """
    path = f"{environment}/bin:{os.environ.get('PATH', _BINARIES)}"
    variables = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(environment), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables.pop("PYTHONPATH", None)
    _run(["bash", "-c", command], source, variables)
    for pattern in _EDITABLE:
        for file in environment.glob(f"lib/python*/site-packages/{pattern}"):
            text = file.read_bytes()
            if str(source).encode() in text:
                file.write_bytes(text.replace(str(source).encode(), WORKSPACE.encode()))


def home_of(setup: Mapping[str, Any]) -> Path:
    """Returns the cache folder that `prepare` uses for a setup's source; equal setups share one."""
    return _folder(setup, "instances", setup["source"], *_installed(setup))


def environment_of(setup: Mapping[str, Any]) -> Path:
    """Returns the cache folder of a setup's virtual environment; setups with the same pins share one.

    A setup with the field `install` shares its own only with setups of the same source and the same command.
    """
    content = _installed(setup)
    return _folder(setup, "environments", *((setup["source"], *content) if content else ()))


def _installed(setup: Mapping[str, Any]) -> tuple[str, ...]:
    return (setup["install"],) if "install" in setup else ()


def _folder(setup: Mapping[str, Any], kind: str, *content: Any) -> Path:
    tools = [setup["pins"], python_of(setup).executable]
    name = hashlib.sha256(json.dumps([*content, *tools], sort_keys=True).encode()).hexdigest()[:16]
    return cache_dir("swegym", kind, name)


def _install(setup: Mapping[str, Any], environment: Path) -> None:
    """Creates the virtual environment of a setup unless it exists. Raises DataError if pip fails."""
    from filelock import FileLock

    with FileLock(environment.parent / "lock"):
        if (environment / "ready").exists():
            return
        shutil.rmtree(environment, ignore_errors=True)
        _run([python_of(setup).executable, "-m", "venv", str(environment)])
        pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "-q", *setup["pins"]])
        (environment / "ready").touch()


def python_of(setup: Mapping[str, Any]) -> interpreters.PythonInterpreter:
    """Returns the interpreter that a setup names. Raises DataError if it is not on this machine."""
    return interpreters.find(str(setup.get("python", "")))


def _run(command: list[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder, env=environment)
    if done.returncode:
        output = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise DataError(f"`{' '.join(command[:6])} ...` failed: {output[-1][:200] if output else done.returncode}")
