"""VirtualHome as published: every transition of the recorded automata and every recorded step."""

import gzip
import json

import pytest

from envsuite.envs.virtualhome import published
from envsuite.envs.virtualhome.engine import State

TRACES = {
    "food_preparation": "food_preparation",
    "entertainment": "entertainment",
    **{name: f"variant_{name}" for name in ("cheese", "hamburger", "apple_pie", "pizza", "washing_plate", "laundry")},
}


def lines(shared, name):
    path = shared / "golden" / "virtualhome" / "traces" / f"{name}.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no golden data: {path} is not a file")
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def described(task: published.Published, s: State) -> dict:
    """A state as the traces write it."""
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


def sorted_place(state: dict) -> dict:
    """Containers come in no order that matters."""
    for key in ("food", "chips", "milk"):
        if key in state:
            state[key]["inside"].sort()
    return state


def agrees(task, s, recorded):
    vector = task.vector(s, task.engine.visible(s))
    assert list(vector) == recorded["obs"]
    assert sorted_place(described(task, s)) == sorted_place(recorded["state"])
    assert [task.names[i] for i in task.offers(vector)] == recorded["adm"]
    return vector


@pytest.mark.parametrize(("name", "file"), [("food_preparation", "automaton_v1"), ("entertainment", "automaton_v2")])
def test_every_transition_of_the_complete_graph_agrees(shared, name, file):
    header, *rows = lines(shared, file)
    task = published.published(name)
    assert list(task.names) == header["actions"]
    assert list(task.keys) == header["obs_keys"]
    states = {0: task.engine.start}
    edges = 0
    for row in sorted(rows, key=lambda row: row["depth"]):
        s = states[row["id"]]
        vector = agrees(task, s, row)
        assert list(task.facts(vector)) == row["facts"]
        assert task.success(vector) == row["terminal"]
        for action, (next_id, reward, ok, error) in zip(task.actions, row.get("trans") or ()):
            after, why = task.engine.apply(s, action)
            assert (not why, why or None) == (bool(ok), error)
            won = task.success(task.vector(after, task.engine.visible(after)))
            assert float(won) == reward
            assert states.setdefault(next_id, after) == after
            edges += 1
    assert (len(states), edges) == {"food_preparation": (59, 570), "entertainment": (906, 15283)}[name]


@pytest.mark.parametrize(("name", "file"), TRACES.items())
def test_every_recorded_step_agrees(shared, name, file):
    header, *episodes = lines(shared, file)
    task = published.published(name)
    assert list(task.names) == header["actions"]
    assert list(task.keys) == header["obs_keys"]
    for episode in episodes:
        s = task.engine.start
        vector = agrees(task, s, episode["reset"])
        value = 0.0
        for step in episode["steps"]:
            assert (step["a"] in task.offers(vector)) == step["was_adm"]
            s, why = task.engine.apply(s, task.actions[step["a"]])
            assert (why or None) == step["err"]
            vector = agrees(task, s, step)
            won = task.success(vector)
            assert (float(won), won) == (step["r"], step["success"])
            assert (won or step["t"] == published.HORIZON) == step["done"]
            value += won * published.GAMMA ** (step["t"] - 1)
        assert value == pytest.approx(episode["return"], abs=1e-9)
