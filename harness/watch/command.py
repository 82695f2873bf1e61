"""envsuite watch: a live page about runs, on this machine only."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from envsuite.escaping import terminal
from harness import cli
from harness.cli.arguments.flags import add_common


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite watch",
        description="Show runs as a live page on 127.0.0.1: episodes as they are played, rates and errors. The page "
        "reads the run folders and changes nothing. End it with Ctrl-C.",
        epilog="Example: envsuite watch runs",
    )
    parser.add_argument(
        "run", nargs="?", type=Path, default=Path("runs"), help="a run's folder, or one that holds runs (default: runs)"
    )
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: any free one)")
    add_common(parser, "verbose")
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    from harness.watch.server import PageServer, Runs

    with PageServer(Runs(args.run), args.port) as server:
        print(f"{server.address}  shows {terminal(args.run)}; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except cli.SigtermReceived:
            raise
        except KeyboardInterrupt:
            pass
    return 0


main = cli.command(_main)
