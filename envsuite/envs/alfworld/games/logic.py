"""The PDDL domain and the grammar that a game file embeds, and its dialect.

All official ALFWorld games share one domain and one grammar except for four differences
(docs/specs/alfworld.md, "Dialects"). They are detected one by one and undone before the digest is
computed, so any mixture of them is recognised and no other logic is. The sentences themselves are
read from the grammar in the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import NamedTuple

from envsuite.envs.alfworld.games.package import package_folder
from envsuite.errors import DataError, UsageError

DIALECTS = ("2.1.1", "0.4")
"""json_2.1.1 as published ('put apple 1 in/on desk 1'), and alfworld 0.4 or json_2.1.2+ ('move
apple 1 to desk 1')."""

DOMAIN_DIGEST = "62f89d22d7523ebd113b22ac1645cb28b3811699a064ba043572b668c3629195"
GRAMMAR_DIGEST = "ab7832e463c5eea80cc20d1cb1b50fa27bd34d229b2c5d6a695ee8570bfb292c"
"""SHA-256 of the texts with the four differences undone, lines stripped, blank lines removed."""

# static and changing flags of an object, tested by the sentences of `examine`
PICKUPABLE, CLEANABLE, HEATABLE, COOLABLE, SLICEABLE, TOGGLEABLE, CONTAINER, KNIFE = (1 << k for k in range(8))
HOT, COOL, CLEAN, SLICED, TOGGLED, NEVER = (1 << k for k in range(8, 14))
_CONDITIONS = {
    "isreceptacleobject": CONTAINER,
    "isclean": CLEAN,
    "ishot": HOT,
    "iscool": COOL,
    "issliced": SLICED,
    "toggleable": TOGGLEABLE,
    "sliceable": SLICEABLE,
    "istoggled": TOGGLED,
    "not_istoggled": NEVER,  # needs an explicit negative fact, which no action creates
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
_SYMBOLS = re.compile(r"[#{}\[\]|]")  # symbols that the stock grammar would expand

_PUT_COMMAND = ('"put {o} in/on {r}"', '"move {o} to {r}"')
_PUT_SENTENCE = ('"You put the {o.name} in/on the {r.name}."', '"You move the {o.name} to the {r.name}."')
_ARRIVE = ('"You arrive at {lend.name}. #', '"You arrive at {r.name}. #')
_SINK = ("\n                (receptacleType ?r SinkType)", "\n                ;(receptacleType ?r SinkType)")


class Unrecognised(DataError):
    """The game's domain, grammar or goal is not ALFWorld's, so only the stock engine can play it."""


class Sentences(NamedTuple):
    """The sentences of a game as %-templates from its grammar, and its put command."""

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
    examine: tuple[tuple[int, str], ...]  # (required flags, template); the first match is used
    vessel: str  # object, list
    intro: str  # first look, task
    put_command: str  # object, receptacle
    help: str | None
    """answer to `help`; None if the game has no such command"""


def split_task(grammar: str) -> tuple[str, str, str]:
    """Splits a grammar into text before the task sentence, the escaped sentence, and text after."""
    match = _TASK.search(grammar)
    if match is None:
        raise Unrecognised("its grammar has no sentence 'Your task is to: ...'")
    return grammar[: match.start(1)], match[1], grammar[match.end(1) :]


@lru_cache(maxsize=32)
def read_domain(domain: str) -> tuple[str, ...]:
    """Returns the receptacle types that clean, for a known domain; raises Unrecognised otherwise."""
    plain = _DOMAIN_HELP.sub("", domain.replace(_SINK[1], _SINK[0], 1))
    if _digest(plain) != DOMAIN_DIGEST:
        raise Unrecognised("its pddl_domain is not ALFWorld's")
    return ("sinkbasintype",) if _SINK[1] in domain else ("sinktype", "sinkbasintype")


@lru_cache(maxsize=32)
def read_grammar(head: str, tail: str) -> Sentences:
    """Reads the sentences of a known grammar, split at its task; raises Unrecognised otherwise."""
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
    except ValueError as error:  # only the text of `help` is not covered by the digest
        raise Unrecognised(f"its grammar has a broken rule ({error})") from None
    templates = {
        name: [_SLOT.sub("%s", rule["rhs"].replace("%", "%%")) for rule in rows] for name, rows in rules.items()
    }

    def feedback(action: str) -> str:
        return templates[action + ".feedback"][0]

    help_text = rules["help.feedback"][0]["rhs"].lstrip() if "help.feedback" in rules else None
    if help_text is not None and _SYMBOLS.search(help_text):
        raise Unrecognised("its grammar computes the text of `help`")
    examined = [
        (sum(_CONDITIONS[part.split("(")[0].strip()] for part in rule.get("condition", "").split("&") if part), text)
        for rule, text in zip(rules["examineObject.feedback"], templates["examineObject.feedback"], strict=True)
    ]
    is_open, is_closed, on = templates["examineReceptacle.feedback"]
    facing = templates["look.feedback"][0] % (templates["look-variations"][0], "%s")
    return Sentences(
        arrive=feedback("GotoLocation"),
        arrive_by_location=_ARRIVE[0] in grammar,
        open=feedback("OpenObject"),
        close=feedback("CloseObject"),
        take=feedback("PickupObject"),
        put=feedback("PutObject"),
        clean=feedback("cleanObject"),
        heat=feedback("heatObject"),
        cool=feedback("coolObject"),
        use=feedback("toggleObject"),
        slice=feedback("sliceObject"),
        carrying=feedback("inventory"),
        empty_handed=templates["inventory.feedback"][1],
        is_open=is_open,
        is_closed=is_closed,
        on=on,
        facing=facing,
        room=templates["look.feedback"][1],
        nothing=templates["list_empty"][0],
        comma=templates["list_separator"][0],
        last_comma=templates["list_last_separator"][0],
        examine=tuple(examined[1:]),
        vessel=examined[0][1],
        intro=templates["intro"][0],
        put_command=_SLOT.sub("%s", dict(_TEMPLATE.findall(grammar))["PutObject"]),
        help=help_text,
    )


def read_task(escaped: str) -> str:
    """Decodes the task sentence, 'Your task is to: ...', from its escaped form in the grammar."""
    try:
        task = json.loads(f'"Your task is to: {escaped}"')
    except ValueError as error:
        raise Unrecognised(f"its task sentence is not a JSON string ({error})") from None
    if _SYMBOLS.search(task) or "\\" in task:
        raise Unrecognised(f"its task sentence {task!r} is computed by the grammar")
    return str(task)


def package_logic(dialect: str) -> tuple[str, str]:
    """Returns (domain, grammar) of a dialect, from the data files of the alfworld package.

    The task in the grammar is still UNKNOWN GOAL. Raises DataError if the package is neither installed nor can be
    downloaded.
    """
    if dialect not in DIALECTS:
        raise UsageError(f"Dialect {dialect!r} is not one of {', '.join(DIALECTS)}.")
    data = package_folder() / "data"
    try:
        domain, grammar = (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()
    except OSError as error:
        raise DataError(f"The alfworld package lacks its data file {error.filename}: reinstall it.") from None
    return in_dialect(domain, grammar, dialect)


def in_dialect(domain: str, grammar: str, dialect: str) -> tuple[str, str]:
    """Converts the package's domain and grammar to another dialect (docs/specs/alfworld.md, "Dialects")."""
    if dialect == "0.4":
        return domain, grammar
    domain = _DOMAIN_HELP.sub("", domain.replace(_SINK[1], _SINK[0], 1))
    grammar = _GRAMMAR_HELP.sub("", grammar)
    for old, new in (_PUT_COMMAND, _PUT_SENTENCE, _ARRIVE):
        grammar = grammar.replace(new, old)
    return domain, grammar


def remake(game: str, dialect: str) -> str:
    """Replaces the logic of a game file by that of `dialect`; task and problem stay the same."""
    data = json.loads(game)
    domain, grammar = package_logic(dialect)
    head, _, tail = split_task(grammar)
    data.update(pddl_domain=domain, grammar=head + split_task(data["grammar"])[1] + tail)
    return json.dumps(data)


def _digest(text: str) -> str:
    lines = (line.strip() for line in text.split("\n"))
    return hashlib.sha256("\n".join(line for line in lines if line).encode("utf-8", "surrogatepass")).hexdigest()
