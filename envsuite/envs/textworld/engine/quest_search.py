"""Finds quests in the order of textworld's backward chaining, without the work that it discards.

textworld checks every possible action before it continues with the last possible one. This module begins
with the last and stops at the first possible one. It works with tuples of names; textworld's own objects
are built only for the quest that it returns. The random draws are textworld's: lists of equal length are
shuffled in the same order, so the quest is the same.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from envsuite.envs.textworld.engine.facts import Fact, constraints_of
from envsuite.envs.textworld.engine.quest_rules import (
    Action,
    Assignment,
    ChainingRule,
    Identity,
    Names,
    prepare_rules,
)


class Situation:
    """A state of the world: its facts, the types of its variables, and how often textworld counts each."""

    def __init__(self, facts: set[Fact], types: dict[str, str], uses: dict[str, int]) -> None:
        self.facts, self.types, self.uses = facts, types, uses
        rooms = [fact[2] for fact in facts if fact[0] == "at" and types[fact[1]] == "P" and types[fact[2]] == "r"]
        assert len(rooms) < 2, "There should only be one `at(P, r)` proposition."
        self.room: str | None = rooms[0] if rooms else None
        """the player's room; None if the player is nowhere"""


class QuestNode:
    """A node of the search, as textworld's `_Node`."""

    def __init__(
        self, parent: QuestNode | None, dep_parent: QuestNode | None, situation: Situation, breadth: int
    ) -> None:
        self.parent, self.dep_parent, self.situation, self.breadth = parent, dep_parent, situation, breadth
        self.depth: int = dep_parent.depth + 1 if dep_parent else 0
        self.length: int = parent.length + 1 if parent else 0
        self.action: Action | None = None
        self.used: Callable[[Identity], bool] = lambda action: False
        """tests whether an action is that of this node, or was possible in its place before"""


