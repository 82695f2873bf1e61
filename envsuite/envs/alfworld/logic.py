"""The logic a game file embeds: its PDDL domain and its grammar, recognised by digest, and the dialect they speak.

All official ALFWorld games share one domain and one grammar but for four differences (docs/specs/alfworld.md, "Dialects"), which are found
one by one and undone before the digest is taken; so any mixture of them is recognised, and nothing else is. The
sentences themselves are read from the grammar in the file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from envsuite.errors import DataError, MissingExtra, UsageError

DIALECTS = ("2.1.1", "0.4")
"""json_2.1.1 as published ("put apple 1 in/on desk 1"), and alfworld 0.4 or json_2.1.2+ ("move apple 1 to desk 1")."""

DOMAIN_DIGEST = "62f89d22d7523ebd113b22ac1645cb28b3811699a064ba043572b668c3629195"
GRAMMAR_DIGEST = "ab7832e463c5eea80cc20d1cb1b50fa27bd34d229b2c5d6a695ee8570bfb292c"
"""SHA-256 of the texts with the four differences undone, their lines stripped and blank ones left out."""

# flags of an object, static and changing, as the sentences of `examine` ask for them
PORTABLE, CLEANABLE, HEATABLE, COOLABLE, SLICEABLE, TOGGLEABLE, VESSEL, KNIFE = (1 << k for k in range(8))
HOT, COOL, CLEAN, SLICED, TOGGLED, NEVER = (1 << k for k in range(8, 14))
_CONDITIONS = {
    "isreceptacleobject": VESSEL,
    "isclean": CLEAN,
    "ishot": HOT,
    "iscool": COOL,
    "issliced": SLICED,
    "toggleable": TOGGLEABLE,
    "sliceable": SLICEABLE,
    "istoggled": TOGGLED,
    "not_istoggled": NEVER,  # needs an explicit negative fact, which nothing ever makes
}

_TASK = re.compile(r'"Your task is to: ((?:[^"\\]|\\.)*)"')
_BLOCK = re.compile(r'grammar :: """(.*?)"""', re.DOTALL)
_TEMPLATE = re.compile(r'action (\w+) \{\s*template :: "([^"]*)"')
_GRAMMAR_HELP = re.compile(
    r'\s*action help \{\s*template :: "help";\s*feedback :: "#help\.feedback#";\s*grammar :: """(.*?)""";\s*\}',
    re.DOTALL,
)
_DOMAIN_HELP = re.compile(
    r"\s*\(:action help\s*:parameters \(\?a - agent\)\s*:precondition\s*\(\)\s*"
    r":effect\s*\(and\s*\(checked \?a\)\s*\)\s*\)"
)
_SLOT = re.compile(r"\[\{[^}]*\}\]|\{[^}]*\}|#[^#]*#")
_SYMBOLS = re.compile(r"[#{}\[\]|]")  # what would be more than plain text to the stock grammar

_PUT_COMMAND = ('"put {o} in/on {r}"', '"move {o} to {r}"')
_PUT_SENTENCE = ('"You put the {o.name} in/on the {r.name}."', '"You move the {o.name} to the {r.name}."')
_ARRIVE = ('"You arrive at {lend.name}. #', '"You arrive at {r.name}. #')
_SINK = ("\n                (receptacleType ?r SinkType)", "\n                ;(receptacleType ?r SinkType)")


class Unrecognised(DataError):
    """A game whose domain, grammar or goal is not ALFWorld's: only the stock engine can play it."""


class Sentences(NamedTuple):
    """What a game says, as %-templates read from its grammar, and what it understands."""

    arrive: str  # place, contents
    arrive_by_location: bool
    open: str  # receptacle, contents
    close: str
    take: str  # object, receptacle
    put: str
    clean: str
    heat: str
    cool: str
    use: str
    slice: str  # object, knife
    carrying: str
    empty_handed: str
    is_open: str  # receptacle, list
    is_closed: str
    on: str
    facing: str  # list of receptacles, list of objects
    room: str  # list
    nothing: str
    comma: str
    last_comma: str
    examine: tuple[tuple[int, str], ...]  # (flags asked for, template), first match wins
    vessel: str  # object, list
    intro: str  # first look, task
    put_command: str  # object, receptacle
    help: str | None
    """what `help` answers; None where it is no command"""


def split_task(grammar: str) -> tuple[str, str, str]:
    """A grammar as (text before the task sentence, the sentence as the file escapes it, text after)."""
    found = _TASK.search(grammar)
    if found is None:
        raise Unrecognised("its grammar has no sentence 'Your task is to: ...'")
    return grammar[: found.start(1)], found[1], grammar[found.end(1) :]


@lru_cache(maxsize=32)
def read_domain(domain: str) -> tuple[str, ...]:
    """The receptacle types that clean, for a known domain. Raises Unrecognised for any other."""
    plain = _DOMAIN_HELP.sub("", domain.replace(_SINK[1], _SINK[0], 1))
    if _digest(plain) != DOMAIN_DIGEST:
        raise Unrecognised("its pddl_domain is not ALFWorld's")
    return ("sinkbasintype",) if _SINK[1] in domain else ("sinktype", "sinkbasintype")


