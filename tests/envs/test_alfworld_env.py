"""The ALFWorld environment: rewards, observation styles, experts, states, and panels of official
games.
"""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import envsuite
from envsuite import registry
from envsuite.envs.alfworld.games import data, solver
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.errors import BadKnob, DataError, UsageError
from envsuite.types import StopReason

if importlib.util.find_spec("alfworld") is None:
    pytest.skip("the package alfworld is not installed", allow_module_level=True)

GENERATED = [task.id for task in envsuite.tasks("ALFWorld-generated-*")]


@pytest.fixture
def official(shared, monkeypatch):
    """Sets $ALFWORLD_DATA to the official games."""
    monkeypatch.setenv(data.DATA_VARIABLE, str(shared / "data" / "alfworld"))
    return shared


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Creates a data folder with six games, which tests may damage; returns the game files."""
    files = []
    for seed in range(6):
        made = generate(seed, GeneratorSettings(receptacles=8, objects=8))
        path = tmp_path / "json_2.1.1/valid_seen" / made.name.removeprefix("generated/") / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_text(made.text)
        files.append(path)
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    return sorted(files)


def play(env, seed, commands=None):
    """Plays an episode with the expert, or the given commands; returns (rewards, last info)."""
    env.reset(seed=seed)
    rewards, over = [], False
    todo = iter(commands) if commands is not None else iter(lambda: env.expert(), None)
    info = {}
    for command in todo:
        _, reward, terminated, truncated, info = env.step(command)
        rewards.append(reward)
        over = terminated or truncated
        if over:
            break
    return rewards, info


@pytest.mark.parametrize("task", GENERATED)
def test_the_expert_wins_every_generated_game_in_the_exact_number_of_commands(task):
    env = registry.build(task)
    for seed in [*range(12), *range(1_000_000, 1_000_006), *range(2_000_000, 2_000_006)]:
        env.reset(seed=seed)
        needed = env.remaining()
        rewards, info = play(env, seed)
        assert info["won"] and info["score"] == 1 and info["stop_reason"] is StopReason.SOLVED
        assert len(rewards) == needed and rewards[-1] == 1.0 and sum(rewards) == 1.0


def test_the_expert_wins_all_of_valid_seen_in_the_golden_number_of_commands(official):
    golden = json.loads((official / "golden/alfworld/optimal_lengths.json").read_text())
    env = registry.build("ALFWorld-valid_seen-v0")
    for seed in range(140):
        rewards, info = play(env, seed)
        assert info["won"]
        name = env.labels()["instance"]
        assert len(rewards) == golden[f"{name}/game.tw-pddl"]
        assert info["extra.gamefile"].endswith(f"{name}/game.tw-pddl")


# ---- rewards


@pytest.mark.parametrize("task", ["pick", "look", "clean", "heat", "cool", "two"])
def test_dense_rewards_sum_to_one_only_in_solved_games(task):
    env = registry.build(f"ALFWorld-generated-{task}-v0", "dense")
    for seed in range(8):
        rewards, info = play(env, seed)
        assert info["won"] and sum(rewards) == pytest.approx(1.0) and info["progression"] == 1.0
        rewards, info = play(env, seed, ["look"] * 50)
        assert sum(rewards) == 0.0 and info["stop_reason"] is StopReason.MAX_STEPS
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, info = env.step(env.random_command(rng))
            total, over = total + reward, terminated or truncated
            assert reward >= 0 and info["progression"] == pytest.approx(total)
        assert total == pytest.approx(1.0) if info["won"] else total < 0.9


def test_dense_reward_cannot_be_farmed():
    env = registry.build("ALFWorld-generated-pick-v0", "dense", max_steps=400)
    env.reset(seed=1)
    plan = solver.commands(env._native.game, env._native.get_state())
    take = next(command for command in plan if command.startswith("take"))
    thing, place = take.removeprefix("take ").split(" from ")
    for command in plan[: plan.index(take)]:
        env.step(command)
    dense_rewards = [sum(env.step(command)[1] for command in (take, f"put {thing} in/on {place}")) for _ in range(20)]
    assert dense_rewards[0] > 0 and not any(dense_rewards[1:])


def test_the_subgoals_of_a_heating_task_pay_as_documented():
    env = registry.build("ALFWorld-generated-heat-v0", "dense", hidden=0.0)
    for seed in range(10):
        env.reset(seed=seed)
        dense_rewards = {}
        while not env.success:
            command = env.expert()
            dense_rewards[command.split()[0]] = round(env.step(command)[1], 9) or dense_rewards.get(
                command.split()[0], 0.0
            )
        assert (dense_rewards["take"], dense_rewards["heat"], dense_rewards["put"], dense_rewards["go"]) == (
            0.2,
            0.3,
            0.4,
            0.1,
        )


def test_shaped_rewards_keep_the_optimal_policy():
    env = registry.build("ALFWorld-generated-v0", "shaped", shaping_gamma=0.9)
    for seed in range(5):
        env.reset(seed=seed)
        start, total, discount, over = env._potential, 0.0, 1.0, False
        while not over:
            _, reward, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
            total += discount * (reward - float(info["success"]))
            discount *= 0.9
        assert total == pytest.approx(-start) and start == -1.0


# ---- words and commands


def test_inadmissible_commands_cost_a_turn_and_change_nothing():
    env = registry.build("ALFWorld-generated-v0")
    _, before = env.reset(seed=4)
    for command in ("", "dance", "go to nowhere 1", "GO TO FRIDGE 1", "look.", "\ud800", "x" * 10_000):
        text, reward, _, _, info = env.step(command)
        assert text == "Nothing happens." and not info["is_action_valid"] and reward == 0
        assert info["admissible_commands"] == before["admissible_commands"]
    assert env.step("  look ")[4]["is_action_valid"]
    assert env.turn == 8


def test_the_dialect_determines_the_put_command():
    for dialect, word, unused_word in (("2.1.1", "put", "move"), ("0.4", "move", "put")):
        env = registry.build("ALFWorld-generated-pick-v0", dialect=dialect)
        env.reset(seed=0)
        assert env.labels()["dialect"] == dialect
        assert f"\n  {word} (object)" in env.instructions and f"\n  {unused_word} (object)" not in env.instructions
        while not env.success:
            command = env.expert()
            env.step(command)
        assert command.startswith(word)
        env.reset(seed=0)
        assert ("help" in env.admissible()) == (dialect == "0.4")


def test_a_game_from_a_file_is_remade_in_the_other_dialect(folder):
    file, remade = (registry.build("ALFWorld-valid_seen-v0", dialect=dialect) for dialect in ("file", "0.4"))
    file.reset(seed=1), remade.reset(seed=1)
    assert file.labels() | {"dialect": "0.4"} == remade.labels() and file.labels()["dialect"] == "2.1.1"
    place = file.admissible()[0].removeprefix("go to ")
    assert "You arrive at loc" in file.step(f"go to {place}")[0]
    assert f"You arrive at {place}." in remade.step(f"go to {place}")[0]


def test_observation_styles_of_published_agents():
    observations = {}
    for style in ("raw", "react", "verl-agent"):
        env = registry.build("ALFWorld-generated-v0", observation=style, list_commands=style == "verl-agent")
        opening, info = env.reset(seed=0)
        command = info["admissible_commands"][0]
        observations[style] = opening, env.step(command)[0]
    opening, text = observations["raw"]
    assert opening.startswith("-= Welcome to TextWorld, ALFRED! =-\n\n") and text.startswith("You arrive at loc")
    assert observations["react"] == ("\n".join(opening.split("\n\n")[1:]), text.partition(". ")[2])
    opening, text = observations["verl-agent"]
    assert (
        "You are now at step 2 and your current observation is: You arrive at" in text and "Your task is to: " in text
    )
    assert "Your admissible actions of the current situation are: ['" in text and "'look'" in text
    env = registry.build("ALFWorld-generated-v0", list_commands=True)
    assert env.reset(seed=0)[0].endswith("Admissible commands: " + ", ".join(env.admissible()))


@pytest.mark.parametrize("dialect", ["2.1.1", "0.4"])
@pytest.mark.parametrize("style", ["raw", "react", "verl-agent"])
def test_every_observation_style_works_with_and_without_commands(style, dialect):
    plain, listing = (
        registry.build("ALFWorld-generated-v0", observation=style, dialect=dialect, list_commands=listed)
        for listed in (False, True)
    )
    observations = [env.reset(seed=3)[0] for env in (plain, listing)]
    for turn in range(6):
        commands = [command for command in plain.admissible() if style != "verl-agent" or command != "help"]
        tail = {
            "verl-agent": "\nYour admissible actions of the current situation are: ['" + "'\n '".join(commands) + "'].",
        }.get(style, "\nAdmissible commands: " + ", ".join(commands))
        assert observations[1] == observations[0] + tail
        if style != "raw" and turn:
            assert ("You arrive at" in observations[0]) == (style == "verl-agent")
        command = [c for c in commands if c.startswith("go to")][turn]
        observations = [env.step(command)[0] for env in (plain, listing)]


def test_a_dead_end_is_flagged_on_the_turn_it_is_entered():
    env = registry.build("ALFWorld-generated-pick-v0", rooms="kitchen")
    for seed in range(200):
        env.reset(seed=seed)
        rolls = [f"papertowelroll {n}" for n in (1, 2)]
        places = [
            r
            for r, row in zip(*_seen(env), strict=False)
            if not {*rolls}.isdisjoint(row) and f"go to {r}" in env.admissible()
        ]
        if places:
            break
    command = f"go to {places[0]}"
    assert not env.step(command)[4]["dead_end"]
    take = next(command for command in env.admissible() if command.startswith("take papertowelroll"))
    assert env.step(take)[4]["dead_end"] and env.remaining() is None
    assert env.step("look")[4]["dead_end"]


def _seen(env):
    """Returns the names of open receptacles, and their contents."""
    game = env._native.game
    open_ones = [r for r in range(len(game.receptacles)) if not game.openable >> r & 1]
    return [game.receptacles[r] for r in open_ones], [
        [game.objects[o] for o in game.start.contents[r]] for r in open_ones
    ]


# ---- states


def test_a_saved_state_is_restored_completely():
    env = registry.build("ALFWorld-generated-v0", "dense")
    rng = np.random.default_rng(0)
    for seed in range(6):
        env.reset(seed=seed)
        for _ in range(12):
            env.step(env.random_command(rng))
        saved, commands = env.get_state(), env.admissible()
        hash(saved)
        first = [env.step(env.expert()) for _ in range(3)]
        after = env.get_state()
        env.set_state(saved)
        assert env.get_state() == saved and env.admissible() == commands
        assert [env.step(env.expert()) for _ in range(3)] == first and env.get_state() == after
    env.reset(seed=99)
    with pytest.raises(UsageError, match="reset to its seed first"):
        env.set_state(saved)


# ---- official data


def test_the_panel_holds_the_official_games_in_a_fixed_order(official):
    task = envsuite.tasks("ALFWorld-valid_seen")[0]
    panel = registry.panel(task)
    assert (len(panel), panel.expected, panel.name) == (140, 140, "alfworld/valid_seen")
    assert panel.digest == "bf393197e137786e"
    assert len({name.split("/")[1].split("-")[0] for name in panel.games[:6]}) == 6
    assert (len(registry.panel(envsuite.tasks("ALFWorld-train")[0])), data.EXPECTED["train"]) == (200, 3553)
    env = registry.build(task)
    for seed in (0, 7, 139, 140):
        env.reset(seed=seed)
        assert env.labels()["instance"] == panel.games[seed % 140]


def test_the_default_task_is_official_only_if_the_data_is_present(folder, monkeypatch):
    notices = []
    assert envsuite.tasks("alfworld", notices)[0].id == "ALFWorld-valid_seen-v0" and not notices
    monkeypatch.delenv(data.DATA_VARIABLE)
    assert envsuite.tasks("alfworld", notices)[0].id == "ALFWorld-generated-v0"
    assert "ALFWORLD_DATA is not set" in notices[0] and "not comparable" in notices[0]


def test_missing_and_broken_data_errors_name_the_file_and_the_fix(folder, monkeypatch):
    assert len(data.games("valid_seen")) == 6
    with pytest.raises(DataError, match=r"does not contain json_2.1.1/train: .*envsuite data get alfworld"):
        registry.build("ALFWorld-train-v0")
    for spoilt, why in (
        (b"{", "Expecting"),
        (b"[1]", "pddl_domain"),
        (b"\xff\xfe", "utf-8"),
        (b"[" * 100_000, "recursion"),
        (b" " * 4_000_001, "larger than 4,000,000 bytes"),
    ):
        content = folder[0].read_bytes()
        folder[0].write_bytes(spoilt)
        with pytest.raises(DataError, match="Fetch it again") as caught:
            registry.build("ALFWorld-valid_seen-v0")
        assert str(folder[0]) in str(caught.value) and why in str(caught.value)
        folder[0].write_bytes(content)
    folder[1].unlink()  # trials without a game file are skipped, as in ALFWorld
    assert len(data.games("valid_seen")) == 5
    monkeypatch.delenv(data.DATA_VARIABLE)
    with pytest.raises(DataError, match=r"ALFWORLD_DATA is not set.*ALFWorld-generated-v0"):
        registry.build("ALFWorld-valid_seen-v0")


def test_games_flagged_unsolvable_are_listed_and_playable_but_never_in_the_panel(folder):
    # The first game is solvable despite the flag; the second lacks the object of its goal.
    for path, solvable in ((folder[0], True), (folder[1], False)):
        game = json.loads(path.read_text())
        game["solvable"] = False
        if not solvable:
            start, goal = game["pddl_problem"].split("(:goal")
            lines = [line for line in start.split("\n") if "(inReceptacle " not in line]
            game["pddl_problem"] = "\n".join(lines) + "(:goal" + goal
        path.write_text(json.dumps(game))
    task = envsuite.tasks("ALFWorld-valid_seen")[0]
    assert len(registry.panel(task)) == 4 and len(registry.panel(task, flagged=True)) == 2
    assert registry.panel(task, flagged=True).name == "alfworld/valid_seen/flagged"
    assert "4 of 140 games present, and 2 flagged unsolvable" in data.summary(folder[0].parents[4])
    env = registry.build(task, flagged=True)
    lengths = {}
    for seed in range(2):
        env.reset(seed=seed)
        lengths[env.labels()["instance"]] = env.remaining()
        assert env.step("look")[4]["is_action_valid"]
    assert sorted(lengths.values(), key=str)[1] is None and any(lengths.values())


def test_the_index_notices_a_changed_file(folder):
    before = registry.panel(envsuite.tasks("ALFWorld-valid_seen")[0])
    text = folder[0].read_text()
    folder[0].write_text(text + " ")
    after = registry.panel(envsuite.tasks("ALFWorld-valid_seen")[0])
    assert before.games == after.games and before.digest != after.digest
    folder[0].write_text(text)
    assert registry.panel(envsuite.tasks("ALFWorld-valid_seen")[0]) == before


def test_impossible_settings_are_rejected():
    with pytest.raises(BadKnob, match="dialect"):
        registry.build("ALFWorld-generated-v0", dialect="3.0")
    with pytest.raises(BadKnob, match="task_types"):
        registry.build("ALFWorld-generated-v0", task_types="pick_and_eat")
    env = registry.build("ALFWorld-generated-heat-v0", rooms="bath")
    with pytest.raises(UsageError, match="do not occur in bath"):
        env.reset(seed=0)


def test_a_failed_download_explains_the_manual_steps(tmp_path, monkeypatch):
    if not data.download_script().is_file():
        pytest.skip("alfworld-download is not installed")
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for variable in ("HTTPS_PROXY", "https_proxy"):  # no server listens on this port
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"github.com.*another machine.*ALFWORLD_DATA"):
        data.download()


HIDDEN = "import sys\nsys.modules['alfworld'] = sys.modules['textworld'] = None\n"
PLAY = """
from envsuite import registry
env = registry.build("ALFWorld-generated-v0")
print(env.reset(seed=7)[0])
while not env.success:
    print(env.step(env.expert())[0])
