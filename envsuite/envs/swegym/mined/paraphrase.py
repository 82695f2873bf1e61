"""Checks of issue texts that a model has written in other words: no leaks, and the facts of the original.

`faults` compares a text with its record. A text leaks if it contains code of the gold patch, its paths, or names of
functions, classes and tests that the original does not give away. It is wrong if it lacks a line of the failing
check or a value, exchanges what the check got and what it expects, or states code that the original does not have.

The facts are those that `issue` writes. Texts of people have no such structure: only leaks and inventions are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from envsuite.envs.swegym.published.records import Record
from envsuite.envs.swegym.published.repos import test_files

LONGER = 500
"""characters that a text may have beyond twice its original"""
_CODE = 12
"""characters of an added line that counts as code of the patch"""
_NEAR = 160
"""characters before a value in which the text says whether the check got or expects it"""
INSTRUCTIONS = (
    "You write reports of software bugs. Write the user's report again in other words, as a user of the package "
    "would. Copy every line of code and every text between backquotes exactly. Say which value the package gives "
    "and which one is expected. Do not guess the cause, name no other function, file or test, and invent no "
    "example. Answer with the report alone."
)
_LABELLED = re.compile(r"^(Got|Expected|Expected pattern): `(.+)`$", re.MULTILINE)
_NOTES = re.compile(r"^The release notes .*$", re.MULTILINE)
_QUOTED = re.compile(r"`+([^`]+)`+")
_STATED = re.compile(r"^\W*(?:got|actual\w*|expected)\b[\w ]{0,20}:\s*(.+)$", re.MULTILINE | re.IGNORECASE)
_ROLE = re.compile(
    r"(?P<flip>\b(?:instead of|rather than|not|in place of)\b)"
    r"|(?P<expected>\b(?:expect\w*|should(?:n't)?|must|ought|supposed|want\w*|desired|correct)\b"
    r"(?:\W+(?:to|have|be|been|is|was|return\w*|give\w*|get|produce\w*|yield\w*|raise\w*|result|value|output))*)"
    r"|(?P<got>\b(?:got|get|gets|returns?|returned|gives?|gave|given|produces?|produced|yields?|actual\w*|currently"
    r"|instead)\b)",
    re.IGNORECASE,
)
_NO_ERROR = re.compile(
    r"\bno (?:\w+ )?(?:error|exception)|\b(?:not|n't|never|without) (?:raise|rais\w+|an? (?:error|exception)|reject)"
    r"|\b(?:should|must|ought to|expected to) (?:raise|reject|fail)|accept",
    re.IGNORECASE,
)
_ABOUT_ITSELF = re.compile(r"\b(?:re-?writ\w+|re-?word\w+|paraphras\w+|as an ai)\b", re.IGNORECASE)


def faults(record: Record, text: str) -> list[str]:
    """Returns why a text must not replace a record's own text; none if it may."""
    original = record.problem_statement
    if len(text.strip()) < min(40, len(original)) or _plain(text) == _plain(original):
        return ["it is empty or the original"]
    reasons = [*_leaks(record, text), *_lacks(original, text), *_inventions(original, text)]
    if len(text) > 2 * len(original) + LONGER:
        reasons.append("it is too long")
    if _ABOUT_ITSELF.search(text) and not _ABOUT_ITSELF.search(original):
        reasons.append("it speaks of its own writing")
    return list(dict.fromkeys(reasons))


def _leaks(record: Record, text: str) -> Iterator[str]:
    original, words = record.problem_statement, _words(text) - _words(record.problem_statement)
    added, other = _patch_lines(record.patch)
    plain, known = _plain(text), _plain(original)
    if any(len(line) >= _CODE and line in plain and line not in known for line in map(_plain, added)):
        yield "it contains code of the gold patch"
    fresh = {word for word in _words("\n".join(added)) - _words("\n".join(other)) if not word.islower() or "_" in word}
    if words & {word for word in fresh if len(word) >= 6}:
        yield "it contains a name that the gold patch adds"
    if any(_names(name, text) for name in words & _changed_names(record, [*added, *other])):
        yield "it names a function or class of the gold patch"
    places = {name for path in test_files(record.patch) for name in _spellings(path)}
    if any(_mentions(name, text) and not _mentions(name, original) for name in places):
        yield "it names a file of the gold patch"
    tests = {
        word for test in (*record.fail_to_pass, *record.pass_to_pass) for word in re.findall(r"\w*test\w*", test, re.I)
    }
    tests |= {PurePosixPath(path).stem for path in test_files(record.test_patch)}
    if words & {word for word in tests if word.lower() not in ("test", "tests", "testing")}:
        yield "it names a test"


