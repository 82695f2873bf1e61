"""BabyAI: equal to minigrid, except where minigrid misbehaves."""

import gzip
import hashlib
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

gym = pytest.importorskip("gymnasium")
pytest.importorskip("minigrid", reason="the babyai extra is not installed")

import minigrid  # noqa: E402, F401
from minigrid.core.constants import COLOR_NAMES  # noqa: E402
from minigrid.core.grid import Grid  # noqa: E402
from minigrid.core.world_object import WorldObj  # noqa: E402
from minigrid.envs.babyai.core import verifier  # noqa: E402

from envsuite import RewardMode, StopReason, registry  # noqa: E402
from envsuite.envs.babyai import engine as engines  # noqa: E402
from envsuite.envs.babyai.env import COMMANDS, Local, parse_command  # noqa: E402
from envsuite.envs.babyai.levels import KINDS, LEVELS  # noqa: E402
from envsuite.envs.babyai.view import Fact, describe, visible_facts  # noqa: E402
from envsuite.errors import BadKnob, EngineFailure, UsageError  # noqa: E402

RAW = {spec.id.rpartition("-v")[0].removeprefix("BabyAI-"): spec.id for spec in gym.registry.values()}
CARRYING = ("PutNextS5N2Carrying", "PutNextS6N3Carrying", "PutNextS7N4Carrying")


def build(name, **knobs):
    return registry.build(f"BabyAI-{name}-v0", **knobs)


def play(env, seed, choose):
    """Plays one game; returns the last info and the commands."""
    _, info = env.reset(seed=seed)
    commands = []
    while info["stop_reason"] is None:
        commands.append(choose(env))
        *_, info = env.step(commands[-1])
    return info, commands


@pytest.mark.parametrize(
    ("level", "seed", "clauses"), [("GoToSeqS5R2", 1, 4), ("MiniBossLevel", 1, 4), ("MiniBossLevel", 2, 4)]
)
def test_progression_is_the_share_of_the_missions_clauses_that_are_done(level, seed, clauses):
    env = build(f"level-{level}")
    _, info = env.reset(seed=seed)
    mission = info["objective"]
    assert 1 + mission.count(" and ") + mission.count(" after you ") + mission.count(", then ") == clauses
    seen = [info["progression"]]
    while info["stop_reason"] is None:
        *_, info = env.step(env.expert())
        seen.append(info["progression"])
    assert seen == sorted(seen) and (seen[0], seen[-1]) == (0.0, 1.0)
    done = sorted({share * clauses for share in seen})
    assert all(share == int(share) for share in done)
    assert len(done) >= 4


# ---- what is seen ---------------------------------------------------------------------------------------------------


