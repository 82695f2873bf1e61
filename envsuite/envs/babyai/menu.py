"""Registers the BabyAI tasks."""

from typing import Any

from envsuite.envs.babyai.levels import BANDS, KINDS
from envsuite.registry import register, register_family
from envsuite.types import Family, Task

CAPS = {"goto": 64, "pickup": 64}  # 128 for the other kinds


def register_task(name: str, cls: str, summary: str, level_name: str = "", **kwargs: Any) -> None:
    """Registers the task 'BabyAI-<name>-v0'."""
    split_ids = kwargs.pop("split_ids", {})
    register(
        Task(
            id=f"BabyAI-{name}-v0",
            entry_point=f"envsuite.envs.babyai.env:{cls}",
            kwargs=kwargs,
            requires="babyai",
            level=level_name,
            summary=summary,
            split_ids=split_ids,
        )
    )


register_family(
    Family(
        "babyai",
        default="BabyAI-mixed-v0",
        summary="missions in a grid world of rooms, doors and things, seen as text",
        requires="babyai",
        paper="Chevalier-Boisvert et al., ICLR 2019; BabyAI-Text: Carta et al., ICML 2023",
    )
)
register_task(
    "mixed",
    "Local",
    "BabyAI-Text's mixed local level, 8 distractors, training missions (GLAM)",
    split_ids={"heldout": "BabyAI-mixed-heldout-v0"},
)
register_task("mixed-heldout", "Local", "the same with held-out names only (GLAM)", missions="test")
for kind in KINDS:
    max_steps = CAPS.get(kind, 128)
    register_task(
        kind, "Local", f"{kind}, no distractors (BALROG, Verlog)", kind=kind, distractors=0, max_steps=max_steps
    )
    register_task(f"{kind}-d8", "Local", f"{kind}, 8 distractors (GLAM)", kind=kind, max_steps=max_steps)
register_task(
    "easy",
    "Local",
    "pick up one of thirteen things in a room of 8 x 8 cells, 20 turns",
    "easy",
    kind="pickup",
    room_size=10,
    distractors=12,
    max_steps=20,
)
register_task(
    "medium", "Level", "MiniBossLevel: missions of any kind in four small rooms", "medium", level="MiniBossLevel"
)
register_task(
    "hard", "Level", "BossLevel: missions of any kind in nine rooms, unlocking included", "hard", level="BossLevel"
)
register_task("composed", "Composed", "any rooms, distractors and make of mission, by knobs")
for level, band in sorted((level, band) for band, levels in BANDS.items() for level in levels):
    register_task(f"level-{level}", "Level", f"minigrid's BabyAI-{level}, band {band}", level=level)
