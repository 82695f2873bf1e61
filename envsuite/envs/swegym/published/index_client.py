"""Program that downloads a source archive with pip's client of the package index, and builds nothing.

    python index_client.py FOLDER NAME[==VERSION]

`pip download` builds the metadata of an archive and so runs code from it. This program uses the same
client with the same configuration (indexes, certificates, proxies), checks the index's hash, and
never opens an archive. It prints a JSON object with the archive's `path`, an `error` that lasts, or a
`fault` of this download, such as an answer 503 of the server.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

from pip._internal.commands import create_command
from pip._vendor.packaging.requirements import Requirement


def download(folder: Path, text: str) -> Path:
    """Returns a requirement's newest source archive. Raises LookupError without one, OSError if a download fails."""
    command: Any = create_command("download")
    options, _ = command.parse_args(["--no-input", "-d", str(folder), text])
    requirement = Requirement(text)
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(
            options=options, session=session, ignore_requires_python=bool(requirement.specifier)
        )
        link = _newest(finder, requirement, text)
        path = folder / link.filename
        path.write_bytes(_content(session, link))
        return path


def _content(session: Any, link: Any) -> bytes:
    """Returns the bytes of a link. Raises OSError if the server refuses it, or for another hash than the index's."""
    answer = session.get(link.url_without_fragment, headers={"Accept-Encoding": "identity"})
    answer.raise_for_status()
    content: bytes = answer.content
    if link.hash and hashlib.new(link.hash_name or "", content).hexdigest() != link.hash:
        raise OSError(f"{link.filename} does not have the {link.hash_name} hash that the package index states.")
    return content


def _newest(finder: Any, requirement: Requirement, text: str) -> Any:
    """Returns pip's link to the newest source archive, preferably not a withdrawn one. Raises LookupError."""
    candidates = finder.find_all_candidates(requirement.name)
    versions = set(requirement.specifier.filter(str(candidate.version) for candidate in candidates))
    if not versions:
        raise LookupError(f"The package index has no {text} for this Python: check the name and the version.")
    archives = [
        candidate
        for candidate in candidates
        if str(candidate.version) in versions and candidate.link.filename.endswith(".tar.gz")
    ]
    if not archives:
        raise LookupError(
            f"{text} has no source archive (.tar.gz) on the package index: use another version or package."
        )
    return max(archives, key=lambda candidate: (not candidate.link.is_yanked, candidate.version)).link


def main(folder: Path, text: str) -> None:
    logging.basicConfig(level=logging.WARNING)  # prints a lost connection, which the client does not raise
    try:
        answer = {"path": str(download(folder, text))}
    except LookupError as error:
        answer = {"error": str(error)}
    except OSError as error:  # includes the client's network errors
        answer = {"fault": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
