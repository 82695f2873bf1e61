"""The two published kitchens against digests of the reference's recorded games and complete graphs."""

import hashlib
import json

import numpy as np
import pytest

from envsuite import registry
from envsuite.envs.overcooked.grid import DIRECTION_NAMES
from envsuite.envs.overcooked.salad import text
from envsuite.envs.overcooked.salad.engine import Simulation, macro_actions
from envsuite.envs.overcooked.salad.graph import COMMAND, SaladPlanner, distances, explore
from envsuite.envs.overcooked.salad.kitchen import published_kitchen
from envsuite.types import Shaping
from tests.golden import digests

TASKS = {
    "v4_tomato_salad": ("Overcooked-tomato_salad-v0", "v4", ("tomato",)),
    "v3_tomato_lettuce_salad": ("Overcooked-tomato_lettuce_salad-v0", "v3", ("tomato", "lettuce")),
}
STEMS = pytest.mark.parametrize("stem", TASKS)
POLICIES = ("uniform", "guided", "inapplicable", "scripted")
COUNTS = {"v4_tomato_salad": (25, 120), "v3_tomato_lettuce_salad": (1311, 10408)}
DIGESTS = {"v4_tomato_salad": "7307ecbaa0420350", "v3_tomato_lettuce_salad": "ca084030cfb6416b"}
TEXTS = {"v4_tomato_salad": 21, "v3_tomato_lettuce_salad": 787}


def simulation(stem):
    _, variant, recipe = TASKS[stem]
    sim = Simulation(published_kitchen(variant, 7), recipe)
    return sim, macro_actions(sim.kitchen)


def built(stem, **settings):
    return registry.build(TASKS[stem][0], **settings)


def listed(fact):
    """Tuples as lists, as JSON has them."""
    return [listed(part) if isinstance(part, tuple) else part for part in fact]


def view(sim):
    """The record of a state under the keys of the traces."""
    kitchen = sim.kitchen
    at = lambda cell: list(kitchen.position(cell))
    name = lambda item: None if item < 0 else kitchen.names[item]
    onehot = [0] * 7
    onehot[0 if len(sim.recipe) == 1 else 3] = 1
    return {
        "obs": text.vector(sim, onehot),
        "agent": at(sim.cell),
        "hold": name(sim.hand),
        "items": {
            food: {
                "pos": at(sim.place[i]),
                "chop": sim.chops[i],
                "chopped": sim.is_chopped(i),
                "in_bowl": i in sim.contents,
            }
            for i, food in enumerate(kitchen.foods)
        },
        "bowl": {"pos": at(sim.place[kitchen.bowl]), "contains": [kitchen.names[food] for food in sim.contents]},
        "boards": [name(sim.item_on(board)) for board in kitchen.boards],
        "delivered": "bowl" if sim.delivered else None,
        "avail": [text.label(sim, macro) for macro in macro_actions(kitchen)],
        "facts": [listed(fact) for fact in text.facts(sim)],
    }


def play(sim, macro, step_cost=0.001, discount=0.99):
    """(macro reward, k, primitive path) by single ticks."""
    sim.begin(macro)
    total, factor, path = 0.0, 1.0, []
    while sim.macro is not None:
        gain = sim.tick() - step_cost
        total += factor * gain
        factor *= discount
        path.append([DIRECTION_NAMES[sim.last_direction], *sim.kitchen.position(sim.cell), gain])
    return total, len(path), path


EPISODES = {"uniform": (200, 200), "guided": (100, 100), "inapplicable": (40, 40), "scripted": (8, 12)}


@STEMS
@pytest.mark.parametrize("policy", POLICIES)
def test_every_recorded_macro_step_agrees_in_state_path_reward_facts_offers_and_returns(stem, policy):
    sim, macros = simulation(stem)
    env = built(stem, reward_mode="dense")
    count = 0
    for number, recorded in enumerate(digests.episodes(f"overcooked/{stem}_{policy}")):
        sim.reset()
        _, info = env.reset(seed=number)
        answers = [view(sim)]
        for action in recorded.actions:
            reward, k, path = play(sim, macros[action])
            offered = info["admissible_commands"]
            assert offered == [text.phrase(label) for label in answers[-1]["avail"]]
            _, paid, terminated, truncated, info = env.step(offered[action])
            over = terminated or truncated
            assert paid == pytest.approx(reward, abs=1e-9)
            assert (info["primitive_steps"], info["success"]) == (k, sim.delivered)
            seen = view(sim)
            assert env.vector() == seen["obs"]
            assert env.sim.save() == sim.save()
            step = {"k": k, "success": sim.delivered, "r": reward, "prim": path, "term": over}
            answers.append({**seen, **step, "env_step": info["env_step"]})
            if over:
                answers[-1] |= {"return": info["metrics"]["discounted_return"]}
                answers[-1] |= {"steps": info["metrics"]["primitive_steps"]}
        recorded.agrees(answers)
        count += 1
    assert count == EPISODES[policy][list(TASKS).index(stem)]


