"""SWE-Gym: a repository, an issue and a shell; the reward is earned when the failing tests pass and
passing ones still do.

Rules. Each turn the player sends one command: a shell command, or one of the structured edits of
`edits`, as text or as an OpenAI tool call. It runs in a sandbox without network; the working
directory persists between commands, shell variables and background processes do not. `submit` ends
the episode. So do the limits on turns and time: then the repository is graded as it is, and the
episode counts as truncated unless it is resolved.

Rewards. `sparse`: 1 if all FAIL_TO_PASS and all PASS_TO_PASS tests pass. `dense`, according to the
knob of that name: `f2p_gated` (the share of FAIL_TO_PASS that passes, if all PASS_TO_PASS pass) or
`pass_ratio` (the share of all tests that pass, as in the Practitioner's Guide's code: a change that
does nothing earns nearly 1 if PASS_TO_PASS is long). It is paid at the end, or (`pay=turn`) as a
difference at every turn that changed something. `shaped`: from the expert, which needs one command
per file that differs from the gold patch, and `submit`; planted bugs only.

The agent's changes are graded in a fresh sandbox, applied to a fresh copy of the repository: see
`tampering`.

Harder: more bugs, more files, more functions between a failing test and its cause, a vaguer issue,
hidden failing tests, a larger package, fewer turns.

Sources: SWE-Gym (Pan et al., 2025), SWE-bench (Jimenez et al., 2024), SWE-smith (Yang et al.,
2025).
"""

from __future__ import annotations

import shlex
import time
from typing import Any

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.swegym import edits, instances, preflight
from envsuite.envs.swegym.expert import plan
from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.judge.grading import refused
from envsuite.envs.swegym.knobs import KNOBS
from envsuite.envs.swegym.menu import LADDER, MINED_LADDER
from envsuite.envs.swegym.planted import tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.envs.swegym.problems import RepairProblem
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.workspace import SHOWN, CommandReply, Workspace
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from envsuite.sandbox.protocol import Limits, Session, Spec
from envsuite.types import Outcome, RewardMode, StopReason

RULES = """You are in a copy of a repository, in /testbed, with a problem to mend. Each turn you say one command. \
It is a shell command (no network; it may take {seconds:g} seconds; the working directory is kept, variables and \
background processes are not), or one of these:
view PATH [FIRST LAST]
create PATH, with the file's text on the lines below
str_replace PATH, with a line <<<<<<<, the old text, a line =======, the new text, and a line >>>>>>> below
insert PATH LINE, with the new lines below
undo PATH
search 'PATTERN' [PATH]
run_tests
submit, when you are done
Your changes are graded by tests in a fresh copy of the repository. Changes to tests do not count."""
_RANDOM = ("ls", "git status --short", "git diff", "view .", "search 'def '", "search 'return'", "pwd", "wc -l README*")


