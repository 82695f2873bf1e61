"""VirtualHome for two agents: who may do and know what, messages, the expert team, and the splits."""

import itertools
import random
import re

import pytest

from envsuite import registry
from envsuite.envs.virtualhome.homes.layouts import layout
from envsuite.envs.virtualhome.homes.structure import split_of, split_of_seed
from envsuite.envs.virtualhome.homes.vocabulary import noun_of
from envsuite.envs.virtualhome.pair.env import PairEnv
from envsuite.envs.virtualhome.pair.experts import ErrandExpert
from envsuite.envs.virtualhome.pair.game import NOT_YOURS
from envsuite.errors import UsageError
from envsuite.tools import call_of

LEVELS = ("easy", "medium", "hard")
TEST = 1_000_000


def env_of(level="easy", **knobs):
    return registry.build(f"VirtualHome-pair-{level}-v0", "dense", **knobs)


def play(env, seed, players):
    """Plays a game; `players[agent]` returns a command of `env`. Returns the rewards and the last info."""
    env.reset(seed=seed)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, info = env.step(players[env.active](env))
        rewards.append(reward)
        over = terminated or truncated
    return rewards, info


def expert(env):
    return env.expert()


def idle(env):
    return env.idle()


def blind(env):
    return env.blind()


@pytest.mark.parametrize("level", LEVELS)
def test_a_team_of_experts_wins_and_earns_one_in_all(level):
    env = env_of(level)
    for seed in (0, 1, TEST, TEST + 1):
        rewards, info = play(env, seed, (expert, expert))
        assert info["success"] and sum(rewards) == pytest.approx(1.0) and info["metrics"]["errands"] == 1.0
        assert env.turn <= env.settings.max_steps * 0.8


@pytest.mark.parametrize("level", LEVELS)
def test_a_team_that_has_to_search_wins_with_valid_commands(level):
    for seed in (2, TEST + 2):
        env = env_of(level)
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(env.expert("partial"))
            assert info["is_action_valid"]
            over = terminated or truncated
        assert info["success"]


@pytest.mark.parametrize("players", [(expert, idle), (idle, expert), (expert, blind), (blind, blind)])
def test_nobody_wins_alone_or_without_looking(players):
    for seed in range(TEST, TEST + 3):
        assert not play(env_of(), seed, players)[1]["success"]


def test_a_random_team_loses():
    dice = random.Random(0)

    def anything(env):
        return dice.choice(env.admissible())

    assert not any(play(env_of(), seed, (anything, anything))[1]["success"] for seed in range(3))


def test_without_messages_even_experts_lose_and_with_one_player_they_need_none():
    for seed in range(3):
        assert not play(env_of(say=False), seed, (expert, expert))[1]["success"]
        assert play(env_of(partner="policy"), seed, (expert, expert))[1]["success"]


@pytest.mark.parametrize("level", LEVELS)
def test_what_an_agent_needs_starts_in_rooms_that_it_cannot_enter(level):
    env = env_of(level)
    for seed in (3, TEST + 3):
        env.reset(seed=seed)
        drawn = env.game.drawn
        things = drawn.home.things
        assert {*drawn.rooms[0], *drawn.rooms[1], drawn.shared} == set(drawn.home.rooms)
        assert len(drawn.errands) == env.settings.errands
        for errand in drawn.errands:
            assert things[errand.item].room in drawn.rooms[1 - errand.owner]
            assert things[errand.place].room in drawn.rooms[errand.owner]
        owners = [errand.owner for errand in drawn.errands]
        assert abs(owners.count(0) - owners.count(1)) <= 1


def test_a_foreign_room_is_neither_offered_nor_entered():
    env = env_of("medium")
    env.reset(seed=5)
    for agent in (0, 1):
        for room in env.game.drawn.rooms[1 - agent]:
            assert f"go to {room}" not in env.admissible()
            before = env.game.state(agent)
            *_, info = env.step(f"go to the {room}")
            assert not info["is_action_valid"] and env.game.state(agent) == before
            assert env._seen[agent] == NOT_YOURS
            env.step("look around")  # the other one's turn
        env.step("look around")  # now the other agent tries


def test_an_agent_reads_its_own_list_and_not_the_other_ones():
    env = env_of("hard")
    for seed in range(5):
        texts = {1: [], 2: []}
        text, info = env.reset(seed=seed)
        over = False
        while not over:
            texts[info["agent"]].append(re.sub(r'Agent \d says: "[^"]*"', "", text))
            text, _, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
        for errand in env.game.drawn.errands:
            assert any(errand.text in text for text in texts[errand.owner + 1])
            assert not any(errand.text in text for text in texts[2 - errand.owner])
            assert errand.text not in env.objective