@STEMS
def test_every_edge_of_the_complete_graph_agrees_and_every_shortest_distance(stem):
    sim, macros = simulation(stem)
    graph = explore(sim, macros)
    number = {state: i for i, state in enumerate(graph.states)}
    views, edges = [], []
    for state, distance in zip(graph.states, distances(graph), strict=True):
        sim.load(state)
        seen = {**view(sim), "distance": distance, "no_effect": []}
        row = []
        for action, macro in enumerate(macros):
            sim.load(state)
            if sim.delivered:
                break
            reward, k, path = play(sim, macro)
            row.append((number[sim.save()], [reward, k, path]))
            if sim.changes == 0:
                seen["no_effect"].append(action)
        views.append(seen)
        edges.append(row)
    assert (len(views), sum(map(len, edges))) == COUNTS[stem]
    assert digests.graph(views, edges) == digests.states(f"overcooked/{stem}_graph")


@STEMS
def test_the_texts_tell_apart_exactly_what_the_facts_tell_apart(stem):
    env = built(stem)
    env.reset(seed=0)
    graph = explore(env.sim, env.macros)
    texts, observation = set(), set()
    for state in graph.states:
        env.sim.load(state)
        texts.add(env._describe())
        observation.add(tuple(text.facts(env.sim)))
    assert len(texts) == len(observation) == TEXTS[stem]


def best_return(graph, gamma, horizon=200, per_macro=False, reward=None):
    """Returns the highest return from the start and the macro-actions that reach it.

    Uses dynamic programming over states and time. `gamma` discounts each primitive step, or each macro-action with
    `per_macro`. No macro-action starts at `horizon` or later, and none is interrupted. `reward` replaces the graph's
    rewards.
    """
    reward = graph.reward if reward is None else reward
    longest = int(graph.steps.max())
    value = np.zeros((horizon + longest + 1, len(graph.states)))
    choice = np.zeros((horizon, len(graph.states)), dtype=np.int64)
    discount = gamma if per_macro else gamma**graph.steps
    for time in range(horizon - 1, -1, -1):
        each = reward + discount * value[time + graph.steps, graph.to]
        choice[time] = each.argmax(axis=1)
        value[time] = np.where(graph.done, 0.0, each.max(axis=1))
    path, state, time = [], 0, 0
    while not graph.done[state] and time < horizon:
        macro = int(choice[time, state])
        path.append(macro)
        state, time = int(graph.to[state, macro]), time + int(graph.steps[state, macro])
    return float(value[0, 0]), path


@STEMS
def test_graph_sizes_and_digest_without_the_golden_data(stem):
    sim, macros = simulation(stem)
    graph = explore(sim, macros)
    assert (len(graph.states), int((graph.steps > 0).sum())) == COUNTS[stem]
    summary = json.dumps([graph.states, graph.to.tolist(), graph.steps.tolist(), np.round(graph.reward, 9).tolist()])
    assert hashlib.sha256(summary.encode()).hexdigest()[:16] == DIGESTS[stem]


@pytest.mark.parametrize(
    ("stem", "gamma", "per_macro", "best", "length"),
    [
        ("v4_tomato_salad", 0.99, False, 0.9205180925641949, 6),
        ("v3_tomato_lettuce_salad", 0.99, False, 0.9476564569165645, 10),
        ("v4_tomato_salad", 0.99, True, 1.289141, 51),  # farming
        ("v3_tomato_lettuce_salad", 0.99, True, 1.411660, 50),  # farming
        ("v4_tomato_salad", 0.95, True, 0.909207, 6),
        ("v3_tomato_lettuce_salad", 0.95, True, 0.917646, 10),
    ],
)
def test_the_best_discounted_returns_are_those_of_the_specification(stem, gamma, per_macro, best, length):
    sim, macros = simulation(stem)
    value, path = best_return(explore(sim, macros), gamma, per_macro=per_macro)
    assert value == pytest.approx(best, abs=1e-6)
    assert len(path) == length


