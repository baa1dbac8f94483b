"""distcore hyperopt as a whole: one cache, bad trials, bad input, a killed driver, what is left
behind."""

import errno
import json
import os
import re
import shlex
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import distcore
from distcore.cli.main import main
from distcore.search import driver
from distcore.search.outcome import SearchOutcome, delivered_before, raise_without_scores
from distcore_core.errors import Stopped, TrainingError
from distcore_core.hooks import hookimpl
from distcore_core.io.atomic import remove_directory
from distcore_data.dataset import Data
from distcore_data.seals import sealed, unsealed
from distcore_optuna import executor
from distcore_search.records import read_record

pytestmark = pytest.mark.system

SECTION = """\
hyperopt:
  goal: maximize
  metric: roc_auc
  output_feature: bought
  parameters:
    trainer.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}
    combiner.output_size: {space: choice, categories: [8, 16]}
  executor: {type: local, num_samples: 3, max_concurrent_trials: 2}
"""


def with_section(place, section=SECTION, epochs=2):
    place.write(
        place.config,
        (place.folder / place.config)
        .read_text()
        .replace("epochs: 1", f"early_stop: -1, epochs: {epochs}")
        + section,
    )
    return place


def words(place, *more):
    return ["hyperopt", "--config", str(place.folder / place.config), *map(str, more)]


def good(place, *more):
    done = place.run("hyperopt", "--config", str(place.folder / place.config), *more)
    assert done.code == 0, done.out + done.err
    return done


def folder(place):
    return place.folder / "results" / "hyperopt_run"


def statistics(place):
    return json.loads((folder(place) / "hyperopt_statistics.json").read_text())


def results(place):
    return statistics(place)["hyperopt_results"]


def caches(place):
    return [
        each
        for each in (place.folder / ".distcore_cache").iterdir()
        if re.fullmatch(r"[0-9a-f]{40}", each.name)
    ]


def test_a_search_leaves_its_trials_the_best_model_a_table_and_a_report(place):
    with_section(place)
    done = good(place)
    found = results(place)
    scores = [each["metric_score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    assert len({each["parameters"]["trainer.learning_rate"] for each in found}) == 3
    best = found[0]
    curve = best["training_stats"]["validation"]["bought"]["roc_auc"]
    assert best["metric_score"] == max(curve) == best["eval_stats"]["bought"]["roc_auc"]
    assert [line.split()[0] for line in done.out.splitlines()[1:4]] == [
        each["trial"] for each in found
    ]
    assert done.out.splitlines()[-1].endswith("hyperopt_run/model")
    # The best trial's model is the search's, byte for byte, and predicts.
    for name in ("weights.safetensors", "model.json"):
        mine, trial = (
            root / "model" / name for root in (folder(place), folder(place) / best["directory"])
        )
        assert mine.read_bytes() == trial.read_bytes()
    place.good("predict", "--model_path", folder(place))
    report = (folder(place) / "report.html").read_text()
    assert "best so far" in report
    assert "trainer.learning_rate" in report
    assert len(caches(place)) == 1
    assert not list(folder(place).glob("trials/*/checkpoints"))


def test_the_model_of_an_earlier_end_is_the_best_trials_or_is_told(place, capsys):
    """After a ctrl-C of a search that was gone on with, what lay in model/ was another trial's."""
    with_section(place)
    good(place)
    model = folder(place) / "model"
    best = [read_record(folder(place) / each["directory"]) for each in results(place)]
    assert delivered_before(model, best) == model
    assert not capsys.readouterr().err
    assert delivered_before(model, best[::-1]) is None
    assert "is what an earlier end of this search left" in capsys.readouterr().err
    assert delivered_before(folder(place) / "none", best) is None


def test_a_trial_is_what_train_makes_of_its_values(place, tmp_path):
    """The same weights, for the same config: a search adds nothing to a run but whom it tells."""
    with_section(place)
    good(place)
    best = results(place)[0]
    config = json.loads((folder(place) / best["directory"] / "description.json").read_text())[
        "config"
    ]
    assert config["trainer"]["learning_rate"] == best["parameters"]["trainer.learning_rate"]
    del config["extensions"]
    alone = distcore.train(
        config, dataset=str(place.folder / place.data), output_directory=tmp_path / "alone"
    )
    assert (alone.model / "weights.safetensors").read_bytes() == (
        folder(place) / "model" / "weights.safetensors"
    ).read_bytes()


# The words of Ludwig's own example for Optuna (examples/hyperopt), of its docs for Ray Tune, and of
# those before Ray.
LUDWIGS = {
    "example for Optuna": """\
hyperopt:
  executor: {type: optuna, num_samples: 2, sampler: auto, pruner: hyperband, storage: 'sqlite:///optuna_results.db'}
  parameters:
    trainer.learning_rate: {space: loguniform, lower: 1.0e-5, upper: 1.0e-2}
    trainer.batch_size: {space: int, lower: 16, upper: 64}
    trainer.optimizer.type: {space: choice, categories: [adam, adamw]}
    combiner.dropout: {space: float, lower: 0.0, upper: 0.5}
  goal: minimize
  metric: validation.combined.loss
  split: validation
""",
    "Ray Tune, the executor alone changed": """\
hyperopt:
  goal: maximize
  output_feature: bought
  metric: accuracy
  split: validation
  parameters:
    training.learning_rate: {space: loguniform, lower: 0.001, upper: 0.1}
    combiner.num_fc_layers: {space: randint, lower: 1, upper: 3}
    age.preprocessing.normalization: {space: grid_search, values: [zscore, minmax]}
  search_alg: {type: variant_generator, random_state: 7}
  executor:
    type: local
    num_samples: 1
    time_budget_s: 3600
    cpu_resources_per_trial: 1
    gpu_resources_per_trial: 0
    max_concurrent_trials: auto
    trial_driver_resources: {CPU: 1, GPU: 0}
    kubernetes_namespace: ray
    scheduler: {type: async_hyperband, time_attr: time_total_s, max_t: 3600, grace_period: 72, reduction_factor: 5}
""",
    "before Ray": """\
hyperopt:
  sampler: {type: random, num_samples: 2}
  executor: {type: serial}
  goal: minimize
  parameters:
    training.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}
""",
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "example for Optuna",
            [
                "is read as metric loss, split validation, output_feature combined",
                "storage changes",
            ],
        ),
        (
            "Ray Tune, the executor alone changed",
            ["trial_driver_resources changes nothing", "kubernetes_namespace"],
        ),
        (
            "before Ray",
            ["serial is an executor of older Ludwigs", "`hyperopt.sampler` was left out"],
        ),
    ],
)
def test_a_section_in_ludwigs_words_runs_as_it_is(place, name, said):
    with_section(place, LUDWIGS[name])
    done = good(place)
    assert [each["state"] for each in results(place)] == ["finished"] * 2
    assert all(each in done.err for each in said)
    assert "Warning" not in done.err
    place.good("predict", "--model_path", folder(place))


