"""Agents of other projects on SWE-Gym: mini-swe-agent plays, trajectories are imported, replayed and graded.

    PYTHON -m benchmarks.agents_proof [--episodes 3] [--markdown FILE]

PYTHON has envsuite and mini-swe-agent 2.4.6. mini-swe-agent's own agent plays generated tasks with its
deterministic model, which follows a script: for even episodes it applies the gold patch, for odd ones
it changes a comment. Its trajectories, and files of the same work in the formats of SWE-agent and
OpenHands, are imported; `envsuite-eval -m replay:FILE` plays them again, and `envsuite grade` grades
their patches. Every verdict must be the expected one. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.cache import write_atomically
from harness import records
from harness.agents.importing import import_trajectories
from harness.agents.trajectories import read_trajectories
from harness.evaluate import RunConfig, evaluate
from harness.interop.mini_swe_agent import SWEGymEnvironment
from harness.policies import make_policy
from tests.harness import agent_files
from tests.harness.test_agents import one_line_tasks

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


def verdicts(folder: Path) -> tuple[int, dict[str, bool], dict[str, bool]]:
    """Imports the trajectories of a folder; returns their number, and the verdicts by replay and by grading."""
    trajectories = read_trajectories(folder)
    out = folder / "imported"
    result = import_trajectories(trajectories, registry.tasks(TASK)[0], {}, out)
    config = RunConfig(registry.tasks(TASK)[0], f"replay:{out / 'results.jsonl'}", result.knobs)
    evaluate(config, folder / "runs", lambda: make_policy(config.model))
    (file,) = (folder / "runs").rglob("results.jsonl")
    replayed = {record["labels"]["instance"]: bool(record["success"]) for record in records.read_results(file)}
    command = [sys.executable, "-m", "harness", "grade", "-p", str(out / "preds.jsonl"), "-o", str(folder / "g")]
    subprocess.run(command, check=True, capture_output=True, timeout=3000)
    rows = [json.loads(line) for line in (folder / "g" / "results.jsonl").read_text().splitlines()]
    return result.episodes, replayed, {row["instance_id"]: row["outcome"] == "resolved" for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=4, help="episodes of each format (default: 4)")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    args = parser.parse_args()
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    tasks = one_line_tasks(args.episodes)
    solves = {task.instance_id: number % 2 == 0 for number, task in enumerate(tasks)}
    lines = ["| agent | episodes | solved when played | imported | solved when replayed | patches that resolve |"]
    lines.append("|---|---|---|---|---|---|")
    right = True
    with tempfile.TemporaryDirectory() as name:
        for agent in ("mini-swe-agent", "SWE-agent", "OpenHands"):
            folder, expected = Path(name, agent), solves
            folder.mkdir()
            os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = str(folder / "settings")
            solved = "–"
            if agent == "mini-swe-agent":
                won = {task.instance_id: played(task, solves[task.instance_id], folder) for task in tasks}
                right, solved = won == solves, str(sum(won.values()))
            else:
                expected = dict.fromkeys(solves, True)  # these files apply the gold patch
                if agent == "OpenHands":
                    agent_files.open_hands(folder, tasks)
                else:
                    for task in tasks:
                        agent_files.swe_agent(folder, task)
            count, replayed, graded = verdicts(folder)
            right = right and replayed == graded == expected
            cells = (agent, len(tasks), solved, count, sum(replayed.values()), sum(graded.values()))
            lines.append(f"| {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.markdown:
        title = "# Agents of other projects on SWE-Gym\n\n" + _ABOUT
        write_atomically(
            args.markdown, f"{title}\n\n{text}\n{'All' if right else 'NOT all'} verdicts are as expected.\n"
        )
    return 0 if right else 1


_ABOUT = """`make agents-proof` installs mini-swe-agent 2.4.6 and runs `python -m benchmarks.agents_proof`.
mini-swe-agent's own agent plays generated tasks with its deterministic model and a script: every other episode
applies the gold patch, the others add a comment. `tests/harness/agent_files.py` writes the files of SWE-agent and
OpenHands in their formats; they apply the gold patch with an edit tool. All files are imported, replayed with
`envsuite-eval -m replay:FILE`, and their patches are graded with `envsuite grade`."""

if __name__ == "__main__":
    raise SystemExit(main())
