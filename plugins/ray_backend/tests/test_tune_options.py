"""What the executor reads without a cluster: its options, Ludwig's own section, the nodes that a
cluster may yet have."""

from contextlib import suppress
from threading import Event
from types import SimpleNamespace

import pyarrow.csv as pacsv
import pytest

import distcore
from distcore.config.yaml_document import parse
from distcore.search.section import check_candidates, read_section
from distcore_core.contracts import BACKEND, EXECUTOR
from distcore_core.errors import ConfigError, TrainingError, UserError
from distcore_core.registry.manager import Plugins
from distcore_ray import tune
from distcore_ray.tune import _callback
from distcore_ray.tune_scheduler import scheduler_of, told_of
from distcore_search.objective import Objective
from distcore_search.records import begin_record, read_record, write_record
from distcore_search.rounds import add_round
from distcore_testing import ExecutorSuite, data
from distcore_torch.training.interrupt import Interrupt


def test_hyperband_which_pauses_trials_is_refused():
    with pytest.raises(ConfigError, match=r"hyperband pauses.*async_hyperband"):
        Plugins().make(EXECUTOR, "ray", {"scheduler": {"type": "hyperband"}})


MEDIAN = {"type": "median_stopping_rule", "time_attr": "training_iteration", "grace_period": 1}


class Trial(str):
    """One of Tune's, by its name."""

    trial_id = property(str)


@pytest.fixture
def median():
    """Told of a trial's round by name, number and score, it says what becomes of the trial: by the
    median of one other at least, while another trial waits."""
    section = {"scheduler": {**MEDIAN, "min_samples_required": 1}}
    made = scheduler_of(Plugins().make(EXECUTOR, "ray", section).options.scheduler, dict)
    assert made.set_search_properties("score", "max")
    controller = SimpleNamespace(get_live_trials=lambda: [SimpleNamespace(status="PENDING")])

    def tell(trial, number, score):
        found = {"training_iteration": number, "score": score}
        return made.on_trial_result(controller, Trial(trial), found)

    tell.rule = made
    return tell


def test_a_trial_that_failed_before_its_first_round_has_no_part_in_the_median(median):
    """Every search with such a one ended in a KeyError of Tune's."""
    failed = Trial("failed")
    median.rule.on_trial_result(None, failed, {"done": True})
    median.rule.on_trial_complete(None, failed, {})
    assert median("a", 1, 1.0) == "CONTINUE"
    assert median("b", 1, 0.5) == "STOP"


def test_rounds_that_a_trial_tells_again_count_once_in_the_median(median):
    """One whose process is lost tells them all again: its early ones weighed twice."""
    for number in (1, 2, 1, 2, 3):
        assert median("again", number, float(number > 1)) == "CONTINUE"
    assert median("b", 3, 0.65) == "STOP"  # 2 / 3, not 3 / 5


def test_no_trial_is_paused_where_there_are_too_few_for_a_median(median):
    """Its process was ended, and started again, for as long as another one waited."""
    assert [median("a", number, 1.0) for number in (1, 2)] == ["CONTINUE"] * 2


def test_fifo_stops_no_trial():
    from ray.tune.schedulers import FIFOScheduler

    stated = Plugins().make(EXECUTOR, "ray", {"scheduler": {"type": "fifo"}}).options.scheduler
    assert type(scheduler_of(stated, dict)) is FIFOScheduler


def test_a_round_without_a_score_is_not_told(tmp_path):
    """Tune would compare a None."""
    for step, told in enumerate([0.5, None, 0.75], 1):
        metrics = {"validation": {"y": {"accuracy": told}}}
        add_round(tmp_path / "rounds.jsonl", {"step": step, "seconds": 1.0, "metrics": metrics})
    found = told_of(tmp_path, Objective("y", "accuracy", "maximize"))
    assert [(each["training_iteration"], each["score"]) for each in found] == [(1, 0.5), (3, 0.75)]


