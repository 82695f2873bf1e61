"""Runs the adapters to trainers with the real packages, each in a separate virtual environment.

    python -m benchmarks.adapters [tinker skyrl ...] [--markdown benchmarks/adapters.md]

`make adapters-proof` runs this. Environments are in the cache (`adapters/`) and are used again. The page has the latest
result of each package. TORCH and TORCH_INDEX choose the build of torch, as in the Makefile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.server_recipes import run
from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import EnvsuiteError

ROOT = Path(__file__).resolve().parents[1]
TORCH = os.environ.get("TORCH", "torch==2.13.0+cpu")
INDEX = os.environ.get("TORCH_INDEX", "")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""asked for the CPU build of torch if the usual indexes and folders do not have it"""


@dataclass(frozen=True)
class Recipe:
    """Packages of one environment and the tests that run there."""

    packages: Sequence[str]
    tests: str
    alone: Sequence[str] = ()
    """packages that are installed without their dependencies, because these include CUDA"""
    note: str = ""


VERL_NEEDS = (
    "transformers<5.11,>=5.5.3", "tensordict<=0.10.0,>=0.8.0", "hydra-core", "ray>=2.41", "codetiming", "dill",
    "torchdata", "pandas", "pyarrow", "cachetools", "datasets", "pillow", "peft", "accelerate", "tensorboard",
    "fastapi", "uvicorn", "aiohttp",
)  # fmt: skip
SKYRL_NEEDS = (
    "skyrl-gym==0.4.0", "transformers<=5.8.0,>=5.6.1", "ray==2.56.0", "loguru", "tqdm", "hydra-core==1.3.2",
    "tensordict", "datasets", "peft==0.18.1", "accelerate", "jaxtyping", "torchdata", "aiohttp", "fastapi", "uvicorn",
)  # fmt: skip
RECIPES = {
    "tinker": Recipe(
        ("tinker-cookbook==0.5.8",),
        "tests/interop/packages/tinker_package.py",
        note="0.6.1 requires tml-renderers 0.4.1, and the package index has 0.2.1",
    ),
    "skyrl": Recipe(
        SKYRL_NEEDS,
        "tests/interop/packages/skyrl_package.py",
        ("skyrl==0.3.0",),
        "without the dependencies of its GPU extras",
    ),
    "verl": Recipe(
        VERL_NEEDS,
        "tests/interop/packages/verl_package.py",
        ("verl==0.9.1",),
        "without the dependencies of its GPU extras",
    ),
    "mini-swe-agent": Recipe(
        ("mini-swe-agent==2.4.6", "transformers"),
        "tests/harness/test_published_conversations.py::test_every_byte_of_mini_swe_agents_messages_is_what_the_package_makes",
        note="the messages of three episodes, byte for byte",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(RECIPES)}")
    parser.add_argument("--markdown", type=Path, help="write the table to this page")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in RECIPES]:
        parser.error(f"unknown adapter {unknown[0]!r}: choose {', '.join(RECIPES)}")
    for name in args.names or RECIPES:
        try:
            result = _prove(RECIPES[name], _environment(name, RECIPES[name]))
        except EnvsuiteError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        write_atomically(_result(name), json.dumps(result))
    results = {name: json.loads(_result(name).read_text()) for name in RECIPES if _result(name).exists()}
    page = _page({name: result for name, result in results.items() if not result["failed"]})
    print(page)
    if args.markdown:
        args.markdown.write_text(page)
    return int(any(result["failed"] for result in results.values()))


def _result(name: str) -> Path:
    """Returns the file with the counts of the latest run."""
    return cache_dir("adapters") / f"{name}.json"


def _environment(name: str, recipe: Recipe) -> Path:
    """Returns the Python of a recipe's environment, which is made if it is not complete."""
    folder = cache_dir("adapters") / name
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*recipe.packages, TORCH, *project["dependencies"], "minigrid>=3.1", "pytest", "pytest-timeout", "jinja2"]
    written = "\n".join([*wanted, *recipe.alone])
    if not stamp.exists() or stamp.read_text() != written:
        print(f"installing {name} in {folder}", file=sys.stderr)
        log = folder.with_name(f"{name}.log")
        uv: list[str | Path] = ["uv"]
        run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], log, "uv venv")
        install = [*uv, "pip", "install", "--quiet", "--python", python]
        if INDEX:
            install += ["--extra-index-url", INDEX]
        if recipe.alone:
            run([*install, "--no-deps", *recipe.alone], log, f"uv pip install {' '.join(recipe.alone)}")
        try:
            run([*install, *wanted], log, f"uv pip install {name}")
        except EnvsuiteError:
            if INDEX or "+cpu" not in TORCH:
                raise
            run([*install, "--extra-index-url", CPU_INDEX, *wanted], log, f"uv pip install {name}")
        stamp.write_text(written)
    return python


def _prove(recipe: Recipe, python: Path) -> dict[str, Any]:
    """Runs the tests of a recipe; returns the counts that they wrote."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.jsonl"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ENVSUITE_ADAPTERS": str(counts)}
        words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", recipe.tests]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        lines = counts.read_text().splitlines() if counts.exists() else []
    print(done.stdout[-3000:], file=sys.stderr)
    summary = (done.stdout.strip().splitlines() or ["no output"])[-1]
    failed = bool(done.returncode) or "skipped" in summary
    passed = re.search(r"\d+ passed", summary)
    return {
        "rows": [json.loads(line) for line in lines],
        "summary": passed[0] if passed else summary,
        "failed": failed or not passed,
    }


def _page(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Adapters, run by the real packages",
        "",
        "`make adapters-proof`: a scripted player plays games through each framework's own runner and through this",
        "project's rollout. The player answers a prompt only if its tokens equal those of",
        "the rollout. Compared as well: the mask of sampled tokens, log-probabilities, the reward of every turn, and",
        "the end of the episode. All numbers below are of equal episodes; a package whose proof failed or was not run",
        "is not listed.",
        "",
        "| package | version | task | episodes | turns | tokens | of them sampled |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for result in results.values():
        for row in result["rows"]:
            numbers = [row["episodes"], row["turns"], row["tokens"] or "messages", row["sampled"] or "–"]
            cells = [row["package"], row["version"], row["task"], *map(str, numbers)]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| environment | installed | tests |", "|---|---|---|"]
    for name, result in results.items():
        recipe = RECIPES[name]
        packages = ", ".join(f"`{word}`" for word in (*recipe.alone, *recipe.packages[:1]) if "==" in word)
        note = f" ({recipe.note})" if recipe.note else ""
        lines.append(f"| {name} | {packages}{note} | {result['summary']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
