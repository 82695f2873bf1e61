"""The argument parser of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NoReturn

from envsuite.errors import did_you_mean

UNKNOWN = "unrecognized arguments: "


class CliParser(argparse.ArgumentParser):
    """An ArgumentParser that names the nearest flag when it does not know one."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and one line, and exits with 2."""
        unknown = message.removeprefix(UNKNOWN).split()
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
        if message.startswith(UNKNOWN) and flag:
            message += "." + did_you_mean(flag, _flags(self))
        super().error(message)


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields the long flags of a parser and of its subcommands."""
    for action in parser._actions:
        yield from (flag for flag in action.option_strings if flag.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                yield from _flags(subcommand)
