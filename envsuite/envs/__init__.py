"""The environment families: importing this package registers every task.

Each family is a folder with a `menu.py` that registers its tasks. No engine is imported here.
"""

import importlib
from pathlib import Path

FAMILIES = tuple(sorted(menu.parent.name for menu in Path(__file__).parent.glob("*/menu.py")))
for _family in FAMILIES:
    importlib.import_module(f"{__name__}.{_family}.menu")
