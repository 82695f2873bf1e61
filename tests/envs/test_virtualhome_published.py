"""VirtualHome as published, against digests of the reference's recorded games and complete automata."""

import pytest

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.published import tasks as published
from tests.golden import digests

NAMES = (
    *("food_preparation", "entertainment"),
    *("cheese", "hamburger", "apple_pie", "pizza", "washing_plate", "laundry"),
)


def described(task: published.Published, s: HomeState) -> dict:
    """Returns a state in the format of the traces."""
    home = task.home
    name = lambda bit: home.names[bit.bit_length() - 1]
    names = lambda mask: home.keys(mask)
    targets = [key for key in (*home.movable_keys, "microwave", "coffeetable", "tv", "sofa") if key in home.bit]
    if isinstance(task, published.Preparation):
        targets = [task.food_key, task.appliance_key]
    state = {
        "room": name(s.room),
        "hand_r": name(s.right) if s.right else None,
        "hand_l": name(s.left) if s.left else None,
        "near": [key for key in targets if s.near & home.bit[key]],
        "reach": [key for key in targets if task.engine.reach(s, home.bit[key])],
    }
    place = lambda i: {"inside": names(s.inside[i]), "on": names(s.on[i])}
    if isinstance(task, published.Preparation):
        appliance = {"open": bool(s.open & task.appliance), "on": bool(s.power & task.appliance)}
        return {**state, "food": place(0), "appl": appliance}
    return {
        **state,
        "sitting": s.sitting,
        "char_on": names(s.seat),
        "facing": names(s.facing),
        "chips": place(0),
        "milk": place(1),
        "tv_on": bool(s.power & task.tv),
    }


def answer(task, s):
    """Returns everything the environment exposes about a state."""
    vector = task.vector(s, task.engine.visible(s))
    state = described(task, s)
    for key in ("food", "chips", "milk"):
        if key in state:
            state[key]["inside"].sort()  # the order of containers means nothing
    return vector, {"obs": vector, "state": state, "adm": [task.names[i] for i in task.offers(vector)]}


@pytest.mark.parametrize("name", ["food_preparation", "entertainment"])
def test_every_transition_of_the_complete_graph_agrees(name):
    task = published.published(name)
    states = [task.engine.start]
    number = {states[0]: 0}
    views, edges = [], []
    for s in states:  # grows while it is read
        vector, seen = answer(task, s)
        won = task.success(vector)
        views.append({**seen, "facts": task.facts(vector), "terminal": won})
        row = []
        for action in () if won else task.actions:
            after, why = task.engine.apply(s, action)
            if after not in number:
                number[after] = len(states)
                states.append(after)
            reward = float(task.success(task.vector(after, task.engine.visible(after))))
            row.append((number[after], [reward, not why, why or None]))
        edges.append(row)
    assert (len(views), sum(map(len, edges))) == {"food_preparation": (58, 560), "entertainment": (905, 15266)}[name]
    assert digests.graph(views, edges) == digests.states(f"virtualhome/{name}_graph")


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_step_agrees(name):
    task = published.published(name)
    header, *episodes = digests.episodes(f"virtualhome/{name}")
    header.agrees([[task.names, task.keys]])
    for episode in episodes:
        s = task.engine.start
        vector, seen = answer(task, s)
        answers = [seen]
        value = 0.0
        for t, action in enumerate(episode.actions, start=1):
            offered = action in task.offers(vector)
            s, why = task.engine.apply(s, task.actions[action])
            vector, seen = answer(task, s)
            won = task.success(vector)
            step = {"was_adm": offered, "err": why or None, "r": float(won), "success": won}
            answers.append({**seen, **step, "done": won or t == published.HORIZON})
            value += won * published.GAMMA ** (t - 1)
        answers[-1]["return"] = value
        episode.agrees(answers)
    assert len(episodes) == (360 if name == "entertainment" else 351)
