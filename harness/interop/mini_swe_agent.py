"""SWE-Gym as an environment of mini-swe-agent (2.4): its agent, prompts and model play; envsuite runs and grades.

    from minisweagent.agents.default import DefaultAgent
    from harness.interop.mini_swe_agent import SWEGymEnvironment

    env = SWEGymEnvironment(task="SWEGym-medium-v0", seed=3)
    DefaultAgent(model, env, **prompts).run(env.problem)
    print(env.info["success"], env.info["artifacts"]["patch"])

In a configuration file of mini-swe-agent, `environment_class: harness.interop.mini_swe_agent.SWEGymEnvironment` selects
it. Every command runs in a new shell, as in mini-swe-agent's own environments. The agent's final command submits the
repository as it is; the submission in its trajectory is the patch that is graded.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

from envsuite import registry
from envsuite.errors import MissingExtra, UsageError
from harness.prompting.shell_layout import command_output

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""first line of the output of mini-swe-agent's final command"""


@dataclass
class SWEGymConfig:
    """Settings of a SWEGymEnvironment."""

    task: str = "SWEGym-medium-v0"
    seed: int = 0
    reward_mode: str = "sparse"
    knobs: dict[str, Any] = field(default_factory=dict)
    """knobs of the task, for example records or instances"""


class SWEGymEnvironment:
    """An episode of SWE-Gym behind mini-swe-agent's interface of environments."""

    def __init__(self, **settings: Any) -> None:
        """`settings` are the fields of SWEGymConfig. Raises MissingExtra, UsageError, DataError, EngineFailure."""
        try:
            from minisweagent.exceptions import LimitsExceeded, Submitted
        except ImportError:
            raise MissingExtra("This environment needs mini-swe-agent: pip install mini-swe-agent==2.4.6") from None
        self._ended = {True: Submitted, False: LimitsExceeded}
        if unknown := settings.keys() - SWEGymConfig.__dataclass_fields__.keys():
            raise UsageError(f"There is no setting {min(unknown)!r}: name task, seed, reward_mode or knobs.")
        self.config = SWEGymConfig(**settings)
        task = registry.tasks(self.config.task)[0]
        knobs = registry.overrides(task, self.config.knobs)
        self._env: Any = registry.build(task, self.config.reward_mode, **knobs)
        self.observation, self.info = self._env.reset(seed=self.config.seed)
        self.instance_id = str(self.info["labels"]["instance"])
        self.reward = 0.0
        """sum of the episode's rewards"""
        self.done = False
        """True once the repository is graded"""

    @property
    def problem(self) -> str:
        """The issue: the task for the agent's `run`."""
        return str(self._env.objective)

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs the action's command; returns its output and exit code.

        `timeout` has no effect: the knob `command_seconds` limits commands. Raises mini-swe-agent's Submitted after
        its final command, and LimitsExceeded at a limit of the environment; the repository is graded in both cases.
        """
        command = str(action.get("command", ""))
        if cwd:
            command = f"cd {shlex.quote(cwd)} && {command}"
        observation, ends = self._step(f"bash -c {shlex.quote(command)}")
        result = command_output(observation)
        if ends:
            raise self._exit(False)
        first = result["output"].lstrip().partition("\n")[0]
        if first.strip() == SUBMIT and result["returncode"] == 0:
            self._step("submit")
            raise self._exit(True)
        return result

    def _step(self, command: str) -> tuple[str, bool]:
        observation, reward, terminated, truncated, self.info = self._env.step(command)
        self.reward += float(reward)
        self.done = bool(terminated or truncated)
        return str(observation), self.done

    def _exit(self, submitted: bool) -> Exception:
        """Returns the exception that ends the agent's run, with the graded patch as its submission."""
        patch = self.info["artifacts"]["patch"]
        status = "Submitted" if submitted else "LimitsExceeded"
        extra = {"exit_status": status, "submission": patch}
        error: Exception = self._ended[submitted]({"role": "exit", "content": patch, "extra": extra})
        return error

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Returns variables for the agent's templates, which describe the sandbox and not this machine."""
        system = {"system": "Linux", "release": "", "version": "", "machine": "x86_64", "node": "", "processor": ""}
        return {**system, "cwd": "/testbed", **kwargs}

    def serialize(self) -> dict[str, Any]:
        """Returns what the agent's trajectory keeps about this environment."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        info: dict[str, Any] = {"config": {"environment": asdict(self.config), "environment_type": kind}}
        if self.done:
            report = {"fault": self.info["artifacts"]["fault"], **self.info["artifacts"]["report"]}
            info["envsuite"] = {"success": bool(self.info["success"]), "reward": self.reward, "report": report}
        return {"info": info, "instance_id": self.instance_id}

    def close(self) -> None:
        """Ends the sandbox."""
        self._env.close()
