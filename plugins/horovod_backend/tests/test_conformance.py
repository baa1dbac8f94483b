"""The conformance suites: the plugin's modules, the backend without a launcher, the trainer, and
its bits beside ddp's."""

import hashlib
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import process_group_jobs

import distcore
from distcore_core.contracts import BACKEND, WorkerGroup
from distcore_core.errors import ConfigError, UserError
from distcore_core.registry.manager import Plugins
from distcore_testing import BackendSuite, PluginSuite, TrainerSuite, data, rank_jobs

pytestmark = pytest.mark.cluster


class TestPlugin(PluginSuite):
    kind, name = "backends", "horovod"


class TestTrainerPlugin(PluginSuite):
    kind, name = "trainers", "horovod"


class TestProcessorPlugin(PluginSuite):
    kind, name = "processors", "horovod"


class TestBackend(BackendSuite):
    name = "horovod"


class TestTrainer(TrainerSuite):
    """In a worker group of two of the local backend."""

    name = "horovod"
    options = {"num_workers": 2, "use_gpu": False}  # noqa: RUF012
    trainer = {"epochs": 8, "batch_size": 32, "learning_rate": 0.01}  # noqa: RUF012


def fitted(folder, trainer, backend="local", **section):
    """The outcome of a small experiment with this trainer."""
    config = data.config(str(folder / "cache"))
    config["backend"] |= {
        "type": backend,
        "trainer": {"num_workers": 2, "use_gpu": False, **trainer},
    }
    config["trainer"] = {"epochs": 1, "batch_size": 32, **section}
    return distcore.experiment(config, dataset=data.table(), output_directory=folder / "results")


def digest(outcome):
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(outcome.model.glob("*.safetensors"))
    ]


@pytest.fixture(scope="module")
def by_ddp(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("ddp"), {"type": "data_parallel"})


def test_two_ranks_have_the_bits_of_ddp(by_ddp, tmp_path):
    """Accumulated passes too: the average is over all rows of a step, not over passes."""
    assert digest(fitted(tmp_path / "a", {"type": "horovod"})) == digest(by_ddp)
    two = {"batch_size": 16, "gradient_accumulation_steps": 2}
    passes = fitted(tmp_path / "b", {"type": "horovod"}, **two)
    assert digest(passes) == digest(fitted(tmp_path / "c", {"type": "data_parallel"}, **two))
    loss, expected = (each.test_statistics["combined"]["loss"] for each in (passes, by_ddp))
    assert loss == pytest.approx(expected, rel=0.02)


def test_a_worker_group_that_lost_a_rank_meets_again(tmp_path):
    """By a new server and new keys, although the store of torchelastic's agent still has the old
    ones."""
    backend = Plugins().make(BACKEND, "local")
    group = WorkerGroup(
        function=process_group_jobs.die_in_horovod,
        arguments=(str(tmp_path),),
        ranks=2,
        max_retries=1,
        threads=1,
    )
    assert backend.run_group(group) == [[3.0] * 3] * 2
    assert len(rank_jobs.attempts(tmp_path, 1)) == 2


@pytest.mark.parametrize(
    "option",
    [
        {"compression": "fp16"},
        pytest.param({"gradient_predivide_factor": 4.0}, marks=pytest.mark.slow),
    ],
    ids=lambda option: next(iter(option)),
)
def test_compression_and_predivision_train_alike(by_ddp, tmp_path, option):
    found = fitted(tmp_path, {"type": "horovod", "max_retries": 0, **option})
    loss, expected = (each.test_statistics["combined"]["loss"] for each in (found, by_ddp))
    assert loss == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gradient_predivide_factor": 2.0, "op": "sum"}, "op average"),
        ({"compression": "fp16", "op": "adasum"}, "adasum"),
        ({"num_workers": [3, 2]}, "fewest"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        Plugins().validate("trainers", "horovod", options)


def test_adasum_without_mpi_says_what_it_needs(tmp_path):
    with pytest.raises(UserError, match="adasum needs MPI"):
        fitted(tmp_path, {"type": "horovod", "op": "adasum", "max_retries": 0})


def test_a_horovod_that_does_not_fit_is_refused_before_any_work(tmp_path, monkeypatch):
    """Without torch support, and built for another torch: nothing is read, nothing is written."""
    import horovod

    real = shutil.copytree(
        horovod.__path__[0], tmp_path / "fake" / "horovod", ignore=shutil.ignore_patterns("runner")
    )
    monkeypatch.setattr(
        "distcore_horovod.installed.importlib.util.find_spec", lambda name: Spec([str(real)])
    )
    (real / "metadata.json").write_text('{"pytorch": "1.0.0"}')
    with pytest.raises(
        UserError, match=r"built for torch 1\.0\.0, but torch .*distcore-horovod build --install"
    ):
        fitted(tmp_path / "run", {"type": "horovod"})
    for library in (real / "torch").glob("*.so"):
        library.unlink()
    with pytest.raises(UserError, match=r"without torch support.*distcore-horovod build --install"):
        fitted(tmp_path / "run", {"type": "horovod"})
    assert not (tmp_path / "run").exists()


class Spec:
    """A found package."""

    def __init__(self, places):
        self.submodule_search_locations = places
