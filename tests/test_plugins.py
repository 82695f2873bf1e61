"""Environments of other packages are in Gymnasium as soon as envsuite is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TASK = """
from envsuite import Outcome, Task, TextEnv, register as add

class Door(TextEnv):
    "A door that opens at once."
    instructions = "Open the door."

    def _reset(self, seed):
        self.objective = "Open the door."
        return "A door."

    def _act(self, command):
        return Outcome("It opens.", 1.0, True, True)

    def admissible(self):
        return ["open door"]

def register():
    add(Task(id="Door-v0", entry_point="door_package:Door", summary="open a door"))
"""
PLAY = """
import gymnasium
env = gymnasium.make("envsuite/Door-v0")
env.reset(seed=0)
print(env.step("open door")[4]["success"])
import sys
print([name for name in ("torch", "transformers", "textworld", "rich") if name in sys.modules])
"""


def python(folder, code):
    command = [sys.executable, "-W", "always::UserWarning", "-c", code]
    environment = {"PYTHONPATH": f"{ROOT}:{folder}", "PATH": ""}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture
def plugin(tmp_path):
    """Returns a function that installs a package with an entry point into a folder, and returns the folder."""

    def install(entry, code=TASK):
        (tmp_path / "door_package.py").write_text(code)
        metadata = tmp_path / "door_package-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: door-package\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[envsuite.envs]\ndoor = {entry}\n")
        return tmp_path

    return install


@pytest.mark.parametrize("first", ["import envsuite", "import door_package"])
@pytest.mark.parametrize(
    ("entry", "code"), [("door_package:register", TASK), ("door_package", f"{TASK}\nregister()\n")]
)
def test_gymnasium_makes_the_tasks_of_a_plugin_after_importing_envsuite(plugin, first, entry, code):
    if first == "import door_package" and ":" in entry:
        first += "; import envsuite; envsuite.tasks()"  # the function is defined after envsuite was imported
    done = python(plugin(entry, code), f"{first}{PLAY}")
    assert done.stdout == "True\n[]\n", done.stderr
    assert "skipped" not in done.stderr


def test_without_a_plugin_no_metadata_are_read(tmp_path):
    code = "import gymnasium, sys\nbefore = set(sys.modules)\nimport envsuite\nprint(set(sys.modules) - before)"
    done = python(tmp_path, code)
    assert "envsuite.plugins" in done.stdout and "importlib.metadata" not in done.stdout, done.stdout + done.stderr


def test_a_broken_plugin_is_a_warning_and_the_other_tasks_remain(plugin):
    folder = plugin("door_package:register", "raise RuntimeError('no licence')")
    done = python(folder, "import envsuite\nprint(len(envsuite.tasks()) > 100)")
    assert done.stdout == "True\n" and done.stderr.count("was skipped: no licence") == 1
