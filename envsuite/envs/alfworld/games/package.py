"""Location of the alfworld package, from whose data files games are generated.

The files are read in place: domain and grammar in `data/`, object tables, goals and floor plans in `gen/`. The
package is never imported, because that would set ALFWORLD_DATA. If it is not installed, its wheel (0.4 MB) is
downloaded once into the cache without the dependencies that only the stock engine needs.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

from envsuite.cache import cache_dir
from envsuite.wheels import unpacked_wheel

VERSION = "0.4.2"
SHA256 = "29affbea28f6041d1e8516ed3efd6b55becd52cfca4fb9dd5c75b9d6b8a56c2f"
"""hash of the wheel"""


@cache
def package_folder() -> Path:
    """Returns the folder of the alfworld package: the installed one, or the one in the cache.

    Raises DataError if it cannot be downloaded.
    """
    spec = importlib.util.find_spec("alfworld")
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    return _unpacked() / "alfworld"


def download_script() -> Path:
    """Returns the path of the package's program `alfworld-download`."""
    installed = Path(sys.executable).with_name("alfworld-download")
    return installed if installed.is_file() else _unpacked() / f"alfworld-{VERSION}.data/scripts/alfworld-download"


def _unpacked() -> Path:
    cure = (
        f"install the package without its dependencies (pip install --no-deps alfworld=={VERSION}), or play the "
        "official games, which need no such files"
    )
    return unpacked_wheel(f"alfworld=={VERSION}", SHA256, cache_dir("alfworld") / f"package-{VERSION}", cure)
