"""Other processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distcore_data.processes import children_of, status_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells")


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started.pid
        started.kill()


def test_a_thread_that_has_ended_since_it_was_listed_is_no_error(child, monkeypatch):
    listed = Path.glob
    ended = Path("/proc/self/task/0/children")
    monkeypatch.setattr(Path, "glob", lambda *pattern: iter([ended, *listed(*pattern)]))
    assert child in children_of(os.getpid())


def test_of_a_process_that_is_gone_there_is_none(child):
    assert children_of(2**22 + 1) == set()


def test_a_name_with_a_bracket_hides_no_state(tmp_path):
    """The second field is the program's name, as it is."""
    (tmp_path / "a) R (b").symlink_to(shutil.which("sleep"))
    with subprocess.Popen([tmp_path / "a) R (b", "60"]) as started:
        try:
            state, parent, *_ = status_of(started.pid)
        finally:
            started.kill()
    assert state in "RSD"
    assert parent == str(os.getpid())
    with pytest.raises(OSError, match="No such file"):
        status_of(2**22 + 1)
