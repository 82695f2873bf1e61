"""Registers the ALFWorld tasks."""

from dataclasses import replace

from envsuite.registry import TASKS, register, register_family
from envsuite.types import Family, Task

VECTOR = "envsuite.envs.alfworld.vector:AlfworldVectorEnv"
GENERATED = (
    ("envsuite.envs.alfworld.env:AlfworldEnv", VECTOR, "typical rooms"),
    (
        "envsuite.envs.alfworld.counted:CountedAlfworldEnv",
        "envsuite.envs.alfworld.counted:CountedAlfworldVectorEnv",
        "rooms furnished and filled as each floor plan is",
    ),
)
"""By version of the generated tasks: environment, vector environment, and what their rooms are like. Version 2 of the
levels has the rooms of version 1."""
OFFICIAL = {
    "train": "the 3,553 solvable training games",
    "valid_seen": "140 games in rooms of the training set",
    "valid_unseen": "134 games in four rooms never trained in",
}
OFFICIAL_CLASSES = {"train": "AlfworldTrain", "valid_seen": "AlfworldValidSeen", "valid_unseen": "AlfworldValidUnseen"}
TYPES = {
    "pick": ("pick_and_place_simple", "put an object somewhere"),
    "look": ("look_at_obj_in_light", "look at an object under a lamp"),
    "clean": ("pick_clean_then_place_in_recep", "clean an object and put it somewhere"),
    "heat": ("pick_heat_then_place_in_recep", "heat an object and put it somewhere"),
    "cool": ("pick_cool_then_place_in_recep", "cool an object and put it somewhere"),
    "two": ("pick_two_obj_and_place", "put two objects alike in one place"),
}
# `test_unseen` uses the floor plans of valid_unseen; all other seeds use the other 116.
SPLITS = {
    "train": range(0, 1_000_000),
    "test_unseen": range(2_000_000, 2_001_000),
    "test": range(1_000_000, 1_001_000),
}
SPLIT_IDS = {split: f"ALFWorld-{split}-v0" for split in OFFICIAL}

register_family(
    Family(
        "alfworld",
        default="envsuite.envs.alfworld.games.data:default_task",
        summary="household tasks in text: official games and generated ones",
        paper="Shridhar et al., ALFWorld: Aligning Text and Embodied Environments for Interactive Learning, ICLR 2021",
    )
)

for split, summary in OFFICIAL.items():
    register(
        Task(
            id=SPLIT_IDS[split],
            entry_point=f"envsuite.envs.alfworld.official:{OFFICIAL_CLASSES[split]}",
            vector_entry_point=VECTOR,
            kwargs={"games": split},
            split_ids=SPLIT_IDS,
            panel="envsuite.envs.alfworld.games.data:panel",
            summary=f"{summary}, from $ALFWORLD_DATA",
        )
    )


BLIND_SHARES = {"easy": 0.8, "medium": 0.7, "hard": 0.8}
"""Largest blind success by level of versions 0 and 1: they number objects and receptacles alike in all rooms, so that a
script can try the usual places."""


def register_generated(name: str, summary: str, level: str = "", **kwargs: object) -> None:
    """Registers all versions of a task of generated games: 0 and 1; a level also has version 2, with drawn numbers."""
    for version, (entry, vector, rooms) in enumerate(GENERATED):
        register(
            Task(
                id=f"ALFWorld-generated-{name}v{version}",
                entry_point=entry,
                vector_entry_point=vector,
                kwargs=kwargs,
                splits=SPLITS,
                level=level,
                blind_share=BLIND_SHARES.get(level, Task.blind_share),
                summary=f"{summary}; {rooms}" if version else summary,
            )
        )
    if level:
        counted = TASKS[f"ALFWorld-generated-{name}v1"]
        register(
            replace(
                counted,
                id=f"ALFWorld-generated-{name}v2",
                kwargs={**kwargs, "numbers": "drawn"},
                blind_share=Task.blind_share,
                summary=f"{counted.summary}, and numbers are drawn",
            )
        )


register_generated("", "generated games, in kind and number like the official ones")
for name, (task_type, summary) in TYPES.items():
    register_generated(f"{name}-", f"generated: {summary}", task_types=(task_type,))
_SHORT = ("pick_and_place_simple", "look_at_obj_in_light")
_LONG = (
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)
LEVELS: dict[str, tuple[str, dict[str, object]]] = {
    "easy": (
        "generated: a short task among 6 receptacles and 6 objects, nothing hidden",
        {"task_types": _SHORT, "receptacles": 6, "objects": 6, "hidden": 0.0},
    ),
    "medium": (
        "generated: any task among 12 receptacles and 15 objects",
        {"receptacles": 12, "objects": 15},
    ),
    "hard": (
        "generated: a long task in a full room, every target in a closed receptacle",
        {"task_types": _LONG, "hidden": 1.0},
    ),
}
for level, (summary, knobs) in LEVELS.items():
    register_generated(f"{level}-", summary, level, **knobs)
