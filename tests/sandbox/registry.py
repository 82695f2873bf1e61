"""A minimal Docker registry on loopback, and images to serve."""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import sysconfig
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from envsuite.sandbox import docker
from envsuite.sandbox.packages import closure, interpreter

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    """Serves one image under any name whose last part is 'there'; refuses the first `refusals` manifests with 429."""

    def __init__(self, root: bytes, refusals: int = 0) -> None:
        self.refusals, self.asked = refusals, 0
        layer = gzip.compress(root, 1, mtime=0)
        config = json.dumps(
            {
                "architecture": "amd64" if sys.maxsize > 2**32 else "386",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(root)]},
            }
        ).encode()
        described = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _part("application/vnd.docker.container.image.v1+json", config),
            "layers": [_part("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
        }
        self.manifest = json.dumps(described).encode()
        self.blobs = {_digest(blob): blob for blob in (layer, config)}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.answer(self)

            def do_HEAD(self) -> None:
                registry.answer(self, body=False)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.name = f"localhost:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler, body: bool = True) -> None:
        parts = request.path.strip("/").split("/")
        status, kind, content = 200, "application/json", b"{}"
        if "manifests" in parts:
            self.asked += 1
            if self.asked <= self.refusals:
                status, content = 429, _error("TOOMANYREQUESTS", "You have reached your pull rate limit.")
            elif parts[-3] != "there":
                status, content = 404, _error("MANIFEST_UNKNOWN", "manifest unknown")
            else:
                kind, content = MANIFEST, self.manifest
        elif "blobs" in parts:
            kind, content = "application/octet-stream", self.blobs[parts[-1]]
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if kind == MANIFEST:
            request.send_header("Docker-Content-Digest", _digest(content))
        request.end_headers()
        if body:
            request.wfile.write(content)

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _part(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(data), "digest": _digest(data)}


def _error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def small_root() -> bytes:
    """Returns an image of folders and links only."""
    return docker._thin_root()


TOOLS = [
    "bash",
    "sh",
    "git",
    "tar",
    "find",
    "sort",
    "xargs",
    "grep",
    "sed",
    "head",
    "tail",
    "wc",
    "cat",
    "ls",
    "rm",
    "mkdir",
    "dirname",
    "base64",
    "cp",
    "mv",
    "touch",
    "env",
]


def whole_root(testbed: dict[str, str]) -> bytes:
    """Returns an image with a complete system made from parts of this one: Python, a shell and git.

    Like the published images it has a repository with a history in /testbed and its tools (pytest)
    in a conda environment.
    """
    stream = io.BytesIO()
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    with tarfile.open(fileobj=stream, mode="w") as tar:
        laid: set[str] = set()

        def lay(source: str, target: str) -> None:
            if target not in laid:
                laid.add(target)
                tar.add(Path(source).resolve(), arcname=target.lstrip("/"), filter=_slim)

        def write(target: str, text: str, mode: int = 0o644) -> None:
            member = tarfile.TarInfo(target.lstrip("/"))
            member.size, member.mode = len(text.encode()), mode
            tar.addfile(member, io.BytesIO(text.encode()))

        for folder in ("usr", "usr/lib", "usr/bin", "tmp", "etc", "scratch", "dev", "proc", "sys", "envsuite"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        stdlib = sysconfig.get_path("stdlib")
        lay(interpreter(), "/usr/local/bin/python3")
        lay(stdlib, f"/usr/local/lib/{python}")
        for name in TOOLS:
            lay(f"/usr/bin/{name}", f"/usr/bin/{name}")
        binaries = [interpreter(), *(f"/usr/bin/{name}" for name in TOOLS)]
        for library in _libraries([*binaries, *map(str, Path(stdlib, "lib-dynload").glob("*.so"))]):
            lay(
                library,
                library.replace("/lib/", "/usr/lib/", 1)
                if library.startswith("/lib/")
                else library.replace("/lib64/", "/usr/lib64/", 1),
            )
        tools = "/opt/miniconda3/envs/testbed"
        for entry, source in closure(("pytest",)).items():
            lay(str(source), f"{tools}/site/{entry}")
        run = f'#!/bin/sh\nPYTHONPATH="{tools}/site:$PWD" exec /usr/local/bin/python3 '
        write(f"{tools}/bin/python", run + '"$@"\n', 0o755)
        write(f"{tools}/bin/pytest", run + '-m pytest "$@"\n', 0o755)
        write("/testbed/.git/HEAD", "ref: refs/heads/the-fix\n")
        for path, text in testbed.items():
            write(f"/testbed/{path}", text)
    return stream.getvalue()


def _slim(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = {
        "__pycache__",
        "test",
        "tests",
        "site-packages",
        "idlelib",
        "ensurepip",
        "lib2to3",
        "tkinter",
        "turtledemo",
    }
    config = any(part.startswith("config-") for part in member.name.split("/"))
    member.uid = member.gid = 0
    return None if left_out & set(member.name.split("/")) or config or member.name.endswith(".a") else member


def _libraries(files: list[str]) -> list[str]:
    """Returns the shared libraries that programs are linked to, including the loader."""
    message = subprocess.run(["ldd", *files], capture_output=True, text=True).stdout
    return sorted(
        {
            word
            for line in message.splitlines()
            for word in line.split()
            if word.startswith(("/lib", "/usr/lib", sys.base_prefix)) and not word.endswith(":")
        }
    )
