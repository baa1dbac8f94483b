"""What the process does with memory that it freed."""

import os
import platform
import subprocess
import sys

import pytest

TOLD = """
from distcore_data.memory import keep_freed_memory
print(keep_freed_memory())
"""
"""Whether glibc was told."""

ROUNDS = """
import resource
def faults():
    for _ in range(10):
        blocks = [b"x" * (size << 20) for size in (8, 8, 40, 8, 70, 8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
print(faults() - before)
"""
"""How many pages ten rounds have to ask for."""

PAGES = (142 << 20) // os.sysconf("SC_PAGE_SIZE")
"""Of a round."""


def said_by(script, **environment):
    """What it prints, in words."""
    clean = {name: each for name, each in os.environ.items() if not name.startswith("MALLOC_")}
    clean.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_stays_for_the_next_step():
    told, pages = said_by(TOLD + ROUNDS)
    assert told == "True"
    assert int(pages) < PAGES


@pytest.mark.parametrize(
    "said", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.check=0"}]
)
def test_what_the_user_said_of_malloc_stays(said):
    assert said_by(TOLD, **said) == ["False"]
