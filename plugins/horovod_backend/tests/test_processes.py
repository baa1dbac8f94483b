"""The processes between a launcher and its ranks."""

import signal
import subprocess
import sys

LAUNCHER = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-c", {child!r}]).returncode)
"""
CHILD = """
import subprocess, sys
sys.exit(subprocess.run({rank!r}, shell=True).returncode)
"""
RANK = """
from distcore_horovod.processes import end_horovodruns_child
end_horovodruns_child()
raise SystemExit(143)
"""


def code_of_the_child(folder, name, shell="{} -c '{}'; exit 0"):
    """The exit code of the launcher's child, whose rank called end_horovodruns_child()."""
    script = folder / name
    child = CHILD.format(rank=shell.format(sys.executable, RANK))
    script.write_text(LAUNCHER.format(child=child))
    return subprocess.run([sys.executable, script], timeout=120).returncode % 256


def test_the_child_of_horovodrun_ends_by_a_signal(tmp_path):
    assert code_of_the_child(tmp_path, "horovodrun") == 256 - signal.SIGTERM


def test_the_child_of_another_program_goes_on(tmp_path):
    assert code_of_the_child(tmp_path, "test_horovodrun.py") == 0


def test_a_script_around_the_rank_goes_on(tmp_path):
    around = """sh -c "{} -c '{}'; true"; exit 7"""
    assert code_of_the_child(tmp_path, "horovodrun", around) == 7
