"""Published tasks under the fixed rules: the same home and nouns, with goals that mean what they state.

* Food must be in the running appliance with its door closed; the published tasks only require that it is out of sight.
* The dishwasher in the kitchen washes dishes; clothes start in the bedroom and are washed by the washing machine in the
  bathroom. The published tasks "heat" both in a renamed microwave in the kitchen.
* Entertainment requires chips and milk in a hand or on the coffee table, the tv on, and the agent on the sofa.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from envsuite.envs.virtualhome.rules.goals import Condition, HouseholdGoal
from envsuite.envs.virtualhome.rules.home import Home
from envsuite.envs.virtualhome.rules.published import apartment, data

APPLIANCES = {"microwave": "microwave", "dishwasher": "dishwasher", "washing machine": "washing_machine"}


@cache
def fixed_task(name: str) -> tuple[Home, HouseholdGoal]:
    """Returns the home and the goal of a published task under the fixed rules."""
    task: dict[str, Any] = data()["tasks"][name]
    if "items" in task:
        home = apartment(("chips", "milk", "coffeetable", "tv", "sofa"), milk={"door": False}, coffeetable={"on": []})
        served = tuple(Condition("served", item, "coffeetable") for item in task["items"])
        stage = (*served, Condition("running", "tv"), Condition("seated", "sofa"))
        text = "Sit on the sofa and watch the tv, with the chips and the milk in your hands or on the coffee table."
        return home, HouseholdGoal(text, (stage,), name)
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
    return home, HouseholdGoal(text, (stage,), name)
