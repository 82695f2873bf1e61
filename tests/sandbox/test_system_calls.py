"""Numbers of system calls in the sandbox's filter, against the headers of the kernel."""

import re
from pathlib import Path

import pytest

from envsuite.sandbox.inside import kernel

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_refused_system_calls_have_the_numbers_of_the_kernels_headers(machine):
    if not HEADERS[machine].exists():
        pytest.skip("linux-libc-dev is not installed")
    defined = re.findall(r"#define __NR_(\w+)\s+(\d+)$", HEADERS[machine].read_text(), re.MULTILINE)
    known = {name: int(number) for name, number in defined}
    tables = kernel._REFUSED | kernel._REFUSED_TO_SHARED_USER | kernel._UNSUPPORTED_FOR_SHARED_USER
    newest = known["landlock_restrict_self"]
    numbers = {name: pair[list(HEADERS).index(machine)] for name, pair in tables.items()}
    for name, number in numbers.items():  # headers older than the call cannot know it
        assert number == known.get(name, number if name not in known and (number or 0) > newest else None), name
    assert sum(name in known for name in numbers) > 45