def test_all_golden_states_have_the_reference_facts_and_text(shared):
    with gzip.open(shared / "golden" / "babyai" / "babyai_golden.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 300
    for row in rows:
        grid = Grid(row["width"], row["height"])
        for i, column in enumerate(row["grid"]):
            for j, cell in enumerate(column):
                grid.set(i, j, WorldObj.decode(*cell))
        carried = row["carrying"] and SimpleNamespace(type=row["carrying"][0], color=row["carrying"][1])
        state = SimpleNamespace(
            grid=grid, agent_view_size=7, agent_pos=row["agent_pos"], agent_dir=row["agent_dir"], carrying=carried
        )
        facts = visible_facts(state)
        assert facts == [Fact(**fact) for fact in row["facts"]], row["id"]
        text = describe(facts, "babyai-text")
        assert hashlib.sha1(text.encode()).hexdigest() == row["text_sha1"], row["id"]
        assert len(describe(facts, "ours").splitlines()) == len(facts)


def test_the_digest_of_a_transcript_is_unchanged():
    env = build("mixed")
    digest = hashlib.sha256()
    for seed in range(20):
        text, info = env.reset(seed=seed)
        digest.update(f"{info['objective']}\n{text}\n".encode())
        for turn in range(12):
            text, *_ = env.step(COMMANDS[(seed + turn * turn) % 6])
            digest.update(text.encode())
            if env._over:
                break
    assert digest.hexdigest()[:16] == "047374028fbabf41"


def test_an_empty_view_has_a_description():
    for wording in ("ours", "babyai-text"):
        assert describe([], wording).strip()


def _facts_of_image(image):
    """Returns the objects of minigrid's encoded view."""
    names = {4: "door", 5: "key", 6: "ball", 7: "box"}
    facts = set()
    n = image.shape[0]
    for x in range(n):
        for y in range(n):
            kind, color, state = map(int, image[x, y])
            if kind in names and (x, y) != (n // 2, n - 1):
                word = ("open", "closed", "locked")[state] if kind == 4 else ""
                shade = ("red", "green", "blue", "purple", "yellow", "grey")[color]
                side = x - n // 2
                facts.add(Fact("object", names[kind], shade, word, max(0, -side), max(0, side), n - 1 - y))
    return facts


@pytest.mark.parametrize("name", LEVELS)
def test_every_level_plays_like_minigrid(name, capsys):
    raw = gym.make(RAW[name], disable_env_checker=True).unwrapped
    env = build(f"level-{name}")
    for seed in (0, 3):
        raw.reset(seed=seed)
        printed = capsys.readouterr().out.count("\n")
        env.reset(seed=seed)
        ours = env.engine
        assert capsys.readouterr().out == ""
        if ours.impossible:
            continue  # minigrid would play an unwinnable game
        assert ours.rejected == printed
        assert (ours.mission, ours.max_steps) == (raw.mission, raw.max_steps)
        rng = np.random.default_rng(seed)
        for _ in range(40):
            action = int(rng.choice([0, 1, 2, 2, 2, 3, 4, 5]))
            obs, reward, terminated, truncated, _ = raw.step(action)
            _, _, over, capped, info = env.step(COMMANDS[action])
            assert (over, info["success"], capped) == (terminated, reward > 0, truncated and not terminated)
            assert (tuple(ours.agent_pos), ours.agent_dir) == (tuple(raw.agent_pos), raw.agent_dir)
            assert {fact for fact in visible_facts(ours) if fact.kind == "object"} == _facts_of_image(obs["image"])
            if over or capped:
                break


def test_level_names_are_those_minigrid_registers():
    registered = {spec.id.rpartition("-v")[0][7:] for spec in gym.registry.values() if spec.id.startswith("BabyAI-")}
    assert set(LEVELS) == registered
    assert len(LEVELS) == 96


@pytest.mark.parametrize("name", CARRYING)
def test_the_first_observation_shows_the_object_in_hand(name):
    text, _ = build(f"level-{name}").reset(seed=1)
    assert text.startswith("In your hand: a")


# ---- the mixed local level


@pytest.mark.parametrize("missions", ["train", "test"])
@pytest.mark.parametrize("kind", KINDS)
def test_missions_respect_their_split_and_levels_their_settings(kind, missions):
    for distractors in (8, 0):
        env = Local(kind=kind, missions=missions, distractors=distractors)
        for seed in range(4):
            _, info = env.reset(seed=seed)
            assert env.settings.max_steps == (64 if kind in ("goto", "pickup") else 128)
            named = set()
            instrs = env.engine.instrs
            for part in (instrs, getattr(instrs, "instr_a", None), getattr(instrs, "instr_b", None)):
                for attribute in ("desc", "desc_move", "desc_fixed"):
                    desc = getattr(part, attribute, None)
                    if desc is not None:
                        named.update((thing.type, thing.color) for thing in desc.obj_set)
            held_out = named & engines.HELD_OUT_OBJECTS
            assert held_out == (named if missions == "test" else set()), info["objective"]
            loose = [
                thing for thing in env.engine.grid.grid if thing is not None and thing.type not in ("wall", "door")
            ]
            assert len(loose) == distractors + (1 if kind in ("goto", "pickup", "open") else 2)
            if missions == "test" and kind == "open":
                assert any(color in info["objective"] for color in COLOR_NAMES)


def test_the_mission_kind_depends_only_on_the_seed():
    env, second_env = Local(), Local()
    first = [env.reset(seed=seed)[1]["labels"]["task_type"] for seed in range(60)]
    again = [second_env.reset(seed=seed)[1]["labels"]["task_type"] for seed in reversed(range(60))][::-1]
    assert first == again
    counts = [first.count(kind) for kind in KINDS]
    assert sum(counts) == 60
    assert min(counts) >= 4


# ---- the player's side


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(COMMANDS), st.text(max_size=80)), max_size=30))
def test_any_string_costs_one_step_and_admissible_commands_have_an_effect(commands):
    env = build("putnext-d8")
    env.reset(seed=5)
    for turn, command in enumerate(commands, 1):
        listed = env.admissible()
        _, reward, terminated, truncated, info = env.step(command)
        action = parse_command(command)
        assert info["is_action_valid"] == (action is not None and COMMANDS[action] in listed)
        assert env.engine.step_count == turn
        if terminated or truncated:
            break


@pytest.mark.parametrize(
    ("command", "action"),
    [("Turn LEFT.", 0), ("  go   forward ", 2), ("pick_up", 3), ("pickup", 3), ("'drop'", 4), ("toggle\n", 5)]
    + [("", None), ("done", None), ("x" * 10_000, None), ("avance", None), ("turn left turn left", None)],
)
def test_commands_are_parsed_leniently_but_not_guessed(command, action):
    assert parse_command(command) == action


def test_unknown_commands_are_echoed_short_and_printable():
    env = build("goto")
    env.reset(seed=0)
    text, *_ = env.step("\x1b[2J" + "x" * 10_000)
    assert "\x1b" not in text
    assert len(text.splitlines()[0]) < 200


def test_an_unknown_command_does_not_complete_a_mission():
    env = build("level-GoToDoor")
    env.reset(seed=0)
    door = next(thing for thing in env.engine.grid.grid if thing is not None and thing.type == "door")
    env.engine.instrs.desc.obj_poss = [tuple(env.engine.front_pos)]
    *_, info = env.step("")
    assert door is not None and not info["success"]
    *_, info = env.step("pick up")
    assert info["success"]


