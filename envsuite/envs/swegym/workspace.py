"""The agent's workspace: a repository in a sandbox, a persistent working directory, and edits that can
be undone.
"""

from __future__ import annotations

import io
import secrets
import shlex
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from envsuite.envs.swegym.edits import EditAction
from envsuite.errors import DataError, EngineFailure
from envsuite.reading import check_tar
from envsuite.sandbox import leftovers
from envsuite.sandbox.protocol import Fate, Limits, Session

SHOWN = "/testbed"
"""path of the repository in texts, whatever the driver calls it"""
LONGEST = 120_000
"""bytes of a command: the kernel refuses words of 128 KiB or more"""
WINDOW = 200
"""lines of a file shown at once"""
_GIT = (
    "git init -q --template= . && git add -A -f . && "
    "git -c user.name=envsuite -c user.email=envsuite@localhost -c commit.gpgsign=false "
    "commit -q --no-verify -m base"
)
_DATE = {"GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z"}
_WRITE = (
    'if [ -e "$1" ] && [ ! -f "$1" ]; then [ ! -d "$1" ] || echo ": Is a directory" >&2; exit 1; fi; '
    'mkdir -p "$(dirname "$1")" && cat > "$1"'
)
_ENDINGS = {
    Fate.TIMEOUT: "The command was ended: it took longer than {seconds:g} seconds.",
    Fate.MEMORY: "The command was ended: it took more than {memory_mb} MB of memory.",
    Fate.PROCESSES: "The command was ended: it started more than {processes} processes.",
    Fate.OUTPUT: "The command was ended: it would not stop printing.",
    Fate.DISK: "The command was ended: the disk quota of {disk_mb} MB is used up.",
}


@dataclass(frozen=True)
class CommandReply:
    """Result of a command."""

    text: str
    exit_code: int = 0
    ok: bool = True
    """it could be carried out; a command that ran and failed is ok"""


