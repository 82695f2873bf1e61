"""The published tasks of VirtualHome beyond the golden games: optima, texts, rewards, commands, pictures."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envsuite
from envsuite import registry
from envsuite.envs.virtualhome.engine import HomeAction
from envsuite.envs.virtualhome.published import tasks as published
from envsuite.envs.virtualhome.published.solutions import solutions
from envsuite.envs.virtualhome.published.text import paragraph
from envsuite.envs.virtualhome.text import CommandParser, command

PAPERS = published.paper_tasks()


def play(env, commands, seed=0):
    """(total reward, last info) of a list of commands; 'expert' asks the expert."""
    _, info = env.reset(seed=seed)
    total = 0.0
    for phrase in commands:
        phrase = env.expert() if phrase == "expert" else phrase
        text, reward, terminated, truncated, info = env.step(phrase)
        total += reward
        info["text"] = text
        if terminated or truncated:
            break
    return total, info


# ---- published -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPERS)
def test_optimal_returns_are_the_published_ones(name):
    env = registry.build(f"VirtualHome-{name}-v0")
    total, info = play(env, ["expert"] * 50)
    assert total == 1.0
    best = 0.598737 if name == "entertainment" else 0.773781
    assert info["metrics"]["discounted_return"] == pytest.approx(best, abs=5e-7)


def test_the_graphs_have_the_published_sizes_and_dead_ends():
    assert (len(solutions("food_preparation")), len(solutions("entertainment"))) == (
        58,
        905,
    )  # the start is one of them
    assert max(left for left, _ in solutions("entertainment").values()) == 11
    task = published.published("entertainment")
    forward, lost = offered_graph(task)
    assert (len(forward), len(lost)) == (322 - 1, 37)  # the spec counts the start and its return as two


def offered_graph(task):
    """Returns the states reachable by offered actions, and the subset from which success is impossible."""
    step = lambda s: [
        task.engine.apply(s, task.actions[i])[0] for i in task.offers(task.vector(s, task.engine.visible(s)))
    ]
    won = lambda s: task.success(task.vector(s, task.engine.visible(s)))
    reached, queue = {task.engine.start}, deque([task.engine.start])
    after = {}
    while queue:
        s = queue.popleft()
        after[s] = [] if won(s) else step(s)
        for n in after[s]:
            if n not in reached:
                reached.add(n)
                queue.append(n)
    alive = {s for s in reached if won(s)}
    while True:
        more = {s for s in reached - alive if any(n in alive for n in after[s])}
        if not more:
            return reached, reached - alive
        alive |= more


@pytest.mark.parametrize("gamma", [0.99, 0.95, 1.0])
@pytest.mark.parametrize("name", ["food_preparation", "entertainment"])
def test_the_best_policy_under_shaped_is_the_best_under_sparse(name, gamma):
    """Computes optimal returns by dynamic programming over all actions and the 50 commands of an episode."""
    task = published.published(name)
    left = {s: remaining for s, (remaining, _) in solutions(name).items()}
    start = task.engine.start
    phi = {s: -remaining / left[start] for s, remaining in left.items()}
    after = {s: {task.engine.apply(s, action)[0] for action in task.actions} for s in left if left[s]}
    sparse, shaped = dict.fromkeys(left, 0.0), dict.fromkeys(left, 0.0)  # values with no command left
    ends: dict = {}
    for _ in range(50):
        earned = {s: max((float(not left[n]) + gamma * sparse[n], n) for n in nexts)[0] for s, nexts in after.items()}
        best = {
            s: max((float(not left[n]) + gamma * (phi[n] + shaped[n]) - phi[s], -left[n], n) for n in nexts)
            for s, nexts in after.items()
        }
        sparse |= earned
        shaped |= {s: value for s, (value, _, _) in best.items()}
        ends = {s: n for s, (_, _, n) in best.items()}
    assert shaped[start] == pytest.approx(sparse[start] - phi[start], abs=1e-12)
    if gamma < 1:
        state = start
        for commands_left in range(left[start], 0, -1):
            assert left[state] == commands_left
            state = ends[state]
        assert not left[state]


def test_the_uniform_player_does_as_badly_as_published():
    for name, success, value in (("food_preparation", 0.0150, 0.00288), ("entertainment", 0.00304, 0.000432)):
        task = published.published(name)
        mass, won, paid = {task.engine.start: 1.0}, 0.0, 0.0
        for t in range(published.HORIZON):
            after = {}
            for s, p in mass.items():
                offers = task.offers(task.vector(s, task.engine.visible(s)))
                for i in offers:
                    n, _ = task.engine.apply(s, task.actions[i])
                    if task.success(task.vector(n, task.engine.visible(n))):
                        won += p / len(offers)
                        paid += p / len(offers) * published.GAMMA**t
                    else:
                        after[n] = after.get(n, 0.0) + p / len(offers)
            mass = after
        assert won == pytest.approx(success, rel=0.005)
        assert paid == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(("name", "observations", "texts"), [("food_preparation", 19, 18), ("entertainment", 213, 67)])
def test_as_many_texts_tell_the_observations_apart_as_published(name, observations, texts):
    task = published.published(name)
    vectors = {task.vector(s, task.engine.visible(s)) for s in solutions(name)}
    assert len(vectors) == observations
    assert len({paragraph(task, task.facts(vector)) for vector in vectors}) == texts


def test_the_renamed_tasks_differ_from_food_preparation_in_words_alone():
    base = published.published("food_preparation")
    for name in set(PAPERS) - {"food_preparation", "entertainment"}:
        task = published.published(name)
        food, appliance = task.nouns
        for s in solutions(name):
            vector = task.vector(s, task.engine.visible(s))
            text = paragraph(task, task.facts(vector))
            assert text.replace(food, "pancake").replace(appliance, "microwave") == paragraph(base, base.facts(vector))


def test_published_play_tells_no_refusal_and_an_unknown_command_only_costs_a_step():
    env = registry.build("VirtualHome-food_preparation-v0")
    text, _ = env.reset(seed=0)
    for phrase in ("dance", "open the microwave", "go to the sofa", "stand up"):
        after, reward, *_, info = env.step(phrase)
        assert (after, reward, info["is_action_valid"]) == (text, 0.0, False)


def test_published_dynamics_throw_one_back_when_walking_to_what_one_holds():
    env = registry.build("VirtualHome-food_preparation-v0")
    away = ["go to the pancake", "take the pancake", "go to the bathroom", "go to the kitchen"]
    _, info = play(env, away)
    assert "go to the pancake" in info["admissible_commands"]
    _, info = play(env, [*away, "go to the pancake"])
    assert "you stand in the bathroom" in info["text"]


# ---- rewards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["cheese", "entertainment"])
def test_dense_pays_each_subgoal_once_and_one_in_all(task):
    env = registry.build(f"VirtualHome-{task}-v0", "dense")
    total, info = play(env, ["expert"] * 50)
    assert info["success"] and total == pytest.approx(1.0)
    # Taking and putting, opening and closing over and over pays no more than once.
    item = "cheese" if task.startswith("cheese") else "chips"
    rounds = [f"go to the {item}", f"take the {item}"]
    if item == "cheese":
        rounds += ["go to the microwave"]
        rounds += [
            "open the microwave",
            "put the cheese in the microwave",
            "take the cheese",
            "close the microwave",
        ] * 10
    else:
        rounds += ["go to the living room", "go to the coffee table"]
        rounds += ["put the chips on the coffee table", "take the chips"] * 15
    farmed, info = play(env, rounds)
    assert not info["success"] and farmed < 1.0
    assert farmed == pytest.approx(play(env, rounds[: len(rounds) // 2])[0])


@pytest.mark.parametrize("item", ["chips", "milk"])
def test_an_item_on_the_table_is_one_subgoal_and_not_that_of_the_other_item(item):
    env = registry.build("VirtualHome-entertainment-v0", "dense")
    carried = [f"go to the {item}", f"take the {item}", "go to the living room", "go to the coffee table"]
    total, _ = play(env, [*carried, f"put the {item} on the coffee table"])
    assert total == pytest.approx(1 / 4)
    assert play(env, carried)[0] == pytest.approx(1 / 4)  # in a hand, as well as on the table


def test_the_published_return_is_reported_in_every_reward_mode():
    for mode in ("sparse", "dense", "shaped"):
        _, info = play(registry.build("VirtualHome-pizza-v0", mode), ["dance"] + ["expert"] * 10)
        assert info["metrics"] == {"discounted_return": pytest.approx(0.95**6)}


def test_published_dead_ends_of_offered_play_are_still_solved_by_commands_that_are_not_offered():
    env = registry.build("VirtualHome-entertainment-v0", "shaped")
    sat = ["go to the living room", "go to the tv", "switch on the tv", "go to the sofa", "sit on the sofa"]
    _, info = play(env, sat)
    assert "stand up" not in info["admissible_commands"]
    assert env.expert() == "stand up" and env.remaining() == 9


# ---- words and pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPERS)
def test_every_action_is_found_in_its_own_words(name):
    task = published.published(name)
    grammar = CommandParser(task.home)
    for action in task.actions:
        phrase = command(task.home, action)
        for spelled in (phrase, phrase.upper(), phrase.replace("the ", ""), f"  {phrase}. "):
            assert grammar.parse(spelled) == action


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_no_string_breaks_the_grammar(phrase):
    assert isinstance(CommandParser(published.published("entertainment").home).parse(phrase), HomeAction | None)


@pytest.mark.parametrize("task", ["VirtualHome-hard-v0", "VirtualHome-entertainment-v0", "VirtualHome-laundry-v0"])
def test_pictures_show_the_state(task):
    pytest.importorskip("PIL")
    env = registry.build(task, render_mode="rgb_array")
    env.reset(seed=1)
    first = env.render()
    assert first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3
    for _ in range(3):
        env.step(env.expert())
    assert env.render().shape != first.shape or not np.array_equal(env.render(), first)
    env.render_mode = "ansi"
    assert all(f"[{noun}]" in env.render() for noun in env.game.home.rooms.values())
    assert env.render().count("@") in (1, 2)  # the room, and where in it


def test_every_task_of_the_papers_is_registered():
    for name in PAPERS:
        assert registry.TASKS[f"VirtualHome-{name}-v0"].kwargs == {"task": name}
    assert envsuite.tasks("virtualhome")[0].id == "VirtualHome-food_preparation-v0"