def test_a_destroyed_target_is_flagged_and_the_episode_continues_to_its_cap():
    env = build("pickup", reward_mode=RewardMode.SHAPED)
    for seed in range(200):
        _, info = env.reset(seed=seed)
        if "box" in info["objective"]:
            break
    plan = []
    while not plan or plan[-1] != "pick up":
        plan.append(env.expert("planner"))
        if plan[-1] != "pick up":
            env.step(plan[-1])
    _, reward, _, _, info = env.step("toggle")
    assert info["unsolvable"] and info["stop_reason"] is None
    assert env.remaining() is None and env.expert() is None
    assert reward < -0.5
    while info["stop_reason"] is None:
        *_, info = env.step("turn left")
    assert info["stop_reason"] is StopReason.MAX_STEPS and env.turn == 64


# ---- rewards


def test_dense_reward_equals_minigrids_and_is_paid_only_at_the_end():
    env = build("mixed", reward_mode=RewardMode.DENSE)
    for seed in range(6):
        env.reset(seed=seed)
        rewards, over = [], False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.expert())
            rewards.append(reward)
            over = terminated or truncated
        assert not any(rewards[:-1])
        assert rewards[-1] == pytest.approx(1 - 0.9 * len(rewards) / env.settings.max_steps)


def test_success_on_the_last_step_of_the_cap_counts():
    env = build("goto")
    _, commands = play(env, 3, Local.expert)
    env = build("goto", max_steps=len(commands))
    info, _ = play(env, 3, Local.expert)
    assert info["stop_reason"] is StopReason.SOLVED
    env = build("goto", max_steps=len(commands) - 1)
    info, _ = play(env, 3, Local.expert)
    assert info["stop_reason"] is StopReason.MAX_STEPS


def test_only_local_levels_offer_shaped_rewards():
    with pytest.raises(UsageError, match="no shaped reward"):
        build("medium", reward_mode=RewardMode.SHAPED)
    build("mixed", reward_mode=RewardMode.SHAPED)


# ---- errors, knobs, pictures


def test_an_unknown_level_suggests_the_nearest_name():
    with pytest.raises(BadKnob, match="Did you mean 'GoToLocal'"):
        build("medium", level="gotolocl")


@pytest.mark.parametrize(
    ("name", "knobs", "words"),
    [
        ("mixed", {"distractors": 12, "room_size": 6}, "do not fit into a room of size 6"),
        ("composed", {"rows": 1, "columns": 1}, "no door"),
        ("composed", {"distractors": 60, "rows": 1, "columns": 2}, "do not fit into"),
        ("composed", {"actions": ()}, "at least one value"),
        (
            "composed",
            {"actions": "putnext", "rows": 1, "columns": 1, "distractors": 1, "locked": 0},
            "needs two objects",
        ),
        ("goto", {"view": 6}, "cannot be 6"),
        ("goto", {"kind": "fetch"}, "goto"),
        ("goto", {"render_mode": "film"}, "rgb_array"),
    ],
)
def test_impossible_settings_are_rejected_in_one_line(name, knobs, words):
    with pytest.raises(UsageError, match=words) as refusal:
        build(name, **knobs)
    assert "\n" not in str(refusal.value)


def test_endless_generation_is_stopped_with_an_error(monkeypatch):
    monkeypatch.setattr(engines, "MAX_LAYOUTS", 3)
    env = Local(kind="putnext", missions="test")
    with pytest.raises(EngineFailure, match="another seed"):
        env.reset(seed=1)
    monkeypatch.setattr(engines, "MAX_DRAWS", 20)
    with pytest.raises(EngineFailure, match="random numbers"):
        build("mixed").reset(seed=1)


def test_done_actions_are_rejected_by_name(monkeypatch):
    monkeypatch.setattr(verifier, "use_done_actions", "1")
    engines.engine_class.cache_clear()
    with pytest.raises(UsageError, match="BABYAI_DONE_ACTIONS"):
        build("easy").reset(seed=0)


@pytest.mark.parametrize("view", [3, 5, 11])
def test_the_view_and_the_cap_can_be_set_on_every_level(view):
    for name in LEVELS[:: 12 - view]:
        env = build(f"level-{name}", view=view, max_steps=7)
        for fact in [fact for seed in (0, 1) for fact in (env.reset(seed=seed), visible_facts(env.engine))[1]]:
            assert max(fact.left, fact.right) <= view // 2 and fact.forward < view
        while not env._over:
            *_, info = env.step("turn left")
        assert env.turn <= 7


def test_composed_levels_follow_their_settings():
    env = build("composed", rows=1, columns=2, room_size=6, distractors=5, actions="pickup", mission="and", locked=0)
    for seed in range(5):
        _, info = env.reset(seed=seed)
        assert info["objective"].lower().count("pick up") == 2
        assert (env.engine.grid.width, env.engine.grid.height) == (11, 6)


def test_rendering():
    env = build("goto", render_mode="rgb_array")
    assert env.render() is None
    env.reset(seed=0)
    assert env.render().shape == (256, 256, 3)
    env = build("goto", render_mode="ansi")
    env.reset(seed=0)
    assert "WG" in env.render()
