"""mini-swe-agent on SWE-Gym: its own agent plays generated tasks, and every verdict must be the expected one.

    PYTHON -m benchmarks.agents_proof [--episodes 4] [--markdown FILE]

PYTHON has envsuite and mini-swe-agent 2.4.6. The agent plays with its deterministic model, which follows a script: for
even episodes it applies the gold patch, for odd ones it adds a comment. Exits with 1 if a verdict differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym import instances
from harness.interop.mini_swe_agent import SWEGymEnvironment

TASK = "SWEGym-medium-v0"
PROMPTS = {"system_template": "Answer with one command.", "instance_template": "{{task}}\n{{cwd}} on {{system}}"}


def scripted(task: Any, solves: bool) -> list[str]:
    """Returns the commands of an episode: a look, a change, the patch file, and the submission."""
    change = f"git apply - <<'EOF'\n{task.patch}EOF" if solves else f"echo '# nothing' >> {shlex.quote(task.paths[0])}"
    diff = f"git diff -- {shlex.quote(task.paths[0])} > /tmp/patch.txt; test -s /tmp/patch.txt"
    return ["ls -a", change, diff, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat /tmp/patch.txt"]


def played(task: Any, solves: bool, folder: Path) -> bool:
    """Plays an episode with mini-swe-agent, which saves its trajectory; returns whether it was solved."""
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.models.test_models import DeterministicModel, make_output

    replies = []
    for command in scripted(task, solves):
        replies.append(make_output(f"THOUGHT: next\n```mswea_bash_command\n{command}\n```", [{"command": command}]))
    environment = SWEGymEnvironment(task=TASK, knobs={"instances": (task.instance_id,)})
    try:
        model = DeterministicModel(outputs=replies, model_name="scripted")
        path = folder / f"{task.instance_id}.traj.json"
        agent = DefaultAgent(model, environment, output_path=path, cost_limit=0.0, **PROMPTS)
        end = agent.run(environment.problem)
        assert end["exit_status"] == "Submitted", end
        codes = [message["content"] for message in agent.messages if "<returncode>" in str(message.get("content"))]
        assert len(codes) == 3 and all("<returncode>0<" in code for code in codes), codes
        saved = json.loads(path.read_text())
        assert saved["info"]["envsuite"]["success"] == bool(environment.info["success"])
        return bool(environment.info["success"])
    finally:
        environment.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=4, help="episodes (default: 4)")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    args = parser.parse_args()
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    generated = (task for task in instances.generated_in("").values() if task.package.name == "inflection")
    lines = ["| task | commands | solved |", "|---|---|---|"]
    right = True
    with tempfile.TemporaryDirectory() as name:
        os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = str(Path(name) / "settings")
        for number, task in enumerate(islice(generated, args.episodes)):
            solves = number % 2 == 0
            solved = played(task, solves, Path(name))
            right = right and solved == solves
            commands = "the gold patch" if solves else "a comment"
            lines.append(f"| {task.instance_id} | {commands} | {'yes' if solved else 'no'} |")
            print(lines[-1], flush=True)
    if args.markdown:
        verdict = f"{'All' if right else 'NOT all'} verdicts are as expected."
        write_atomically(args.markdown, "\n".join([_ABOUT, "", *lines, "", verdict, ""]))
    return 0 if right else 1


_ABOUT = """# mini-swe-agent on SWE-Gym

`make agents-proof` installs mini-swe-agent 2.4.6 and runs `python -m benchmarks.agents_proof`.
mini-swe-agent's own agent plays generated tasks with its deterministic model and a script: every other episode
applies the gold patch, the others add a comment."""

if __name__ == "__main__":
    raise SystemExit(main())
