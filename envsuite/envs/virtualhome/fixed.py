"""The papers' tasks mended: the same home and nouns under the mended rules, with a goal that says what is meant.

* Food must be in the running appliance, its door shut; published, it was enough that it could not be seen.
* Dishes are washed by the dishwasher that stands in the kitchen; clothes lie in the bedroom and are washed by the
  washing machine in the bathroom. Published, both were "heated" in a microwave called otherwise, in the kitchen.
* Entertainment asks for chips and milk in a hand or on the coffee table, the tv on, and sitting on the sofa.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from envsuite.envs.virtualhome.goals import Condition, Goal
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.published import apartment, data

APPLIANCES = {"microwave": "microwave", "dishwasher": "dishwasher", "washing machine": "washing_machine"}


@cache
def mended(name: str) -> tuple[Home, Goal]:
    """The home and the goal of one of the papers' tasks."""
    task: dict[str, Any] = data()["tasks"][name]
    if "items" in task:
        home = apartment(("chips", "milk", "coffeetable", "tv", "sofa"), milk={"door": False}, coffeetable={"on": []})
        served = tuple(Condition("served", item, "coffeetable") for item in task["items"])
        stage = (*served, Condition("running", "tv"), Condition("seated", "sofa"))
        text = "Sit on the sofa and watch the tv, with the chips and the milk in your hands or on the coffee table."
        return home, Goal(text, (stage,), name)
    food, appliance = task["food"], APPLIANCES[task["appliance"]]
    change = task.get("fixed", {})
    place = change.get("on", "kitchentable#72")
    home = apartment(
        (appliance, "pancake"), pancake={"on": [place], "noun": food, "room": data()["things"][place]["room"]}
    )
    home = home.rename({"pancake": food})
    stage = Condition("in", food, appliance), Condition("closed", appliance), Condition("running", appliance)
    verb = change.get("verb", "heat")
    text = (
        f"{verb.capitalize()} the {food} in the {task['appliance']}: it must be inside, with the door shut and running."
    )
    return home, Goal(text, (stage,), name)