@pytest.mark.parametrize("kind", ["async_hyperband", "median_stopping_rule"])
@pytest.mark.parametrize("time_attr", ["training_iteration", "time_total_s"])
def test_trials_that_ended_before_a_kill_are_compared_with(kind, time_attr, tmp_path):
    """Whoever went on had nothing to compare with, and no bad trial was stopped any more."""
    for number, score in enumerate([0.8, 0.9, 0.7]):
        for step in (1, 2):
            found = {"validation": {"y": {"accuracy": score * step / 2}}}
            path = tmp_path / str(number) / "rounds.jsonl"
            path.parent.mkdir(exist_ok=True)
            add_round(path, {"step": step, "seconds": float(step), "metrics": found})
    objective = Objective("y", "accuracy", "maximize")
    ended = {name: list(told_of(tmp_path / name, objective)) for name in "012"}
    assert ended["1"][1] == {"score": 0.9, "training_iteration": 2, "time_total_s": 2.0}
    section = {"type": kind, "time_attr": time_attr, "grace_period": 2}
    options = Plugins().make(EXECUTOR, "ray", {"scheduler": section}).options

    def said(score, ended):
        made, trial = scheduler_of(options.scheduler, lambda: ended), Trial("3")
        assert made.set_search_properties("score", "max")
        controller = SimpleNamespace(get_live_trials=list)
        made.on_trial_add(controller, trial)
        return made.on_trial_result(controller, trial, {time_attr: 2, "score": score})

    assert [said(score, ended) for score in (0.1, 0.95)] == ["STOP", "CONTINUE"]
    assert said(0.1, {}) == "CONTINUE"


def test_what_tune_saves_of_its_callbacks_is_nothing_of_a_session_s():
    """A session holds what no pickle takes: every search by `ray` ended in a TypeError."""
    from ray import cloudpickle

    plugins = Plugins()

    def told(*each):
        plugins.names("executors")

    saved = cloudpickle.dumps(_callback(told, Interrupt(), Event()))
    assert b"distcore" not in saved


def test_tune_does_not_say_of_a_trial_that_failed_that_it_completed(capsys):
    from ray.tune.progress_reporter import TrialProgressCallback
    from ray.tune.utils.callback import _create_default_callbacks

    made = _create_default_callbacks([tune._silent()], config={})
    (found,) = (each for each in made if isinstance(each, TrialProgressCallback))
    found.on_trial_complete(1, [], SimpleNamespace(last_result={}))
    assert not capsys.readouterr().out


@pytest.mark.parametrize("stopped", [False, True])
def test_a_search_whose_disk_is_full_ends_in_the_error_and_not_in_a_traceback_of_tunes(
    tmp_path, monkeypatch, stopped
):
    """Nor does what Tune wrote of a trial there, which was cut short, stand before it. Of a trial
    that was stopped Tune takes the error for the trial's, and goes on."""

    def cut_short():
        raise EOFError("Ran out of input")

    lost = SimpleNamespace(config={"number": 0}, get_pickled_error=cut_short, last_result={})

    def tuner(*_, run_config, **__):
        def fit():
            ours = run_config.callbacks[0]
            if stopped:
                with suppress(TrainingError):
                    ours.on_trial_complete(1, [], lost)
                with suppress(TrainingError):
                    ours.on_trial_error(1, [], lost)
                assert told == [None]
                ours.on_step_begin(2, [])
            try:
                ours.on_trial_error(1, [], lost)
            except Exception as error:
                raise RuntimeError("Traceback (most recent call last)") from error

        return SimpleNamespace(fit=fit)

    told = []

    def full(self, config, failed, unseen):
        told.append(failed)
        raise TrainingError(f"There is no room, and {failed}")

    for name in ("with_parameters", "with_resources"):
        monkeypatch.setattr(f"ray.tune.{name}", lambda *_, **__: None)
    monkeypatch.setattr("ray.tune.Tuner", tuner)
    monkeypatch.setattr(tune, "_here", lambda: None)
    monkeypatch.setattr(tune._Run, "settle", full)
    options = Plugins().make(EXECUTOR, "ray", {}).options
    work = SimpleNamespace(objective=None, folder=lambda name: tmp_path / name)
    job = SimpleNamespace(work=work, variants=[{}], trials=1, goal="maximize", directory=tmp_path)
    need = SimpleNamespace(of_tune=dict)
    why = "None" if stopped else ".*Ray gives no reason"
    with pytest.raises(TrainingError, match=f"no room, and {why}"):
        tune._Run(job, options, need, 1, None).run()


