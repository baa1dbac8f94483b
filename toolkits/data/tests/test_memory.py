"""What the process does with memory that it freed."""

import os
import platform
import subprocess
import sys

import pytest

ROUNDS = """
import resource
from distcore_data.memory import keep_freed_memory
print(keep_freed_memory())
def faults():
    for _ in range(10):
        blocks = [b"x" * (size << 20) for size in (8, 8, 40, 8, 70, 8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
print(faults() - before)
"""
PAGES = (142 << 20) // os.sysconf("SC_PAGE_SIZE")
"""Of a round."""


def rounds(**environment):
    """(whether glibc was told, how many pages ten rounds had to ask for)."""
    clean = {name: each for name, each in os.environ.items() if not name.startswith("MALLOC_")}
    clean.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS], env=clean | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told, pages = done.stdout.split()
    return told == "True", int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_stays_for_the_next_step():
    told, pages = rounds()
    assert told
    assert pages < PAGES


@pytest.mark.parametrize(
    "said", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.check=0"}]
)
def test_what_the_user_said_of_malloc_stays(said):
    told, _ = rounds(**said)
    assert not told
