"""envsuite doctor: what works on this machine, with one line and one remedy for everything that does not."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envsuite.cache import cache_dir, cache_root
from envsuite.errors import EnvsuiteError
from envsuite.installed import extras, version
from harness import cli
from harness.cli.arguments.flags import add_common

SPACE_GB = 5.0
"""free disk space below which a download of torch or of a small model can fail"""


class MachineFinding(NamedTuple):
    """One examined thing: its state, and what to do if it does not work."""

    name: str
    state: str
    """ok | none (optional and missing) | FAIL (commands will stop with an error)"""
    detail: str
    remedy: str = ""


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite doctor",
        description="Examine this machine: Python, torch, GPU, sandbox, compilers, cache and data. Exits with 1 if "
        "something fails that every command needs.",
    )
    add_common(parser, "json", "verbose")
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    findings = []
    for finding in examine():
        findings.append(finding)
        if not args.json:
            cli.print_safely(f"{finding.state:4}  {finding.name:12}  {finding.detail}")
            if finding.remedy:
                cli.print_safely(f"{'':20}-> {finding.remedy}")
            sys.stdout.flush()
    if args.json:
        cli.print_json([finding._asdict() for finding in findings])
    return 1 if any(finding.state == "FAIL" for finding in findings) else 0


def examine() -> Iterator[MachineFinding]:
    """Yields the findings about this machine, the quick ones first. Uses no network."""
    checks: tuple[Callable[[], MachineFinding], ...] = (
        _python, _machine, _output, _cache, _encoding, _extras, _compilers, _alfworld, _model, _torch, _sandbox,
    )  # fmt: skip
    for check in checks:
        try:
            yield check()
        except (EnvsuiteError, OSError, ImportError, RuntimeError) as error:
            yield MachineFinding(check.__name__[1:], "FAIL", f"{type(error).__name__}: {error}")


def _python() -> MachineFinding:
    number = platform.python_version()
    try:
        installed = f"envsuite {importlib.metadata.version('envsuite')}"
    except importlib.metadata.PackageNotFoundError:
        installed = "envsuite from a folder on the path"
    return MachineFinding("python", "ok", f"{number} at {sys.executable}, {installed}")


def _machine() -> MachineFinding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return MachineFinding("machine", "ok", f"{platform.system()} {platform.machine()}, {cores} cores, {memory:.1f} GiB")


def _output() -> MachineFinding:
    try:
        with tempfile.TemporaryFile(dir="."):
            return MachineFinding("output", "ok", f"{Path.cwd()} is writable: results go to runs/ in it")
    except OSError as error:
        remedy = "change to another folder, or name one with --output-dir"
        return MachineFinding("output", "FAIL", f"{Path.cwd()} is not writable ({error.strerror})", remedy)


def _cache() -> MachineFinding:
    try:
        path = cache_dir()
        with tempfile.TemporaryFile(dir=path):
            free = shutil.disk_usage(path).free / 1e9
    except (EnvsuiteError, OSError) as error:
        return MachineFinding("cache", "FAIL", f"{cache_root()}: {error}", "set ENVSUITE_CACHE to a writable folder")
    detail = f"{path}, {free:.1f} GB free"
    if free < SPACE_GB:
        return MachineFinding("cache", "none", detail, "free some space, or set ENVSUITE_CACHE to another disk")
    return MachineFinding("cache", "ok", detail)


def _encoding() -> MachineFinding:
    encoding = (sys.stdout.encoding or "ascii").lower()
    if encoding.startswith("utf"):
        return MachineFinding("encoding", "ok", encoding)
    return MachineFinding("encoding", "none", f"{encoding}: tables are drawn in ASCII", "export LC_ALL=C.UTF-8")


def _extras() -> MachineFinding:
    needed = extras()
    if not needed:
        return MachineFinding("extras", "none", "envsuite is not installed as a package", "pip install -e '.[lite]'")
    missing = {extra: [name for name in names if not version(name)] for extra, names in needed.items()}
    present = ", ".join(extra for extra, names in missing.items() if not names) or "none"
    absent = ", ".join(extra for extra, names in missing.items() if names)
    remedy = "pip install 'envsuite[NAME]'; docs/howto/install.md says what each brings" if absent else ""
    return MachineFinding("extras", "ok", f"{present}; not installed: {absent or 'none'}", remedy)


def _compilers() -> MachineFinding:
    missing = [tool for tool in ("cc", "make", "cmake") if shutil.which(tool) is None]
    if missing:
        detail = f"{', '.join(missing)} missing: the extras textworld and alfworld-stock cannot be installed"
        return MachineFinding("compilers", "none", detail, "apt-get install -y build-essential cmake")
    return MachineFinding("compilers", "ok", "cc, make, cmake (only the extras textworld and alfworld-stock need them)")


def _alfworld() -> MachineFinding:
    from envsuite.envs.alfworld.games import data

    root = data.data_folder()
    if root is None:
        detail = f"{data.DATA_VARIABLE} is not set: `alfworld` means generated games"
        return MachineFinding("alfworld", "none", detail, "envsuite data get alfworld")
    counts = []
    for split, expected in data.EXPECTED.items():
        folder = root / data.VERSION / split
        count = sum(1 for _ in folder.glob("*/*/game.tw-pddl")) if folder.is_dir() else 0
        counts.append(f"{split} {count:,} files for {expected:,} games")
    return MachineFinding("alfworld", "ok", f"{root}: {', '.join(counts)}")


def _model() -> MachineFinding:
    from harness.lm import model_files

    name = next(iter(model_files.BUNDLED))
    path = model_files.here(model_files.resolve(name))
    if path is None:
        return MachineFinding("model", "none", f"the bundled model {name} is not here", f"envsuite models get {name}")
    return MachineFinding("model", "ok", f"{name} at {path}")


def _torch() -> MachineFinding:
    gpu = _nvidia_gpu()
    try:
        import torch
    except ImportError:
        remedy = "pip install 'envsuite[hf]' for models in this process; hosted models need none"
        return MachineFinding("torch", "none", f"not installed; GPU: {gpu or 'none'}", remedy)
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        detail = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {torch.cuda.device_count()} of them"
        return MachineFinding("torch", "ok", f"{torch.__version__} ({build}), GPU: {detail}")
    detail = f"{torch.__version__} ({build}), GPU: {gpu or 'none'}: models run on the CPU"
    if gpu and not torch.version.cuda:
        return MachineFinding("torch", "none", detail, "pip install --force-reinstall torch, from PyPI: it brings CUDA")
    if gpu:
        return MachineFinding(
            "torch", "none", detail, "update the NVIDIA driver: torch cannot use this one (nvidia-smi)"
        )
    return MachineFinding("torch", "ok", detail)


def _nvidia_gpu() -> str:
    """Returns the name of the first NVIDIA GPU that its driver reports, or ''."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    try:
        done = subprocess.run(
            [command, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""


def _sandbox() -> MachineFinding:
    from envsuite.sandbox import drivers

    reasons = {name: drivers.probe(name) for name in drivers.SAFE}
    working = [name for name, reason in reasons.items() if not reason]
    failed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)
    detail = f"{', '.join(working) or 'no driver works'}{f' ({failed})' if failed else ''}"
    if not working:
        return MachineFinding(
            "sandbox", "none", f"{detail}: DataSciCoding and SWE-Gym cannot run", drivers.cure("bwrap")
        )
    if working[0] != drivers.SAFE[0]:
        return MachineFinding("sandbox", "ok", detail, f"stronger: {drivers.cure('bwrap')}")
    return MachineFinding("sandbox", "ok", f"{detail}; envsuite check --sandbox attacks them all")


main = cli.command(_main)
