"""SWE-Gym as an environment of mini-swe-agent, without the package; `make agents-proof` plays with it."""

import pytest

from envsuite.errors import MissingExtra
from harness.interop.mini_swe_agent import SWEGymEnvironment


def test_the_missing_package_is_named():
    with pytest.raises(MissingExtra, match="pip install mini-swe-agent"):
        SWEGymEnvironment()
