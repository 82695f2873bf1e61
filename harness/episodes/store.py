"""The store of finished episodes in the cache folder, from which later runs take what they need.

    {cache}/episodes/
        key                      secret of this user that authenticates every line
        {address}-{number}.txt   a series: episodes with equal settings, policy and versions

`EpisodeStore.open` returns the `Series` of some settings. The address is a hash of everything that
decides an episode except its seed and attempt (`harness.episodes.settings`). Several series have one
address if a server changed its weights, or if somebody played anew; the latest one that fits is used.

The first line of a series states its settings. Every other line is an episode: its seed and attempt, when
it ended, and its record, compressed. Lines are only appended, each with a single write, so that
several processes may store at once and a crash loses at most the line in flight. A line that is
damaged, or that another key wrote, is ignored: its episode is played.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import tempfile
import time
import warnings
import zlib
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from envsuite import reading
from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import DataError
from envsuite.types import knobs_json
from harness import records
from harness.policies.identities import Fingerprint
from harness.records import Record

FOLDER = "episodes"
"""name in the cache folder"""
SCHEMA = "envsuite-episodes-1"
KEY_BYTES = 32
MOST_BYTES = 4 * 2**30
"""size of the store above which a new series removes the least recently used ones"""
SAME_WEIGHTS = 0.02
"""Largest difference of a log-prob, in nats, between two answers of a server that count as the same weights.
A small number: a server that is taken for another one only costs time."""
PATIENCE = 30.0
"""seconds to wait for another process that opens a series"""

SeedAttempt = tuple[int, int]


@dataclass(frozen=True)
class SeriesInfo:
    """One stored series, as `envsuite cache episodes` lists it."""

    path: Path
    settings: dict[str, Any]
    episodes: int
    size: int
    """bytes"""
    used: float
    """time of the last use"""


class Series:
    """The stored episodes of one protocol and one policy; appends to them."""

    def __init__(self, path: Path, settings: dict[str, Any], key: bytes, seal: bytes) -> None:
        """`seal` authenticates the header."""
        self.path = path
        self.readable = True
        """False hides the stored episodes"""
        self.damaged = 0
        """lines that `read` ignored"""
        self._settings, self._key, self._seal = settings, key, seal
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        os.utime(path)

    def read(self, keys: Collection[SeedAttempt]) -> Iterator[tuple[Record, int]]:
        """Yields the stored records of `keys` with the times at which they ended, one per episode."""
        missing = set(keys) if self.readable else set()
        self.damaged = 0
        try:
            for number, line in reading.read_lines(self.path):
                if number == 1 or not missing or not line.strip():
                    continue
                episode = self._parse(number, line, missing)
                if episode is not None:
                    missing.discard((episode[0]["seed"], episode[0]["attempt"]))
                    yield episode
        except DataError:
            self.damaged += 1

    def _parse(self, number: int, line: bytes, missing: Collection[SeedAttempt]) -> tuple[Record, int] | None:
        """Returns the record of a line and its time; None if it is damaged, or not in `missing`."""
        seal, _, body = line.rstrip(b"\n").partition(b" ")
        fields = body.split(b" ")
        if len(fields) != 4 or not _are_numbers(fields[:3]):
            self.damaged += 1
            return None
        seed, attempt, ended = map(int, fields[:3])
        if (seed, attempt) not in missing:
            return None
        try:
            if not hmac.compare_digest(seal, self._sealed(body)):
                raise ValueError("another key")
            record = records.parse_record(self.path, number, _decompressed(fields[3]))
            if not self._fits(record, seed, attempt):
                raise ValueError("another episode")
        except (ValueError, DataError):
            self.damaged += 1
            return None
        return record, ended

    def _fits(self, record: Record, seed: int, attempt: int) -> bool:
        """Returns True if a record is an episode of this series with a score."""
        settings = self._settings
        expected = (settings["task"], knobs_json(settings["knobs"]), seed, attempt)
        kind = (settings["model"], settings["reward_mode"])
        is_same = records.key_of(record) == expected and (record["model"], record["reward_mode"]) == kind
        return is_same and not records.is_broken(record)

    def append(self, record: Record) -> None:
        """Stores a finished episode, unless it is broken.

        If the disk is full, warns once and stores nothing more: the run continues.
        """
        if self._file is None or records.is_broken(record):
            return
        packed = base64.b64encode(zlib.compress(records.dump(record)))
        body = b"%d %d %d %s" % (record["seed"], record["attempt"], int(time.time()), packed)
        line = b"\n%s %s\n" % (self._sealed(body), body)  # the first line end completes what a crash cut short
        if len(line) > reading.MOST_LINE:
            return
        try:
            written = os.write(self._file, line)
            failure = "" if written == len(line) else "the disk is full"
        except OSError as error:
            failure = error.strerror or str(error)
        if failure:
            warnings.warn(
                f"The store of episodes cannot be written ({failure}): later runs will play these episodes again.",
                stacklevel=2,
            )
            self.close()

    def _sealed(self, body: bytes) -> bytes:
        return _seal(self._key, self._seal + body)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


class EpisodeStore:
    """The series in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is by default `episodes` in the cache folder. Raises DataError if it cannot be created."""
        self.folder = folder or cache_dir(FOLDER)

    def open(self, settings: dict[str, Any], weights: Fingerprint | None = None, anew: bool = False) -> Series:
        """Returns the latest series with these settings, or creates one.

        `weights` is the answer of a server that is watched: a series of other weights does not fit. `anew`
        creates a series whose episodes replace the older ones. Raises OSError, DataError or
        filelock.Timeout if the folder cannot be used.
        """
        settings = _plain(settings)
        with filelock.FileLock(self.folder / ".lock", timeout=PATIENCE):
            key = self._key() or self._new_key()
            existing = self._find(settings, weights, key)
            if existing is not None and not anew:
                return Series(existing[0], settings, key, existing[1])
            numbers = [_number(path) for path in self.folder.glob(f"{_address(settings)}-*.txt")]
            path = self.folder / f"{_address(settings)}-{max(numbers, default=0) + 1}.txt"
            header = {"schema": SCHEMA, "created": int(time.time()), "settings": settings}
            header["weights"] = None if weights is None else asdict(weights)
            text = json.dumps(header, sort_keys=True).encode()
            seal = _seal(key, text)
            self.prune(most_bytes=MOST_BYTES)
            write_atomically(path, seal + b" " + text + b"\n")
            return Series(path, settings, key, seal)

    def _find(self, settings: dict[str, Any], weights: Fingerprint | None, key: bytes) -> tuple[Path, bytes] | None:
        """Returns file and seal of the latest series that fits; None if there is none, or no key."""
        if not key:
            return None
        for path in sorted(self.folder.glob(f"{_address(settings)}-*.txt"), key=_number, reverse=True):
            seal, header = _header(path)
            if header is None or not hmac.compare_digest(seal, _seal(key, header[1])):
                continue
            if header[0]["settings"] == settings and _same(header[0]["weights"], weights):
                return path, seal
        return None

    def _key(self) -> bytes:
        """Returns this user's secret, b"" if there is none. Raises DataError if it belongs to somebody else."""
        path = self.folder / "key"
        if not path.exists():
            return b""
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            raise DataError(f"{path} belongs to another user: set ENVSUITE_CACHE to a folder of your own.")
        key = reading.read_bytes(path)
        if len(key) != KEY_BYTES:
            raise DataError(f"{path} is damaged: remove {self.folder} to begin an empty store.")
        return key

    def _new_key(self) -> bytes:
        """Creates the secret, readable by this user only."""
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".key.")
        key = secrets.token_bytes(KEY_BYTES)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
        os.replace(temporary, self.folder / "key")
        return key

    def list(self) -> list[SeriesInfo]:
        """Returns all series, the latest used first. Files that are not series are left out."""
        infos = []
        for path in self.folder.glob("*-*.txt"):
            _, header = _header(path)
            if header is not None:
                stat = path.stat()
                count = len(_stored(path))
                infos.append(SeriesInfo(path, header[0]["settings"], count, stat.st_size, stat.st_mtime))
        return sorted(infos, key=lambda info: (-info.used, info.path.name))

    def prune(self, most_seconds: float | None = None, most_bytes: int | None = None) -> tuple[int, int]:
        """Removes series that were not used for `most_seconds`, then the least recently used ones until
        the store has at most `most_bytes`. Returns the number of removed series and their bytes.

        A run that is storing into a removed series continues; only its episodes are not kept.
        """
        files = sorted(((path, path.stat()) for path in self.folder.glob("*-*.txt")), key=lambda file: file[1].st_mtime)
        total = sum(stat.st_size for _, stat in files)
        count = size = 0
        for path, stat in files:
            too_old = most_seconds is not None and time.time() - stat.st_mtime > most_seconds
            too_large = most_bytes is not None and total - size > most_bytes
            if too_old or too_large:
                path.unlink(missing_ok=True)
                count, size = count + 1, size + stat.st_size
        return count, size


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings as they are read from a file: lists instead of tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _stored(path: Path) -> set[SeedAttempt]:
    """Returns seed and attempt of the episodes in a file, without reading their records."""
    episodes = set()
    with contextlib.suppress(DataError):  # the rest of a file that is too large, or was just removed
        for _, line in reading.read_lines(path):
            fields = line.split(b" ", 3)
            if len(fields) == 4 and _are_numbers(fields[1:3]):
                episodes.add((int(fields[1]), int(fields[2])))
    return episodes


