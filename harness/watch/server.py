"""Serves the live page on 127.0.0.1, below a secret path that other users and other pages do not
know.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from envsuite.errors import DataError, EnvsuiteError, UsageError
from envsuite.escaping import embedded, visible
from harness.report.page import asset, content_policy
from harness.watch.tail import RunTail

LOOK = 3.0
"""Seconds between searches for new runs."""


class Runs:
    """The runs at or below a folder. Threads share it."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError if the folder does not exist."""
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}: name a run's folder, or one that holds runs.")
        self.folder = folder
        self._tails: dict[Path, RunTail] = {}
        self._lock = threading.Lock()
        self._looked = -LOOK

    def answer(self, name: str, query: dict[str, str]) -> dict[str, Any]:
        """Returns the data of a request: `state` or `episode`. Raises EnvsuiteError, LookupError or
        ValueError.
        """
        with self._lock:
            tails = self._find()
            chosen = next((tail for path, tail in tails.items() if _name_of(path) == query.get("run")), None)
            if name == "episode":
                if chosen is None:
                    raise DataError("There is no such run.")
                return chosen.episode(int(query["line"]))
            for tail in tails.values():
                tail.refresh()
            if chosen is None:
                chosen = max(tails.values(), key=lambda tail: tail.changed, default=None)
            return {
                "runs": [{"run": _name_of(path), **tail.overview()} for path, tail in tails.items()],
                "run": "" if chosen is None else _name_of(chosen.folder),
                "details": None if chosen is None else chosen.details(int(query.get("after", 0))),
            }

    def _find(self) -> dict[Path, RunTail]:
        if time.monotonic() - self._looked >= LOOK:
            self._looked = time.monotonic()
            folders = sorted(path.parent for path in self.folder.glob("**/journal.jsonl"))
            self._tails = {path: self._tails.get(path) or RunTail(path) for path in folders}
        return self._tails


def _name_of(folder: Path) -> str:
    """Returns a name of a run's folder that every browser sends back unchanged."""
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]


class PageHandler(BaseHTTPRequestHandler):
    """Answers GET requests of the page."""

    server: PageServer
    timeout = 30

    def do_GET(self) -> None:
        path, _, fields = self.path.partition("?")
        token, _, name = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "Open the address that envsuite watch printed.")
        elif name == "":
            self._send(HTTPStatus.OK, "text/html", self.server.page)
        elif name in ("state", "episode"):
            try:
                query = {key: values[0] for key, values in parse_qs(fields).items()}
                answer = self.server.runs.answer(name, query)
                status = HTTPStatus.OK
            except (EnvsuiteError, OSError, LookupError, ValueError) as error:
                answer, status = {"error": str(error)}, HTTPStatus.BAD_REQUEST
            self._send(status, "application/json", embedded(visible(answer)))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is no such page.")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        return "envsuite"

    def log_message(self, *_: object) -> None:
        pass


class PageServer(ThreadingHTTPServer):
    """The page of some runs, at `address`. Raises UsageError if the port is in use."""

    daemon_threads = True

    def __init__(self, runs: Runs, port: int = 0) -> None:
        self.runs, self.token = runs, secrets.token_urlsafe(12)
        style = asset("style.css") + _asset("watch.css")
        script = asset("episode.js") + _asset("watch.js")
        self.page = _asset("watch.html").replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
        self.policy = f"{content_policy(style, script)}; connect-src 'self'; frame-ancestors 'none'"
        try:
            super().__init__(("127.0.0.1", port), PageHandler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"--port {port} cannot be used ({error}): choose another one, or 0 for any.") from None
        self.address = f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints a traceback, except for connections that the browser closed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _asset(name: str) -> str:
    return (resources.files("harness.watch") / name).read_text()
