"""Suites fix every setting that changes a result, and refuse conflicting flags."""

import dataclasses
import importlib.util

import pytest

from envsuite import envs, registry
from envsuite.envs.alfworld.games.data import EXPECTED
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.errors import UsageError
from envsuite.types import Panel
from harness.cli.arguments.flags import read_call
from harness.cli.eval import parser
from harness.prompting import protocols
from harness.suites import suites
from harness.suites.plan import plan, under_protocol, under_suite


def planned(*words):
    args = parser().parse_args(["-m", "smollm2-135m", *words])
    return [run.config for run in plan(args.model[0], read_call(args).flags, args.env)]


@pytest.mark.parametrize("name", suites.read())
def test_every_suite_names_tasks_and_flags_that_exist(name):
    needs = [word for knob in suites.suite(name).get("needs", ()) for word in ("--set", f"{knob}=x")]
    fixed = under_suite(read_call(parser().parse_args(["-m", "x", "-e", "y", *needs])).flags, name)
    assert fixed["history"] == suites.suite(name)["history"]
    assert suites.tasks(name)


NAMED = [
    "verlog-babyai",
    "guide-textworld",
    "guide-alfworld",
    "poad-generalization",
    "poad-datasci",
    "balrog-babyai",
    "balrog-textworld",
    "alfworld-seen",
    "alfworld-unseen",
    "swegym-lite",
    "quick",
]


def test_every_suite_fixes_every_setting_that_changes_a_result():
    assert set(NAMED) <= set(suites.read())
    for name, fixed in suites.read().items():
        needed = ("history", "thinking", "admissible", "temperature", "max_tokens", *suites.STANDARD)
        assert not [key for key in needed if key not in fixed], name
        assert fixed["after"]


@pytest.mark.parametrize("name", [name for name, fixed in suites.read().items() if "protocol" in fixed])
def test_a_suite_is_played_under_its_published_prompt_and_under_no_other(name):
    protocol = protocols.load(suites.suite(name)["protocol"])
    settings = under_suite({"protocol": protocol.name}, name)
    for task in suites.tasks(name):
        flags = under_protocol(task, settings)
        assert flags["protocol"] == protocol.name and flags["history"] == protocol.flags["history"]
        assert flags["action_mode"] == protocol.flags.get("action_mode", "write")
    with pytest.raises(UsageError, match=f"not published with --protocol react: use --protocol {protocol.name}, or"):
        under_suite({"protocol": "react"}, name)
    with pytest.raises(UsageError, match="'quick' was not published with --protocol react: drop the flag"):
        under_suite({"protocol": "react"}, "quick")


def test_quick_plays_all_seven_families_of_the_papers():
    played = {task.family for task in suites.tasks("quick")}
    assert len(played) == 7 and played <= set(envs.FAMILIES)


def test_quick_plays_two_episodes_per_model_and_twenty_per_baseline():
    planned_runs = plan("smollm2-135m", {}, ["suite:quick"])
    assert {(run.config.episodes, run.baseline_episodes) for run in planned_runs} == {(2, 20)}


def test_a_panel_or_step_limit_that_differs_from_the_suite_is_refused(monkeypatch):
    task = registry.TASKS["ALFWorld-valid_seen-v0"]

    def games(count):
        return tuple(map(str, range(count)))

    suites.check_panel("alfworld-seen", task, Panel("seen", games(140), "bf393197e137786e"))
    with pytest.raises(UsageError, match=r"this machine holds 140 \(0000\)"):
        suites.check_panel("alfworld-seen", task, Panel("seen", games(140), "0000"))
    unseen = registry.TASKS["ALFWorld-valid_unseen-v0"]
    for name in ("alfworld-unseen", "guide-alfworld"):
        suites.check_panel(name, unseen, Panel("unseen", games(134), "cac2ad39790518f5"))
        with pytest.raises(
            UsageError, match=r"plays all 134 games \(panel cac2.*\) of .*, and this machine holds 1 \(one\)"
        ):
            suites.check_panel(name, unseen, Panel("unseen", games(1), "one"))
    goto = registry.TASKS["BabyAI-goto-v0"]
    monkeypatch.setitem(registry.TASKS, goto.id, dataclasses.replace(goto, kwargs={**goto.kwargs, "max_steps": 9}))
    with pytest.raises(UsageError, match="at 64 commands, the task here at 9"):
        suites.tasks("verlog-babyai")


def test_suites_name_the_number_of_games_of_each_official_panel():
    for name, fixed in suites.read().items():
        for task in suites.tasks(name):
            if task.id.removeprefix("ALFWorld-").removesuffix("-v0") in EXPECTED:
                assert fixed["games"][task.id] == EXPECTED[task.id.split("-")[1]], name


def test_an_incomplete_panel_is_refused_under_a_suites_name(tmp_path, monkeypatch):
    """Refuses a folder with one game; it could give 100 % under the suite's name."""
    if importlib.util.find_spec("alfworld") is None:
        pytest.skip("the package alfworld is not installed")
    game_file = tmp_path / "json_2.1.1/valid_unseen/pick_and_place_simple-Mug-None-Desk-1/trial_1/game.tw-pddl"
    game_file.parent.mkdir(parents=True)
    game_file.write_text(generate(0, GeneratorSettings(("pick_and_place_simple",), receptacles=6, objects=4)).text)
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"plays all 134 games \(.*\) of ALFWorld-valid_unseen-v0, and this machine holds 1 "
    ):
        planned("-e", "suite:alfworld-unseen")


def test_a_suite_sets_the_protocol_of_all_its_tasks():
    configs = planned("-e", "suite:verlog-babyai", "-n", "3")
    assert [config.task.id for config in configs][:2] == ["BabyAI-goto-v0", "BabyAI-pickup-v0"]
    assert all(config.prompting.history == 1 and config.episodes == 3 for config in configs)
    assert dataclasses.asdict(configs[0].sampling)["max_tokens"] == 512


def test_required_and_open_knobs_are_merged_with_the_fixed_ones():
    words = ["-e", "suite:swegym-lite", "--set", "records=x.jsonl", "--set", "sandbox=docker"]
    args = parser().parse_args(["-m", "x", *words])
    fixed = under_suite(read_call(args).flags, "swegym-lite")
    assert fixed["set"] == ("max_steps=100", "records=x.jsonl", "sandbox=docker")
    (task,) = suites.tasks("swegym-lite")
    assert registry.overrides(task, dict(word.split("=") for word in fixed["set"]))["max_steps"] == fixed["max_turns"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-e", "suite:verlog-babyai", "--history", "4"], "fixes --history 1"),
        (["-e", "suite:verlog-babyai", "-n", "1000"], "plays 100 episodes"),
        (["-e", "suite:verlog-babyai", "--history", "-1"], "fixes --history 1, not -1"),  # -1 is the default
        (["-e", "suite:guide-textworld", "--temperature", "0.0"], "fixes --temperature 0.4, not 0.0"),
        (["-e", "suite:verlog-babyai", "--reward", "dense"], "fixes --reward sparse"),
        (["-e", "suite:quick", "--baseline-episodes", "50"], "--baseline-episodes 50 is more"),
        (["-e", "suite:swegym-lite"], "needs --set records="),
        (["-e", "suite:swegym-lite", "--set", "records=x", "--set", "tests=hidden"], "fixes --set max_steps=100"),
        (["-e", "suite:verlog-babyia"], "Did you mean 'verlog-babyai'"),
    ],
)
def test_settings_that_conflict_with_a_suite_are_refused_by_name(words, message):
    with pytest.raises(UsageError, match=message):
        planned(*words)
