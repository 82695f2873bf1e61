"""The blind player: scripts that read only the objective, and the check that a level is not won by one."""

import dataclasses

import pytest

import envsuite
from envsuite import registry
from envsuite.checks import players
from envsuite.checks.demand import NotJudged
from envsuite.envs.textworld.blind import blind_commands, brief_goal, brief_goal_commands
from envsuite.envs.textworld.blind_scripts import SCRIPTS
from envsuite.envs.textworld.menu import LEVELS
from envsuite.errors import UsageError
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from tests.toys import HiLo


class Scripted(HiLo):
    """A guessing game whose number is always the same, so that one command wins every episode."""

    def _reset(self, seed):
        return super()._reset(5)

    def blind_script(self):
        twin = HiLo(**vars(self.settings))
        twin.reset(seed=5)
        return [twin.expert()]


def stated(task):
    """What `envsuite check` states about the blind player; AssertionError if the check fails, NotJudged if it does
    not apply.
    """
    return players.blind(lambda: registry.build(task), task)


@pytest.mark.parametrize("version", [0, 1])
def test_the_check_fails_a_level_that_a_script_wins(version):
    task = envsuite.Task(f"Scripted-v{version}", f"{__name__}:Scripted", {"size": 2}, level="easy")
    with pytest.raises(AssertionError, match="50 of 50 games won by the blind player, more than 20%"):
        stated(task)


def test_the_check_only_states_the_share_where_the_task_declares_it_or_is_no_level():
    task = envsuite.Task("Scripted-v0", f"{__name__}:Scripted", {"size": 2}, level="easy", blind_share=1.0)
    with pytest.raises(NotJudged, match="50 of 50 games won by the blind player; the level declares up to 100%"):
        stated(task)
    with pytest.raises(NotJudged, match="only levels must keep it below 20%"):
        stated(dataclasses.replace(task, level="", blind_share=0.2))


FAST = ("alfworld", "babyai", "virtualhome")  # other families take seconds for a level, or have engines of their own


@pytest.mark.parametrize(
    "task_id",
    sorted(task.id for task in registry.tasks("*") if task.level and task.family in FAST),
)
def test_a_script_wins_few_games_of_every_level(task_id):
    assert stated(registry.TASKS[task_id]).endswith("of 50 games won by the blind player")


def test_no_level_declares_a_share():
    levels = [task for task in registry.tasks("*") if task.level]
    assert {task.id for task in levels} >= {
        "ALFWorld-generated-easy-v0",
        "BabyAI-easy-v0",
        "TextWorld-easy-v0",
        "TextWorld-medium-v0",
        "TextWorld-hard-v0",
    }
    assert [task.id for task in levels if task.blind_share != players.MAX_BLIND_SHARE] == []


def test_a_family_without_a_script_says_so(tmp_path):
    with pytest.raises(NotJudged, match="no blind player"):
        stated(registry.TASKS["HiLo-v0"])
    config = RunConfig(registry.TASKS["HiLo-v0"], "blind", episodes=1)
    with pytest.raises(UsageError, match="has no blind player"):
        evaluate(config, tmp_path, lambda: make_policy("blind"))


@pytest.mark.parametrize(
    ("task_id", "success"), [("Overcooked-tomato_salad-v0", 1.0), ("VirtualHome-entertainment-v0", 1.0)]
)
def test_the_policy_blind_plays_the_script(task_id, success, tmp_path):
    results = []
    config = RunConfig(registry.TASKS[task_id], "blind", episodes=4)
    evaluate(config, tmp_path, lambda: make_policy("blind"), on_episode=lambda record, run: results.append(run))
    assert sum(run.success for run in results) / len(results) == success


@pytest.mark.parametrize("task_id", ["Overcooked-hard-v0", "VirtualHome-hard-v0", "BabyAI-hard-v0"])
def test_a_script_depends_on_the_objective_and_on_no_observation(task_id):
    """The commands are the same whatever has been played before."""
    task = registry.TASKS[task_id]
    if task.requires == "babyai":
        pytest.importorskip("minigrid")
    first, second = registry.build(task), registry.build(task)
    first.reset(seed=3)
    second.reset(seed=3)
    planned = list(first.blind_script())
    for command in second.admissible()[:3]:
        second.step(command)
    assert planned and list(second.blind_script()) == planned
    assert first.blind() == planned[0]


