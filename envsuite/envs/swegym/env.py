"""SWE-Gym: a repository, an issue, a shell; paid when the failing tests pass and the passing ones still do.

Rules. Every turn the player says one command: for the shell, or one of the structured edits of `edits`, as text or as an
OpenAI tool call. A command runs in a sandbox without network; the working directory is kept between commands, shell
variables and background processes are not. `submit` ends the episode. So do the limits of turns and time: then what
lies in the repository is graded as it is, and the episode counts as truncated unless it is resolved.

What pays. `sparse`: 1 if all FAIL_TO_PASS and all PASS_TO_PASS tests pass. `dense`, by the knob of that name:
`f2p_gated` (the share of FAIL_TO_PASS that passes, while all PASS_TO_PASS do), `pass_ratio` (the share of all tests that
pass, as the Practitioner's Guide's code pays it: a change that does nothing is paid nearly 1 where PASS_TO_PASS is long;
a test pins it), `gated` (nothing until a file of the gold patch is changed; then the share of FAIL_TO_PASS times the share
of PASS_TO_PASS). It is paid at the end, or (`pay=turn`) as a difference at every turn that changed something. `shaped`:
from the expert, who needs one command per file that is not yet as the gold patch leaves it, and `submit`; for
generated tasks alone.

What is graded is the agent's changes, laid over a fresh copy in a fresh sandbox: see `tampering`.

Harder: more bugs, more files, more functions between a failing test and its cause, less said in the issue, held-out
tests hidden, a larger package, fewer turns.

Sources: SWE-Gym (Pan et al., 2025), SWE-bench (Jimenez et al., 2024), SWE-smith (Yang et al., 2025).
"""

from __future__ import annotations

import shlex
import time
from typing import Any

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.swegym import edits, instances, published, suite, tasks
from envsuite.envs.swegym.expert import plan
from envsuite.envs.swegym.grading import refused, worth
from envsuite.envs.swegym.menu import LADDER
from envsuite.envs.swegym.problems import GeneratedProblem, Problem
from envsuite.envs.swegym.statement import DETAILS
from envsuite.envs.swegym.workspace import SHOWN, Answer, Workspace
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from envsuite.sandbox.protocol import Limits, Session, Spec
from envsuite.types import Knob, Outcome, RewardMode, StopReason

