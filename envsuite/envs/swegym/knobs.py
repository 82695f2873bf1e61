"""The knobs of SWE-Gym's environment: instances, issue and tests, rewards, limits, sandbox."""

from __future__ import annotations

from envsuite.envs.swegym.mined.tasks import LEVELS
from envsuite.envs.swegym.planted.issues import DETAILS
from envsuite.sandbox import drivers
from envsuite.types import Knob

KNOBS = (
    Knob("max_steps", 50, "commands until the repository is graded as it is", low=1),
    Knob("records", "", "file of SWE-Gym or SWE-bench records, or folder of instances, instead of planted tasks"),
    Knob("data_split", "", "split of a data set on the hub; default: train of SWE-Gym, test of SWE-bench"),
    Knob(
        "mined",
        "",
        "level of mined tasks, by the size of the patch, instead of planted tasks",
        choices=("", *LEVELS, "all"),
    ),
    Knob("published", False, "play published records only, those that `records` names"),
    Knob("instances", (), "only these instances, by id", trusted_only=False),
    Knob("deny", (), "instances to exclude, by id, or a file of ids: broken or flaky ones"),
    Knob("tasks", "", "folder of planted tasks, instead of the shipped ones"),
    Knob("package", (), "packages of planted tasks, by name; none: all", trusted_only=False),
    Knob("split", "test", "packages to use: packages are split, not their tasks", choices=("train", "test", "all")),
    Knob("bugs", 0, "bugs planted; 0: any number", low=0, high=4),
    Knob("files", 0, "files that contain a bug; 0: any number", low=0, high=3),
    Knob("size", 0, "largest number of lines of code of the package; 0: any", low=0),
    Knob("statement", "symptom", "level of detail of the issue", choices=DETAILS),
    Knob(
        "tests",
        "visible",
        "the failing tests are in the agent's copy (visible) or not; those of records and mined tasks never are",
        choices=("visible", "hidden"),
    ),
    Knob("dense", "f2p_gated", "definition of the dense reward", choices=("f2p_gated", "pass_ratio")),
    Knob("pay", "end", "when the dense reward is paid", choices=("end", "turn")),
    Knob("seconds", 0.0, "wall clock of an episode; 0: no limit", low=0.0, high=1e6),
    Knob("command_seconds", 60.0, "wall clock of one command", low=0.1, high=36_000.0, trusted_only=True),
    Knob("grade_seconds", 600.0, "wall clock of one run of the tests", low=1.0, high=36_000.0, trusted_only=True),
    Knob("characters", 10_000, "characters of a command's output to show", low=100, high=10_000_000),
    Knob("memory_mb", 2048, "memory of a command", low=64, high=1_000_000, trusted_only=True),
    Knob("disk_mb", 512, "disk of the repository and /tmp", low=16, high=1_000_000, trusted_only=True),
    Knob(
        "sandbox",
        "auto",
        "sandbox driver; `process` offers no protection",
        choices=("auto", *drivers.DRIVERS),
        trusted_only=True,
    ),
    Knob("warm", True, "start the next episode's sandbox during the present one"),
)