class QuestSearch:
    """The search for quests that end in a state."""

    def __init__(self, state: Any, options: Any) -> None:
        self.state, self.options = state, options
        self.constraints = constraints_of(options.logic)
        facts = {(fact.name, *fact.names) for fact in state.facts}
        types = {variable.name: variable.type for variable in state.variables}
        self.root = QuestNode(None, None, Situation(facts, types, dict(state._var_counts)), 1)
        self._constants = {placeholder: variable.name for placeholder, variable in options.fixed_mapping.items()}
        self._rules: dict[int, list[ChainingRule]] = {}

    def rules(self, depth: int) -> list[ChainingRule]:
        """Returns the rules of a depth."""
        options = self.options
        depth = min(depth, len(options.rules_per_depth))
        if depth not in self._rules:
            self._rules[depth] = prepare_rules(
                options.logic,
                tuple(options.get_rules(depth)),
                tuple(self._constants.items()),
                frozenset(options.restricted_types if options.create_variables else options.logic.types._types),
                frozenset(options.allowed_types or ()),
            )
        return self._rules[depth]

    def names_are_unique(self) -> bool:
        """Tests whether rules with equal names are nowhere among those of one depth."""
        rules = [self.rules(depth) for depth in range(len(self.options.rules_per_depth) + 1)]
        return all(len({rule.name for rule in each}) == len(each) for each in rules)

    @functools.cached_property
    def start_is_valid(self) -> bool:
        start = self.root.situation
        return self.constraints.allow_all(start.facts, start.types)

    def chains(self) -> Iterator[QuestNode]:
        """Yields the last nodes of the quests."""
        options = self.options
        stack = [iter([self.root])]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            children = self.children(node)
            last = next(children, None)
            if last is not None:
                stack.append(itertools.chain([last], children))
            if last is None or options.subquests:
                stack.append(self.parallel_children(node))
                if (
                    node.length >= options.min_length
                    and node.depth >= options.min_depth
                    and node.breadth >= options.min_breadth
                ):
                    yield node

    def assignments(self, situation: Situation, depth: int) -> list[Assignment]:
        """Returns all assignments of the rules of a depth, in textworld's order.

        Without new variables these are only the actions that are possible in the situation.
        """
        by_type: dict[str, list[str]] = {}
        for name in sorted(situation.types):
            by_type.setdefault(situation.types[name], []).append(name)
        room = situation.room
        constants = set(self._constants.values())
        assignments: list[Assignment] = []
        for rule in self.rules(depth):
            is_here = room is not None and rule.here is not None
            free = rule.free_here if is_here else rule.free_anywhere
            taken = {*constants, room} if is_here else constants
            pools: list[list[str | None]] = []
            for subtypes in free.subtypes:
                names = [name for subtype in subtypes for name in by_type.get(subtype, ()) if name not in taken]
                pools.append([*sorted(names)])
            for absent in free.absent:
                product: Iterable[Names] = itertools.product(
                    *([None] if number in absent else pool for number, pool in enumerate(pools))
                )
                if free.overlap:
                    product = filter(_are_distinct, product)
                assignments += map(Assignment, itertools.repeat(rule), product)
        if self.options.create_variables:
            return assignments
        return [assignment for assignment in assignments if self._is_applicable(situation, assignment)]

    def _is_applicable(self, situation: Situation, assignment: Assignment) -> bool:
        action = self.action(situation, assignment)
        return action is not None and situation.facts.issuperset(action.pre)

    def children(self, node: QuestNode) -> Iterator[QuestNode]:
        """Draws the order of the actions after `node`; the iterator finds the possible ones, the last first."""
        options = self.options
        if node.depth >= options.max_depth or node.length >= options.max_length:
            return iter(())
        assignments = self.assignments(node.situation, node.depth)
        if options.rng:
            options.rng.shuffle(assignments)
        return self._children(node, assignments)

    def _children(self, node: QuestNode, assignments: list[Assignment]) -> Iterator[QuestNode]:
        tried = TriedActions(self, node, assignments)
        for number in range(len(assignments) - 1, -1, -1):
            action = self.action(node.situation, assignments[number])
            child = self.child(node, node, action, node.breadth)
            if child is not None:
                child.used = functools.partial(tried.contains, number)
                yield child

    def parallel_children(self, node: QuestNode) -> Iterator[QuestNode]:
        """Draws the orders of actions beside earlier ones; the iterator finds the possible ones, the last first."""
        options = self.options
        if node.breadth >= options.max_breadth or node.length >= options.max_length:
            return iter(())
        siblings: list[QuestNode] = []
        ancestor = node
        while ancestor.dep_parent and (ancestor.depth > 1 or options.independent_chains):
            siblings.insert(0, ancestor)
            ancestor = ancestor.dep_parent
        orders = []
        by_rules: dict[int, list[Assignment]] = {}
        for sibling in siblings:
            depth = sibling.depth - 1
            rules = id(self.rules(depth))
            if rules not in by_rules:
                by_rules[rules] = self.assignments(node.situation, depth)
            assignments = by_rules[rules].copy()
            if options.rng:
                options.rng.shuffle(assignments)
            orders.append((sibling, assignments))
        return self._parallel_children(node, orders)

    def _parallel_children(
        self, node: QuestNode, orders: list[tuple[QuestNode, list[Assignment]]]
    ) -> Iterator[QuestNode]:
        actions: dict[int, Action | None] = {}  # by the id of an assignment; the lists share assignments
        for sibling, assignments in reversed(orders):
            parent = sibling.dep_parent
            assert parent is not None
            for assignment in reversed(assignments):
                key = id(assignment)
                if key not in actions:
                    actions[key] = self.action(node.situation, assignment)
                action = actions[key]
                if action is None or not _is_relevant(parent, action) or sibling.used(action.identity):
                    continue
                child = self.child(node, parent, action, node.breadth + 1)
                if child is not None:
                    child.used = functools.partial(_is_among, action.identity, sibling.used)
                    yield child

    def action(self, situation: Situation, assignment: Assignment) -> Action | None:
        """Returns the action of an assignment; None if it adds a fact about known variables only."""
        rule, names = assignment
        slots = rule.template.copy()
        free = rule.free_anywhere
        if rule.here is not None and situation.room is not None:
            slots[rule.here] = situation.room
            free = rule.free_here
        for number, name in zip(free.numbers, names, strict=True):
            slots[number] = name or ""
        if None in names:
            _name_new_variables(situation, rule, slots)
        facts, types = situation.facts, situation.types
        pre: list[Fact] = []
        for predicate, numbers in rule.pre:
            fact = (predicate, *[slots[number] for number in numbers])
            if fact not in facts:
                for name in fact[1:]:
                    if name not in types:
                        break
                else:
                    return None
            pre.append(fact)
        post = [(predicate, *[slots[number] for number in numbers]) for predicate, numbers in rule.post]
        return Action(rule, tuple(slots), tuple(pre), tuple(post))

    def child(self, node: QuestNode, dep_parent: QuestNode, action: Action | None, breadth: int) -> QuestNode | None:
        """Returns the node after an action; None if textworld does not allow the action there.

        An action must prepare the action of `dep_parent`, keep the constraints, and lead to no earlier state.
        """
        if action is None or not _is_relevant(dep_parent, action):
            return None
        if node.parent is None and not self.start_is_valid:
            return None
        before = node.situation
        facts, types, uses = before.facts.copy(), before.types.copy(), before.uses.copy()

        def add(fact: Fact) -> None:
            facts.add(fact)
            for name in fact[1:]:
                if name not in types:
                    types[name] = action.rule.types[action.slots.index(name)]
                uses[name] = uses.get(name, 0) + 1

        for fact in action.pre:
            add(fact)
        if not self.constraints.allow(facts, types, set(action.pre) - before.facts):
            return None
        new = set(action.post) - facts
        for fact in action.added:
            add(fact)
        for fact in action.removed:
            facts.discard(fact)
            for name in fact[1:]:
                uses[name] -= 1
                if not uses[name]:
                    del uses[name], types[name]
        if not self.constraints.allow(facts, types, new) or _is_cycle(node, action, facts):
            return None
        child = QuestNode(node, dep_parent, Situation(facts, types, uses), breadth)
        child.action = action
        return child

    def chain(self, last: QuestNode) -> Any:
        """Returns textworld's chain of the quest that ends at a node."""
        from textworld.generator import chaining
        from textworld.logic import Variable

        chainer = chaining._Chainer(self.state, self.options)
        built = {self.root: chainer.root()}
        path = [last]
        while path[-1].parent is not self.root and path[-1].parent is not None:
            path.append(path[-1].parent)
        for node in reversed(path):
            if node is self.root:
                continue
            assert node.parent is not None and node.dep_parent is not None and node.action is not None
            rule, slots, *_ = node.action
            parent = built[node.parent]
            known = parent.state._vars_by_name
            variables = [known.get(name) or Variable(name, kind) for name, kind in zip(slots, rule.types, strict=True)]
            action = rule.rule.instantiate(dict(zip(rule.rule.placeholders, variables, strict=True)))
            state = parent.state.copy()
            state.add_facts(action.preconditions)
            state.apply(action)
            built[node] = chaining._Node(parent, built[node.dep_parent], state, action, [], set(), node.breadth)
        return chainer.make_chain(built[last])


