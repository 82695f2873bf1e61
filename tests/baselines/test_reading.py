"""One update of GRPO stays short to read: few files, few lines, listed in reading order."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES, MOST_LINES = 8, 1200


def imported(path):
    """Returns the files of baselines that a file imports when it is imported itself."""
    files = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("baselines"):
            module = ROOT.joinpath(*node.module.split("."))
            names = [module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)]
            files |= {name for name in names if name.exists()}
    return files


def closure(start):
    found, ahead = set(), {start}
    while ahead:
        found |= ahead
        ahead = set().union(*map(imported, ahead)) - found
    return found


def test_an_update_of_grpo_is_read_in_few_files_and_lines():
    """Counts the files that `algorithms/grpo.py` needs to be imported, all their lines included.

    The model, its optimisers and its processes are handed to an update and used through their
    methods: what is behind these (forward passes, FSDP, Tinker, shared prefixes, packing) is not
    counted, nor are imports for type checkers and `__init__.py`.
    """
    files = closure(ROOT / "baselines" / "algorithms" / "grpo.py")
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert len(files) <= MOST_FILES and lines <= MOST_LINES, (len(files), lines)
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page[page.index("## One update of GRPO") :].split("\n## ")[0]
    listed = re.findall(r"^\d\. `baselines/([\w/]+\.py)`", section, re.M)
    assert sorted(listed) == sorted(path.relative_to(ROOT / "baselines").as_posix() for path in files)
