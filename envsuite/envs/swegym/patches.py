"""Application of a submitted patch to an instance's repository, in a sandbox.

`apply_patch` tries the commands of SWE-bench's harness in its order, each on an untouched copy:
`git apply`, `git apply --3way`, `git apply --reject`, and `patch --fuzz=5`, which accepts wrong
line numbers and some wrong context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from envsuite.envs.swegym.problems import Changes, RepairProblem
from envsuite.envs.swegym.published.runs import JUDGING
from envsuite.envs.swegym.workspace import Workspace
from envsuite.errors import DataError, EngineFailure
from envsuite.sandbox import drivers
from envsuite.sandbox.protocol import Fate, Session

COMMANDS = {
    "git apply": "git apply --verbose -",
    "git apply --3way": "git apply --verbose --3way -",
    "git apply --reject": "git apply --verbose --reject -",
    "patch --fuzz=5": "patch --batch --forward --fuzz=5 -p1",
}
"""Commands by the name that results use. They read the patch from standard input."""
APPLIED = "git apply --check --reverse -"
"""Succeeds if the repository contains the patch already; the harness counts that as applied."""
LIMITS = replace(JUDGING, seconds=300.0)
_NOT_FOUND = 127
"""exit code of bash for a program that does not exist"""
_MESSAGE = 300
"""characters of the last command's output in the reason"""


class PatchResult(NamedTuple):
    """Result of applying a patch."""

    changes: Changes | None
    """path -> new content, None where the file was removed; None if no command applied the patch"""
    command: str = ""
    """name of the command that applied it, a key of COMMANDS, or "already applied" """
    message: str = ""
    """output of the last command, if none applied the patch"""


def apply_patch(problem: RepairProblem, patch: str, driver: str) -> PatchResult:
    """Applies a patch to a copy of the problem's repository and returns the changed files.

    Raises EngineFailure if the sandbox fails, or if it has no git or no patch.
    """
    data = patch.encode(errors="replace")  # JSON may hold lone surrogates, which UTF-8 cannot encode
    with drivers.open(problem.spec(LIMITS), driver) as session:
        workspace = Workspace(session, LIMITS, 0, {})
        with problem.folder() as folder:
            workspace.lay(folder)
        applied_with, message = "", ""
        for name, command in COMMANDS.items():
            if message:  # a command has failed, and may have changed files
                workspace.again()
            succeeds, message = _run(session, command, data)
            if succeeds:
                applied_with = name
                break
        if not applied_with and _run(session, APPLIED, data)[0]:
            applied_with = "already applied"
        if not applied_with:
            return PatchResult(None, "", message)
        try:
            return PatchResult(workspace.changes(problem.tree()), applied_with)
        except DataError as error:  # more files than can be read
            return PatchResult(None, "", str(error))


def _run(session: Session, command: str, data: bytes) -> tuple[bool, str]:
    """Runs a command with the patch as its input; returns whether it succeeds, and its output."""
    done = session.run(f"exec 2>&1; {command}", stdin=data)
    if done.fate is Fate.EXITED and done.exit_code == _NOT_FOUND:
        program = command.split()[0]
        raise EngineFailure(f"The sandbox has no program {program!r}: apt-get install {program}.")
    output = " ".join(done.stdout.decode(errors="replace").split())[-_MESSAGE:]
    return done.fate is Fate.EXITED and done.exit_code == 0, output or str(done.fate)