class TriedActions:
    """The possible actions among the assignments after a node."""

    def __init__(self, search: QuestSearch, node: QuestNode, assignments: list[Assignment]) -> None:
        self._search, self._node, self._assignments = search, node, assignments
        self._numbers: dict[Identity, int | None] = {}

    def contains(self, last: int, action: Identity) -> bool:
        """Tests whether an action is possible and among the assignments up to number `last`."""
        if action not in self._numbers:
            self._numbers[action] = self._first(action)
        first = self._numbers[action]
        return first is not None and first <= last

    def _first(self, identity: Identity) -> int | None:
        """Returns the number of the first assignment for a possible action; None if there is none."""
        search, node = self._search, self._node
        for number, assignment in enumerate(self._assignments):
            if assignment.rule.name == identity[0]:
                action = search.action(node.situation, assignment)
                if action is not None and action.identity == identity and search.child(node, node, action, 1):
                    return number
        return None


def _is_among(own: Identity, before: Callable[[Identity], bool], action: Identity) -> bool:
    return action == own or before(action)


def _are_distinct(names: Names) -> bool:
    known = [name for name in names if name is not None]
    return len(set(known)) == len(known)


def _name_new_variables(situation: Situation, rule: ChainingRule, slots: list[str]) -> None:
    """Names new variables as textworld does."""
    counts: dict[str, int] = {}
    for number, name in enumerate(slots):
        if name:
            continue
        kind = rule.types[number]
        if kind not in counts:
            counts[kind] = list(situation.types.values()).count(kind)
        new = f"{kind}_{counts[kind]}"
        while situation.types.get(new) == kind:
            new += "'"
        counts[kind] += 1
        slots[number] = new


def _is_relevant(node: QuestNode, action: Action) -> bool:
    """Tests whether an action prepares the last action up to `node` that does not lead to another room."""
    if action.rule.is_navigation:
        return True
    while node.action is not None and node.action.rule.is_navigation:
        assert node.parent is not None
        earlier = node.parent.action
        if (earlier is not None and earlier.rule.name == "open/d") or action.rule.name == "close/d":
            break
        node = node.parent
    return node.action is None or not action.removed.isdisjoint(node.action.post)


def _is_cycle(node: QuestNode | None, action: Action, facts: set[Fact]) -> bool:
    """Tests whether undoing the actions up to `node` leads back to the state after `action`."""
    earlier = facts.copy()
    _undo(action, earlier)
    while node is not None and node.action is not None:
        _undo(node.action, earlier)
        if earlier == facts:
            return True
        node = node.parent
    return False


def _undo(action: Action, facts: set[Fact]) -> None:
    if facts.issuperset(action.post):
        facts |= action.removed
        facts -= action.added


def quest_chains(state: Any, options: Any) -> Iterator[Any] | None:
    """Returns the chains of textworld's `get_chains`; None for options that this module does not cover."""
    from textworld.generator.chaining import ChainingOptions

    if type(options) is not ChainingOptions or not options.backward:
        return None
    search = QuestSearch(state, options)
    if not search.names_are_unique():
        return None
    return map(search.chain, search.chains())
