"""A search starts its trials itself: where a launcher did, it is refused, and a trial does not take
itself for a rank."""

import pytest

import distcore
from distcore.search.run import _refuse_launchers
from distcore_core.errors import UserError
from distcore_testing import data
from distcore_torch.training.launched import says_which_rank


@pytest.mark.parametrize("variable", ["HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_a_search_under_a_launcher_is_refused(variable, tmp_path, monkeypatch):
    """Each trial took itself for the rank that the search was, and waited for minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "2")
    section = {
        "goal": "minimize",
        "metric": "loss",
        "output_feature": "y",
        "parameters": {"trainer.learning_rate": {"space": "uniform", "lower": 0.1, "upper": 0.2}},
    }
    searched = data.config("cache", hyperopt=section)
    with pytest.raises(UserError, match="Start distcore hyperopt by itself"):
        distcore.hyperopt(searched, data.table(), backend="horovod", view="none")
    monkeypatch.setenv(variable, "1")
    _refuse_launchers(None)  # one process is alone, as `srun` starts it in a job of one
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stated", [{"type": "local", "cache_dir": "cache"}, "local", None])
def test_a_search_of_its_own_in_each_process_is_one_that_was_asked_for(
    stated, tmp_path, monkeypatch
):
    """As of `srun … distcore hyperopt --backend local`."""

    def opened(*_, **__):
        raise UserError("It was not refused.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setattr("distcore.search.run.open_session", opened)
    section = {
        "parameters": {"trainer.learning_rate": {"space": "uniform", "lower": 0.1, "upper": 0.2}}
    }
    searched = data.config("cache", hyperopt=section, backend=stated)
    named = "Start distcore hyperopt by itself" if stated is None else "It was not refused"
    with pytest.raises(UserError, match=named):
        distcore.hyperopt(searched, data.table(), view="none")
    with pytest.raises(UserError, match="It was not refused"):
        distcore.hyperopt(searched, data.table(), backend="local", view="none")


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        *((name, True) for name in ("RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")),
        *((name, True) for name in ("TORCHELASTIC_RUN_ID", "HOROVOD_RANK", "HOROVOD_ELASTIC")),
        *((name, True) for name in ("HOROVOD_CROSS_SIZE", "HOROVOD_GLOO_RENDEZVOUS_ADDR")),
        *((name, True) for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMIX_NAMESPACE")),
        *((name, True) for name in ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID")),
        ("SLURM_CPUS_PER_TASK", False),
        *((name, False) for name in ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_GLOO_IFACE")),
        *((name, False) for name in ("OMPI_MCA_btl", "PMIX_MCA_gds", "MY_RANK", "PATH")),
    ],
)
def test_what_says_which_rank_a_process_is(variable, says):
    assert says_which_rank(variable) is says
