"""Commands of several lines, written in a person's own text editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from envsuite.errors import UsageError


def edit(text: str = "") -> str:
    """Opens `text` in the editor that VISUAL or EDITOR names; returns the text as it was saved.

    Raises UsageError if there is no editor or it fails.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("No editor is set: export EDITOR=nano, or begin with a line of ``` and end with another.")
    with tempfile.TemporaryDirectory(prefix="envsuite-edit-") as folder:
        path = Path(folder) / "command.py"
        path.write_text(text)
        try:
            done = subprocess.run([*shlex.split(editor), str(path)])
        except (OSError, ValueError) as error:
            raise UsageError(f"The editor {editor!r} cannot be started: {error}.") from error
        if done.returncode:
            raise UsageError(f"The editor {editor!r} ended with {done.returncode}: nothing was sent.")
        return path.read_text(errors="replace")
