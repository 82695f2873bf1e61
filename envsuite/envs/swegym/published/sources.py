"""Sources of setups: the repository of a published record from an archive or from git.

    {"kind": "sdist", "req": "NAME==VERSION"}     source archive of the package index, or a path (.tar.gz)
    {"kind": "git", "url": URL, "commit": SHA-1}  files of one commit

`sdist` may have a `sha256`. Nothing of a source runs here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.published import archives
from envsuite.errors import DataError
from envsuite.escaping import public_url

FIELDS = {
    "sdist": {"req": "NAME==VERSION"},
    "git": {"url": "URL", "commit": "40 hexadecimal digits"},
}
"""fields that a source of each kind must have"""
_PATIENCE = 600.0
"""seconds for one call of git"""
_PROTOCOLS = "file:git:http:https:ssh"
"""transports that git may use; none of them starts a program that an address names"""


def fault(source: Any) -> str:
    """Returns why a source cannot be used, '' if it can be."""
    kind = source.get("kind") if isinstance(source, dict) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return f"field 'source' is not an object with a 'kind' of {', '.join(FIELDS)}"
    for name in FIELDS[kind]:
        value = source.get(name)
        if not isinstance(value, str) or not value.strip() or value.lstrip().startswith("-"):
            shape = ", ".join(f'"{key}": "{text}"' for key, text in FIELDS[kind].items())
            return f'field \'source\' is not {{"kind": "{kind}", {shape}}}'
    if kind == "sdist" and not re.fullmatch("|[0-9a-f]{64}", str(source.get("sha256", ""))):
        return f"its source's sha256 {str(source['sha256'])[:70]!r} is not 64 hexadecimal digits"
    if kind == "git" and not re.fullmatch("[0-9a-f]{40}", source["commit"]):
        return f"its source's commit {source['commit'][:60]!r} is not 40 hexadecimal digits"
    return ""


def title(source: Mapping[str, Any]) -> str:
    """Returns a short name of a source for messages."""
    if source["kind"] == "git":
        return f"{public_url(source['url'])} at {source['commit'][:12]}"
    return str(source["req"])


def obtain(source: Mapping[str, Any], target: Path) -> None:
    """Writes the files of a source into `target`, which must not exist. Raises DataError.

    One process at a time may write into the folder of `target`.
    """
    if source["kind"] == "sdist":
        downloaded = archives.fetch(source["req"])
        _check_sum(downloaded, str(source.get("sha256", "")))
        archives.extract(downloaded, target)
        return
    scratch = target.with_name("scratch")
    shutil.rmtree(scratch, ignore_errors=True)  # remains of a killed process
    scratch.mkdir()
    try:
        _check_out(source, scratch / "tree")
        (scratch / "tree").rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_sum(downloaded: Path, expected: str) -> None:
    actual = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    if expected and actual != expected:
        raise DataError(
            f"The archive {downloaded.name} has the SHA-256 {actual[:16]}..., and the setup names "
            f"{expected[:16]}...: the index serves another file."
        )


def _check_out(source: Mapping[str, Any], tree: Path) -> None:
    """Fetches one commit and writes its files, all of them; runs no hook and no filter of the repository."""
    repository = tree.with_name("repository")
    _git("init", "-q", "--bare", str(repository))
    here = ("-C", str(repository))
    try:
        _git(*here, "fetch", "-q", "--depth=1", "--", source["url"], source["commit"])
    except DataError:  # servers may refuse to serve a commit by its name
        _git(*here, "fetch", "-q", "--tags", "--", source["url"], "+refs/heads/*:refs/heads/*")
    tree.mkdir()
    _git(*here, f"--work-tree={tree}", "checkout", "-q", "-f", source["commit"], "--", ".", plain=True)


def _git(*words: str, plain: bool = False) -> None:
    """Runs git; `plain`: without the user's settings, which may name filters. Raises DataError if it fails."""
    shown = {word: public_url(word) for word in words if "@" in word}  # addresses that may hold a password
    command = " ".join(shown.get(word, word) for word in words)
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _PROTOCOLS}
    if plain:
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, env=environment
        )
    except FileNotFoundError:
        raise DataError("A setup's source is in git, which is not installed: apt-get install git") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"git took more than {_PATIENCE:g} s: `git {command}`.") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
        reason = lines[0][:300] if lines else str(done.returncode)
        for address, public in shown.items():
            reason = reason.replace(address, public)
        raise DataError(f"`git {command}` failed: {reason}")
