"""The words of published prompts: fetched from their source, checked by hash, and kept in the cache.

envsuite does not carry these texts. `envsuite-data get prompts/NAME` takes them from the source of
the protocol NAME, or from a local copy of it (`--from`), and `stored` returns them.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.cache import cache_dir, cache_root, write_atomically
from envsuite.errors import DataError

Words = Mapping[str, str | Mapping[str, str]]
"""texts of a prompt by name: templates with {slots}, or a table of names and descriptions"""
MOST_SOURCE = 2**20
"""largest size of a source file in bytes"""


def digest(words: Words) -> str:
    """Returns the SHA-256 of the words, which does not depend on the order of their names."""
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def stored(protocol: str, sha256: str) -> Words | None:
    """Returns the words of a protocol from the cache, or None if they are not there. Raises DataError."""
    path = cache_root() / "prompts" / f"{protocol}.json"
    if not path.is_file():
        return None
    words: Any = reading.read_json(path)
    if not isinstance(words, dict) or digest(words) != sha256:
        raise DataError(f"{path} does not hold the published words: run `envsuite-data get prompts/{protocol}` again.")
    return words


def fetch(protocol: str, url: str, files: Mapping[str, Mapping[str, str]], sha256: str, local: Path | None) -> Path:
    """Stores the words of a protocol and returns their file in the cache.

    `files` names, for each path of the source repository, the variables that hold the words. `local`
    is a checkout of the repository, or the single file. Raises DataError.
    """
    words: dict[str, Any] = {}
    for path, variables in files.items():
        source = _local(local, path) if local else _download(f"{url}/{path}")
        values = extract(source, variables.values(), path)
        words.update({name: values[variable] for name, variable in variables.items()})
    if digest(words) != sha256:
        raise DataError(
            f"The words of {protocol} in {local or url} are not the published ones (SHA-256 {digest(words)[:12]}, "
            f"expected {sha256[:12]}): take the source at the commit that the paper used."
        )
    target = cache_dir("prompts") / f"{protocol}.json"
    write_atomically(target, json.dumps(words, indent=2))
    return target


def extract(source: str, variables: Iterable[str], where: str) -> dict[str, Any]:
    """Returns the strings and tables of strings that Python source assigns to `variables`.

    The source is parsed and never executed. An f-string becomes a template with its names as
    {slots}; `.strip()` is applied. Of several assignments the first one counts. Raises DataError.
    """
    wanted = set(variables)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{where} is not the Python source that was expected: {error}.") from error
    values: dict[str, Any] = {}
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda node: (node.lineno, node.col_offset)):
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in wanted - values.keys():
            value = _value(node.value)
            if value is not None:
                values[target.id] = value
    if missing := wanted - values.keys():
        raise DataError(f"{where} assigns no text to {', '.join(sorted(missing))}.")
    return values


def _value(node: ast.expr) -> Any:
    """Returns the text or table of texts that an expression stands for, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
        text = _value(node.func.value)
        return text.strip() if isinstance(text, str) and not node.args else None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [
            "{" + part.value.id + "}"
            if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
            else _value(part)
            for part in node.values
        ]
        return "".join(parts) if all(isinstance(part, str) for part in parts) else None
    if isinstance(node, ast.Dict):
        keys = [_value(key) if key else None for key in node.keys]
        values = [_value(value) for value in node.values]
        return dict(zip(keys, values, strict=True)) if all(isinstance(x, str) for x in keys + values) else None
    return None


def _local(local: Path, path: str) -> str:
    file = local / path if local.is_dir() else local
    return reading.read_bytes(file, MOST_SOURCE).decode("utf-8", "replace")


def _download(url: str) -> str:
    import httpx

    try:
        with httpx.stream("GET", url, timeout=60.0, follow_redirects=True) as answer:
            answer.raise_for_status()
            content = b""
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > MOST_SOURCE:
                    raise DataError(f"{url} is larger than {MOST_SOURCE:,} bytes.")
    except httpx.HTTPError as error:
        raise DataError(
            f"Cannot fetch {url}: {error}. Take the file from a computer with access, and pass it with --from."
        ) from error
    return content.decode("utf-8", "replace")
