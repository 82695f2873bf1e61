"""Several cooks: their expert, the texts of version 1, a player for each cook, messages, and real time."""

import pytest

from envsuite import registry
from envsuite.envs.overcooked import text as texts_of
from envsuite.errors import UsageError
from envsuite.messages import MOST_CHARACTERS, split_message

TWO = "Overcooked-tomato_lettuce_salad-2cooks-v0"


@pytest.mark.parametrize(
    ("task", "knobs", "seeds"),
    [
        ("Overcooked-easy-v0", {"cooks": 2}, range(40)),
        ("Overcooked-easy-v0", {"cooks": 3}, range(20)),
        ("Overcooked-medium-v0", {"cooks": 2}, range(8)),
        ("Overcooked-medium-v0", {"cooks": 3}, range(4)),
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


@pytest.mark.parametrize("cooks", [2, 3])
def test_the_experts_game_in_real_time_passes_through_the_same_steps(cooks):
    traces = []
    for realtime in (False, True):
        env = registry.build("Overcooked-tomato_lettuce_salad-c-2cooks-v0", cooks=cooks, realtime=realtime)
        env.reset(seed=0)
        env.sim.trace = []
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
        traces.append((env.sim.trace, info["success"], env.time))
    assert traces[0] == traces[1] and traces[1][1]


def test_in_real_time_every_cook_acts_in_every_primitive_step():
    env = registry.build(TWO, realtime=True)
    env.reset(seed=0)
    asked, over = [], False
    while not over:
        asked.append((env.time, env.active_cook))
        *_, terminated, truncated, _ = env.step(env.expert())
        over = terminated or truncated
    assert asked == [(time, cook) for time in range(env.time) for cook in (0, 1)]


def test_in_real_time_a_cook_may_change_its_mind_under_way():
    moves = {}
    for realtime in (False, True):
        env = registry.build(TWO, realtime=realtime)
        env.reset(seed=0)
        env.sim.trace = []
        for command in ("go to knife 1", "get lettuce", "deliver", "get lettuce"):
            env.step(command)
        moves[realtime] = [(cook, direction) for cook, direction, _ in env.sim.trace]
    (_, first), (_, second) = (move for move in moves[True] if move[0] == 0)
    assert len(moves[True]) == 4 and first != second  # two steps of time, and cook 1 turned round in the second
    assert len(moves[False]) > 4  # its first command had to end before


def test_a_message_is_read_by_the_other_cooks_at_their_next_turn_and_once():
    env = registry.build("Overcooked-tomato_lettuce_salad-c-3cooks-v0", partner="team", say=True)
    silent = registry.build("Overcooked-tomato_lettuce_salad-c-3cooks-v0", partner="team", say=True)
    env.reset(seed=0)
    silent.reset(seed=0)
    said = env.step('fetch the tomato; say: I  take the "tomato"\nand cut it')
    plain = silent.step("fetch the tomato")
    line = "Cook 1 says: \"I take the 'tomato' and cut it\" "
    assert said[0] == line + plain[0] and said[1:] == plain[1:]  # the message is no part of the command
    saved = env.snapshot()
    for _ in range(2):  # what is not read yet is part of the state
        env.restore(saved)
        text, *_ = env.step("fetch the lettuce")
        assert env.active_cook == 2 and text.startswith(line)
    for _ in range(6):
        text, *_ = env.step(env.expert())
        assert "says" not in text


def test_a_message_is_one_clean_line_of_bounded_length():
    assert split_message("chop") == ("chop", "")
    assert split_message("chop | SAY: go\x1b[2J on") == ("chop", "go[2J on")
    assert split_message("say: only this") == ("", "only this")
    assert split_message("chop; say: " + "word " * 99)[1] == ("word " * 99)[:MOST_CHARACTERS].strip()


def test_without_the_knob_a_message_is_an_unknown_command():
    env = registry.build(TWO, partner="team")
    env.reset(seed=0)
    *_, info = env.step("fetch the tomato; say: hello")
    assert not info["is_action_valid"]


def test_in_a_team_a_cook_reads_only_its_own_mistakes():
    env = registry.build(TWO, partner="team")
    env.reset(seed=0)
    text, *_, info = env.step("sing")
    assert info["agent"] == 2 and text.startswith("You are cook 2 of 2.")
    text, *_, info = env.step("get lettuce")
    assert info["agent"] == 1 and text.startswith("Nobody here knows that command. You are cook 1 of 2.")


def test_a_blind_cook_plays_its_own_part_of_the_experts_game():
    env = registry.build(TWO, partner="team")
    env.reset(seed=0)
    over = False
    while not over:
        command = env.blind()
        assert command == env.expert()
        *_, terminated, truncated, info = env.step(command)
        over = terminated or truncated
    assert info["success"]


def test_in_real_time_going_on_with_a_command_is_valid():
    env = registry.build("Overcooked-easy-v0", cooks=2, realtime=True)
    env.reset(seed=1)
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(env.expert())
        assert info["is_action_valid"]
        over = terminated or truncated
    assert info["success"]


@pytest.mark.parametrize("task", ["Overcooked-easy-v0", TWO])
def test_blind_cooks_play_the_same_game_in_real_time(task):
    for seed in range(3):
        times = []
        for realtime in (False, True):
            env = registry.build(task, cooks=2, partner="team", realtime=realtime)
            env.reset(seed=seed)
            over = False
            while not over:
                *_, terminated, truncated, info = env.step(env.blind())
                over = terminated or truncated
            times.append((env.time, info["success"]))
        assert times[0] == times[1]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"cooks": 1, "partner": "team"}, "One cook is no team"),
        ({"cooks": 1, "realtime": True}, "One cook is no team"),
        ({"say": True}, "partner=team, not policy"),
    ],
)
def test_settings_that_need_a_team_are_refused_without_one(knobs, message):
    with pytest.raises(UsageError, match=message):
        registry.build(TWO, **knobs)
