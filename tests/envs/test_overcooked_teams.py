"""The expert of several cooks, and the texts of version 1."""

import pytest

from envsuite import registry
from envsuite.envs.overcooked import text as texts_of


@pytest.mark.parametrize(
    ("task", "knobs", "seeds"),
    [
        ("Overcooked-easy-v0", {"cooks": 2}, range(15)),
        ("Overcooked-medium-v0", {"cooks": 2}, range(6)),
        ("Overcooked-tomato_lettuce_salad-2cooks-v0", {}, [0]),
        ("Overcooked-tomato_lettuce_onion_salad-c-3cooks-v0", {}, [0]),
    ],
)
def test_the_expert_of_several_cooks_hands_in_the_dish_and_nothing_else(task, knobs, seeds):
    env = registry.build(task, **knobs)
    for seed in seeds:
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
        assert info["success"] and not info["metrics"]["wrong_deliveries"]


def test_the_expert_of_several_cooks_still_empties_a_hand_that_holds_what_nobody_ordered():
    env = registry.build("Overcooked-tomato_lettuce_salad-2cooks-v0", recipe="tomato")
    env.reset(seed=0)
    env.step("get onion")
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(env.expert())
        over = terminated or truncated
    assert info["success"]


def test_under_texts_v1_a_refusal_waits_for_the_cook_that_made_the_mistake():
    env = registry.build("Overcooked-tomato_lettuce_salad-2cooks-v0", texts="v1")
    env.reset(seed=0)
    text, *_ = env.step("sing")  # cook 1 errs, and cook 2 is asked next
    assert env.active_cook == 1 and "Nobody here knows" not in text
    saved = env.snapshot()
    for _ in range(2):  # the refusal is part of the state
        env.restore(saved)
        text, *_ = env.step("get lettuce")
        assert env.active_cook == 0 and text.startswith("Nobody here knows that command.")
    v0 = registry.build("Overcooked-tomato_lettuce_salad-2cooks-v0")
    v0.reset(seed=0)
    text, *_ = v0.step("sing")
    assert v0.active_cook == 1 and text.startswith("Nobody here knows that command.")


def test_under_texts_v1_the_last_text_says_that_the_order_was_served():
    for texts, served in (("v0", False), ("v1", True)):
        env = registry.build("Overcooked-tomato_salad-v0", texts=texts)
        env.reset(seed=0)
        for name in ("get tomato", "go to knife 1", "chop", "get tomato", "get plate 1", "deliver"):
            text, _, terminated, *_ = env.step(name)
        assert terminated and ("just as it was ordered" in text) is served


def test_under_texts_v1_a_numbered_bowl_has_no_article():
    fact = ("at_home", ("tomato", "bowl 2"))
    assert texts_of.sentence(fact, 1) == "The tomato and the bowl 2 can be seen where they are kept."
    assert texts_of.sentence(fact, 1, "v1") == "The tomato and bowl 2 can be seen where they are kept."