"""


def test_games_are_the_same_without_the_package_whose_files_are_downloaded_once(tmp_path):
    plain = {**os.environ, "ENVSUITE_CACHE": str(tmp_path)}
    offline = {**plain, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}

    def play(code, environment):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)

    refused = play(HIDDEN + PLAY, offline)
    assert "could not download alfworld==0.4.2" in refused.stderr and "install the package" in refused.stderr
    first = play(HIDDEN + PLAY, plain)
    assert first.returncode == 0, first.stderr
    assert first.stdout == play(HIDDEN + PLAY, offline).stdout == play(PLAY, plain).stdout != ""


def test_the_textworld_engine_refuses_drawn_numbers():
    with pytest.raises(UsageError, match="use numbers=consecutive, or engine=native"):
        registry.build("ALFWorld-generated-easy-v0", engine="textworld")


def test_without_textworld_the_stock_engine_names_its_extra_and_official_games_still_play(folder):
    code = """
from envsuite import registry
from envsuite.errors import MissingExtra
try:
    registry.build("ALFWorld-valid_seen-v0", engine="textworld")
except MissingExtra as error:
    print(error)
env = registry.build("ALFWorld-valid_seen-v0")
env.reset(seed=0)
while not env.success:
    env.step(env.expert())
print("won")
"""
    done = subprocess.run([sys.executable, "-c", HIDDEN + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing, won = done.stdout.splitlines()
    assert won == "won" and "pip install 'envsuite[alfworld-stock]'" in missing
