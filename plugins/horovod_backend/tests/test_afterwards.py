"""Words that come after the launcher's own: written to its standard error once it is gone."""

import subprocess
import sys

from distcore_horovod import afterwards

LAUNCHER = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "from distcore_horovod.afterwards import find_launcher, say_afterwards; find_launcher(); say_afterwards('the cause')"])
sys.exit("the launcher's traceback")
"""


def started(folder, name):
    """What a program of that name says on standard error, whose child has words for afterwards."""
    script = folder / name
    script.write_text(LAUNCHER)
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120
    ).stderr.splitlines()


def test_the_words_come_after_the_launchers_own(tmp_path):
    assert started(tmp_path, "horovodrun") == ["the launcher's traceback", "the cause"]


def test_without_horovodrun_nothing_is_said_twice(tmp_path):
    assert started(tmp_path, "test_horovodrun.py") == ["the launcher's traceback"]


def test_nobody_waits_for_a_launcher_that_does_not_end(monkeypatch, capsys):
    monkeypatch.setattr(afterwards, "WAIT_SECONDS", 0.1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as launcher:
        afterwards.main([launcher.pid], "the cause")
        launcher.communicate(b"\n")
    assert capsys.readouterr().err == ""
