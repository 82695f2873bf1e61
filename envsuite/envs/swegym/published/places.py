"""Repositories and tools of published instances.

A *recipe* (`replay.json` next to the record) names a source (see `sources`) and the pins of a virtual
environment. Both are created once, in the cache; they work with every driver, and with docker they can be
built into an image. A record without a recipe needs its published image: the repository in /testbed, the
tools in a conda environment.
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
class InstancePlace:
    """Repository, tools and environment of an instance."""

    source: Path
    """the repository as published, without its history"""
    environment: tuple[tuple[str, str], ...]
    """variables of all commands, including PATH"""
    read_only: tuple[tuple[Path, str], ...] = ()
    """folders of this machine to mount: (host path, path inside)"""
    image: str = ""
    """Docker image; '' if any driver will do"""


def of_recipe(recipe: Mapping[str, Any], build: bool = False) -> InstancePlace:
    """Returns the place that pip creates from a recipe, in the cache; `build`: as an image.

    The recipe's interpreter is part of the place, without the packages installed in it. Raises
    DataError if the interpreter is missing or pip fails.
    """
    python = python_of(recipe)
    tools, source = prepare(recipe)
    empty = tools.parent / "empty"
    empty.mkdir(exist_ok=True)
    path = f"{tools}/bin:{python.root}/bin:/usr/local/bin:/usr/bin:/bin"
    environment = (("PATH", path), ("VIRTUAL_ENV", str(tools)))
    mounts = python.mounts(empty)
    if not build:
        return InstancePlace(source, environment, (*mounts, (tools, str(tools))))
    from envsuite.sandbox import docker, images

    client = docker.connect()
    try:
        folders = {str(tools): tools, "/testbed": source}
        name = images.build(client, docker.thin(client), folders, dict(environment))
        return InstancePlace(source, environment, mounts, image=name)
    finally:
        client.close()


def of_image(name: str) -> InstancePlace:
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
    return InstancePlace(home / "source", environment, image=name)


def patched(source: Path, patch: str) -> Path:
    """Returns a copy of a repository with a data set's patch, in the cache. Raises DataError if it does not apply."""
    from filelock import FileLock

    home = cache_dir("swegym", "patched", hashlib.sha256(f"{source}\0{patch}".encode()).hexdigest()[:16])
    with FileLock(home / "lock"):
        if not (home / "source").is_dir():
            new = home / "new"
            shutil.rmtree(new, ignore_errors=True)  # remains of a killed process
            shutil.copytree(source, new, symlinks=True)
            environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(home)}
            done = subprocess.run(
                ["git", "apply", "-"], cwd=new, input=patch.encode(), capture_output=True, env=environment
            )
            if done.returncode:
                reason = done.stderr.decode(errors="replace").strip()[-200:]
                raise DataError(f"The patch that plants the bug does not apply to {source}: {reason}")
            new.rename(home / "source")
    return home / "source"


# ---- recipes ------------------------------------------------------------------------------------------------------


_TEXTS = ("python", "install", "test_cmd", "directives", "parser")
_LISTS = ("pins", "pre_pip")
_EDITABLE = ("*.pth", "*.egg-link", "__editable__*.py", "*.dist-info/direct_url.json")
"""files of a virtual environment that hold the path of a package installed with `pip install -e`"""
WORKSPACE = "/testbed"
"""path of the repository in bubblewrap's and Docker's sandboxes"""
_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?([=<>~!]=?[\w.!+*,<>=~-]+)?")
"""requirement of pip without an address, path or option"""


def read_recipe(path: Path) -> dict[str, Any]:
    """Reads a recipe's file. Raises DataError with the name of the invalid field.

    A source's relative path starts from the recipe's folder.
    """
    try:
        recipe = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"The recipe {path} cannot be used ({type(error).__name__}: {error}).") from None
    recipe = check_recipe(recipe, str(path))
    if recipe["source"]["kind"] == "path":
        folder = Path(recipe["source"]["path"]).expanduser()
        recipe["source"] = {"kind": "path", "path": str(path.parent.resolve() / folder)}
    return recipe


def check_recipe(recipe: Any, where: str) -> dict[str, Any]:
    """Returns a valid recipe. Raises DataError with `where` and the name of the invalid field."""
    wrong = sources.fault(recipe.get("source") if isinstance(recipe, dict) else None)
    if wrong:
        pass
    elif "pins" not in recipe:
        wrong = "field 'pins' is missing"
    else:
        texts, env = {name: recipe[name] for name in _TEXTS if name in recipe}, recipe.get("env", {})
        for name in _LISTS:
            value = recipe.get(name) or []
            if not isinstance(value, list) or not all(
                isinstance(word, str) and word and word[0] != "-" for word in value
            ):
                wrong = f"field {name!r} is not a list of requirements"
        if bad := [name for name, value in texts.items() if not isinstance(value, str) or not value.strip()]:
            wrong = f"field {bad[0]!r} is not text"
        if not isinstance(env, dict) or not all(isinstance(value, (str, int, float)) for value in env.values()):
            wrong = "field 'env' is not an object of texts"
        elif any(re.search(r"[{}]", str(value).replace("{testbed}", "")) for value in env.values()):
            wrong = "field 'env' holds a brace that is not {testbed}"
    if wrong:
        raise DataError(f"The recipe {where} cannot be used: {wrong}.")
    return dict(recipe)