def test_from_python_with_a_frame_and_a_listener(place, monkeypatch):
    """Preprocessing is done once, whatever the trials; each trial is told of."""
    import pandas

    from distcore.workflow import session

    heard = []
    frame = type("Own", (pandas.DataFrame,), {})(pandas.read_csv(place.folder / place.data))
    frame["junk"] = [lambda: 1] * len(frame)  # no process but this one knows it, or the class

    class Heard:
        @hookimpl
        def cache_written(self, key):
            heard.append("cache")

        @hookimpl
        def trial_finished(self, name, record, directory):
            assert directory.name == name
            heard.append(record["state"])

    original = session.under_way

    def listened(session, *others):
        session.plugins.listen(Heard(), "heard")
        return original(session, *others)

    monkeypatch.setattr(session, "under_way", listened)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.folder / "home"))
    with_section(place, SECTION.replace("type: local", "type: optuna"))
    outcome = distcore.hyperopt(
        str(place.folder / place.config),
        frame,
        backend="local",
    )
    assert heard == ["cache", *["finished"] * 3]
    assert outcome.best["score"] == results(place)[0]["metric_score"]
    assert distcore.load(outcome.model).predict(str(place.folder / place.data)).num_rows == 240


def test_parameters_of_the_preprocessing_make_a_cache_for_each_of_their_values(place):
    section = SECTION.replace(
        "combiner.output_size: {space: choice, categories: [8, 16]}",
        "age.preprocessing.normalization: {space: grid_search, values: [zscore, minmax]}",
    )
    with_section(place, section.replace("num_samples: 3", "num_samples: 2"))
    there = place.folder / "my caches"
    text = (place.folder / place.config).read_text()
    place.write(
        place.config,
        text.replace("backend: local", f'backend: {{type: local, cache_dir: "{there}"}}'),
    )
    said = good(place, "--skip_save_processed_input").err
    assert "a cache of its own, which stays although none was to be saved" in said
    assert len(results(place)) == 4
    assert len([*there.glob("?" * 40)]) == 2
    (told,) = re.findall(r"`distcore (cache prune [^`]*)` removes", said)
    assert main(shlex.split(told)) == 0
    assert [*there.glob("?" * 40)] == []


@pytest.mark.parametrize(
    ("cache_dir", "credentials", "said"),
    [
        ("s3://bucket/caches", {"key": "k"}, "--config …"),
        ("s3://bucket/caches", None, "--cache_dir s3://bucket/caches"),
        (None, {"key": "k"}, "--cache_dir '/my data/.distcore_cache'"),
    ],
)
def test_the_caches_of_a_search_are_named_as_they_can_be_opened(cache_dir, credentials, said):
    search = object.__new__(driver.Search)
    backend = SimpleNamespace(cache_dir=cache_dir, cache_credentials=credentials)
    search.session = SimpleNamespace(config=SimpleNamespace(backend=backend))
    search.data = Data("/my data/x.csv")
    assert search._where_caches_are() == said