class SWEGym(TextEnv):
    """A repository that the player repairs with a shell. Rules: docs/envs/swegym.md."""

    knobs = KNOBS
    ranges = dict.fromkeys(("dense", "resolved", "f2p_gated", "pass_ratio"), (0.0, 1.0))
    levels = LADDER
    tools = edits.TOOLS
    isolate = True

    @classmethod
    def resources(cls, settings: dict[str, Any]) -> dict[str, float]:
        return drivers.resources(settings["sandbox"])

    @classmethod
    def facts(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return instances.facts(settings)

    @classmethod
    def levels_of(cls, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
        if settings["mined"]:
            return MINED_LADDER
        return {} if settings["published"] or settings["records"] else cls.levels

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        settings = self.settings
        if (settings.records or settings.mined) and self.reward_mode is RewardMode.SHAPED:
            raise UsageError(
                "Published records and mined tasks have no exact expert and so no shaped reward: use sparse or dense."
            )
        self.driver = drivers.choose(settings.sandbox)  # raises at once if no sandbox works
        self.panel = instances.panel(**vars(settings))
        if not len(self.panel):
            raise UsageError(f"No SWE-Gym task fits these knobs: {instances.why_none(vars(settings))}")
        if settings.records:
            known = instances.published_in(settings.records, settings.data_split)
            for record, setup in (known[name] for name in self.panel.games):
                published.check(record, setup, self.driver)
        self.limits = Limits(
            seconds=settings.command_seconds,
            memory_mb=settings.memory_mb,
            disk_mb=settings.disk_mb,
            processes=128,
            files=1024,
            output_kb=max(64, settings.characters // 200),
        )
        self.instructions = RULES.format(seconds=settings.command_seconds)
        self._session: Session | None = None
        self._spec: Spec | None = None
        self._problem: RepairProblem | None = None
        self._lease: Lease | None = None
        self._report = refused("no_patch")
        self._history: list[str] = []
        self._paid = 0.0
        self._began = 0.0

    # ---- the game --------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        name = self.panel.games[seed % len(self.panel)]
        if self._problem is None or self._problem.instance_id != name:
            self._begin(name)
        else:
            self.workspace.again()
        assert self._problem is not None
        self._report = refused("no_patch")
        self._history = []
        self._paid = 0.0
        self._graded: dict[str, bytes | None] = {}
        self._began = time.monotonic()
        self.objective = self._problem.statement
        return self.objective

    def preview(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Reads the text of a recorded bug from its record; a reset would install its package and run its tests."""
        bug = instances.recorded(self.panel.games[seed % len(self.panel)], vars(self.settings))
        if bug is None:
            return super().preview(seed)
        record, _, text = bug
        labels = self._labels(record.instance_id, record.repo)
        return text, {"objective": text, "admissible_commands": [], "labels": labels}

    def _begin(self, name: str) -> None:
        """Switches to another instance; reuses the open sandbox if its Spec is the same."""
        if self._problem is not None:
            self._problem.close()
            self._problem = None
        problem = self._open(name)
        spec = problem.spec(self.limits)
        if self._session is None or self._spec != spec:
            if self._session is not None:
                self._session.close()
            self._session = drivers.open(spec, self.driver, spare=self.settings.warm)
            self._spec = spec
        self._base = problem.tree()
        self.workspace = Workspace(self._session, self.limits, self.settings.characters, problem.variables())
        with problem.folder() as folder:
            self.workspace.lay(folder)
        self._problem = problem

    def _open(self, name: str) -> RepairProblem:
        settings = self.settings
        if bug := instances.recorded(name, vars(settings)):
            record, setup, text = bug
            problem = published.PublishedProblem(record, setup, self.driver)
            problem.statement = text
            preflight.require_gold(problem, settings.grade_seconds)
            return problem
        task = instances.planted_in(settings.tasks)[name]
        lease = Lease(suite.spec(task.package.needs), self.driver)  # keeps the judge warm between problems
        if self._lease is not None:
            self._lease.close()
        self._lease = lease
        return PlantedProblem(task, settings.statement, settings.tests == "hidden", self.driver)

    def _act(self, command: str) -> Outcome:
        action = edits.parse(command)
        self._history.append(command)
        if action.kind == "submit":
            return self._end("Your work is handed in.")
        reply = self._reply(action)
        text = reply.text
        if action.kind == "shell":
            ended = self.settings.mined and reply.exit_code < 0  # by a limit; the text says which
            code = "no exit code" if ended else f"exit code {reply.exit_code}"
            text = f"{code}, in {self.workspace.place}\n{reply.text or '(no output)'}"
        if (reason := self._limit()) is not None:
            return self._end(text, reason, reply.ok)
        reward = 0.0
        if self.reward_mode is RewardMode.DENSE and self.settings.pay == "turn" and action.kind not in _LOOKING:
            self._grade()
            reward = self._due()
        return Outcome(text, reward, valid=reply.ok, progression=self._report.f2p_gated)

    def _limit(self) -> StopReason | None:
        """Returns the limit that this turn has reached, or None."""
        settings = self.settings
        if 0 < settings.seconds <= time.monotonic() - self._began:
            return StopReason.TIMEOUT
        return StopReason.MAX_STEPS if self.turn + 1 >= settings.max_steps else None

    def _reply(self, action: edits.EditAction) -> CommandReply:
        if not action.kind:
            return CommandReply(action.text, ok=False)
        if action.kind == "shell":
            return self.workspace.shell(action.text)
        if action.kind == "search":
            return self.workspace.search(action.text, action.path)
        if action.kind == "run_tests":
            assert self._problem is not None
            try:
                summary = self._problem.visible(self.changes(), action.tests, self.settings.grade_seconds)
            except DataError as error:
                return CommandReply(str(error), ok=False)
            return CommandReply(self.workspace.shown(summary))
        return self.workspace.edit(action)

    def _end(self, text: str, reason: StopReason | None = None, valid: bool = True) -> Outcome:
        """Grades the repository. `reason`: the limit that ended the episode; None for a submission."""
        self._grade()
        report = self._report
        message = "All tests pass." if report.resolved else "The problem is not mended."
        terminated = reason is None or report.resolved
        return Outcome(
            f"{text}\n{message}",
            self._due(),
            done=terminated,
            success=report.resolved,
            valid=valid,
            progression=report.f2p_gated,
            truncated=not terminated,
            stop_reason=None if terminated else reason,
        )

    def _grade(self) -> None:
        """Updates the report unless the changes are the same as those graded last."""
        assert self._problem is not None
        try:
            changes = self.changes()
        except DataError:  # dangling links or too many files: the agent's own doing
            self._report = refused("unreadable")
            self._graded = {}
            return
        if changes != self._graded:
            self._report = self._problem.judge(changes, self.settings.grade_seconds) if changes else refused("no_patch")
            self._graded = changes

    def _due(self) -> float:
        """Returns the dense reward that is not yet paid."""
        value = float(getattr(self._report, self.settings.dense))
        due = value - self._paid
        self._paid = value
        return due

    def changes(self) -> dict[str, bytes | None]:
        """Returns the agent's changes: path -> content, None for a removed file."""
        return self.workspace.changes(self._base)

    def patch(self) -> str:
        """Returns the agent's changes as a unified diff, without files that are not text."""
        return tasks.diff_of(self._base, self.changes())

    # ---- the expert ------------------------------------------------------------------------------------------------

    def expert(self, kind: str = "") -> str | None:
        return next(iter(self._plan()), "submit")

    def blind_script(self) -> list[str]:
        """Returns `submit` alone: a player that does not read the repository cannot repair it."""
        return ["submit"]

    def remaining(self) -> int | None:
        return len(self._plan()) + 1

    def idle(self) -> str:
        """Appends an empty line to a file of the gold patch, so that the tests are run; then `submit`."""
        assert self._problem is not None
        existing = [path for path in self._problem.gold_files if path in self._base]
        return f"echo >> {shlex.quote(f'{SHOWN}/{existing[0]}')}" if existing and not self._history else "submit"

    def _plan(self) -> list[str]:
        assert self._problem is not None
        gold, changed = self._problem.gold(), self.changes()
        now = {path: changed.get(path, self._base.get(path)) for path in {*gold, *changed}}
        target = {path: gold.get(path, self._base.get(path)) for path in now}
        return plan(now, target)

    # ---- TextEnv's other methods -----------------------------------------------------------------------------------

    def random_command(self, rng: np.random.Generator) -> str:
        return _RANDOM[int(rng.integers(len(_RANDOM)))]

    def labels(self) -> dict[str, str]:
        assert self._problem is not None
        labels = self._labels(self._problem.instance_id, self._problem.kind)
        if isinstance(self._problem, PlantedProblem):
            labels["package"] = self._problem.package.name
            labels["bugs"] = str(len(self._problem.task.bugs))
        return labels

    def _labels(self, instance: str, kind: str) -> dict[str, str]:
        leaky = str(drivers.is_leaky(self.driver)).lower()
        return {"instance": instance, "task_type": kind, "isolation": self.driver, "leaky": leaky}

    def metrics(self) -> dict[str, float]:
        report = self._report
        return {
            "resolved": float(report.resolved),
            "f2p_gated": report.f2p_gated,
            "pass_ratio": report.pass_ratio,
            "commands": float(len(self._history)),
            "files_changed": float(len(self._graded)),
        }

    def artifacts(self) -> dict[str, Any]:
        patch = tasks.diff_of(self._base, self._graded)
        return {"fault": self._report.fault, "patch": patch, "report": self._report.plain()}

    def extra_info(self) -> dict[str, Any]:
        return {"history": list(self._history), "isolation": self.driver, "fault": self._report.fault}

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = self._spec = None
        if self._problem is not None:
            self._problem.close()
            self._problem = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None


_LOOKING = ("view", "search", "run_tests", "")