def check_named(recipe: Mapping[str, Any], where: str) -> None:
    """Raises DataError unless everything that a recipe installs comes from the package index by name.

    A list of records may come from a stranger, and pip would build whatever an address or a folder in it contains.
    """
    if recipe["source"]["kind"] not in sources.INDEXED or "install" in recipe:
        field = "install" if "install" in recipe else "source"
        raise DataError(
            f"The recipe {where} cannot be used: its field {field!r} is for recipes in files of their own. If you "
            "trust it, play a folder with instance.json and replay.json."
        )
    requirement = recipe["source"]["req"]
    is_archive = requirement.startswith("/") and requirement.endswith(".tar.gz") and Path(requirement).is_file()
    for name in (*([] if is_archive else [requirement]), *recipe["pins"], *(recipe.get("pre_pip") or ())):
        if not _NAMED.fullmatch(name):
            raise DataError(
                f"The recipe {where} cannot be used: {name[:80]!r} is not NAME or NAME==VERSION. If you trust it, play "
                "a folder with instance.json and replay.json."
            )


def prepare(recipe: Mapping[str, Any]) -> tuple[Path, Path]:
    """Creates the virtual environment and the source tree of a recipe in the cache.

    Raises DataError if pip fails.
    """
    from filelock import FileLock

    home = home_of(recipe)
    environment, source = environment_of(recipe) / "venv", home / "source"
    with FileLock(home / "lock"):
        if not (source.is_dir() and (environment / "ready").exists()):
            print(
                f"swegym: pip installs {sources.title(recipe['source'])} and its test tools for their first game; "
                f"kept in {home.parents[1]} for the next ones",
                file=sys.stderr,
                flush=True,
            )
        _install(recipe, environment)
        installed = environment / "installed"  # missing if the environment was removed and made again
        if "install" in recipe and not installed.exists():
            shutil.rmtree(source, ignore_errors=True)
        if not source.is_dir():
            new = home / "new"
            shutil.rmtree(new, ignore_errors=True)  # remains of a killed process
            sources.obtain(recipe["source"], new)
            if "install" in recipe:
                _run_install(recipe["install"], new, environment)
                installed.touch()
            new.rename(source)
    return environment, source


def _run_install(command: str, source: Path, environment: Path) -> None:
    """Runs a recipe's `install` in its source, with its virtual environment active. Raises DataError if it fails.

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


def home_of(recipe: Mapping[str, Any]) -> Path:
    """Returns the cache folder that `prepare` uses for a recipe's source; equal recipes share one.

    Raises DataError if the source is a folder that cannot be read.
    """
    return _folder(recipe, "instances", sources.key(recipe["source"]), *_installed(recipe))


def environment_of(recipe: Mapping[str, Any]) -> Path:
    """Returns the cache folder of a recipe's virtual environment; recipes with the same pins share one.

    A recipe with the field `install` shares its own only with recipes of the same source and the same command.
    """
    content = _installed(recipe)
    return _folder(recipe, "environments", *((sources.key(recipe["source"]), *content) if content else ()))


def _installed(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    return (recipe["install"],) if "install" in recipe else ()


def _folder(recipe: Mapping[str, Any], kind: str, *content: Any) -> Path:
    tools = [recipe["pins"], recipe.get("pre_pip"), python_of(recipe).executable]
    name = hashlib.sha256(json.dumps([*content, *tools], sort_keys=True).encode()).hexdigest()[:16]
    return cache_dir("swegym", kind, name)


def _install(recipe: Mapping[str, Any], environment: Path) -> None:
    """Creates the virtual environment of a recipe unless it exists. Raises DataError if pip fails."""
    from filelock import FileLock

    with FileLock(environment.parent / "lock"):
        if (environment / "ready").exists():
            return
        shutil.rmtree(environment, ignore_errors=True)
        _run([python_of(recipe).executable, "-m", "venv", str(environment)])
        install = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if recipe.get("pre_pip"):
            _run([*install, *recipe["pre_pip"]])
        _run([*install, *(["--no-build-isolation"] if recipe.get("no_build_isolation") else []), *recipe["pins"]])
        (environment / "ready").touch()


def python_of(recipe: Mapping[str, Any]) -> interpreters.PythonInterpreter:
    """Returns the interpreter that a recipe names. Raises DataError if it is not on this machine."""
    return interpreters.find(str(recipe.get("python", "")))


def _run(command: list[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder, env=environment)
    if done.returncode:
        output = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise DataError(f"`{' '.join(command[:6])} ...` failed: {output[-1][:200] if output else done.returncode}")
