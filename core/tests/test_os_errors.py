"""What is said of a disk: that it is full, or that it takes no more files, which the system
calls by one name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FILL = """
import sys
from pathlib import Path
from distcore_core.io.os_errors import explained
from distcore_core.errors import CacheError

try:
    with explained(sys.argv[1], "the cache"):
        for number in range(100):
            Path(sys.argv[1], str(number)).write_bytes(bytes(int(sys.argv[2])))
except CacheError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "size", "said"),
    [
        ("nr_inodes=10", 0, "it takes no more files: all of its 10 inodes are used"),
        ("size=64k", 8192, "of 65.5 kB are free"),
    ],
)
def test_inodes_are_not_called_bytes(tmp_path: Path, options: str, size: int, said: str) -> None:
    words = (
        f'mount -t tmpfs -o {options} none {tmp_path} && {sys.executable} -c "$0" {tmp_path} {size}'
    )
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        if (
            shutil.which("unshare") is None
            or subprocess.run([*command, "true"], capture_output=True).returncode
        ):
            continue
        done = subprocess.run([*command, "sh", "-c", words, FILL], capture_output=True, text=True)
        if "mount" in done.stderr:
            continue
        assert done.returncode == 0, done.stderr
        assert "no space left on device; " in done.stdout.lower()
        assert said in done.stdout
        return
    pytest.skip("no mount namespace is allowed here")
