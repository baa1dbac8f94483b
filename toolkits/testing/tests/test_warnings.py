"""The kit itself gives no warning: whoever runs their tests under `-W error` can use it."""

import subprocess
import sys

import pytest

MODULE = """
from distcore_testing import CacheFormatSuite, FeatureSuite, PluginSuite
import pyarrow as pa

class TestPlugin(PluginSuite):
    kind, name = "caches", "parquet"

class TestFormat(CacheFormatSuite):
    name = "parquet"
    flips = 3

class TestFeature(FeatureSuite):
    name = "number"
    def values(self):
        return pa.array([None if each % 7 == 0 else each * 1.5 for each in range(300)])
"""


@pytest.mark.system
def test_conformance_passes_under_warnings_as_errors(tmp_path):
    (tmp_path / "test_conformance.py").write_text(MODULE)
    words = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
