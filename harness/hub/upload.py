"""Uploads a bundle: to the Hugging Face hub with its client, or to prime's hub with its command."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.escaping import one_line
from harness.hub.bundle import Bundle

LIMIT = 900
"""seconds for `prime env push`; a bundle is small"""


def push(bundle: Bundle, private: bool, message: str) -> str:
    """Uploads a bundle and returns its address. Raises UsageError, MissingExtra, DataError."""
    if bundle.target.kind == "prime":
        return _push_to_prime(bundle, private)
    return _push_to_hugging_face(bundle, private, message)


def _push_to_hugging_face(bundle: Bundle, private: bool, message: str) -> str:
    """Creates the repository if it does not exist, and adds all files in one commit."""
    try:
        import httpx
        from huggingface_hub import CommitOperationAdd, HfApi, get_token
        from huggingface_hub.errors import HfHubHTTPError
    except ModuleNotFoundError as error:
        raise MissingExtra("envsuite hub push needs huggingface_hub: pip install huggingface_hub") from error
    token = get_token()
    if token is None:
        raise UsageError("There is no token for the Hugging Face hub: run `hf auth login`, or set HF_TOKEN.")
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    repository, kind = bundle.target.name, bundle.target.kind
    docker = "docker" if kind == "space" else None
    try:
        created = api.create_repo(repository, repo_type=kind, private=private, exist_ok=True, space_sdk=docker)
        operations = [CommitOperationAdd(path, content) for path, content in sorted(bundle.files.items())]
        api.create_commit(repository, operations, commit_message=message, repo_type=kind)
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError, LookupError, TypeError) as error:
        reason = one_line(str(error)).replace(token, "***")
        raise DataError(
            f"The upload to {bundle.target} failed: {reason}. Check that the token may write there, and repeat: "
            "files that are there already are replaced."
        ) from error
    return str(created)


def _push_to_prime(bundle: Bundle, private: bool) -> str:
    """Runs `prime env push` on a temporary copy of the files."""
    program = shutil.which("prime")
    if program is None:
        raise UsageError("There is no command `prime`: pip install prime, and run `prime login`.")
    owner, _, name = bundle.target.name.partition("/")
    with tempfile.TemporaryDirectory() as folder:
        bundle.write(Path(folder))
        visibility = "PRIVATE" if private else "PUBLIC"
        words = [program, "env", "push", "--path", folder, "--owner", owner, "--name", name, "--visibility", visibility]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise DataError(
                f"`prime env push` did not end within {LIMIT} s and was stopped. Push again: "
                "files that are there already are replaced."
            ) from None
    if done.returncode:
        reason = one_line((done.stderr or done.stdout)[-500:])
        raise DataError(f"`prime env push` failed with exit status {done.returncode}: {reason}. Run `prime login`?")
    return f"https://app.primeintellect.ai/dashboard/environments/{bundle.target.name}"