def test_sentences_of_a_quest_become_commands():
    objective = (
        "Welcome! First step, make an attempt to go to the west. After that, pick up the cane from the box inside the "
        "cellar. Then, insert the latchkey into the safe's lock to unlock it. Then, ensure that the type J chest is open. "
        "Then, place the tv on the shelf inside the bedchamber. Got that? Good!"
    )
    assert blind_commands(objective) == [
        "go west",
        "take cane",
        "unlock safe with latchkey",
        "open type J chest",
        "put tv on shelf",
    ]
    assert blind_commands("Find out what there is to do.") == ["look"]


@pytest.mark.parametrize(
    ("objective", "kind", "names"),
    [
        (
            "Your task for today is to insert the mouse into the bureau inside the studio.",
            "insert",
            ["bureau", "mouse"],
        ),
        ("You can put the dvd inside the display in the vault.", "insert", ["display", "dvd"]),
        ("Hey! Please sit the type R sponge on the shelf.", "put", ["shelf", "type R sponge"]),
        ("Doublecheck that the type 3 box within the steam room is locked.", "lock", ["type 3 box"]),
        ("Put the key into the safe to lock it.", "lock with", ["key", "safe"]),
        ("Insert the key into the box in the den's lock to unlock it.", "unlock with", ["box", "key"]),
        ("Unlock the box in the den.", "unlock", ["box"]),
        ("Look and see that the chest in the playroom is opened.", "open", ["chest"]),
        ("Please toss the worm on the floor of the cookery.", "drop", ["worm"]),
        ("Take the kettle from the locker inside the dish-pit.", "take", ["kettle", "locker"]),
        ("Eat the fondue.", "eat", ["fondue"]),
    ],
)
def test_a_brief_goal_becomes_a_search_that_fits_the_turns(objective, kind, names):
    found, by_role = brief_goal(objective)
    assert found == kind
    assert sorted(by_role.values()) == names
    script = brief_goal_commands(objective, 16)
    assert len(script) <= 16
    assert kind == "take" or any(all(name in command for name in names) for command in script)
    assert any(command.startswith("go ") for command in script)


def test_a_detailed_objective_that_names_no_key_is_completed():
    objective = (
        "First, open the chest. Having opened the chest, take the type J key from the chest. Then, unlock the safe in "
        "the den. After that, check that the box is locked with the latchkey."
    )
    assert blind_commands(objective) == [
        "open chest",
        "take type J key",
        "unlock safe",
        "unlock safe with type J key",
        "lock box with latchkey",
    ]
    assert blind_commands("Unlock the safe.") == [
        "unlock safe",
        *(f"unlock safe with {key}" for key in ("key", "keycard", "latchkey", "passkey")),
    ]


@pytest.mark.parametrize("turns", [16, 24, 50])
@pytest.mark.parametrize(
    ("objective", "last_command"),
    [
        ("Put the dvd on the shelf.", "put dvd on shelf"),
        ("Eat the fondue.", "eat fondue"),
        ("Open the safe.", "open safe"),
        ("Lock the safe with the key.", "close safe"),
        ("Unlock the safe with the key.", "unlock safe with key"),
        ("Take the dvd from the rack.", "take all but me"),
    ],
)
def test_scripts_of_larger_houses_fit_the_turns(objective, last_command, turns):
    script = brief_goal_commands(objective, turns)
    assert len(script) <= turns and last_command in script
    assert not any("{" in command for command in script)


def test_every_level_has_scripts_of_its_turns():
    assert [knobs["max_steps"] for knobs in LEVELS.values()] == list(SCRIPTS)


def test_an_objective_without_a_brief_goal_is_read_sentence_by_sentence():
    assert brief_goal("Find out what there is to do.") is None
    assert brief_goal_commands("Find out what there is to do.", 50) == ["look"]
