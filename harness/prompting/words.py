"""The words of published prompts: fetched from their source, checked by hash, and kept in the cache.

envsuite does not carry these texts. `envsuite data get prompts/NAME` takes them from the source of
the protocol NAME, or from a local copy of it (`--from`), and `stored` returns them.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.cache import cache_dir, cache_root, write_atomically
from envsuite.errors import DataError, MissingExtra

Words = Mapping[str, str | Mapping[str, str]]
"""texts of a prompt by name: templates with {slots}, or a table of names and descriptions"""
MOST_SOURCE = 2**20
"""largest size of a source file in bytes"""


@dataclass(frozen=True)
class SourceFiles:
    """Files in which the words of a protocol are published."""

    url: str
    """address of a repository's files at a commit; with `commits`, the part of it that all files share"""
    files: Mapping[str, Mapping[str, str]]
    """for each path below it, our names of the words and the names that the file gives them"""
    sha256: str
    """`digest` of the words"""
    commits: Mapping[str, str] = field(default_factory=dict)
    """commit of each path, or its repository and commit ("owner/name/commit"), for words from different ones"""

    def address(self, path: str) -> str:
        """Returns the address of a file."""
        return "/".join(filter(None, [self.url, self.commits.get(path, ""), path]))


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
        raise DataError(f"{path} does not hold the published words: run `envsuite data get prompts/{protocol}` again.")
    return words


def fetch(protocol: str, source: SourceFiles, local: Path | None) -> Path:
    """Stores the words of a protocol and returns their file in the cache.

    `local` is a checkout of the repository, or the single file. Raises DataError.
    """
    words: dict[str, Any] = {}
    for path, names in source.files.items():
        text = _local(local, path) if local else _download(source.address(path))
        values = read_texts(text, names.values(), path)
        words.update({ours: values[theirs] for ours, theirs in names.items()})
    if digest(words) != source.sha256:
        raise DataError(
            f"The words of {protocol} in {local or source.url} are not the published ones (SHA-256 "
            f"{digest(words)[:12]}, expected {source.sha256[:12]}): take the source at the protocol's commit."
        )
    target = cache_dir("prompts") / f"{protocol}.json"
    write_atomically(target, json.dumps(words, indent=2))
    return target


def read_texts(source: str, names: Iterable[str], path: str) -> dict[str, Any]:
    """Returns the texts and tables of texts that a source file calls `names`. Raises DataError.

    A Python file or notebook assigns them to variables (`extract`), a JSON file has them under keys, and
    a YAML file as block scalars.
    """
    required = list(names)
    try:
        if path.endswith(".json"):
            values = json.loads(source)
        elif path.endswith(".yaml"):
            values = _block_scalars(source)
        elif path.endswith(".ipynb"):
            cells = [cell for cell in json.loads(source)["cells"] if cell["cell_type"] == "code"]
            return extract("\n".join("".join(cell["source"]) for cell in cells), required, path)
        else:
            return extract(source, required, path)
        missing = [name for name in required if not isinstance(values.get(name), str)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not the file that was expected ({type(error).__name__}: {error}).") from error
    if missing:
        raise DataError(f"{path} has no text {', '.join(missing)}.")
    return {name: values[name] for name in required}


def _block_scalars(source: str) -> dict[str, str]:
    """Returns the literal block scalars of a YAML file by key: the first one if several have the same key."""
    texts: dict[str, str] = {}
    lines = iter([*source.splitlines(), "end:"])
    line = next(lines)
    for following in lines:
        opened = re.fullmatch(r"( *)([\w-]+): \|", line)
        line = following
        if not opened:
            continue
        block = []
        while not line.strip() or len(line) - len(line.lstrip(" ")) > len(opened[1]):
            block.append(line)
            line = next(lines)
        indent = min((len(text) - len(text.lstrip(" ")) for text in block if text.strip()), default=0)
        body = "\n".join(text[indent:] for text in block).rstrip("\n")
        texts.setdefault(opened[2], body + "\n")
    return texts


def extract(source: str, variables: Iterable[str], where: str) -> dict[str, Any]:
    """Returns the strings and tables of strings that Python source assigns to `variables`.

    The source is parsed and never executed. An f-string becomes a template with its names as
    {slots}, a sum of strings and other values one with {0}, {1}, ... for the other values; `.strip()`
    is applied. Of several assignments the first one counts, or with "NAME#2" the second. Raises
    DataError.
    """
    required = list(variables)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{where} is not the Python source that was expected: {error}.") from error
    texts_of: dict[str, list[Any]] = {}
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda node: (node.lineno, node.col_offset)):
        target = node.targets[0]
        value = _value(node.value) if isinstance(target, ast.Name) else None
        if isinstance(target, ast.Name) and value is not None:
            texts_of.setdefault(target.id, []).append(value)
    values: dict[str, Any] = {}
    missing: list[str] = []
    for variable in required:
        name, _, number = variable.partition("#")
        texts = texts_of.get(name, [])
        index = int(number or 1) - 1
        if index < len(texts):
            values[variable] = texts[index]
        else:
            missing.append(variable)
    if missing:
        raise DataError(f"{where} assigns no text to {', '.join(sorted(missing))}.")
    return values


def _value(node: ast.expr) -> Any:
    """Returns the text or table of texts that an expression stands for, or None."""
    if isinstance(node, ast.Call):
        return _called(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum(node)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        pieces = [
            "{" + piece.value.id + "}"
            if isinstance(piece, ast.FormattedValue) and isinstance(piece.value, ast.Name)
            else _value(piece)
            for piece in node.values
        ]
        return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else None
    if isinstance(node, ast.Dict):
        keys = [_value(key) if key else None for key in node.keys]
        values = [_value(value) for value in node.values]
        return dict(zip(keys, values, strict=True)) if all(isinstance(x, str) for x in keys + values) else None
    return None


def _called(node: ast.Call) -> Any:
    """Returns the text of `TEXT.strip()`, or the table of `dict(NAME=TEXT)`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "strip" and not node.args:
        text = _value(node.func.value)
        return text.strip() if isinstance(text, str) else None
    if isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        table = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
        return table if all(isinstance(x, str) for x in [*table, *table.values()]) else None
    return None


def _sum(node: ast.BinOp) -> str | None:
    """Returns a sum as a template; None if no operand is a text."""
    operands: list[ast.expr] = []
    first: ast.expr = node
    while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
        operands.insert(0, first.right)
        first = first.left
    texts = [_value(operand) for operand in [first, *operands]]
    if not any(isinstance(text, str) for text in texts):
        return None
    count = 0
    template = ""
    for text in texts:
        if isinstance(text, str):
            template += text
        else:
            template += f"{{{count}}}"
            count += 1
    return template


def _local(local: Path, path: str) -> str:
    file = local / path if local.is_dir() else local
    return reading.read_bytes(file, MOST_SOURCE).decode("utf-8", "replace")


def _download(url: str) -> str:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"Fetching {url} needs httpx: pip install 'envsuite[api]', or pass a copy of the file with --from."
        ) from error
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
