"""envsuite: text environments for language-model agents."""

from envsuite import envs as _menu  # noqa: F401  registers the tasks; imports no engine
from envsuite import plugins as _plugins
from envsuite.core import TextEnv
from envsuite.errors import EnvsuiteError
from envsuite.registry import make, register, register_family, tasks
from envsuite.spaces import Prose
from envsuite.tools import Tool
from envsuite.types import Family, Knob, Outcome, Panel, RewardMode, StopReason, Task

__version__ = "0.1.0"
__all__ = [
    "EnvsuiteError",
    "Family",
    "Knob",
    "Outcome",
    "Panel",
    "Prose",
    "RewardMode",
    "StopReason",
    "Task",
    "TextEnv",
    "Tool",
    "make",
    "register",
    "register_family",
    "tasks",
]

_plugins.load_declared()
