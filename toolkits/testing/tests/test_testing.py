"""What the kit is to a test file that uses it."""

import subprocess
import sys


def test_pytest_is_imported_only_when_a_suite_is_named():
    code = (
        "import sys, distcore_testing, distcore_testing.data; assert 'pytest' not in sys.modules; "
    )
    code += "distcore_testing.PluginSuite; assert 'pytest' in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_failing_suite_shows_the_values(tmp_path):
    """The suites' asserts are rewritten, as those of test files are."""
    (tmp_path / "test_it.py").write_text(
        "from distcore_testing import BackendSuite\n"
        "\n"
        "class TestIt(BackendSuite):\n"
        "    name = 'local'\n"
        "    ranks = 2\n"
        "    def test_its_defaults_are_installed(self):\n"
        "        pass\n"
        "    def test_it_says_its_name_and_real_resources(self, backend):\n"
        "        self.name = 'other'\n"
        "        super().test_it_says_its_name_and_real_resources(backend)\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "resources",
        "test_it.py",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert "assert 'local' == 'other'" in done.stdout, done.stdout + done.stderr