# Ludwig's own automl defaults, put together as its automl does: base_automl_config.yaml and
# combiner/concat_config.yaml.
LUDWIGS = """
input_features:
  - {name: x0, type: number}
  - {name: colour, type: category}
output_features:
  - {name: y, type: binary}
combiner:
  type: concat
trainer:
  batch_size: auto #256
  learning_rate: auto #.001
hyperopt:
  parameters:
    combiner.num_fc_layers:
      space: randint
      lower: 1
      upper: 4
    combiner.output_size:
      space: choice
      categories: [128, 256]
    combiner.dropout:
      space: uniform
      lower: 0.0
      upper: 0.1
    trainer.learning_rate:
      space: loguniform
      lower: 0.00002
      upper: 0.001
    trainer.batch_size:
      space: choice
      categories: [64, 128, 256, 512, 1024]
  search_alg:
    type: variant_generator
  executor:
    type: ray
    num_samples: 10
    time_budget_s: 7200
    scheduler:
      type: async_hyperband
      time_attr: time_total_s
      max_t: 7200
      grace_period: 72
      reduction_factor: 5
"""


def test_ludwigs_own_section_is_read_as_it_is():
    section = read_section(parse(LUDWIGS))
    plugins = Plugins()
    assert check_candidates(section, plugins, "local", {"trainer": "local"})
    options = plugins.validate("executors", "ray", section.options.executor.model_extra)
    assert options.num_samples == 10
    assert options.scheduler.reduction_factor == 5


def test_a_cluster_that_grows_counts_with_the_nodes_that_may_come(monkeypatch):
    """As Ray tells it of autoscalers; of a cluster without one it tells nothing."""
    from ray._private.state import state
    from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

    groups = [
        NodeGroupConfig(name="head", resources={"CPU": 0}, max_count=0),
        NodeGroupConfig(name="cpu", resources={"CPU": 8}, max_count=2),
        NodeGroupConfig(name="gpu", resources={"CPU": 4, "GPU": 1}, max_count=-1),
    ]
    monkeypatch.setattr(
        state, "get_cluster_config", lambda: ClusterConfig(node_group_configs=groups)
    )
    assert tune._may_come() == [{"CPU": 8}] * 2 + [{"CPU": 4, "GPU": 1}] * tune.MOST_NODES
    monkeypatch.setattr(state, "get_cluster_config", lambda: None)
    assert tune._may_come() == []


def test_a_trial_whose_folder_is_not_seen_here_failed(tmp_path, monkeypatch):
    """It had told Tune of its rounds, and was called stopped before it had a score. One of which
    Tune has no round may not have begun."""
    monkeypatch.setattr(tune, "SEEN_SECONDS", 0.0)
    suite = type("Suite", (ExecutorSuite,), {"name": "ray"})()
    job, told = suite.job(tmp_path, suite.variants(3)), []
    run = tune._Run(job, suite.make().options, None, 1, told.append)
    assert run.patience == 0.0
    callback = _callback(run._settle, Interrupt(), run.over)
    add_round(
        tmp_path / "trials" / "0002" / "rounds.jsonl",
        {"step": 1, "seconds": 1.0, "metrics": {"validation": {"y": {"loss": 0.5}}}},
    )
    begin_record(job.work, "0002", job.variants[2])
    for number, last in enumerate([{"score": 0.5}, {}, {"score": 0.5}]):
        ended = SimpleNamespace(config={"number": number}, last_result=last)
        callback.on_trial_complete(1, [], ended)
    assert told == ["0000", "0001", "0002"]
    unseen, not_begun, seen = suite.records(job).values()
    assert (unseen["state"], unseen["error"]) == ("failed", tune.UNSEEN)
    assert (not_begun["state"], not_begun["score"], not_begun["error"]) == ("stopped", None, None)
    assert (seen["state"], seen["score"], seen["error"]) == ("stopped", 0.5, None)