def test_the_goal_of_a_search_over_the_preprocessing_is_checked_before_any_trial(place):
    """The smallest accuracy was the best."""
    parameter = "age.preprocessing.normalization: {space: grid_search, values: [zscore, minmax]}"
    section = SECTION.replace("goal: maximize", "").replace(
        "combiner.output_size: {space: choice, categories: [8, 16]}", parameter
    )
    with_section(place, section)
    done = place.run(*words(place))
    assert done.code == 2
    assert "hyperopt.metric: the goal is minimize if none is given, but a larger" in done.err
    assert not (place.folder / "results").exists()


def test_a_first_variant_that_cannot_be_prepared_is_a_bad_trial(place):
    parameter = "age.type: {space: grid_search, values: [date, number]}"
    place.write(
        place.config,
        re.sub(
            r"\{name: age,.*\}",
            "{name: age, type: number}",
            (place.folder / place.config).read_text(),
        ),
    )
    with_section(
        place,
        SECTION.replace("combiner.output_size: {space: choice, categories: [8, 16]}", parameter)
        .replace("trainer.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}\n    ", "")
        .replace("num_samples: 3, ", ""),
    )
    assert "The first variant is not checked, for it cannot be prepared: " in good(place).err
    assert [each["state"] for each in results(place)] == ["finished", "failed"]


def test_a_search_over_the_loss_has_one_cache(place):
    section = SECTION.replace(
        "combiner.output_size: {space: choice, categories: [8, 16]}",
        "bought.loss.positive_class_weight: {space: grid_search, values: [1.0, 5.0]}",
    )
    with_section(place, section.replace("num_samples: 3", "num_samples: 1"))
    assert "a cache of its own" not in good(place).err
    scores = [each["metric_score"] for each in results(place)]
    assert len(scores) == 2
    assert scores[0] != scores[1]
    assert len(caches(place)) == 1


def test_a_random_seed_that_is_searched_is_each_trials_own(place):
    """Beside one on the command line, which chooses what else is drawn."""
    seeds = SECTION[: SECTION.index("    trainer.learning_rate")] + (
        "    random_seed: {space: grid_search, values: [1, 2]}\n  executor: {type: local}\n"
    )
    with_section(place, seeds)
    good(place, "--random_seed", 7)
    found = results(place)
    assert {each["parameters"]["random_seed"] for each in found} == {1, 2}
    for each in found:
        described = json.loads((folder(place) / each["directory"] / "description.json").read_text())
        assert described["config"]["random_seed"] == each["parameters"]["random_seed"]
    assert len(caches(place)) == 2  # and none of the seed that no trial has


def test_the_cache_that_all_trials_read_is_of_the_seed_that_they_have(place):
    """It was of the one on the command line, where a search has one random_seed for all trials."""
    seeds = SECTION[: SECTION.index("    trainer.learning_rate")] + (
        "    random_seed: {space: grid_search, values: [1]}\n  executor: {type: local}\n"
    )
    with_section(place, seeds)
    good(place, "--random_seed", 7)
    [searched] = caches(place)
    assert place.good("preprocess", "--random_seed", 1)
    assert caches(place) == [searched]


def test_bad_trials_are_told_and_the_others_go_on(place):
    """A trial whose loss is not finite fails; the search is well."""
    section = SECTION.replace(
        "{space: loguniform, lower: 0.0001, upper: 0.1}",
        "{space: grid_search, values: [0.01, 1.0e+30]}",
    )
    place.write(
        place.config, (place.folder / place.config).read_text().replace("epochs: 1", "epochs: 3")
    )
    with_section(place, section.replace("num_samples: 3, ", ""))
    done = good(place)
    states = {each["parameters"]["trainer.learning_rate"]: each for each in results(place)}
    assert states[0.01]["state"] == "finished"
    assert states[1e30]["state"] == "failed"
    assert "loss" in states[1e30]["error"]
    record = json.loads((folder(place) / states[1e30]["directory"] / "trial.json").read_text())
    assert record["score"] is None  # as in the record of any other end
    assert "failed" in done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "The one trial failed with: x"), (2, "All 2 trials failed; the first with: x")],
)
def test_one_trial_that_failed_is_one(count, told):
    trials = [{"state": "failed", "error": "x"}] * count
    with pytest.raises(TrainingError, match=re.escape(told)):
        raise_without_scores(SimpleNamespace(trials=trials, directory="d"))


