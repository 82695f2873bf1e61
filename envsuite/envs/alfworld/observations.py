"""Observation styles: how published agents present ALFWorld's feedback to their models.

A style maps (feedback, turn, task, commands) to text. `turn` is 0 for the opening; `commands` is
None unless the admissible commands are listed.
"""

from __future__ import annotations

from collections.abc import Callable

Style = Callable[[str, int, str, list[str] | None], str]


def raw(feedback: str, turn: int, task: str, commands: list[str] | None) -> str:
    """Returns the game's own text."""
    return feedback + listed(commands)


def react(feedback: str, turn: int, task: str, commands: list[str] | None) -> str:
    """ReAct (Yao et al., 2023): without welcome, blank lines and the sentence about the arrival."""
    if turn == 0:
        feedback = "\n".join(feedback.split("\n\n")[1:])
    elif feedback.startswith("You arrive at "):
        feedback = feedback.partition(". ")[2]
    return feedback + listed(commands)


def verl_agent(feedback: str, turn: int, task: str, commands: list[str] | None) -> str:
    """verl-agent (GiGPO; Feng et al., 2025): task, step number and observation on every turn,
    commands in quotes.
    """
    if turn:
        text = f"Your task is to: {task}\nYou are now at step {turn + 1} and your current observation is: {feedback}"
    else:
        text = f"Your current observation is: {feedback}"
    if commands is not None:
        quoted = "\n ".join(f"'{command}'" for command in commands if command != "help")
        text += f"\nYour admissible actions of the current situation are: [{quoted}]."
    return text


def listed(commands: list[str] | None) -> str:
    """Formats the admissible commands."""
    return "" if commands is None else "\nAdmissible commands: " + ", ".join(commands)


OBSERVATIONS: dict[str, Style] = {"raw": raw, "react": react, "verl-agent": verl_agent}
STYLES = tuple(OBSERVATIONS)