def _lacks(original: str, text: str) -> Iterator[str]:
    """Yields which facts of a mined issue a text lacks or exchanges."""
    plain = _plain(text)
    code, prose = _divided(original)
    if any(_plain(line) not in plain for line in code):
        yield "it lacks a line of the check"
    if any(_plain(value) not in plain for value in _QUOTED.findall(_NOTES.sub("", prose))):
        yield "it lacks a value"
    if "No error is raised" in prose and not _NO_ERROR.search(text):
        yield "it does not say that an error is missing"
    roles: dict[str, set[str]] = {}
    for label, value in _LABELLED.findall(prose):
        roles.setdefault(value, set()).add("got" if label == "Got" else "expected")
    for value, allowed in roles.items():
        stated = {role for role in _roles(text, value) if role}
        if stated - allowed:
            yield "it exchanges got and expected"
        elif allowed - stated and _plain(value) in plain:
            yield "it does not say which value is got and which is expected"


def _inventions(original: str, text: str) -> Iterator[str]:
    """Yields whether a text quotes code, or states results, that its original does not have."""
    known = _plain(original)
    code, prose = _divided(text)
    quoted = [*code, *_QUOTED.findall(prose), *(value.strip("`*_ .,") for value in _STATED.findall(prose))]
    if any(_plain(value) not in known for value in quoted):
        yield "it states code or a value that the original does not have"


def _roles(text: str, value: str) -> Iterator[str]:
    """Yields got, expected or '' for each place at which a text quotes a value."""
    for place in re.finditer(re.escape(f"`{value}`"), text):
        before = _QUOTED.sub(" ", text[max(0, place.start() - _NEAR) : place.start()])
        found = [(match.lastgroup or "", match.end()) for match in _ROLE.finditer(before)]
        plain = [role for role, _ in found if role != "flip"]
        role = plain[-1] if plain else ""
        if found and found[-1][0] == "flip" and role:
            role = "got" if role == "expected" else "expected"
        yield role


def _divided(text: str) -> tuple[list[str], str]:
    """Returns the lines of code of a text, indented or in fences, and the rest."""
    code, prose, fenced = [], [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith(("    ", "\t")):
            code += [line] if line.strip() else []
        else:
            prose.append(line)
    return code, "\n".join(prose)


def _patch_lines(patch: str) -> tuple[list[str], list[str]]:
    """Returns the lines that a patch adds, and the others of its hunks."""
    added, other = [], []
    for line in patch.splitlines():
        if line.startswith("@@"):
            other.append(line.rpartition("@@")[2])
        elif line.startswith("+") and not line.startswith("+++"):
            added.append(line[1:])
        elif line[:1] in ("-", " ") and not line.startswith("---"):
            other.append(line[1:])
    return added, other


def _changed_names(record: Record, lines: Iterable[str]) -> set[str]:
    """Returns the functions and classes in a patch, and those that a mined record's hints name."""
    names = {name for line in lines for name in re.findall(r"^\s*(?:async def|def|class)\s+(\w+)", line)}
    hinted = re.match(r"The fix belongs in .*?\(([\w, ]+)\)\.$", record.hints_text, re.MULTILINE)
    return names | (set(hinted[1].split(", ")) if hinted else set())


def _names(name: str, text: str) -> bool:
    """Returns True if a text means the name: a single lower-case word counts only where it is written as code."""
    if not name.isalpha() or not name.islower():
        return True
    return bool(re.search(rf"`[^`]*\b{name}\b[^`]*`|\b{name}\(|\.{name}\b|\bdef {name}\b", text))


def _spellings(path: str) -> tuple[str, str, str]:
    """Returns a file's path, its name, and its name as a module."""
    return path, PurePosixPath(path).name, path.removesuffix(".py").replace("/", ".")


def _mentions(name: str, text: str) -> bool:
    return bool(re.search(rf"(?<![\w.]){re.escape(name)}\b", text))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _plain(text: str) -> str:
    return " ".join(text.split())