def test_where_all_trials_fail_the_search_fails_with_the_first_error(place):
    with_section(
        place,
        SECTION.replace(
            "{space: loguniform, lower: 0.0001, upper: 0.1}",
            "{space: choice, categories: [1.0e+30, 2.0e+30]}",
        ).replace("samples: 3", "samples: 2"),
    )
    done = place.run(*words(place)[:1], *words(place)[1:])
    assert done.code == 1
    assert "All 2 trials failed; the first with: Diverged: The loss" in done.err
    assert [each["state"] for each in results(place)] == ["failed"] * 2


@pytest.mark.parametrize(
    "trainer", [(), ("--set", "backend.trainer={type: ddp, num_workers: 2}")], ids=["one", "ranks"]
)
def test_what_a_full_disk_ended_is_gone_on_with(place, trainer):
    """A limit on the size of files stands in for the disk: what is large, is weights. Also in a
    rank, which is another process than its trial."""
    section = SECTION.replace(
        "[8, 16]}", "[512]}\n    combiner.num_fc_layers: {space: choice, categories: [2]}"
    )
    with_section(place, section)
    place.good("preprocess")
    program = [sys.executable, "-m", "distcore", *place.words(*words(place), *trainer)]
    limited = ["sh", "-c", 'ulimit -f 400; PYTHONDONTWRITEBYTECODE=1 exec "$@"', "sh", *program]
    done = place.finish(place.program(*limited))
    assert done.code == 1
    resume = f"--model_resume_path {folder(place)}"
    assert "All 3 trials failed" in done.err
    assert f"mend that, and go on with {resume}" in done.err
    assert [each["state"] for each in results(place)] == ["failed"] * 3
    tried = sorted(each["parameters"]["trainer.learning_rate"] for each in results(place))
    done = good(place, *resume.split(), *trainer)
    assert "Gone on with, since a disk or a limit ended them: 0000, 0001, 0002." in done.err
    assert [each["state"] for each in results(place)] == ["finished"] * 3
    again = sorted(each["parameters"]["trainer.learning_rate"] for each in results(place))
    assert again == tried
    assert (folder(place) / "model" / "model.json").exists()


def test_a_search_whose_time_ends_before_any_score_fails(place):
    with_section(
        place, SECTION.replace("num_samples: 3", "num_samples: 3, time_budget_s: 0.000001")
    )
    done = place.run(*words(place))
    assert done.code == 1
    assert "has a score: each was stopped before it had one" in done.err


def test_a_search_without_a_score_tells_failed_trials_from_stopped_ones(tmp_path):
    trials = [
        {"state": "stopped", "score": None},
        {"state": "failed", "error": "Diverged: The loss is NaN."},  # as of older versions
    ]
    said = "has a score: 1 failed, the first with: Diverged: The loss is NaN. Each other one was"
    with pytest.raises(TrainingError, match=said):
        raise_without_scores(SearchOutcome(tmp_path, trials, None))