@STEMS
def test_the_expert_earns_the_best_discounted_return_in_the_published_number_of_commands(stem):
    best, commands, steps, plain = {
        "v4_tomato_salad": (0.9205180925641949, 6, 28, 1.172),
        "v3_tomato_lettuce_salad": (0.9476564569165645, 10, 45, 1.355),
    }[stem]
    env = built(stem, reward_mode="dense")
    env.reset(seed=0)
    assert env.remaining() == commands
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
    assert info["success"] and env.turn == commands
    assert info["metrics"]["discounted_return"] == pytest.approx(best, abs=1e-12)
    assert info["metrics"]["plain_return"] == pytest.approx(plain, abs=1e-12)
    assert info["metrics"]["primitive_steps"] == steps


@STEMS
def test_from_every_state_the_plan_has_the_fewest_commands_and_of_these_the_fewest_steps(stem):
    sim, macros = simulation(stem)
    graph = explore(sim, macros)
    planner = SaladPlanner(sim, macros)
    left = distances(graph, COMMAND)
    for number, (state, cost) in enumerate(zip(graph.states, left, strict=True)):
        assert planner.remaining(state) == cost // COMMAND
        if cost:
            best = planner.best(state)
            assert left[graph.to[number, best]] + COMMAND + graph.steps[number, best] == cost


@STEMS
def test_the_dense_reward_can_be_farmed_and_these_are_its_two_returns(stem):
    """Undiscounted, farming beats the straight way (docs/specs/overcooked.md, "Rewards and ends")."""
    farmed, straight = {"v4_tomato_salad": (1.901, 1.172), "v3_tomato_lettuce_salad": (2.003, 1.355)}[stem]
    sim, macros = simulation(stem)
    graph = explore(sim, macros, discount=1.0)
    best, path = best_return(graph, 1.0)
    assert best == pytest.approx(farmed, abs=1e-9)
    env = built(stem, reward_mode="dense", discount=1.0)
    env.reset(seed=0)
    total = 0.0
    for macro in path:
        _, reward, terminated, truncated, info = env.step(macros[macro].name)
        total += reward
    assert (terminated or truncated) and total == pytest.approx(farmed, abs=1e-9)
    assert info["metrics"]["wrong_deliveries"] > 5
    env.reset(seed=0)
    over, total = False, 0.0
    while not over:
        _, reward, terminated, truncated, info = env.step(env.expert())
        over, total = terminated or truncated, total + reward
    assert total == pytest.approx(straight, abs=1e-9)


def shaped_rewards(stem, shaping):
    """Sparse and shaped rewards of every transition, the potential of every state, and the shortest plan's length."""
    sim, macros = simulation(stem)
    graph = explore(sim, macros)
    left = [cost // COMMAND for cost in distances(graph, COMMAND)]
    potential = np.where(graph.done, 0.0, -np.array(left) / left[0])
    running = ~graph.done[:, None]
    sparse = (graph.done[graph.to] & running).astype(float)
    discount = np.vectorize(shaping.discount)(graph.steps)
    return graph, sparse, sparse + running * (discount * potential[graph.to] - potential[:, None]), potential, left[0]


DISCOUNTS = pytest.mark.parametrize(
    ("gamma", "unit"), [(0.99, "step"), (0.95, "step"), (0.99, "command"), (0.95, "command"), (1.0, "command")]
)


@STEMS
@DISCOUNTS
def test_the_best_policy_under_shaped_is_the_best_under_sparse_for_the_same_discount(stem, gamma, unit):
    graph, sparse, shaped, potential, shortest = shaped_rewards(stem, Shaping(gamma, unit))
    per_macro = unit == "command"
    best_sparse, _ = best_return(graph, gamma, per_macro=per_macro, reward=sparse)
    best_shaped, path = best_return(graph, gamma, per_macro=per_macro, reward=shaped)
    assert best_shaped == pytest.approx(best_sparse - potential[0], abs=1e-12)
    state, time, earned = 0, 0, 0.0
    for macro in path:
        earned += gamma**time * sparse[state, macro]
        time += 1 if per_macro else int(graph.steps[state, macro])
        state = int(graph.to[state, macro])
    assert graph.done[state]
    assert earned == pytest.approx(best_sparse, abs=1e-12)  # the policy itself, not only its value
    if gamma < 1:
        assert len(path) == shortest


@STEMS
def test_with_another_discount_than_the_learners_shaped_is_farmed(stem):
    """The reason why recipes with a mismatch are refused: the best policy puts the order off."""
    graph, _, shaped, _, shortest = shaped_rewards(stem, Shaping(0.99, "step"))
    for gamma in (0.99, 1.0):
        _, path = best_return(graph, gamma, per_macro=True, reward=shaped)
        assert len(path) > 2 * shortest