def _address(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _number(path: Path) -> int:
    number = path.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _seal(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).hexdigest().encode()


def _header(path: Path) -> tuple[bytes, tuple[dict[str, Any], bytes] | None]:
    """Returns the seal of a series, and its header as values and as text; None if it has none."""
    try:
        line = next((line for _, line in reading.read_lines(path)), b"")
        seal, _, text = line.rstrip(b"\n").partition(b" ")
        header = reading.parse_json(text)
        records.check_types(header, {"schema": str, "settings": dict, "weights": (dict, type(None))})
        if header["schema"] != SCHEMA:
            return seal, None
    except (DataError, ValueError, LookupError, TypeError):
        return b"", None
    return seal, (header, text)


def _same(stored: dict[str, Any] | None, weights: Fingerprint | None) -> bool:
    """Returns True if a series was played by these weights, as far as a server's answers show."""
    if stored is None or weights is None:
        return stored is None and weights is None
    try:
        before = Fingerprint.of(stored)
        # The hash chain of a record has the hash of the text.
        return before.text == weights.text and not before.difference(weights, SAME_WEIGHTS)
    except (ValueError, LookupError, TypeError):
        return False


def _are_numbers(fields: Collection[bytes]) -> bool:
    return all(field.isdigit() and len(field) < 20 for field in fields)


def _decompressed(packed: bytes) -> bytes:
    """Returns the text of a stored record. Raises ValueError if it is damaged or too long."""
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(base64.b64decode(packed, validate=True), reading.MOST_LINE)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof:
        raise ValueError("incomplete or too long")
    return text
