"""Uploads a bundle to the Hugging Face hub."""

from __future__ import annotations

import os

from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.escaping import one_line
from harness.hub.bundle import Bundle


def push(bundle: Bundle, private: bool, message: str) -> str:
    """Creates the repository if it does not exist, adds all files in one commit, and returns its address.

    Raises UsageError, MissingExtra, DataError.
    """
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
