"""envsuite generalize: evaluates models over a grid of settings.

Reports the gap between the settings seen in training and the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError
from harness import cli, cost
from harness.cli.arguments.flags import Call, add_common, add_options, read_call
from harness.cli.playing.players import Players, play
from harness.evaluate import RunConfig
from harness.generalization import cells as parts
from harness.generalization import generalize, grids
from harness.generalization.cells import EvaluatedModel, GridCell, GridSetting
from harness.suites.plan import configure


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(
        prog="envsuite generalize",
        usage="%(prog)s -m MODEL -e ENV --axis NAME=V1,V2 [options]",
        description="Evaluate models over a grid of settings: transfer at each, and seen settings minus unseen ones.",
        epilog="Example: envsuite generalize -m runs/train/w2/model@world_size=2 --env textworld "
        "--axis world_size=2,4,8 --axis nb_objects=3,6,12",
    )
    add = commands.add_argument
    add(
        "-m",
        "--model",
        action="append",
        required=True,
        help="as for envsuite-eval; NAME@AXIS=VALUE,... names its training settings; repeatable (first axis)",
    )
    add("--base", action="append", default=[], metavar="MODEL", help="a model before training; may be repeated")
    add("-e", "--env", default="", help="family or task id")
    add(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="a knob, `split`, `task` (transfer to other environments) or `prompt-wording`; may be repeated",
    )
    add("--splits", default="", help="instead of axes: " + ", ".join(generalize.splits()))
    add(
        "--language",
        default="",
        metavar="TASKS",
        help="instead of playing: language ability by lm-eval, e.g. agreement,household,piqa; the first -m is `before`",
    )
    add("--language-tasks", type=Path, default=None, metavar="DIR", help="task files of lm-eval's format")
    add_common(commands, "metric")
    add_options(commands)
    commands.set_defaults(output_dir=Path("runs/generalize"), baselines="none")
    return commands


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    console, call = cli.console(stderr=args.json), read_call(args)
    if args.language:
        return _language(args, call)
    models, settings = _models(args), _settings(args)
    runs = [(who, setting, _run(call, who, setting)) for who in models for setting in settings]
    folder, how = call.output_dir, call.execution
    if args.dry_run:
        for who, setting, config in runs:
            where = ", ".join(f"{name}={value}" for name, value in setting.at.items())
            line = cost.line(config, folder, [folder, Path("runs")], how.max_concurrent)
            console.print(f"{who.label}  {where}: {line}", highlight=False, soft_wrap=True)
        return 0
    cells: list[GridCell] = []
    written: dict[str, Any] = {}
    with Players(call) as players:
        for who, setting, config in runs:
            # Two settings can be one run (a model's own training setting named twice): it is played once.
            again = any(cell.run == str(config.folder(folder)) for cell in cells)
            now = dataclasses.replace(how, resume=how.resume or again)
            records, _ = play(config, who.name, players, now)
            cells.append(parts.cell(who, setting, records, args.metric, config.folder(folder)))
            written = generalize.write_grid(folder, args.metric, models, settings, cells)
    if args.json:
        print(json.dumps(written, indent=2))
        return 0
    heads, rows = grids.lines(written)
    table = cli.new_table(f"{args.metric} [95 %]", heads[:1], heads[1:])
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in grids.conclusions(written):
        console.print(line, highlight=False, soft_wrap=True)
    if not written["gaps"]:
        cure = (
            "no setting of this grid is seen, or none is unseen: give the axis the values of training and others"
            if any(who.trained for who in models)
            else "say where the model was trained, as in -m NAME@AXIS=VALUE, or take --splits"
        )
        console.print(f"no difference of seen and unseen: {cure}", highlight=False, soft_wrap=True)
    console.print(f"{folder / 'grid.json'}", highlight=False, soft_wrap=True)
    return 0


def _language(args: argparse.Namespace, call: Call) -> int:
    """Measures the language ability of each model, and how training changed it."""
    from harness import language_ability

    tasks = [name.strip() for name in args.language.split(",") if name.strip()]
    if not tasks:
        raise UsageError(f"--language {args.language!r} names no task: take agreement,household, or lm-eval's own.")
    most, device = call.flags.get("episodes"), call.connection.device
    dtype = call.flags.get("dtype", "auto")
    if most is not None and most < 1:
        raise UsageError(f"--episodes must be at least 1, not {most}.")
    if args.language_tasks and not args.language_tasks.is_dir():
        raise UsageError(f"--language-tasks {args.language_tasks} is no folder.")
    path = args.output_dir / "language.json"
    if path.exists() and not call.execution.resume:
        raise UsageError(f"{path} exists: measure again with --resume, or choose another --output-dir.")
    if args.dry_run:
        items = f"up to {most} items" if most else "all items"
        print(f"{len(args.model)} models x {', '.join(tasks)}, {items} each")
        return 0
    measured = {
        name: language_ability.measure(name, tasks, args.language_tasks, most, device, dtype) for name in args.model
    }
    report = language_ability.report(measured)
    language_ability.write(args.output_dir, report)
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    first, *others = report["models"]
    heads = [first, *(head for name in others for head in (name, "change", "p"))]
    table = cli.new_table("language ability, accuracy [95 %]", ["task"], heads)
    for row in report["tasks"]:
        cells = [_bounds(row["accuracy"][first])]
        for name in others:
            change = row["change"][name]
            cells += [_bounds(row["accuracy"][name]), _bounds(change, "+"), f"{change['p']:.4f}"]
        table.add_row(row["task"], *cells)
    console = cli.console()
    console.print(table)
    console.print(path, highlight=False, soft_wrap=True)
    return 0


def _bounds(interval: dict[str, Any], sign: str = "") -> str:
    bounds = "" if interval["low"] is None else f" [{interval['low']:{sign}.3f}, {interval['high']:{sign}.3f}]"
    return f"{interval['mean']:{sign}.3f}{bounds} n={interval['n']}"


def _models(args: argparse.Namespace) -> list[EvaluatedModel]:
    beside = [name.strip() for name in args.baselines.split(",")]
    words = [*args.model, *(name for name in beside if name not in ("", "none"))]
    models = {word: parts.model(word) for word in words}
    for name in args.base:
        models[name] = EvaluatedModel(name, {}, base=True)
    return list(models.values())


def _settings(args: argparse.Namespace) -> list[GridSetting]:
    if args.splits and args.axis:
        raise UsageError("--splits names its settings itself: drop --axis, or span them with --axis alone.")
    if args.splits:
        return generalize.split_settings(args.splits)
    spans = generalize.axes(args.axis)
    if not spans:
        raise UsageError("Name a grid: --axis NAME=V1,V2 (a knob, split, task or prompt-wording), or --splits NAME.")
    if not args.env and "task" not in spans:
        raise UsageError("Name the environment with --env, or several with --axis task=A,B.")
    return generalize.grid(args.env, spans)


def _run(call: Call, who: EvaluatedModel, setting: GridSetting) -> RunConfig:
    """Returns the run of one model at one setting of the grid, with every value checked."""
    flags = {**call.flags, "set": (*call.flags.get("set", ()), *(f"{k}={v}" for k, v in setting.knobs.items()))}
    flags |= {"split": setting.split} if setting.split else {}
    flags |= {"prompt_wording": setting.prompt_wording} if setting.prompt_wording else {}
    for axis in who.trained:
        if axis not in setting.at:
            raise UsageError(f"-m {who.label}: {axis} is no axis of this grid, which has {', '.join(setting.at)}.")
    return configure(setting.task, who.name, flags)


main = cli.command(_main, "--resume")