class Workspace:
    """A repository in a session. The session's /tmp and this folder persist until `lay`."""

    def __init__(self, session: Session, limits: Limits, characters: int, variables: Mapping[str, str]) -> None:
        """`variables`: environment of the commands, in which `{testbed}` stands for the workspace."""
        self.session, self.limits, self.characters = session, limits, characters
        self.root = session.workspace
        self.variables = {name: value.format(testbed=self.root) for name, value in variables.items()}
        self.cwd = "."
        self._undo: dict[str, list[bytes | None]] = {}

    def lay(self, tree: Path) -> None:
        """Empties the workspace and copies the folder `tree` there, as a git repository with one
        commit.
        """
        self.session.reset(forget=True)
        self.session.copy_in(tree)
        self.cwd, self._undo = ".", {}
        made = self.session.run(_GIT, limits=Limits(seconds=300, disk_mb=4096), environment=_DATE)
        if made.fate is not Fate.EXITED or made.exit_code:
            raise EngineFailure(f"The repository could not be laid out: {made.stderr.decode(errors='replace')[-300:]}")
        self.session.snapshot()

    def again(self) -> None:
        """Restores the state after `lay`, for another attempt at the same instance."""
        self.session.reset()
        self.cwd, self._undo = ".", {}

    # ---- commands --------------------------------------------------------------------------------------------------

    def shell(self, command: str) -> CommandReply:
        """Runs a command in the persistent working directory; background processes and variables do
        not persist.
        """
        if too_long := _too_long(command):
            return too_long
        if self.root != SHOWN:
            command = command.replace(SHOWN, self.root)
        mark = secrets.token_hex(8)
        trap = f'trap \'status=$?; printf "\\n%s%s" {mark} "$PWD"; exit $status\' EXIT'
        script = f"exec 2>&1; cd {shlex.quote(self.cwd)} 2>/dev/null || cd {shlex.quote(self.root)}; {trap}\n{command}"
        done = self.session.run(["/bin/bash", "-c", script], limits=self.limits, environment=self.variables)
        text = done.stdout.decode(errors="replace")
        before, separator, cwd = text.rpartition(f"\n{mark}")
        if separator:
            text, self.cwd = before, cwd
        if done.fate is not Fate.EXITED:
            text += ("\n" if text else "") + _ENDINGS[done.fate].format(**self.limits.plain())
        return CommandReply(self.shown(text), done.exit_code)

    def search(self, pattern: str, path: str) -> CommandReply:
        target = self._inside(path)
        if target is None:
            return _outside(path)
        if too_long := _too_long(pattern) or _too_long(path):
            return too_long
        # Sorted, because the order of a folder's entries differs between copies.
        script = (
            'find "$1" -name .git -prune -o -name __pycache__ -prune -o -type f -print0 | LC_ALL=C sort -z | '
            'xargs -0 -r grep -nIHE -m 20 -e "$2" --'
        )
        done = self.session.run(["/bin/bash", "-c", script, "search", _word(target), pattern], limits=self.limits)
        lines = [line.removeprefix("./") for line in done.stdout.decode(errors="replace").splitlines()]
        if done.stderr and not lines:
            return CommandReply(self.shown(done.stderr.decode(errors="replace").strip()), 2, ok=False)
        more = f"\n[{len(lines) - 50} more lines]" if len(lines) > 50 else ""
        return CommandReply(
            "\n".join(line[:300] for line in lines[:50]) + more if lines else "No match.", done.exit_code
        )

    def edit(self, action: EditAction) -> CommandReply:
        """Carries out view, create, str_replace, insert or undo."""
        path = self._inside(action.path)
        if path is None or path.split("/")[0] == ".git":
            return _outside(action.path)
        if any(len(part.encode()) > 255 for part in path.split("/")) or len(path.encode()) > 4000:
            return CommandReply("No file has so long a name.", 1, ok=False)
        if not path and action.kind != "view":
            return CommandReply(f"{action.path!r} is a folder.", 1, ok=False)
        content = self.read(path) if path else None
        if action.kind == "view":
            return self._folder(path) if content is None else _numbered(content, action)
        if action.kind == "create":
            return self._put(path, content, action.text.encode(), f"{path} is written.")
        if action.kind == "undo":
            if not self._undo.get(path):
                return CommandReply(f"There is no edit of {path} to take back.", 1, ok=False)
            return self._back(path, self._undo[path].pop())
        if content is None:
            return CommandReply(f"There is no file {path}.", 1, ok=False)
        text = content.decode(errors="surrogateescape")
        if action.kind == "insert":
            lines = text.splitlines(keepends=True)
            if not 0 <= action.first <= len(lines):
                return CommandReply(f"{path} has {len(lines)} lines: insert after 0 to {len(lines)}.", 1, ok=False)
            if action.first and not lines[action.first - 1].endswith("\n"):
                lines[action.first - 1] += "\n"
            new = "".join([*lines[: action.first], action.text, *lines[action.first :]])
        else:
            count = text.count(action.old) if action.old else 0
            if count != 1:
                problem = "The old text is empty" if not action.old else f"The old text occurs {count} times in {path}"
                return CommandReply(f"{problem}: it must occur exactly once.", 1, ok=False)
            new = text.replace(action.old, action.text)
        return self._put(path, content, new.encode(errors="surrogateescape"), f"{path} is changed.")

    # ---- files -----------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        """Returns a plain file's content; None if there is none."""
        with leftovers.passing("swegym") as folder:
            try:
                self.session.copy_out(path, Path(folder))
            except DataError:
                return None
            file = Path(folder, PurePosixPath(path).name)
            return file.read_bytes() if file.is_file() and not file.is_symlink() else None

    def write(self, path: str, content: bytes) -> str:
        """Writes a file; returns why that failed, '' on success."""
        done = self.session.run(
            ["/bin/bash", "-c", _WRITE, "write", _word(path)], stdin=content, limits=replace(self.limits, output_kb=64)
        )
        if done.fate is not Fate.EXITED:
            return f"{path} cannot be written. " + _ENDINGS[done.fate].format(**self.limits.plain())
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2].rpartition(": ")[2]
        return f"{path} cannot be written: {reason or 'it is no plain file'}." if done.exit_code else ""

    def files(self) -> dict[str, bytes]:
        """Returns every plain file by path, without .git and the caches of Python and pytest.

        Links and pipes are skipped. Raises DataError if there is too much.
        """
        excluded = " ".join(f"-name {name} -prune -o" for name in sorted(_LEFT))
        command = f"find . {excluded} -type f -print0 | tar -c --null --no-recursion -T -"
        size = max(1, self.limits.disk_mb)
        done = self.session.run(
            command, limits=Limits(seconds=300, output_kb=size * 1100, flood_mb=size * 2, disk_mb=4096)
        )
        if done.fate is not Fate.EXITED or done.cut:
            raise DataError(f"The files of the repository cannot be read ({done.fate}).")
        contents = {}
        try:
            with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r:") as tar:
                check_tar(tar, "the repository")
                for member in tar:
                    file = tar.extractfile(member) if member.isfile() else None
                    if file is not None:
                        contents[member.name.removeprefix("./")] = file.read()
        except tarfile.TarError as error:
            raise DataError(f"The files of the repository cannot be read ({error}).") from None
        return contents

    def changes(self, base: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """Returns the differences from the files `base`: path -> content, None for a removed file."""
        return changes(base, self.files())

    def shown(self, text: str) -> str:
        """Returns `text` with the repository called /testbed, cut in the middle to the allowed size of
        an observation.
        """
        if self.root != SHOWN:
            text = text.replace(self.root, SHOWN)
        if len(text) <= self.characters:
            return text
        half = self.characters // 2
        left_out = len(text) - 2 * half
        return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"

    @property
    def place(self) -> str:
        """The working directory as the agent knows it."""
        return SHOWN if self.cwd == "." else self.shown(self.cwd)

    def _inside(self, path: str) -> str | None:
        """Returns `path` relative to the repository's root, '' for the root itself; None if it is
        outside.
        """
        for root in (self.root, SHOWN):
            if path == root or path.startswith(f"{root}/"):
                path = path[len(root) :].lstrip("/")
                break
        parts: list[str] = []
        for part in path.split("/"):
            if part == "..":
                if not parts:
                    return None
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        return None if path.startswith("/") else "/".join(parts)

    def _folder(self, path: str) -> CommandReply:
        hidden = ["(", "-name", ".*", "-o", "-name", "__pycache__", ")"]
        command = ["find", _word(path), "-mindepth", "1", "-maxdepth", "2", *hidden, "-prune", "-o", "-print"]
        done = self.session.run(command, limits=self.limits)
        if done.exit_code:
            return CommandReply(f"There is no file or folder {path}.", 1, ok=False)
        listed = done.stdout.decode(errors="replace").splitlines()
        return CommandReply(
            self.shown("\n".join([path or ".", *sorted(line.removeprefix("./") if path else line for line in listed)]))
        )

    def _put(self, path: str, before: bytes | None, after: bytes, message: str) -> CommandReply:
        if reason := self.write(path, after):
            return CommandReply(self.shown(reason), 1, ok=False)
        self._undo.setdefault(path, []).append(before)
        return CommandReply(message)

    def _back(self, path: str, content: bytes | None) -> CommandReply:
        if content is None:
            self.session.run(["rm", "-f", "--", path], limits=self.limits)
        elif reason := self.write(path, content):
            return CommandReply(self.shown(reason), 1, ok=False)
        return CommandReply(f"The last edit of {path} is taken back.")


def _word(path: str) -> str:
    """Returns a path below the repository in a form that no program takes for an option or an
    expression.
    """
    return f"./{path}" if path else "."


def _too_long(text: str) -> CommandReply | None:
    size = len(text.encode(errors="replace"))
    if size <= LONGEST:
        return None
    return CommandReply(
        f"The command has {size} bytes, {LONGEST} are the most: write long text with create.", 1, ok=False
    )


def _outside(path: str) -> CommandReply:
    return CommandReply(f"{path!r} is not in the repository.", 1, ok=False)


def _numbered(content: bytes, action: EditAction) -> CommandReply:
    lines = content.decode(errors="replace").splitlines()
    first = max(1, action.first)
    last = len(lines) if action.last in (0, -1) else min(action.last, len(lines))
    if first > max(1, last):
        return CommandReply(f"The file has {len(lines)} lines.", 1, ok=False)
    visible = lines[first - 1 : min(last, first - 1 + WINDOW)]
    text = "\n".join(f"{number:6}\t{line[:500]}" for number, line in enumerate(visible, first))
    hidden = last - (first - 1 + len(visible))
    return CommandReply(text + (f"\n[{hidden} more lines: view with a first and a last line]" if hidden > 0 else ""))


_LEFT = {".git", "__pycache__", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache"}


def read_tree(folder: Path) -> dict[str, bytes]:
    """Returns the plain files below `folder`, by path."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not _LEFT & set(parts) and path.is_file() and not path.is_symlink():
            contents["/".join(parts)] = path.read_bytes()
    return contents


def changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Returns what was written (content) and removed (None) between two trees."""
    differences: dict[str, bytes | None] = {path: None for path in before if path not in after}
    differences.update({path: content for path, content in after.items() if before.get(path) != content})
    return dict(sorted(differences.items()))
