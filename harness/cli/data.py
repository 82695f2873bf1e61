"""envsuite data: downloads and adds data, exports runs, generates games, and writes expert demonstrations."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.envs.datascicoding.added import storage
from envsuite.envs.datascicoding.added.findings import TableFinding
from envsuite.envs.datascicoding.added.reading import Format
from envsuite.errors import MissingExtra, UsageError, did_you_mean
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.evaluate import Execution, RunConfig, open_slots
from harness.prompting import protocols
from harness.prompting.prompting import Prompting
from harness.settings import add_flags, named, read
from harness.stats.compare import read_run
from harness.suites.plan import configure, parse_setting

FETCHERS = {"alfworld": "envsuite.envs.alfworld.games.data:download"}
PROMPTS = "prompts/"
"""prefix of the names of published prompts"""
EXPORTS = {
    "parquet": "one file of rows",
    "predictions": "SWE-Gym patches as JSON lines for SWE-bench's harness",
}
MAKERS = {"textworld": "envsuite.envs.textworld.game_cache:prepare"}
ADDERS = {"datascicoding": "envsuite.envs.datascicoding.datasets:add"}


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(prog="envsuite data", description="Data sets, games and demonstrations.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    get = verbs.add_parser(
        "get", help="download official data or the words of a published prompt: " + ", ".join(_gettable())
    )
    get.add_argument("name", help=", ".join(_gettable()))
    get.add_argument(
        "--from",
        dest="local",
        type=Path,
        default=None,
        help="for prompts/NAME: a checkout of the protocol's repository, in place of the download",
    )
    _add_adding(verbs)
    verbs.add_parser("list", help="list your tables")
    remove = verbs.add_parser("remove", help="delete one of your tables")
    remove.add_argument("name", help="name of the table, as `list` shows it")
    export = verbs.add_parser("export", help="export a finished run for other tools: " + ", ".join(EXPORTS))
    export.add_argument("run", type=Path, help="run folder, or its results.jsonl")
    export.add_argument(
        "--to", choices=EXPORTS, required=True, help="; ".join(f"{name}: {text}" for name, text in EXPORTS.items())
    )
    export.add_argument("-o", "--output", type=Path, required=True, help="file or folder to write")
    agents = verbs.add_parser("import", help="turn trajectories of other agents into records to replay and patches")
    agents.add_argument(
        "trajectories", nargs="+", type=Path,
        help="files or folders of SWE-agent (.traj), mini-swe-agent (.traj.json) or OpenHands (output.jsonl)",
    )  # fmt: skip
    agents.add_argument("-e", "--env", required=True, help="task of SWE-Gym with these instances")
    agents.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="set a knob; may be repeated")
    agents.add_argument("-o", "--output", type=Path, required=True, help="folder to write")
    games = verbs.add_parser("games", help="generate games in advance: " + ", ".join(MAKERS))
    _add_episodes(games)
    games.add_argument("--num-workers", type=int, default=0, help="processes (0: one per core)")
    demos = verbs.add_parser("demos", help="write the expert's games as chat JSONL for fine-tuning")
    demos.add_argument("-o", "--output", type=Path, required=True, help="JSONL file to write")
    _add_episodes(demos)
    demos.add_argument("--expert", default="expert", help="expert | expert:KIND")
    add_flags(demos, Prompting, ("history", "admissible", "action_grammar"), {"admissible": "none"})
    add_flags(demos, Execution, ("num_workers", "executor", "ray_address"))
    cli.add_verbose(verbs)
    return parser


def _add_adding(verbs: Any) -> None:
    add = verbs.add_parser(
        "add",
        help="add a CSV or Parquet file as a table for DataSciCoding, or your copy of a known data set",
        description="FILE --target COLUMN: checks a table, splits its rows into train, validation and holdout, and "
        "stores it for -e DataSciCoding-local --set table=NAME. NAME FILE: adds your copy of a data set that envsuite "
        "knows, after a check of its columns and checksum.",
    )
    add.add_argument("words", nargs="+", metavar="[NAME] FILE", help="a file, or a known data set and your copy of it")
    add.add_argument("--target", default="", metavar="COLUMN", help="column to predict")
    add.add_argument("--name", default="", help="name of the table (default: from the file's name)")
    add.add_argument(
        "--kind", choices=("auto", "classification", "regression"), default="auto", help="auto: from the target"
    )
    add.add_argument(
        "--keep", action="append", default=[], metavar="COLUMN", help="keep a column that a check leaves out"
    )
    add.add_argument("--time", default="", metavar="COLUMN", help="hold out the rows that are last by this column")
    add.add_argument("--encoding", default="", help="of a CSV (default: detected)")
    add.add_argument("--delimiter", default="", help="between the columns of a CSV (default: detected)")
    add.add_argument(
        "--metric",
        default="",
        help="of the competition form: auc, accuracy, log_loss, r2, rmse, mae (default: auc, r2)",
    )
    add.add_argument(
        "--leaderboard", type=Path, default=None, metavar="FILE", help="CSV with a column score, for medals"
    )


def _add_episodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-e", "--env", required=True, help="family or task id")
    add_common(parser, "set", "module")
    add_flags(parser, RunConfig, ("split", "episodes", "seed"), {"split": "train", "episodes": 100, "seed": 0})


def _chosen(args: argparse.Namespace, model: str) -> RunConfig:
    """Returns the episodes of the one task that the arguments name."""
    cli.import_modules(args.module)
    task = cli.one_task(args.env)
    flags = {**named(args, RunConfig), "set": args.set}
    if task.panel:
        del flags["split"]
    return configure(task, model, flags)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.verb == "get":
        cli.print_safely(f"{args.name}: {_get(args.name, args.local)}")
    elif args.verb == "add":
        _add(args)
    elif args.verb == "remove":
        storage.remove(args.name)
        cli.print_safely(f"{args.name}: removed")
    elif args.verb == "list":
        for name in storage.names():
            cli.print_safely(f"{name:14} {storage.describe(name)}")
    elif args.verb == "export":
        _export(args)
    elif args.verb == "import":
        _import(args)
    elif args.verb == "games":
        return _games(args)
    else:
        _demos(args)
    return 0


def _gettable() -> list[str]:
    return [*FETCHERS, *(PROMPTS + name for name in protocols.names() if protocols.load(name).source_files)]


def _get(name: str, local: Path | None) -> object:
    """Downloads data or words by name; returns where they are. Raises UsageError, DataError."""
    known = _gettable()
    if name not in known:
        raise UsageError(f"Nothing to get for {name!r}: it can be {', '.join(known)}.{did_you_mean(name, known)}")
    if name.startswith(PROMPTS):
        return protocols.load(name.removeprefix(PROMPTS)).fetch(local)
    if local is not None:
        raise UsageError(f"--from is for {PROMPTS}NAME, not for {name}.")
    return registry.load(FETCHERS[name])()


def _add(args: argparse.Namespace) -> None:
    """Adds a table, or a copy of a known data set if two words are given."""
    if len(args.words) > 2:
        raise UsageError(f"add takes FILE --target COLUMN, or NAME FILE, not {len(args.words)} words.")
    if len(args.words) == 2 and not args.target:
        name, file = args.words
        stored = registry.load(ADDERS["datascicoding"])(name, Path(file))
        cli.print_safely(f"{name}: kept as {stored}")
        return
    if len(args.words) == 2:
        raise UsageError(f"add FILE --target {args.target} takes one file: give the name by --name.")
    if not args.target:
        raise UsageError(f"add {args.words[0]} needs --target COLUMN, the column to predict.")
    table, findings = _with_pandas(args)
    for finding in findings:
        cli.print_safely(f"- {finding.line()}")
    cli.print_safely(f"{table.name}: {storage.describe(table.name)}")
    cli.print_safely(f"play it: envsuite-eval -m expert -e DataSciCoding-local --set table={table.name} -n 1")


def _with_pandas(args: argparse.Namespace) -> tuple[storage.StoredTable, list[TableFinding]]:
    try:
        return storage.add(
            Path(args.words[0]),
            args.target,
            args.name,
            args.kind,
            args.keep,
            args.time,
            Format(args.encoding, args.delimiter.replace("\\t", "\t")),
            args.metric,
            args.leaderboard,
        )
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"Adding a table needs the package {error.name!r}, which is not installed: "
            "pip install 'envsuite[datascicoding]'"
        ) from error


def _export(args: argparse.Namespace) -> None:
    run = read_run(args.run, keep_broken=True)
    if args.output.exists():
        raise UsageError(f"{args.output} exists: remove it, or choose another --output.")
    try:
        if args.to == "parquet":
            from harness.interop.rows import write_parquet

            write_parquet(run.records, args.output)
        elif args.to == "predictions":
            from harness.interop.predictions import write_predictions

            count = write_predictions(run, args.output)
            print(f"{args.output}: predictions for {cli.plural(count, 'instance')}")
            return
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"--to {args.to} needs the package {error.name!r}, which is not installed: pip install 'envsuite[interop]'"
        ) from error
    cli.print_safely(f"{args.output}: {len(run.records)} episodes of {run.name} on {run.config['task']}")


def _import(args: argparse.Namespace) -> None:
    from harness.agents.importing import import_trajectories
    from harness.agents.trajectories import read_trajectories

    task = cli.one_task(args.env)
    knobs = registry.overrides(task, dict(parse_setting(word) for word in args.set))
    trajectories = [trajectory for path in args.trajectories for trajectory in read_trajectories(path)]
    result = import_trajectories(trajectories, task, knobs, args.output)
    skipped = f"; {cli.plural(result.skipped, 'action')} without an equivalent" if result.skipped else ""
    cli.print_safely(
        f"{args.output}: {cli.plural(result.episodes, 'episode')} of {trajectories[0].model}, "
        f"{cli.plural(result.steps, 'step')}, {result.patches} with a patch{skipped}"
    )
    settings = " ".join(f"--set {shlex.quote(f'{name}={_spelled(value)}')}" for name, value in result.knobs.items())
    results = shlex.quote(str(args.output / "results.jsonl"))
    cli.print_safely(f"replay and grade: envsuite-eval -m replay:{results} -e {task.id} {settings}")
    records = f" --records {shlex.quote(str(knobs['records']))}" if "records" in knobs else ""
    cli.print_safely(f"grade the patches: envsuite grade -p {shlex.quote(str(args.output / 'preds.jsonl'))}{records}")


def _spelled(value: Any) -> str:
    """Returns a knob's value as --set reads it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _games(args: argparse.Namespace) -> int:
    config = _chosen(args, "random")
    if config.task.requires not in MAKERS:
        raise UsageError(f"{config.task.id} does not generate games in advance: this verb is for {', '.join(MAKERS)}.")
    if args.num_workers < 0:
        raise UsageError(f"--num-workers must be at least 0, not {args.num_workers}: 0 means one per core.")
    settings, seeds = {**registry.knob_names(config.task), **config.knobs}, config.seeds
    games = registry.load(MAKERS[config.task.requires])(settings, seeds, args.num_workers or None)
    count = 0
    for game in track(games, "games", len(seeds), console=cli.console(), disable=not sys.stdout.isatty()):
        if game.path is None:
            cli.print_safely(f"seed {game.spec.seed}: not made: {game.problem}")
        else:
            count += 1
    print(f"{count} of {len(seeds)} games of {cli.titled(config.task.id, config.knobs)} are in the cache")
    return 0 if count else 1


def _demos(args: argparse.Namespace) -> None:
    from harness.policies import make_policy
    from harness.prompting.demos import demonstrations
    from harness.rollout.loop import rollout

    config = _chosen(args, args.expert)
    prompting = read(Prompting, {"thinking": "off", **named(args, Prompting)})
    policy = make_policy(args.expert)
    how = read(Execution, named(args, Execution))
    executor = open_slots(config, how, len(config.all_episodes()), policy.advice_kind)
    try:
        runs = sorted(rollout(policy, config.all_episodes(), executor, prompting), key=lambda run: run.episode.key)
    finally:
        executor.close()
    lines = [json.dumps(demonstration, ensure_ascii=False) for demonstration in demonstrations(runs, prompting)]
    write_atomically(args.output, "".join(line + "\n" for line in lines))
    title = cli.titled(config.task.id, config.knobs)
    print(f"{args.output}: {len(lines)} demonstrations of {len(runs)} episodes of {title}")


main = cli.command(_main)
