"""Makes textworld's generator faster while a game is generated; the games stay the same.

`fast_generation` replaces functions of textworld for the time of a `with` statement:

- the search for a quest, by `fast_chaining`;
- the sorting of a world's facts, by a sort with a key instead of comparisons in Python;
- the filling of rooms, after which textworld rebuilds all entities of the world once per room: here, once;
- the choice of words, for which textworld copies every list of alternatives into an array: here, it draws the
  index that numpy's `choice` draws;
- the check of a grammar, which only prints warnings: here, once per theme and process.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from envsuite.envs.textworld.engine.fast_chaining import quest_chains

_TAG = re.compile("#[^#]*#")
_REPLACING = threading.RLock()


@contextlib.contextmanager
def fast_generation() -> Iterator[None]:
    """Replaces slow functions of the generator until the end of the `with` statement, in one thread at a time."""
    from textworld.generator import chaining
    from textworld.generator.text_grammar import Grammar
    from textworld.generator.world import World

    get_chains = chaining.get_chains

    def chains(state: Any, options: Any) -> Iterator[Any]:
        covered = quest_chains(state, options)
        return iter(get_chains(state, options)) if covered is None else covered

    with _REPLACING, contextlib.ExitStack() as replaced:
        for owner, name, value in (
            (chaining, "get_chains", chains),
            (World, "facts", property(_sorted_facts)),
            (World, "populate", _updating_once(World.populate)),
            (World, "populate_with", _updating_once(World.populate_with)),
            (Grammar, "get_random_expansion", _random_expansion),
            (Grammar, "expand", _expand),
            (Grammar, "check", _checking_once(Grammar.check)),
        ):
            replaced.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, value)
        yield


def _sorted_facts(world: Any) -> list[Any]:
    """Returns the facts of a world in textworld's order: by name, then by names and types of the arguments."""
    return sorted(world._state.facts, key=_order)


def _order(fact: Any) -> Any:
    return fact.name, [(variable.name, variable.type) for variable in fact.arguments]


def _updating_once(populate: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that fills the rooms of a world and then rebuilds its entities once.

    While rooms are filled, textworld reads the world's facts, and its rooms only at the beginning.
    """

    def populate_then_update(world: Any, *args: Any, **kwargs: Any) -> Any:
        world._update = lambda: None
        try:
            return populate(world, *args, **kwargs)
        finally:
            del world._update
            world._update()

    return populate_then_update


def _random_expansion(grammar: Any, tag: str, rng: Any = None) -> str:
    """Returns a random expansion of a tag, as `Grammar.get_random_expansion` does."""
    from textworld.generator.text_grammar import NB_EXPANSION_RETRIES

    rng = rng or grammar.rng
    if not grammar.has_tag(tag):
        raise ValueError(f"Tag: {tag} does not exist!")
    alternatives = grammar.grammar[tag].alternatives
    for _ in range(NB_EXPANSION_RETRIES):
        expansion: str = alternatives[rng.randint(0, len(alternatives))].full_form()
        if not grammar.unique_expansion or expansion not in grammar.all_expansions[tag]:
            break
    grammar.all_expansions[tag].append(expansion)
    return expansion


def _expand(grammar: Any, text: str, rng: Any = None) -> str:
    """Expands all tags of a text, as `Grammar.expand` does."""
    rng = grammar.rng if rng is None else rng
    while "#" in text:
        tags = _TAG.findall(text)
        tag = tags[grammar.rng.randint(0, len(tags))]
        text = text.replace(tag, grammar.get_random_expansion(tag, rng))
    return text


def _checking_once(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a `Grammar.check` that checks the files of a grammar only the first time."""

    def check_once(grammar: Any) -> bool:
        files = tuple(grammar.grammar_files)
        if files not in _CHECKED:
            _CHECKED[files] = check(grammar)
        return _CHECKED[files]

    return check_once


_CHECKED: dict[tuple[str, ...], bool] = {}
