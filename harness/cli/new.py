"""envsuite new: a package with a working environment, its tests and its page, to start from."""

from __future__ import annotations

import argparse
import importlib.resources
import importlib.util
import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from envsuite import registry
from envsuite.errors import UsageError
from harness import cli
from harness.cli.arguments.flags import add_common

FILES = {  # where it goes -> the template; $package is filled in here too
    "pyproject.toml": "pyproject",
    "README.md": "readme",
    "$package/__init__.py": "init",
    "$package/env.py": "env",
    "tests/test_$package.py": "test",
}


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(
        prog="envsuite new",
        description="Write a package with a working environment, tests and a page. Then replace its rules by yours.",
        epilog="Example: envsuite new lights-out; cd lights-out; pytest",
    )
    commands.add_argument("name", help="of the environment: words of letters and digits, joined by - or _")
    commands.add_argument("-o", "--output-dir", type=Path, default=Path("."), help="parent folder (default: .)")
    add_common(commands, "verbose")
    return commands


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    words = names(args.name)
    folder = write(words, args.output_dir)
    print(f"{folder}: a working environment in {len(FILES)} files. Next:")
    print(f"  cd {folder} && pip install -e '.[dev]' && pytest")
    print(f"  envsuite check '{words['class_name']}-*'        # without installing: --module {words['package']}")
    print(f"  then replace the rules in {words['package']}/env.py by yours (see docs/howto/own-environment.md)")
    return 0


def names(name: str) -> dict[str, str]:
    """Spellings of one name: package, class, family, title, distribution. Raises UsageError for invalid names."""
    parts = re.split(r"[-_]+", name)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_]+[A-Za-z0-9]+)*", name):
        raise UsageError(f"{name!r} is no name: give words of letters and digits joined by - or _, such as lights-out.")
    package = "_".join(parts).lower()
    class_name = "".join(part[0].upper() + part[1:] for part in parts)
    if keyword.iskeyword(package) or keyword.iskeyword(class_name) or importlib.util.find_spec(package) is not None:
        raise UsageError(
            f"{package!r} is already a Python module or word here: choose another name, such as {name}-env."
        )
    if class_name.lower() in {task.family for task in registry.tasks("*")}:
        raise UsageError(f"There are tasks of the name {class_name} already: choose another one, such as my-{name}.")
    return {
        "package": package,
        "class_name": class_name,
        "family": class_name.lower(),
        "title": " ".join(part.capitalize() for part in parts),
        "distribution": "-".join(parts).lower(),
    }


def write(words: dict[str, str], parent: Path) -> Path:
    """The package's folder, written whole. Raises UsageError where something is there already."""
    folder = parent / words["distribution"]
    if folder.exists():
        raise UsageError(f"{folder} exists: choose another name, or another place with --output-dir.")
    templates = importlib.resources.files("harness") / "scaffold"
    for place, template in FILES.items():
        path = folder / Template(place).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template((templates / f"{template}.txt").read_text()).substitute(words))
    return folder


main = cli.command(_main)
