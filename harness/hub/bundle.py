"""Bundle of files for a hub: what is uploaded, where to, and the check that nothing private is in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envsuite.cache import cache_root, write_atomically
from envsuite.errors import UsageError

KINDS = {
    "dataset": "a dataset on the Hugging Face hub: the records of a run, or the games of a task",
    "space": "a Space on the Hugging Face hub: a task behind OpenEnv's server",
}
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
SHORTEST_SECRET = 8
"""values of environment variables with fewer characters are not searched for"""
SHORTEST_NAME = 4
"""names and folders of this computer with fewer characters are not searched for"""
PATTERNS = {
    "an access token": re.compile(
        r"\b(hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|AKIA[0-9A-Z]{16}"
        r"|AIza[\w-]{35}|xox[abprs]-[\w-]{10,}|glpat-[\w-]{20,})"
    ),
    "a password in an address": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:\"']+:[^\s/@\"']+@"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
}
LOCAL_PATH = re.compile(r"(?<![\w.:/-])(?:/[\w.+@-]+){2,}|\b[A-Z]:\\\\?[\w.-]+")
"""an absolute path, which settings of a run must not have; records quote paths of the games' own sandboxes"""
SETTINGS = ("config.json", "summary.json")
NAMES = ("the name of this computer", "a folder of this computer", "an absolute path")
"""findings that a message may quote; the others are secret"""


@dataclass(frozen=True)
class Target:
    """Repository of an upload."""

    kind: str
    """one of KINDS"""
    name: str
    """OWNER/NAME"""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads KIND:OWNER/NAME. Raises UsageError."""
        kind, _, name = text.partition(":")
        if kind not in KINDS:
            raise UsageError(f"Unknown target {text!r}: write KIND:OWNER/NAME, where KIND is {', '.join(KINDS)}.")
        if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]{0,95}", name):
            raise UsageError(f"The target {text!r} needs an owner and a name, such as {kind}:my-name/my-run.")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Bundle:
    """Files of an upload by their path, README.md among them."""

    target: Target
    files: Mapping[str, bytes]

    @property
    def card(self) -> str:
        """The text of README.md."""
        return self.files["README.md"].decode()

    def lines(self) -> Iterator[str]:
        """Yields the target and each file with its size in bytes and the first digits of its SHA-256."""
        size = sum(map(len, self.files.values()))
        yield f"{self.target}: {len(self.files)} files, {size:,} bytes"
        for path, content in sorted(self.files.items()):
            yield f"  {path:28} {len(content):>12,} bytes  sha256 {hashlib.sha256(content).hexdigest()[:12]}"

    def check_private(self, allowed: Sequence[str] = (), host: str = "") -> None:
        """Raises UsageError for the first private text in a file, unless its text is in `allowed`.

        `host` is the name of this computer (default: the one it has). Private are access tokens, passwords, values
        of this environment's secret variables, the name of this computer, its home, working and cache folders, and
        absolute paths in the settings of a run.
        """
        names = {
            "the name of this computer": [host or socket.gethostname()],
            "a folder of this computer": [str(folder) for folder in (Path.home(), Path.cwd(), cache_root())],
        }
        for path, content in sorted(self.files.items()):
            for kind, match in _private(path, content.decode("utf-8", "replace"), names):
                if match not in allowed:
                    quoted = f" ({match})" if kind in NAMES else ""
                    cure = f", or repeat with --allow {shlex.quote(match)}" if kind in NAMES else ""
                    raise UsageError(f"{path} has {kind}{quoted}. Nothing was uploaded: remove it{cure}.")

    def write(self, folder: Path) -> None:
        """Writes the files below a new or empty folder. Raises UsageError."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is not an empty folder: choose another --output.")
        for path, content in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / path, content)


def _private(path: str, text: str, names: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yields what is private in a file, each with its text."""
    for kind, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield kind, match[0]
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) >= SHORTEST_SECRET and any(form in text for form in _forms(value)):
            yield f"the value of the environment variable {name}", value
    for kind, words in names.items():
        for word in words:
            words_in_text = "|".join(map(re.escape, _forms(word)))
            if len(word) >= SHORTEST_NAME and re.search(rf"(?<![\w-])({words_in_text})(?![\w-])", text):
                yield kind, word
    if path in SETTINGS:
        for match in LOCAL_PATH.finditer(text):
            yield "an absolute path", match[0]


def _forms(word: str) -> set[str]:
    """Returns the spellings of a word in text and in JSON, which escapes quotes and may escape other alphabets."""
    return {word, json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1]}
