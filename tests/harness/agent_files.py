"""Files of software agents for a generated task, in the formats that SWE-agent, mini-swe-agent and OpenHands write."""

import json
import shlex


def edits(task):
    """Returns (path, old text, new text) of the one-line changes that mend a task with one bug."""
    from envsuite.envs.swegym.planted import packages

    sound = packages.tree(task.package)
    (path,) = task.paths
    pairs = zip(task.files[path].splitlines(), sound[path].splitlines(), strict=True)
    ((old, new),) = [(old, new) for old, new in pairs if old != new]
    return path, old, new


def mini_swe_agent(folder, task, model="m"):
    """Writes a trajectory of version 1.1: it looks, applies the patch and submits."""
    name = task.instance_id
    commands = ["ls", f"git apply - <<'EOF'\n{task.patch}EOF", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "issue"}]
    for command in commands:
        text = f"THOUGHT: next\n\n```mswea_bash_command\n{command}\n```"
        messages.append({"role": "assistant", "content": text, "extra": {"actions": [{"command": command}]}})
        messages.append({"role": "user", "content": "<returncode>0</returncode>"})
    messages[-1] = {"role": "exit", "content": task.patch, "extra": {}}
    info = {"exit_status": "Submitted", "submission": task.patch, "config": {"model": {"model_name": model}}}
    document = {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1", "instance_id": name}
    return _write(folder / name / f"{name}.traj.json", json.dumps(document))


def swe_agent(folder, task, model="m"):
    """Writes a trajectory of SWE-agent 1: views the file, replaces a line with the edit tool, and submits."""
    path, old, new = edits(task)
    tool = f"str_replace_editor {{}} /testbed/{path}"
    actions = [
        f"{tool.format('view')} --view_range 1 5",
        "cd /testbed && ls\n",
        f"{tool.format('str_replace')} --old_str {shlex.quote(old)} --new_str {shlex.quote(new)}",
        "submit",
    ]
    steps = [{"action": action, "observation": "o", "response": f"r\n{action}", "thought": "r"} for action in actions]
    replay = json.dumps({"agent": {"model": {"name": model}}})
    info = {"exit_status": "submitted", "submission": task.patch}
    document = {"trajectory": steps, "history": [], "info": info, "replay_config": replay, "environment": "swe_main"}
    return _write(folder / f"{task.instance_id}.traj", json.dumps(document))


def open_hands(folder, tasks, model="m"):
    """Writes the output of OpenHands: one line per instance, with actions and observations as events."""
    lines = []
    for task in tasks:
        path, old, new = edits(task)
        root = f"/workspace/{task.package.name}__{task.package.name}__1.0"
        actions = [
            ("system", {"content": "s"}),
            ("run", {"command": f"cd {root} && ls", "thought": "look", "is_input": False}),
            ("read", {"path": f"{root}/{path}", "thought": ""}),
            ("edit", {"command": "str_replace", "path": f"{root}/{path}", "old_str": old, "new_str": new,
                      "insert_line": None, "view_range": None, "content": "", "start": 1, "end": -1}),
            ("run", {"command": "C-c", "is_input": True}),
            ("finish", {"task_completed": "true"}),
        ]  # fmt: skip
        events = []
        for action, arguments in actions:
            number = len(events)
            events.append({"id": number, "source": "agent", "action": action, "args": arguments, "message": "m"})
            events.append({"id": number + 1, "cause": number, "source": "agent", "observation": action, "content": "o"})
        row = {"instance_id": task.instance_id, "history": events, "test_result": {"git_patch": task.patch}}
        lines.append(json.dumps({**row, "metadata": {"llm_config": {"model": model}}, "error": None}) + "\n")
    return _write(folder / "output.jsonl", "".join(lines))


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