def test_a_trial_whose_record_is_seen_late_keeps_its_word(tmp_path, monkeypatch):
    """A mount of another machine's may go on to say that it is not there: a good trial failed."""
    suite = type("Suite", (ExecutorSuite,), {"name": "ray"})()
    job, looks = suite.job(tmp_path, suite.variants(1)), []
    write_record(job.work.folder("0000"), {"name": "0000", "state": "finished", "score": 0.5})

    def stale(folder):
        looks.append(folder)
        return {} if len(looks) < 3 else read_record(folder)

    monkeypatch.setattr(tune, "read_record", stale)
    run = tune._Run(job, suite.make().options, None, 1, lambda name: None)
    ended = SimpleNamespace(config={"number": 0}, last_result={"score": 0.5})
    _callback(run._settle, Interrupt(), run.over).on_trial_complete(1, [], ended)
    assert run.settled == {"0000"}
    assert len(looks) == 3
    assert suite.records(job)["0000"]["state"] == "finished"


def test_the_records_of_trials_to_come_are_not_looked_up(tmp_path, monkeypatch):
    """NFS would remember that they are not there."""
    suite = type("Suite", (ExecutorSuite,), {"name": "ray"})()
    job, looks = suite.job(tmp_path, suite.variants(3)), []
    write_record(job.work.folder("0001"), {"name": "0001", "state": "finished"})
    monkeypatch.setattr(tune, "read_record", lambda each: looks.append(each) or read_record(each))
    assert tune._Run(job, suite.make().options, None, 1, None)._numbers() == [0, 2]
    assert looks == [job.work.folder("0001")]


@pytest.fixture
def asked(monkeypatch):
    """What the cluster was asked for; it says that a node does not see it."""
    places = []

    def blind(self, read, written):
        places.extend([*read.values(), *written.values()])
        raise UserError("The node 10.0.0.1 of the Ray cluster does not see it.")

    monkeypatch.setattr("distcore_ray.backend.RayBackend.check_storage", blind)
    monkeypatch.setattr(tune, "_nodes", lambda backend: [(4.0, 0.0)])
    return places


@pytest.mark.parametrize(
    ("parameter", "read"),
    [("trainer.learning_rate", []), ("x0.preprocessing.fill_value", ["data.csv"])],
    ids=["of one cache", "of a cache each"],
)
def test_beside_another_backend_the_cluster_is_asked_whether_nodes_see_all_places(
    asked, tmp_path, monkeypatch, parameter, read
):
    """Each trial of a node without the cache or the dataset failed by itself."""
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(data.table(100), "data.csv")
    section = {
        "goal": "minimize",
        "metric": "loss",
        "output_feature": "y",
        "parameters": {parameter: {"space": "uniform", "lower": 0.1, "upper": 0.2}},
        "executor": {"type": "ray"},
    }
    with pytest.raises(UserError, match="does not see it"):
        distcore.hyperopt(data.config("cache", hyperopt=section), "data.csv", view="none")
    assert asked == [*read, "cache", str(tmp_path / "results" / "hyperopt_run")]


def test_a_backend_that_was_asked_for_its_nodes_is_not_asked_again(asked, tmp_path):
    suite = type("Suite", (ExecutorSuite,), {"name": "ray"})()
    backend = Plugins().make(BACKEND, "ray", {})
    assert suite.make().plan(suite.job(tmp_path, suite.variants(2)), backend)["at_once"] == 2
    assert not asked
