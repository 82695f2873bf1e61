"""The menu: each family is a folder whose `menu.py` registers its tasks. Importing this imports no engine."""

import importlib
from pathlib import Path

FAMILIES = tuple(sorted(menu.parent.name for menu in Path(__file__).parent.glob("*/menu.py")))
for _family in FAMILIES:
    importlib.import_module(f"{__name__}.{_family}.menu")