@pytest.mark.parametrize(
    ("change", "line", "expected"),
    [
        (
            ("metric: roc_auc", "metric: roc_acu"),
            10,
            "has no metric 'roc_acu'; did you mean 'roc_auc'",
        ),
        (("  goal: maximize\n", ""), 9, "write goal: maximize"),
        (("type: local", "type: locl"), 15, "Did you mean 'local'"),
        (("num_samples: 3", "num_sampels: 3"), 15, "did you mean 'num_samples'"),
        (("num_samples: 3", "num_samples: 0"), 15, "num_samples: should be greater"),
        (
            (
                "categories: [8, 16]}",
                "categories: [8, 16]}\n"
                "    combiner.num_fc_layers: {space: int, lower: 1, upper: 3}\n"
                "  search_alg: {type: optuna, points_to_evaluate: [{combiner.num_fc_layers: 1.5}]}",
            ),
            16,
            "is none of its values; the nearest is 2, not 1.5",
        ),
        (
            (
                "categories: [8, 16]}\n  executor: {type: local, num_samples: 3",
                "categories: [8, 16]}\n    trainer.batch_size: {space: grid_search, values: [8, 16]}\n"
                "  executor: {type: local, num_samples: 1000000",
            ),
            12,
            "make 2,000,000 trials, and 1,000,000 are the most",
        ),
        (
            ("num_samples: 3", "num_samples: 3, scheduler: {type: pbt}"),
            15,
            "'pbt' is not carried out",
        ),
        (("num_samples: 3", "num_samples: 3, scheduler: {type: asah}"), 15, "did you mean 'asha'"),
        (("num_samples: 3", "num_samples: 3, scheduler: {max_t: 4}"), 15, "scheduler"),
        (("num_samples: 3", "num_samples: true"), 15, "num_samples: should be a number, not a b"),
        (
            ("metric: roc_auc", "metric: test.bought.roc_auc\n  split: validation"),
            10,
            "write metric: roc_auc alone",
        ),
        (("lower: 0.0001", "lower: -1"), 13, "greater than 0"),
        (("metric: roc_auc", "metric: roc_auc\n  split: training"), 10, "evaluate_training_set"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_left_behind(place, change, line, expected):
    with_section(place, SECTION.replace(*change))
    done = place.run("hyperopt", "--config", str(place.folder / place.config))
    assert done.code == 2, done.err
    assert f"line {line}: " in done.err
    assert expected in done.err
    assert "Traceback" not in done.err
    assert "not expected" not in done.err
    assert not (place.folder / "results").exists()


def test_an_executor_that_is_not_installed_says_what_to_install(place, monkeypatch):
    monkeypatch.setenv("DISTCORE_BLOCK", "executors:ray")
    with_section(place, SECTION.replace("type: local", "type: ray"))
    said = place.refused("hyperopt", "--config", str(place.folder / place.config))
    assert "line 15: hyperopt.executor.type" in said
    assert "hyperopt.executor.type: local" in said


def test_a_config_without_the_section_and_a_launcher_are_refused(place, monkeypatch):
    assert "hyperopt: is missing" in place.refused(
        "hyperopt", "--config", str(place.folder / place.config)
    )
    with_section(place)
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "x",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert "Start distcore hyperopt by itself" in place.refused(
        "hyperopt", "--config", str(place.folder / place.config)
    )


def test_the_test_split_decides_where_it_is_asked_for(place):
    with_section(
        place,
        SECTION.replace("goal: maximize", "goal: maximize\n  split: test\n  eval_split: test"),
    )
    assert "looks better there than it is" in good(place).err
    for each in results(place):
        trial = folder(place) / each["directory"]
        assert (
            each["metric_score"]
            == json.loads((trial / "test_statistics.json").read_text())["bought"]["roc_auc"]
        )


def test_skips_are_skipped(place):
    with_section(place)
    good(
        place,
        "--skip_save_model",
        "--skip_save_processed_input",
        "--skip_save_report",
        "--skip_save_progress",
    )
    assert not list(folder(place).glob("**/model"))
    assert not list(folder(place).glob("**/report.html"))
    assert not (place.folder / ".distcore_cache").exists()
    assert len(results(place)) == 3


def test_where_every_trial_is_stopped_the_best_has_its_model_all_the_same(place):
    """Stopped after three rounds, it counts with its best one, and so do its weights."""
    section = SECTION.replace(
        "num_samples: 3", "num_samples: 3, scheduler: {type: asha, grace_period: 3, max_t: 3}"
    )
    with_section(place, section, epochs=100_000)
    good(place)
    found = results(place)
    assert {each["state"] for each in found} == {"stopped"}
    curve = found[0]["training_stats"]["validation"]["bought"]["roc_auc"]
    # It trained on for a moment, which counts, for the weights are of the best of all its rounds.
    assert len(curve) == found[0]["rounds"] >= 3
    assert found[0]["metric_score"] == max(curve) == found[0]["eval_stats"]["bought"]["roc_auc"]
    assert place.good("predict", "--model_path", folder(place))
    model = json.loads((folder(place) / "model" / "model.json").read_text())
    assert model["extra"]["best"]["value"] == found[0]["metric_score"]


def test_a_stopped_trial_whose_last_rounds_are_in_no_checkpoint_is_trained_up_to_them_again(place):
    """As where the cluster ended its process in the midst of saving."""
    section = SECTION.replace(
        "num_samples: 3", "num_samples: 1, scheduler: {type: asha, grace_period: 3, max_t: 3}"
    )
    with_section(place, section, epochs=100_000)
    good(place, "--skip_save_model")
    [before] = results(place)
    remove_directory(folder(place) / before["directory"] / "checkpoints")
    done = good(place, "--resume")
    [after] = results(place)
    assert "is trained from step 0 to" in done.err
    assert after["metric_score"] == before["metric_score"]
    model = json.loads((folder(place) / "model" / "model.json").read_text())
    assert model["extra"]["best"]["value"] == before["metric_score"]


def test_time_runs_out(place, monkeypatch):
    """On a clock by which it is late once two trials have a round."""
    section = SECTION.replace("num_samples: 3", "num_samples: 50, time_budget_s: 100_000")
    with_section(place, section, epochs=100_000)
    monkeypatch.setattr(executor, "time", Clock(place))
    good(place)
    assert {each["state"] for each in results(place)} == {"stopped"}
    assert len(results(place)) == 2


class Clock:
    """The driver's, which a budget of time is counted by."""

    sleep = staticmethod(time.sleep)

    def __init__(self, place):
        self.place = place

    def monotonic(self):
        told = sum(rounds(each) > 0 for each in folder(self.place).glob("trials/*"))
        return time.monotonic() + 1e6 * (told > 1)


# ------------------------------------------------------------------ stopped and gone on with

LONG = SECTION.replace("num_samples: 3", "num_samples: 4")
EPOCHS = 40
EARLY = 30
"""Steps after which a trial has saved a checkpoint, and has most of its epochs before it."""


def wait_for(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def states(place):
    found = {}
    for path in sorted(folder(place).glob("trials/*/trial.json")):
        found[path.parent.name] = json.loads(path.read_text())
    return found


def half_done(place):
    """One trial has ended; another one has a checkpoint, and more than half of its epochs before
    it."""
    found = states(place)
    running = [
        folder(place) / "trials" / name
        for name, each in found.items()
        if each["state"] == "running"
    ]
    return any(each["state"] == "finished" for each in found.values()) and any(
        list(trial.glob("checkpoints/step-*/manifest.json")) and rounds(trial) < EPOCHS // 2
        for trial in running
    )


def rounds(trial):
    path = trial / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def children_of(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # others' processes end meanwhile
            if path.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(path.parent.name))
    return found


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_killed_driver_goes_on_where_it_was(place, tmp_path, brake):
    """SIGKILL in the middle: its trials end with it; no finished trial is repeated, an interrupted
    one goes on from its checkpoint, and the trials are as many, and as good, as those of a
    search that nobody disturbed."""
    with_section(
        place,
        LONG.replace(
            "loguniform, lower: 0.0001, upper: 0.1",
            "grid_search, values: [0.001, 0.004, 0.01, 0.02]",
        )
        .replace("num_samples: 4, ", "")
        .replace("categories: [8, 16]", "categories: [8]"),
        EPOCHS,
    )
    brake.apply(after=EARLY, spared=1)
    process = place.start("hyperopt", *words(place)[1:], **brake.environment)
    wait_for(lambda: half_done(place) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    children = children_of(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: all(gone(pid) for pid in children))
    before = states(place)
    ended = {
        name: (folder(place) / "trials" / name / "trial.json").stat().st_mtime_ns
        for name, each in before.items()
        if each["state"] == "finished"
    }
    begun = [name for name, each in before.items() if each["state"] == "running"]
    assert ended
    assert begun
    done = good(place, "--model_resume_path", folder(place))
    assert re.search(rf"\b{len(ended)} trials? ended before, not to be repeated", done.err)
    for name, written in ended.items():
        assert (folder(place) / "trials" / name / "trial.json").stat().st_mtime_ns == written
    logs = [(folder(place) / "trials" / name / "log.txt").read_text() for name in begun]
    assert any("Going on after step" in each for each in logs)
    undisturbed = distcore.hyperopt(
        str(place.folder / place.config),
        str(place.folder / place.data),
        output_directory=tmp_path / "other",
    )
    mine = {
        each["parameters"]["trainer.learning_rate"]: each["metric_score"] for each in results(place)
    }
    theirs = {
        each["parameters"]["trainer.learning_rate"]: each["score"] for each in undisturbed.trials
    }
    assert mine == theirs
    assert len(mine) == 4


def test_ctrl_c_ends_with_the_results_so_far(place, brake):
    with_section(place, LONG, EPOCHS)
    brake.apply(after=EARLY, spared=1)
    process = place.start("hyperopt", *words(place)[1:], **brake.environment)
    wait_for(lambda: half_done(place) or process.poll() is not None)
    children = children_of(process.pid)
    os.kill(process.pid, signal.SIGINT)
    done = place.finish(process)
    assert done.code == 130, done.err
    assert f"--model_resume_path {folder(place)}" in done.err
    assert "Traceback" not in done.err
    assert all(gone(pid) for pid in children)
    found = results(place)
    assert any(each["state"] == "finished" for each in found)
    assert any(each["state"] == "running" for each in found)
    good(place, "--resume")
    assert {each["state"] for each in results(place)} == {"finished"}
    assert len(results(place)) == 4


def test_a_trial_whose_process_dies_is_one_bad_trial(place, brake):
    with_section(place, LONG, EPOCHS)
    brake.apply(after=EARLY)
    process = place.start("hyperopt", *words(place)[1:], **brake.environment)
    wait_for(
        lambda: (
            list(folder(place).glob("trials/0000/checkpoints/step-*")) or process.poll() is not None
        )
    )
    victim = next(
        pid
        for pid in children_of(process.pid)
        if str(folder(place) / "trials" / "0000") in os.readlink(f"/proc/{pid}/fd/1")
    )
    os.kill(victim, signal.SIGKILL)
    brake.release()
    done = place.finish(process)
    assert done.code == 0, done.err
    assert "killed by SIGKILL" in states(place)["0000"]["error"]
    assert sorted(each["state"] for each in results(place)) == [
        "failed",
        "finished",
        "finished",
        "finished",
    ]


def test_two_searches_never_share_a_folder_and_another_search_is_not_gone_on_with(place):
    with_section(place)
    good(place)
    good(place, "--skip_save_model")
    assert (place.folder / "results" / "hyperopt_run_1" / "hyperopt_statistics.json").exists()
    place.write(
        place.config,
        (place.folder / place.config)
        .read_text()
        .replace("categories: [8, 16]", "categories: [8, 32]"),
    )
    said = place.refused(
        "hyperopt",
        "--config",
        str(place.folder / place.config),
        "--model_resume_path",
        str(folder(place)),
    )
    assert "hyperopt.parameters differ" in said
    assert "holds no search" in place.refused(
        "hyperopt",
        "--config",
        str(place.folder / place.config),
        "--model_resume_path",
        str(place.folder),
    )


@pytest.mark.parametrize(
    "parameter",
    [
        "trainer.learning_rate: {space: grid_search, values: [0.01]}",
        "age.preprocessing.normalization: {space: grid_search, values: [zscore, minmax]}",
    ],
    ids=["one cache", "a cache for each variant"],
)
def test_a_search_is_not_gone_on_with_over_other_data_or_by_trees(place, parameter):
    """Its table would compare scores of what is not the same."""
    with_section(
        place,
        SECTION.replace("combiner.output_size: {space: choice, categories: [8, 16]}", parameter)
        .replace("trainer.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}\n    ", "")
        .replace("num_samples: 3, ", ""),
        epochs=1,
    )
    good(place)
    before = (folder(place) / "hyperopt_statistics.json").read_bytes()
    good(place, "--resume", "--set", "backend={type: local, trainer: {type: data_parallel}}")
    trees = ("--set", "backend={type: local, trainer: {type: lightgbm}}")
    said = place.refused(
        "hyperopt", "--config", str(place.folder / place.config), "--resume", *trees
    )
    assert "backend.trainer was one of torch's that make the same steps and is lightgbm." in said
    data = place.folder / place.data
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join([*lines, lines[-1]]))
    said = place.refused("hyperopt", "--config", str(place.folder / place.config), "--resume")
    assert "is another one: the data or how they are prepared differ." in said
    assert (folder(place) / "hyperopt_statistics.json").read_bytes() == before


def test_a_trial_is_on_its_searchs_backend_whatever_its_own_process_detects(place, monkeypatch):
    """In a process of Ray Tune's every trial detected `ray`: it waited for workers that the others
    held, and trained on as many as the cluster has."""
    with_section(place)
    monkeypatch.chdir(place.folder)
    config = Path(place.config)
    config.write_text(config.read_text().replace("backend: local\n", ""))
    here = distcore.plan(config, dataset=place.data)["backend"]["name"]
    real = executor.LocalExecutor.run

    def inside_ray(*arguments):
        monkeypatch.setenv("RAY_JOB_ID", "01000000")
        monkeypatch.setenv("RAY_RAYLET_PID", "1")
        real(*arguments)

    monkeypatch.setattr(executor.LocalExecutor, "run", inside_ray)
    outcome = distcore.hyperopt(config, dataset=place.data)
    for each in outcome.trials:
        described = outcome.directory / "trials" / each["name"] / "description.json"
        assert json.loads(described.read_text())["backend"]["name"] == here


def test_what_ends_a_search_says_how_to_go_on(place, monkeypatch):
    """A cluster that is gone, for which an error stands here, left its results unwritten."""
    with_section(place)
    monkeypatch.chdir(place.folder)
    real = executor.LocalExecutor.run

    def lost(*arguments):
        real(*arguments)
        raise TrainingError("The cluster is gone.")

    monkeypatch.setattr(executor.LocalExecutor, "run", lost)
    said = r"^The cluster is gone\. The results so far are in (\S+); go on with: .*resume_path \1$"
    with pytest.raises(TrainingError, match=said):
        distcore.hyperopt(place.config, dataset=place.data)
    (statistics,) = Path("results").rglob("hyperopt_statistics.json")
    assert len(json.loads(statistics.read_text())["hyperopt_results"]) == 3
    monkeypatch.undo()
    monkeypatch.chdir(place.folder)

    def full(*arguments, **options):
        raise TrainingError("There is no room.") from OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(driver, "conclude", full)
    said = r"^There is no room\. The results so far are in (\S+); go on with: .*resume_path \1$"
    with pytest.raises(TrainingError, match=said):
        distcore.hyperopt(place.config, dataset=place.data, model_resume_path=statistics.parent)
    monkeypatch.undo()
    monkeypatch.chdir(place.folder)
    outcome = distcore.hyperopt(
        place.config, dataset=place.data, model_resume_path=statistics.parent
    )
    assert outcome.model is not None


def test_an_interrupt_while_the_best_model_is_made_leaves_the_results(place, monkeypatch):
    """There were none, nor a word of how to go on: the model of a trial that was stopped may take
    minutes of training."""
    with_section(place)
    monkeypatch.chdir(place.folder)

    def none_yet(*arguments):
        raise Stopped("", signal.SIGTERM)

    monkeypatch.setattr("distcore.search.outcome._best_model", none_yet)
    said = r"^The results so far are in (\S+); go on with: .*resume_path \1$"
    with pytest.raises(Stopped, match=said) as caught:
        distcore.hyperopt(place.config, dataset=place.data)
    assert caught.value.signal == signal.SIGTERM
    monkeypatch.undo()
    monkeypatch.chdir(place.folder)
    assert len(results(place)) == 3
    assert statistics(place)["model"] is None
    assert distcore.hyperopt(model_resume_path=folder(place), dataset=place.data).model is not None


def test_a_grid_is_gone_on_with_in_the_order_it_was_begun_in(place, monkeypatch):
    """With its parameters the other way round some combinations came twice, and others never."""
    grids = [
        "combiner.output_size: {space: grid_search, values: [8, 16]}",
        "trainer.batch_size: {space: grid_search, values: [32, 64, 128]}",
    ]
    head = (place.folder / place.config).read_text()
    tried, counts = [], iter((2, 3, 6))
    real = executor.LocalExecutor.run

    def a_few(self, job, *arguments):
        tried.append(job.variants)
        real(self, replace(job, trials=next(counts)), *arguments)

    monkeypatch.setattr(executor.LocalExecutor, "run", a_few)
    for order in (1, -1, -1):
        parameters = "".join(f"    {each}\n" for each in grids[::order])
        place.write(place.config, f"{head}hyperopt:\n  parameters:\n{parameters}")
        distcore.hyperopt(
            place.folder / place.config,
            dataset=place.data,
            output_directory=place.folder / "results",
            resume=True,
        )
    assert tried[0] == tried[1] == tried[2]
    found = {tuple(each["parameters"].values()) for each in results(place)}
    assert len(found) == len(results(place)) == 6


def test_what_a_search_gives_its_trials_is_kept_with_it(place):
    """One of an older version, which kept none of it, goes on as it was begun."""
    section = SECTION.replace("num_samples: 3", "num_samples: 1")
    with_section(place, section)
    path = place.folder / place.config
    text = path.read_text().replace("early_stop", "validation_field: bought, early_stop")
    path.write_text(text)
    good(place)
    kept = folder(place) / "search.json"
    begun = unsealed(kept.read_bytes())
    assert begun["given"] == {}

    def metric(trial):
        config = json.loads((folder(place) / "trials" / trial / "description.json").read_text())
        return config["config"]["trainer"]["validation_metric"]

    assert metric("0000") == "roc_auc"
    del begun["given"]
    kept.write_bytes(sealed(begun))
    path.write_text(text.replace("num_samples: 1", "num_samples: 2"))
    good(place, "--resume")
    assert metric("0001") is None
    assert unsealed(kept.read_bytes())["given"] is None


def test_trials_reach_their_schedulers_max_t(place):
    """They stopped by themselves before, or after 100 epochs."""
    section = SECTION.replace(
        "num_samples: 3", "num_samples: 1, scheduler: {type: asha, grace_period: 7, max_t: 7}"
    )
    text = (place.folder / place.config).read_text()
    place.write(place.config, text.replace("epochs: 1", "early_stop: 1") + section)
    done = good(place)
    assert "each trial has trainer.epochs: 7, for the config names none" in done.err
    place.write(place.config, text.replace("epochs: 1, ", "") + section)
    done = good(place)
    assert "each trial has trainer.early_stop: -1 and trainer.epochs: 7, for" in done.err
    [trial] = (place.folder / "results").glob("hyperopt_run_1/trials/*")
    config = json.loads((trial / "description.json").read_text())["config"]
    assert (config["trainer"]["epochs"], config["trainer"]["early_stop"]) == (7, -1)
    record = read_record(trial)
    assert (record["rounds"], record["state"]) == (7, "finished")  # stopped as it ended by itself


def test_a_search_gone_on_with_under_another_scheduler_trains_as_that_one_says(place):
    """Its new trials were still trained as the first one said."""
    text = (place.folder / place.config).read_text().replace("epochs: 1, ", "")

    def trained(samples, max_t, *more):
        scheduler = f"{{type: asha, grace_period: {max_t}, max_t: {max_t}}}"
        asked = f"num_samples: {samples}, scheduler: {scheduler}"
        place.write(place.config, text + SECTION.replace("num_samples: 3", asked))
        done = good(place, *more)
        assert f"each trial has trainer.early_stop: -1 and trainer.epochs: {max_t}," in done.err
        return read_record(folder(place) / "trials" / f"{samples - 1:04d}")["rounds"]

    assert trained(1, 2) == 2
    assert trained(2, 4, "--resume") == 4
    assert unsealed((folder(place) / "search.json").read_bytes())["given"]["epochs"] == 4
