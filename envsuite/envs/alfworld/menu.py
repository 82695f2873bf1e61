"""Registers the ALFWorld tasks."""

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

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
            kwargs={"games": split},
            split_ids=SPLIT_IDS,
            panel="envsuite.envs.alfworld.games.data:panel",
            summary=f"{summary}, from $ALFWORLD_DATA",
        )
    )


def register_generated(name: str, summary: str, level: str = "", **knobs: object) -> None:
    """Registers a task of generated games."""
    register(
        Task(
            id=f"ALFWorld-generated-{name}v0",
            entry_point="envsuite.envs.alfworld.env:AlfworldEnv",
            kwargs=knobs,
            splits=SPLITS,
            level=level,
            summary=summary,
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
        {"task_types": _SHORT, "receptacles": 6, "objects": 6, "hidden": 0.0, "numbers": "drawn"},
    ),
    "medium": (
        "generated: any task among 12 receptacles and 15 objects",
        {"receptacles": 12, "objects": 15, "numbers": "drawn"},
    ),
    "hard": (
        "generated: a long task in a full room, every target in a closed receptacle",
        {"task_types": _LONG, "hidden": 1.0, "numbers": "drawn"},
    ),
}
for level, (summary, knobs) in LEVELS.items():
    register_generated(f"{level}-", summary, level, **knobs)
