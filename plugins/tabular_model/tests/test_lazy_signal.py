"""scipy.signal is imported by who uses it, and no longer by torchmetrics for a name it puts there."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("scipy", reason="only where scipy is installed does torchmetrics import it")

BEGIN = """
import json, os, sys, traceback
from distcore_tabular import lazy_signal
lazy_signal.wait_for_use()
import torchmetrics
import scipy
import scipy.stats  # of what scipy.signal imports, most: once for all copies

found = {}
for name, code in json.load(sys.stdin).items():
    ends = os.pipe()
    reader, writer = os.fdopen(ends[0]), os.fdopen(ends[1], "w")
    if not os.fork():
        try:
            assert "scipy.signal._signaltools" not in sys.modules, "scipy.signal was imported"
            exec(code, {"sys": sys, "scipy": scipy})
        except BaseException:
            writer.write(traceback.format_exc())
            writer.flush()
        os._exit(0)
    writer.close()
    found[name] = reader.read()
    os.wait()
print(json.dumps(found))
"""
"""Each use in a copy of a process that has imported torchmetrics."""

USES = {
    "a name": "import scipy.signal; assert scipy.signal.find_peaks([0, 1, 0])[0].tolist() == [1]",
    "a name of the module": "from scipy.signal import find_peaks; find_peaks([0, 1, 0])",
    "a module of it": "import scipy.signal.windows as w; assert w.hann(3).tolist() == [0, 1, 0]",
    "a module from it": "from scipy.signal import windows; assert windows.hann(3)[1] == 1",
    "all names": "from scipy.signal import *; find_peaks([0, 1, 0])",
    "the name that torchmetrics puts there": (
        "assert scipy.signal.hamming(3).tolist() == scipy.signal.windows.hamming(3).tolist(); "
        "assert scipy.signal.hamming is scipy.signal.windows.hamming"
    ),
    "whether it is there": (
        "import importlib.util; assert importlib.util.find_spec('scipy.signal'); scipy.signal.find_peaks"
    ),
    "a name that it has not": (
        "assert not hasattr(scipy.signal, 'no_such_name'); assert hasattr(scipy.signal, 'hamming')"
    ),
    "who looks at all modules": (
        "import inspect; inspect.getmodule(inspect.currentframe())\n"
        "assert 'scipy.signal._signaltools' not in sys.modules; scipy.signal.find_peaks"
    ),
    "threads": (
        "import threading, importlib\n"
        "names = ['', '.windows'] * 8\n"
        "wrong, gate = [], threading.Barrier(len(names))\n"
        "def use(name):\n"
        "    try:\n"
        "        gate.wait()\n"
        "        importlib.import_module('scipy.signal' + name)\n"
        "        scipy.signal.find_peaks([0, 1, 0])\n"
        "    except BaseException as error:\n"
        "        wrong.append(error)\n"
        "threads = [threading.Thread(target=use, args=(name,)) for name in names]\n"
        "[each.start() for each in threads], [each.join() for each in threads]\n"
        "assert not wrong, wrong"
    ),
}

END = """
assert "scipy.signal._signaltools" in sys.modules
assert scipy.signal is sys.modules["scipy.signal"]
assert type(scipy.signal).__name__ == "module"
assert scipy.signal.hamming is scipy.signal.windows.hamming
"""


@pytest.fixture(scope="module")
def said():
    """{use: what it raised, or ""}."""
    given = {use: code + END for use, code in USES.items()}
    return json.loads(run(BEGIN, json.dumps(given)))


@pytest.mark.parametrize("use", USES)
def test_who_uses_it_finds_it(said, use):
    assert said[use] == ""


def test_what_was_imported_before_stays():
    run(
        "import sys, scipy.signal\n"
        "from distcore_tabular import lazy_signal\n"
        "before = sys.modules['scipy.signal']\n"
        "lazy_signal.wait_for_use()\n"
        "assert sys.modules['scipy.signal'] is before"
    )


def test_without_scipy_nothing_stands_for_it():
    run(
        "import sys, importlib.util\n"
        "from distcore_tabular import lazy_signal\n"
        "importlib.util.find_spec = lambda name: None\n"
        "lazy_signal.wait_for_use()\n"
        "assert 'scipy.signal' not in sys.modules"
    )


def run(code, given=""):
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
