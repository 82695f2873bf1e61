"""Identities of language models: what, besides prompt and sampling, decides the replies of a policy.

`of_files` and `of_server` return plain JSON values, or None if the model cannot be identified. They load no
model and use no network. A `Fingerprint` is what a server tells about the weights that it holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.escaping import public_url
from envsuite.installed import version
from envsuite.reading import read_json
from harness.lm import adapters, model_files

PACKAGES = ("torch", "transformers", "tokenizers")
MOST_CONTENT = 32 * 2**20
"""bytes of a file above which its time of change stands for its content"""

TOLERANCE = 0.2
"""Largest difference of a token's log-prob, in nats; batching and kernels change it by hundredths.
"""


@dataclass(frozen=True)
class Fingerprint:
    """A server's description of its model, and the model's answer to the question."""

    root: str
    """source of the weights (vLLM, SGLang); '' if the server does not report it"""
    text: str
    tokens: tuple[tuple[str, float], ...] = ()
    """answer tokens with log-probs; () if the server returns none"""

    @classmethod
    def read(cls, path: Path) -> Fingerprint:
        """Reads a file written by `write`. Raises DataError."""
        try:
            return cls.of(read_json(path))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} is not a valid fingerprint of the run's weights ({type(error).__name__}: {error}): "
                "remove it to continue without this check."
            ) from error

    @classmethod
    def of(cls, values: Any) -> Fingerprint:
        """Converts JSON as `write` writes it. Raises ValueError, LookupError or TypeError."""
        tokens = tuple((str(token), float(logprob)) for token, logprob in values["tokens"])
        return cls(str(values["root"]), str(values["text"]), tokens)

    def write(self, path: Path) -> None:
        """Writes the fingerprint as JSON."""
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n")

    def difference(self, answer: Fingerprint, tolerance: float = TOLERANCE) -> str:
        """Describes how `answer` differs; '' if both can come from the same weights.

        `tolerance` is the largest difference of a token's log-prob, in nats.
        """
        if self.root and answer.root and self.root != answer.root:
            return f"it serves {answer.root}, not {self.root}"
        if self.tokens and answer.tokens:
            for (expected, before), (token, after) in zip(self.tokens, answer.tokens, strict=False):
                close = abs(before - after) < tolerance
                if expected == token and not close:
                    return f"the log-prob of {expected!r} is {after:.2f}, not {before:.2f}"
                if expected != token:
                    tie = close and max(before, after) < -0.5  # the two likeliest tokens are below one half
                    return "" if tie else f"it generates {token!r} instead of {expected!r}"
            return ""
        return "" if self.text == answer.text else f"it answers {answer.text[:40]!r}, not {self.text[:40]!r}"


def of_files(model: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Identifies a model in this process by its files; None if they are not on this machine.

    A copy of the files counts as another model, because training can leave both ends of a large file as
    they were: its time of change is part of the identity.
    """
    source = model_files.resolve(model)
    folder = model_files.here(source)
    if folder is None or (folder / adapters.CONFIG).exists():  # a model to which transformers adds an adapter
        return None
    adapter = {}
    if source.kind == "adapter":
        adapter = {"adapter": model_files.fingerprint(source.where), "adapter_files": _digest(Path(source.where))}
    return {
        "weights": model_files.fingerprint(str(folder)),
        "files": _digest(folder),
        **adapter,
        "device": str(options.get("device", "auto")),
        "packages": {name: version(name) for name in PACKAGES},
    }


def of_server(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Identifies a served model by its name, its servers and its price, which is part of a record."""
    from harness.policies.chat_completions import OPENAI, address

    urls = (options.get("base_url") or OPENAI).split(",")
    return {
        "served": options.get("served_model_name") or model,
        "servers": sorted({public_url(address(url)) for url in urls if url.strip()}),
        "price": str(options.get("price") or ""),
    }


def _digest(folder: Path) -> str:
    """Returns a hash of a model's files: names, sizes, and content or time of change."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        stat = file.stat()
        digest.update(f"{file.name}\0{stat.st_size}\0".encode())
        is_small = stat.st_size <= MOST_CONTENT and file.suffix not in (".safetensors", ".bin")
        digest.update(file.read_bytes() if is_small else str(stat.st_mtime_ns).encode())
    return digest.hexdigest()[:16]