@lru_cache(maxsize=32)
def read_grammar(head: str, tail: str) -> Sentences:
    """The sentences of a known grammar, split at its task. Raises Unrecognised for any other."""
    grammar = head + tail
    plain = _GRAMMAR_HELP.sub("", grammar)
    for old, new in (_PUT_COMMAND, _PUT_SENTENCE, _ARRIVE):
        plain = plain.replace(new, old)
    if _digest(plain) != GRAMMAR_DIGEST:
        raise Unrecognised("its grammar is not ALFWorld's")
    rules: dict[str, list[dict[str, str]]] = {}
    try:
        for block in _BLOCK.findall(grammar):
            rules.update(json.loads(block))
    except ValueError as error:  # only the text of `help` escapes the digest
        raise Unrecognised(f"its grammar holds a broken rule ({error})") from None
    says = {name: [_SLOT.sub("%s", rule["rhs"].replace("%", "%%")) for rule in rows] for name, rows in rules.items()}
    one = lambda name: says[name + ".feedback"][0]
    help_text = rules["help.feedback"][0]["rhs"].lstrip() if "help.feedback" in rules else None
    if help_text is not None and _SYMBOLS.search(help_text):
        raise Unrecognised("its grammar computes the text of `help`")
    examined = [
        (sum(_CONDITIONS[part.split("(")[0].strip()] for part in rule.get("condition", "").split("&") if part), text)
        for rule, text in zip(rules["examineObject.feedback"], says["examineObject.feedback"])
    ]
    is_open, is_closed, on = says["examineReceptacle.feedback"]
    facing = says["look.feedback"][0] % (says["look-variations"][0], "%s")
    return Sentences(
        arrive=one("GotoLocation"),
        arrive_by_location=_ARRIVE[0] in grammar,
        open=one("OpenObject"),
        close=one("CloseObject"),
        take=one("PickupObject"),
        put=one("PutObject"),
        clean=one("cleanObject"),
        heat=one("heatObject"),
        cool=one("coolObject"),
        use=one("toggleObject"),
        slice=one("sliceObject"),
        carrying=one("inventory"),
        empty_handed=says["inventory.feedback"][1],
        is_open=is_open,
        is_closed=is_closed,
        on=on,
        facing=facing,
        room=says["look.feedback"][1],
        nothing=says["list_empty"][0],
        comma=says["list_separator"][0],
        last_comma=says["list_last_separator"][0],
        examine=tuple(examined[1:]),
        vessel=examined[0][1],
        intro=says["intro"][0],
        put_command=_SLOT.sub("%s", dict(_TEMPLATE.findall(grammar))["PutObject"]),
        help=help_text,
    )


def read_task(escaped: str) -> str:
    """The task sentence, 'Your task is to: ...', from the grammar's spelling of it."""
    try:
        task = json.loads(f'"Your task is to: {escaped}"')
    except ValueError as error:
        raise Unrecognised(f"its task sentence is no JSON string ({error})") from None
    if _SYMBOLS.search(task) or "\\" in task:
        raise Unrecognised(f"its task sentence {task!r} is computed by the grammar")
    return str(task)


def package_logic(dialect: str) -> tuple[str, str]:
    """(domain, grammar) of a dialect, its task still UNKNOWN GOAL, from the data files of the alfworld package.

    The package is found, not imported. Raises MissingExtra where it is not installed.
    """
    if dialect not in DIALECTS:
        raise UsageError(f"Dialect {dialect!r} is not one of {', '.join(DIALECTS)}.")
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(
            "The grammar of new games comes with the package 'alfworld': pip install 'envsuite[alfworld]'"
        )
    data = Path(spec.submodule_search_locations[0]) / "data"
    try:
        domain, grammar = (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()
    except OSError as error:
        raise DataError(f"The alfworld package lacks its data file {error.filename}: reinstall it.") from None
    return in_dialect(domain, grammar, dialect)


def in_dialect(domain: str, grammar: str, dialect: str) -> tuple[str, str]:
    """Returns the package's domain and grammar in another dialect (docs/specs/alfworld.md, "Dialects")."""
    if dialect == "0.4":
        return domain, grammar
    domain = _DOMAIN_HELP.sub("", domain.replace(_SINK[1], _SINK[0], 1))
    grammar = _GRAMMAR_HELP.sub("", grammar)
    for old, new in (_PUT_COMMAND, _PUT_SENTENCE, _ARRIVE):
        grammar = grammar.replace(new, old)
    return domain, grammar


def remake(game: str, dialect: str) -> str:
    """The text of a `game.tw-pddl` with the logic of `dialect` in place of its own; task and problem stay."""
    data = json.loads(game)
    domain, grammar = package_logic(dialect)
    head, _, tail = split_task(grammar)
    data.update(pddl_domain=domain, grammar=head + split_task(data["grammar"])[1] + tail)
    return json.dumps(data)


def _digest(text: str) -> str:
    lines = (line.strip() for line in text.split("\n"))
    return hashlib.sha256("\n".join(line for line in lines if line).encode("utf-8", "surrogatepass")).hexdigest()
