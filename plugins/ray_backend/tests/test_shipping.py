"""What travels to another process and back."""

import subprocess
import sys

RANK = """
import sys
from pathlib import PurePosixPath
from distcore_ray.shipping import packed_result, unpacked

assert unpacked(packed_result({"model": PurePosixPath("model"), "loss": [0.5]})) == {"model": PurePosixPath("model"), "loss": [0.5]}
assert "ray" not in sys.modules
assert unpacked(packed_result(lambda: 3))() == 3  # it has no name elsewhere
assert "ray" in sys.modules
"""


def test_a_rank_imports_ray_only_for_results_that_need_it():
    done = subprocess.run([sys.executable, "-c", RANK], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
