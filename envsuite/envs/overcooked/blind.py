"""Script of the blind player in a generated kitchen: it reads the order and never looks at the kitchen."""

from __future__ import annotations

from collections.abc import Sequence


def blind_commands(order: Sequence[str], boards: int) -> list[str]:
    """Returns macro-actions that serve an order: fill all boards, gather the chopped foods, repeat, serve.

    Commands find their way by themselves, so the script needs neither walls nor positions.
    """
    commands: list[str] = []
    for first in range(0, len(order), boards):
        batch = order[first : first + boards]
        if first:
            commands.append("go to counter")  # puts the bowl down
        for number, food in enumerate(batch):
            commands += [f"get {food}", f"go to knife {number + 1}", "chop"]
        commands.append("get plate 1")
        commands += [f"get {food}" for food in batch]
    return [*commands, "deliver"]
