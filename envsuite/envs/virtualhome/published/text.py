"""Published facts in our own words."""

from __future__ import annotations

from collections.abc import Iterable

from envsuite.envs.virtualhome.published.tasks import Entertainment, Preparation, Published, data
from envsuite.envs.virtualhome.text import listing


def paragraph(task: Published, facts: Iterable[str]) -> str:
    """Returns published facts as a paragraph whose last clause is completed by a command."""
    sentences = []
    for fact in facts:
        sentences += [_fact(task, part) for part in _split_fact(fact)]
    return " ".join(sentences)


def _split_fact(fact: str) -> list[str]:
    """Splits a fact with several parts, except facts that form a single sentence."""
    if fact.startswith("TV=on;"):
        return [fact]
    return fact.split(";")


def _names(task: Published, codes: str) -> list[str]:
    nouns = task.home.nouns
    if isinstance(task, Preparation):
        nouns_by_code = {"food": task.nouns[0], "appl": task.nouns[1]}
        return [nouns_by_code.get(code, code) for code in codes.split(",")]
    return [nouns[task.home.bit[code]] for code in codes.split(",")]


def _fact(task: Published, fact: str) -> str:
    kind, _, codes = fact.partition("=")
    if kind == "TV":
        parts = [_fact(task, part).rstrip(".") for part in fact.split(";")[1:]]
        return "While the tv is on, " + " and ".join(clause[0].lower() + clause[1:] for clause in parts) + "."
    if kind == "ROOM_LIST":
        return f"This home has four rooms: {listing(data()['rooms'].values())}."
    if kind == "ROOM":
        return f"Right now you stand in the {data()['rooms'][codes]}."
    if kind == "GOAL":
        return _published_goal(task)
    if kind == "ASK":
        return "As your next step, you"
    if kind in ("FOOD_IN_APPL", "SITTING", "APPL"):
        if isinstance(task, Preparation):
            food, appliance = task.nouns
            state = {"open": "stands open", "not_open": "has not been opened", "closed": "is shut"}.get(codes, "")
            return f"The {food} is inside the {appliance}." if kind == "FOOD_IN_APPL" else f"The {appliance} {state}."
        return "You have sat down on the sofa."
    if codes == "none":
        return "Nothing here is of use to you." if kind == "SEE" else "Your hands are empty."
    things = listing(f"the {name}" for name in _names(task, codes))
    return {
        "SEE": f"You notice {things}.",
        "HOLD": f"You carry {things}.",
        "NEAR": f"You are right beside {things}.",
        "FAR": f"You are some way off from {things}.",
        "NOT_HELD": f"You have not taken {things} yet.",
        "ON_TABLE": f"On the coffee table there is already {things}.",
    }[kind]


def _published_goal(task: Published) -> str:
    if isinstance(task, Entertainment):
        return "You want to enjoy the chips and the milk while you watch the tv from the sofa."
    assert isinstance(task, Preparation)
    food, appliance = task.nouns
    return f"You want the {food} heated up in the {appliance}."


def published_objective(task: Published) -> str:
    """Returns the objective of a published task in one sentence."""
    return _published_goal(task)
