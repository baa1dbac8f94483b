"""What the kit is to a test file that uses it."""

import _pickle
import json
import pickle
import random
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torchmetrics import Metric

from distcore_testing import ReportSectionSuite, TrainerSuite
from distcore_testing.diary import Diary, DiaryOptions, _Watched
from distcore_testing.member_rows import _merged
from distcore_testing.member_values import process_stays


def test_pytest_is_imported_only_when_a_suite_is_named():
    code = (
        "import sys, distcore_testing, distcore_testing.data; assert 'pytest' not in sys.modules; "
    )
    code += "distcore_testing.PluginSuite; assert 'pytest' in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("seed", "whose"),
    [(random.seed, "Python's"), (np.random.seed, "numpy's"), (torch.manual_seed, "torch's")],
)
def test_a_seed_that_was_set_before_is_found_though_nobody_drew_since(seed, whose):
    seed(1)
    with pytest.raises(AssertionError, match=f"changes {whose} random numbers"), process_stays():
        seed(1)


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
    said = of_pytest(tmp_path, "-k", "resources")
    assert "assert 'local' == 'other'" in said, said


def test_a_backend_that_does_not_wait_for_its_ranks_ends_its_test_alone(tmp_path):
    """The interrupt that was meant for the worker group ended pytest."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from pathlib import Path\n"
        "from distcore_testing import BackendSuite\n"
        "\n"
        "class Hasty:\n"
        "    def run_group(self, group):\n"
        "        for rank in range(group.ranks):\n"
        "            Path(group.arguments[0], f'rank-{rank}').write_text('1')\n"
        "\n"
        "class TestIt(BackendSuite):\n"
        "    name = 'hasty'\n"
        "    @pytest.fixture\n"
        "    def backend(self):\n"
        "        return Hasty()\n"
    )
    said = of_pytest(tmp_path, "-k", "interrupt")
    assert "DID NOT RAISE" in said, said
    assert "1 failed" in said, said


def test_a_store_s_suite_whose_addresses_are_another_store_s_fails(tmp_path):
    """It tried a folder of this machine, and all of it passed."""
    (tmp_path / "test_it.py").write_text(
        "from distcore_testing import StoreSuite\n"
        "\n"
        "class TestIt(StoreSuite):\n"
        "    name = 'memory'\n"
        "    def address(self, folder):\n"
        "        return str(folder / 'store')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "lead_to_it"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert "is of the store 'file'" in done.stdout, done.stdout


@pytest.mark.parametrize("loads", [_pickle.loads, lambda content: pickle.loads(content)])  # noqa: S301
def test_a_trainer_that_unpickles_is_found_whoever_gave_it_the_function(loads, monkeypatch):
    """joblib and cloudpickle took theirs when they were imported, from _pickle or pickle."""
    content = pickle.dumps(Fraction(1, 2))

    model = SimpleNamespace(predict=lambda table: table)
    app = SimpleNamespace(load=lambda path: loads(content) and model)
    monkeypatch.setattr("distcore_testing.trainers.app", lambda: app)
    suite, outcome, before = TrainerSuite(), SimpleNamespace(model="model"), pickle.loads
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="a pickle was read"):
        suite.test_a_model_is_loaded_without_unpickling(outcome, patch)
    assert pickle.loads is before
    app.load = lambda path: model
    suite.test_a_model_is_loaded_without_unpickling(outcome, monkeypatch)


@pytest.mark.parametrize(
    "piece",
    [
        '<img srcset="a.png 1x, https://a.example/x.png 2x">',
        '<meta http-equiv="refresh" content="0;url=https://a.example/">',
        '<a href="java&#10;script:alert(1)">x</a>',
        '<button formaction="//a.example/">x</button>',
        "<svg><a><animate attributeName=href to=javascript:alert(1) /></a></svg>",
        "<img src=x onerror=alert(1)>",
        "<style>p { background: url(https://a.example/x.png) }</style>",
        "<script>alert(1)</script>",
    ],
)
def test_a_section_that_runs_or_loads_something_is_found(piece):
    suite = ReportSectionSuite()
    fine = '<svg xmlns="http://a.example"><a href="#x" title="//">x</a>'
    suite.drawn = lambda: fine
    suite.test_the_page_holds_no_script_and_loads_nothing()
    suite.drawn = lambda: fine + piece
    with pytest.raises(AssertionError):
        suite.test_the_page_holds_no_script_and_loads_nothing()


def test_a_metric_whose_states_are_not_merged_is_told_which_they_are():
    class Total(Metric):
        def __init__(self):
            super().__init__()
            self.add_state("total", torch.zeros(()))
            self.add_state("rows", torch.zeros(()), dist_reduce_fx="sum")

        def update(self, rows):
            self.total, self.rows = rows, rows.sum()

        def compute(self):
            return self.total / self.rows

    metric = Total()
    metric.update(torch.ones(3))
    with pytest.raises(AssertionError, match=r"without `dist_reduce_fx` \(total\) come as one"):
        _merged(metric)


def test_every_module_of_the_kit_shows_the_values(tmp_path):
    """Those that suites inherit from and ask, too; and naming a second suite warns of nothing."""
    (tmp_path / "test_it.py").write_text(
        "import importlib, pkgutil\n"
        "import distcore_testing.data, distcore_testing.elsewhere\n"
        "from distcore_testing import PluginSuite, TrainerSuite\n"
        "\n"
        "def test_it():\n"
        "    names = [each.name for each in pkgutil.iter_modules(distcore_testing.__path__)]\n"
        "    modules = [importlib.import_module(f'distcore_testing.{each}') for each in names]\n"
        "    loaders = {each.__name__: type(each.__loader__).__name__ for each in modules}\n"
        "    before = {'distcore_testing.data', 'distcore_testing.elsewhere'}\n"
        "    plain = {name for name in loaders if loaders[name] != 'AssertionRewritingHook'}\n"
        "    assert plain == before\n"
    )
    said = of_pytest(tmp_path, "-W", "error")
    assert "1 passed" in said, said


def of_pytest(folder, *words):
    """What pytest says of test_it.py."""
    words = ["-q", "-p", "no:cacheprovider", *words, "test_it.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=folder, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_a_trainer_is_told_which_variable_it_left_and_not_of_torch_s_own(tmp_path, monkeypatch):
    """torch's first optimizer of a process sets TORCHINDUCTOR_CACHE_DIR: the suite of a trainer
    failed for it where no other test had made one before."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    for name, expected in (("TORCHINDUCTOR_CACHE_DIR", []), ("MINE", ["os.environ['MINE']"])):

        def fit(job, name=name):
            monkeypatch.setenv(name, "1")
            return SimpleNamespace(best={})

        trainer = SimpleNamespace(fit=fit)
        diary = Diary(DiaryOptions(path=str(tmp_path / name)))
        _Watched(trainer, diary).fit(SimpleNamespace(config={}))
        assert json.loads((tmp_path / name).read_text())["changed"] == expected
