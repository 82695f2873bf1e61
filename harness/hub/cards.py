"""README.md files of uploads: the settings that a hub reads, and a description for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envsuite import __version__
from envsuite.escaping import markdown
from envsuite.types import Task, knobs_json
from harness.stats.summary import Summary, percent

NOTICE = "Uploaded with `envsuite hub push` of envsuite {version}."


def card(settings: Mapping[str, Any], body: str) -> bytes:
    """Returns a README.md; `settings` without a value are left out."""
    front = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items() if value)
    return f"---\n{front}---\n\n{body.strip()}\n\n{NOTICE.format(version=__version__)}\n".encode()


def run_card(config: Mapping[str, Any], summary: Summary, licence: str) -> bytes:
    """Returns the card of a run's dataset."""
    task, model, knobs = config["task"], config["model"], config["knobs"]
    title = f"{task}: {model}"
    rows = [
        ("task", task + (f" with {knobs_json(knobs)}" if knobs else "")),
        ("player", model),
        ("episodes", f"{summary['episodes']} finished, {summary['broken']} broken"),
        *((name, percent(summary[name])) for name in ("success", "progression")),
        ("run id", config["run_id"]),
        *_prompt(config.get("prompting") or {}),
    ]
    table = "\n".join(f"| {name} | {markdown(value)} |" for name, value in rows)
    body = f"""# {markdown(title)}

Episodes of one player on one task, with every observation, reply and reward.

| | |
|---|---|
{table}

`results.jsonl` has one episode a line, `config.json` the settings and `summary.json` the results. Play the episodes
again and compare, in the downloaded folder:

```bash
envsuite replay --check .
```

The check proves that the commands lead to the recorded results. It cannot prove which model wrote the replies.
"""
    data = [{"config_name": "episodes", "data_files": "results.jsonl"}]
    return card({"pretty_name": title, "license": licence, "tags": ["envsuite", "agent"], "configs": data}, body)


def _prompt(prompting: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the row about a published prompt, if the run used one."""
    if not prompting.get("protocol"):
        return []
    words = "in neutral words, not the published ones" if prompting.get("words") == "neutral" else "published words"
    return [("prompt", f"{prompting['protocol']}, {words}")]


def games_card(task: Task, dataset: str, split: str, count: int, licence: str) -> bytes:
    """Returns the card of a task's dataset of games."""
    title = f"{task.id}: {count} games" + (f" of {split}" if split else "")
    body = f"""# {title}

{task.summary}

Each line of `games.jsonl` is a game: `messages` is its first prompt, and `game` the settings that open it. The column
`env_class` names the adapter of SkyRL and `agent_name` the one of verl; both replace `prompt` by the game's own. The
games themselves are not in this dataset: envsuite makes them from their seeds.

```python
from datasets import load_dataset
from harness.interop.chat_game import open_row

row = load_dataset("{dataset}", split="train")[0]
environment, seed = open_row("example", row["game"])
messages = environment.begin(seed)  # for the model
reward = environment.reply(text)  # the model's reply
```
"""
    data = [{"config_name": "games", "data_files": "games.jsonl"}]
    return card({"pretty_name": title, "license": licence, "tags": ["envsuite", "agent"], "configs": data}, body)


def space_card(task: Task, name: str, licence: str) -> bytes:
    """Returns the card of a Space."""
    body = f"""# {task.id}

{task.summary}

OpenEnv's server for one task, with one environment per session. From Python:

```python
from harness.interop.openenv import Client, Command

with Client("https://OWNER-{name}.hf.space") as client:
    observation = client.reset(seed=3).observation
    result = client.step(Command(command="look"))
```
"""
    settings = {
        "title": task.id, "emoji": "🏠", "colorFrom": "blue", "colorTo": "green", "sdk": "docker", "app_port": 8000,
        "base_path": "/docs", "license": licence, "tags": ["openenv", "envsuite"],
    }  # fmt: skip
    return card(settings, body)