RULES = """You are in a copy of a repository, in /testbed, with a problem to mend. Each turn you say one command. It is a shell \
command (no network; it may take {seconds:g} seconds; the working directory is kept, variables and background processes \
are not), or one of these:
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
    """See the module's docstring."""

    knobs = (
        Knob("max_steps", 50, "commands until the work is graded as it stands", low=1),
        Knob("records", "", "a file of SWE-Gym or SWE-bench records, or a folder of instances, to play instead"),
        Knob("data_split", "", "of a data set named on the hub; none: train of SWE-Gym, test of SWE-bench"),
        Knob("published", False, "nothing but published records is played: `records` names them"),
        Knob("build", False, "docker: a record's recipe is built into an image, instead of being mounted", trusted_only=True),
        Knob("instances", (), "only these instances, by id", trusted_only=False),
        Knob("deny", (), "instances left out, by id, or a file of ids: broken or flaky ones"),
        Knob("tasks", "", "a folder of generated tasks, to play instead of those that are shipped"),
        Knob("package", (), "packages of generated tasks, by name; none: all", trusted_only=False),
        Knob("split", "test", "which packages: they are split, not their tasks", choices=("train", "test", "all")),
        Knob("bugs", 0, "bugs planted; 0: any number", low=0, high=3),
        Knob("files", 0, "files that hold a bug; 0: any number", low=0, high=3),
        Knob("hops", 1, "least number of functions from a failing test to the nearest bug", low=1, high=10),
        Knob("size", 0, "most lines of code of the package; 0: any", low=0),
        Knob("statement", "symptom", "what the issue tells", choices=DETAILS),
        Knob("tests", "visible", "whether the failing tests are in the agent's copy", choices=("visible", "hidden")),
        Knob("dense", "f2p_gated", "what the dense reward pays", choices=("f2p_gated", "pass_ratio", "gated")),
        Knob("pay", "end", "when the dense reward is paid", choices=("end", "turn")),
        Knob("seconds", 0.0, "wall clock of an episode; 0: no limit", low=0.0, high=1e6),
        Knob("tokens", 0, "of all commands and observations, reckoned at 4 bytes each; 0: no limit", low=0),
        Knob("command_seconds", 60.0, "wall clock of one command", low=0.1, high=36_000.0),
        Knob("grade_seconds", 600.0, "wall clock of one run of the tests", low=1.0, high=36_000.0),
        Knob("characters", 10_000, "of a command's output that are shown", low=100, high=10_000_000),
        Knob("memory_mb", 2048, "memory of a command", low=64, high=1_000_000),
        Knob("disk_mb", 512, "disk of the repository and /tmp", low=16, high=1_000_000),
        Knob("sandbox", "auto", "what holds the commands; `process` is no protection", choices=("auto", *drivers.DRIVERS, *drivers.LATER), trusted_only=True),
        Knob("warm", True, "the next episode's sandbox is started while this one is played"),
    )  # fmt: skip
    levels = LADDER
    isolate = True

    @classmethod
    def resources(cls, settings: dict[str, Any]) -> dict[str, float]:
        return drivers.resources(settings["sandbox"])

    @classmethod
    def facts(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return instances.facts(settings)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        settings = self.settings
        if settings.records and self.reward_mode is RewardMode.SHAPED:
            raise UsageError("Published records have no exact expert, so no shaped reward here: use sparse or dense.")
        self.driver = drivers.choose(settings.sandbox)  # says at once where there is none
        self.panel = instances.panel(**vars(settings))
        if not len(self.panel):
            raise UsageError(f"No SWE-Gym task fits these knobs: {instances.why_none(vars(settings))}")
        if settings.records:
            known = instances.published_in(settings.records, settings.data_split)
            for record, recipe in (known[name] for name in self.panel.games):
                published.check(record, recipe, self.driver, settings.build)
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
        self._problem: Problem | None = None
        self._lease: Lease | None = None
        self._report = refused("no_patch")
        self._history: list[str] = []
        self._paid = 0.0
        self._began, self._bytes = 0.0, 0

    # ---- the game -----------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        name = self.panel.games[seed % len(self.panel)]
        if self._problem is None or self._problem.instance_id != name:
            self._begin(name)
        else:
            self.workspace.again()
        assert self._problem is not None
        self._report, self._history, self._paid = refused("no_patch"), [], 0.0
        self._graded: dict[str, bytes | None] = {}
        self._began, self._bytes = time.monotonic(), 0
        self.objective = self._problem.statement
        return self.objective

    def _begin(self, name: str) -> None:
        """Takes up another instance, in the sandbox there is where it is like the one that is needed."""
        if self._problem is not None:
            self._problem.close()
            self._problem = None
        problem = self._open(name)
        spec = problem.spec(self.limits)
        if self._session is None or self._spec != spec:
            if self._session is not None:
                self._session.close()
            self._session, self._spec = drivers.open(spec, self.driver, spare=self.settings.warm), spec
        self._base = problem.tree()
        self.workspace = Workspace(self._session, self.limits, self.settings.characters, problem.variables())
        with problem.folder() as folder:
            self.workspace.lay(folder)
        self._problem = problem

    def _open(self, name: str) -> Problem:
        settings = self.settings
        if settings.records:
            record, recipe = instances.published_in(settings.records, settings.data_split)[name]
            return published.PublishedProblem(record, recipe, self.driver, settings.build)
        task = instances.generated_in(settings.tasks)[name]
        lease = Lease(
            suite.spec(task.package.needs), self.driver
        )  # what judges stays warm from one problem to the next
        if self._lease is not None:
            self._lease.close()
        self._lease = lease
        return GeneratedProblem(task, settings.statement, settings.tests == "hidden", self.driver)

    def _act(self, command: str) -> Outcome:
        action = edits.parse(command)
        self._history.append(command)
        if action.kind == "submit":
            return self._end("Your work is handed in.")
        answer = self._answer(action)
        text = answer.text
        if action.kind == "shell":
            text = f"exit code {answer.exit_code}, in {self.workspace.place}\n{answer.text or '(no output)'}"
        self._bytes += len(command.encode(errors="replace")) + len(text.encode(errors="replace"))
        if (reason := self._limit()) is not None:
            return self._end(text, reason, answer.ok)
        reward = 0.0
        if self.reward_mode is RewardMode.DENSE and self.settings.pay == "turn" and action.kind not in _LOOKING:
            self._grade()
            reward = self._due()
        return Outcome(text, reward, valid=answer.ok, progression=self._report.f2p_gated)

    def _limit(self) -> StopReason | None:
        """The limit that this turn has reached."""
        settings = self.settings
        if 0 < settings.seconds <= time.monotonic() - self._began:
            return StopReason.TIMEOUT
        if 0 < settings.tokens * 4 <= self._bytes:
            return StopReason.MAX_TOKENS
        return StopReason.MAX_STEPS if self.turn + 1 >= settings.max_steps else None

    def _answer(self, action: edits.Action) -> Answer:
        if not action.kind:
            return Answer(action.text, ok=False)
        if action.kind == "shell":
            return self.workspace.shell(action.text)
        if action.kind == "search":
            return self.workspace.search(action.text, action.path)
        if action.kind == "run_tests":
            assert self._problem is not None
            try:
                found = self._problem.visible(self.changes(), action.tests, self.settings.grade_seconds)
            except DataError as error:
                return Answer(str(error), ok=False)
            return Answer(self.workspace.shown(found))
        return self.workspace.edit(action)

    def _end(self, text: str, reason: StopReason | None = None, valid: bool = True) -> Outcome:
        """Grades what there is. `reason`: the limit that ended the episode; None for a submission."""
        self._grade()
        report = self._report
        told = "All tests pass." if report.resolved else "The problem is not mended."
        ended = reason is None or report.resolved
        return Outcome(
            f"{text}\n{told}",
            self._due(),
            done=ended,
            success=report.resolved,
            valid=valid,
            progression=report.f2p_gated,
            truncated=not ended,
            stop_reason=None if ended else reason,
        )

    def _grade(self) -> None:
        """Brings the report up to date; what was graded already is not graded again."""
        assert self._problem is not None
        try:
            found = self.changes()
        except DataError:  # links to nowhere, more than fits: the agent's own doing
            self._report, self._graded = refused("unreadable"), {}
            return
        if found != self._graded:
            self._report = self._problem.judge(found, self.settings.grade_seconds) if found else refused("no_patch")
            self._graded = found

    def _due(self) -> float:
        """The dense reward that is not yet paid."""
        assert self._problem is not None
        value = worth(self._report, self.settings.dense, bool(set(self._graded) & set(self._problem.gold_files)))
        due, self._paid = value - self._paid, value
        return due

    def changes(self) -> dict[str, bytes | None]:
        """What the agent has changed so far: path -> content, None where a file is gone."""
        return self.workspace.changes(self._base)

    def patch(self) -> str:
        """The agent's changes as a unified diff; files that are no text are left out."""
        found = []
        for path, content in self.changes().items():
            old = self._base.get(path)
            try:
                texts = [None if data is None else data.decode() for data in (old, content)]
            except UnicodeDecodeError:
                continue
            found.append(tasks.diff(path, *texts))
        return "".join(found)

    # ---- the expert ---------------------------------------------------------------------------------------------------

    def expert(self, kind: str = "") -> str | None:
        return next(iter(self._plan()), "submit")

    def blind_script(self) -> list[str]:
        """Returns `submit` alone: without reading the repository nothing can be mended."""
        return ["submit"]

    def remaining(self) -> int | None:
        return len(self._plan()) + 1

    def idle(self) -> str:
        """An empty line at the end of a file of the gold patch, so that the tests are run; then `submit`."""
        assert self._problem is not None
        there = [path for path in self._problem.gold_files if path in self._base]
        return f"echo >> {shlex.quote(f'{SHOWN}/{there[0]}')}" if there and not self._history else "submit"

    def _plan(self) -> list[str]:
        assert self._problem is not None
        gold, changed = self._problem.gold(), self.changes()
        now = {path: changed.get(path, self._base.get(path)) for path in {*gold, *changed}}
        wanted = {path: gold.get(path, self._base.get(path)) for path in now}
        return plan(now, wanted)

    # ---- what else an environment says --------------------------------------------------------------------------------

    def random_command(self, rng: np.random.Generator) -> str:
        return _RANDOM[int(rng.integers(len(_RANDOM)))]

    def labels(self) -> dict[str, str]:
        assert self._problem is not None
        found = {
            "instance": self._problem.instance_id,
            "task_type": self._problem.kind,
            "isolation": self.driver,
            "leaky": str(self.driver == "process").lower(),
        }
        if isinstance(self._problem, GeneratedProblem):
            found["package"] = self._problem.package.name
            found["bugs"] = str(len(self._problem.task.bugs))
        return found

    def metrics(self) -> dict[str, float]:
        report = self._report
        return {
            "resolved": float(report.resolved),
            "f2p_gated": report.f2p_gated,
            "pass_ratio": report.pass_ratio,
            "commands": float(len(self._history)),
            "files_changed": float(len(self._graded)),
        }

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