def test_a_message_is_read_once_and_asks_for_nouns_only():
    env = env_of()
    env.reset(seed=0)
    text, *_ = env.step('look around; say: bring me "the red"   mug')
    assert text.startswith("You are agent 2. Agent 1 says: \"bring me 'the red' mug\" You are in")
    env.step("look around")
    text, *_ = env.step("look around")
    assert "says" not in text
    env.reset(seed=0)
    asked = env.expert().partition("say: ")[2]
    mine = [errand for errand in env.game.drawn.errands if errand.owner == 0]
    assert all(noun_of(errand.item) in asked and errand.item not in asked for errand in mine)


def test_an_expert_fetches_what_a_player_asks_for_in_its_own_words():
    env = env_of(partner="expert")
    env.reset(seed=TEST + 7)
    mine = [errand for errand in env.game.drawn.errands if errand.owner == 0]
    env.step(f"look around; say: Hi! Could you get the {noun_of(mine[0].item).upper()}, please?")
    heard = ""
    for _ in range(8):
        text, *_ = env.step("look around")
        heard += text
    assert f"The {mine[0].item} is " in heard


def test_a_searching_expert_takes_no_part_of_a_word_for_a_thing():
    """The word cupboard does not name a cup: the agent has to look where the cup is."""
    env = env_of("easy")
    env.reset(seed=TEST)
    item = next(errand.item for errand in env.game.drawn.errands if noun_of(errand.item) == "cup")
    agent = next(errand.owner for errand in env.game.drawn.errands if errand.item != item)  # has it in its rooms
    place = env.game.drawn.home.things[item].on or (env.game.drawn.home.things[item].inside,)
    one = ErrandExpert(env.game, agent, told_all=False)
    assert place == ("cupboard",)
    one.hear("what is in the cupboard?")
    assert not one._mentioned(item, "cupboard")
    one.hear("the cup is in the cupboard")
    assert one._mentioned(item, "cupboard")


@pytest.mark.parametrize("say", [True, False])
def test_tools_give_every_command_with_its_message(say):
    env = env_of(say=say)
    env.reset(seed=TEST)
    for _ in range(20):
        command = env.expert()
        name, arguments = call_of(env.tools, command)
        tool = next(tool for tool in env.tools if tool.name == name)
        assert tool.command_of(arguments) == command
        assert say or name != "act"
        assert not any("say:" in value for key, value in arguments.items() if key != "command")
        env.step(command)


def test_splits_share_no_home_and_no_sentence():
    env = env_of("medium")
    for seed in (*range(8), *range(TEST, TEST + 4), *range(2 * TEST, 2 * TEST + 4)):
        env.reset(seed=seed)
        drawn, split = env.game.drawn, split_of_seed(seed)
        assert layout(drawn.plan, env.settings.rooms, "train").split == split
        assert all(split_of(errand.text) == split for errand in drawn.errands)


def test_a_restored_game_goes_on_as_before():
    env = env_of("medium")
    env.reset(seed=9)
    for _ in range(12):
        env.step(env.expert())
    snapshot = env.snapshot()
    other = env_of("medium")
    games = []
    for player in (env, other):
        player.restore(snapshot)
        commands = []
        for _ in itertools.count():
            commands.append(player.expert())
            *_, over, cut, _info = player.step(commands[-1])
            if over or cut:
                break
        games.append(commands)
    assert games[0] == games[1] and env.success and other.success


def test_the_dense_reward_pays_each_milestone_once():
    env = env_of()
    env.reset(seed=0)
    first = env.game.drawn.errands[0]
    fetcher = 1 - first.owner
    total = 0.0
    for _ in range(40):
        command = env.expert() if env.active == fetcher else "look around; say: " + noun_of(first.item)
        _, reward, over, cut, _info = env.step(command)
        total += reward
        if env.active != fetcher and env.game.reached[0] & 2:
            break
    assert total == pytest.approx(2 / 4 / 2)  # taken and laid down: two of four milestones of one of two errands
    for verb in ("take", "put") * 3:  # up and down again
        env.step("look around")
        command = next(c for c in env.admissible() if c.startswith(verb) and noun_of(first.item) in c)
        total += env.step(command)[1]
    assert total == pytest.approx(2 / 4 / 2)


def test_impossible_settings_are_refused_in_one_line():
    with pytest.raises(UsageError, match="6 errands need as many objects"):
        PairEnv(errands=6, objects=4)


def test_a_shaped_reward_is_refused():
    with pytest.raises(UsageError, match="no shaped reward"):
        registry.build("VirtualHome-pair-easy-v0", "shaped")
