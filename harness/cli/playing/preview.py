"""Previews of a run: --dry-run and --show-prompt."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

from envsuite import registry
from envsuite.escaping import public_url
from harness import cli
from harness.cli.arguments.flags import Call
from harness.evaluate import RunConfig
from harness.policies import is_model, members, on_server, starts_server, weights_path
from harness.prompting.protocols import NEUTRAL


def describe(config: RunConfig, call: Call, console: Console) -> None:
    """Prints what a run would play, without playing it."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    panel = config.panel
    episodes = config.all_episodes()
    say(f"task      {cli.titled(config.task.id, config.knobs)}")
    if panel:
        of = f" of {panel.expected:,}" if panel.expected and panel.expected != len(panel) else ""
        say(f"panel     {panel.name} {panel.digest}: {len(panel):,}{of} games present")
    seeds, attempts = cli.plural(len(config.seeds), "seed"), cli.plural(config.attempts, "attempt")
    say(f"episodes  {seeds} from {config.seeds[0]} x {attempts} = {len(episodes)}")
    cls = registry.env_class(config.task)
    turns = config.turn_cap
    each = f"at most {turns} each, {turns * len(episodes):,} in all" if turns else "as many as each game allows"
    say(f"turns     {each}   reward {config.reward_mode} ({cls.__name__})")
    if is_model(config.model):
        from harness.lm.model_files import resolve

        for player in filter(is_model, members(config.model)):
            served = on_server(player, call.connection.base_url)
            where: Any = resolve(weights_path(player)) if not served else _servers(player, call.connection.base_url)
            say(f"model     {player} -> {where}")
        say(f"sampling  {config.sampling}")
        say(f"prompt    {config.prompting}")
        if turns:
            say(f"tokens    at most {turns * len(episodes) * config.sampling.max_tokens:,} sampled")
    say(f"folder    {config.folder(call.output_dir)}")


def _servers(model: str, base_url: str | None) -> str:
    """Returns the servers' addresses without passwords."""
    if starts_server(model):
        return "a server that the run starts and stops"
    if base_url is None:
        return "OpenAI"
    return ",".join(map(public_url, base_url.split(",")))


def show_prompt(config: RunConfig, base_url: str | None) -> None:
    """Prints the first messages for the model and, if its weights are here, the text its template makes of them."""
    if config.prompting.protocol and config.prompting.words == NEUTRAL:
        note = f"{config.prompting.protocol}: these words are neutral ones of envsuite, not the published ones"
        cli.print_safely(note, sys.stderr)
    env = registry.build(config.task, config.reward_mode, **config.knobs)
    try:
        text, info = env.preview(config.seeds[0])
        admissible = info["admissible_commands"]
        messages = config.prompting.messages(
            env.instructions, info["objective"], [], text, admissible, labels=info["labels"]
        )
        tools = config.prompting.tools(env.tools)
        print(json.dumps({"messages": messages, "tools": tools}, indent=2, ensure_ascii=False))
    finally:
        env.close()
    if not is_model(config.model):
        return
    from harness.lm import model_files

    player = next(filter(is_model, members(config.model)))
    if on_server(player, base_url):
        return
    path = model_files.here(model_files.resolve(weights_path(player)))
    if path is None:
        print(f"\n(the weights of {player} are not here: its chat template cannot be applied)")
        return
    from transformers import AutoTokenizer

    from harness.lm.template import Template

    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    template = Template(tokenizer, (), config.prompting.thinking)
    print(f"\n{template.render(messages, tools)}\n({len(template.encode(messages, (), tools).ids)} tokens)")
