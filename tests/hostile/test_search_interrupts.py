"""A search that is interrupted at any moment stops, and goes on to the table of one that nobody
disturbed."""

import json
import shutil
import signal
import time
from collections import Counter

import pytest
from tests.hostile.test_startup_signals import begin

SECTION = """\
hyperopt:
  goal: maximize
  metric: roc_auc
  output_feature: bought
  parameters:
    trainer.learning_rate: {space: loguniform, lower: 0.001, upper: 0.1}
    combiner.output_size: {space: choice, categories: [4, 8]}
  executor: {type: local, num_samples: 3, max_concurrent_trials: 2}
"""
TRIALS = 3
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
"""{what is sent: the exit code}."""


@pytest.fixture
def searching(place):
    """A place whose search has three trials of three rounds."""
    config = (
        (place.folder / place.config).read_text().replace("epochs: 1", "early_stop: -1, epochs: 3")
    )
    place.write(place.config, config + SECTION)
    return place


def search(place, name, *more):
    """A search, once its first line has run."""
    config = ("--config", place.folder / place.config)
    return begin(place, place.words("hyperopt", *config, "--experiment_name", name, *more))


def results(place, name):
    return place.folder / "results" / f"{name}_run"


def table(folder):
    """What a search found: each trial's parameters, state, rounds and score, and the best one's
    weights."""
    found = json.loads((folder / "hyperopt_statistics.json").read_text())
    names = ("trial", "parameters", "state", "rounds", "round", "metric_score", "error")
    rows = [{name: each[name] for name in names} for each in found["hyperopt_results"]]
    return rows, (folder / "model" / "weights.safetensors").read_bytes()


def ended(folder):
    """How many trials have ended."""
    records = [path.read_text() for path in folder.glob("trials/*/trial.json")]
    return sum(json.loads(each)["state"] != "running" for each in records)


def interrupted(place, name, moment, sent):
    """(how it ended, how many trials had ended when the signal was sent) of a search."""
    process = search(place, name)
    time.sleep(moment)
    process.send_signal(signal.SIGSTOP)  # so that nothing ends between the count and the signal
    before = ended(results(place, name))
    process.send_signal(sent)
    process.send_signal(signal.SIGCONT)
    return place.finish(process), before


def test_an_interrupted_search_stops_and_goes_on_to_the_same_table(searching, sweep):
    place = searching
    place.good("preprocess")
    process = search(place, "whole")
    since = time.monotonic()
    whole = place.finish(process)
    seconds = time.monotonic() - since
    assert whole.code == 0, whole.err
    expected = table(results(place, "whole"))
    ends = Counter()
    for number in range(sweep.times(1, 120)):
        name = f"search{number}"
        sent = sweep.random.choice(list(SIGNALS))
        done, before = interrupted(place, name, sweep.random.uniform(0.2, seconds), sent)
        folder = results(place, name)
        assert "Traceback" not in done.err, done.err
        assert done.code == SIGNALS[sent] or before == TRIALS, (
            f"{done.code} after {before}: {done.err}"
        )
        assert not list((place.folder / "tmp").glob("distcore-*")), done.err
        if done.code == 0:
            ends["had ended"] += 1
        elif not (folder / "search.json").exists():
            ends["had not begun"] += 1
            continue
        else:
            ends["went on to the same table"] += 1
            again = place.finish(search(place, name, "--model_resume_path", folder))
            assert again.code == 0, again.err
        assert table(folder) == expected, done.err
        shutil.rmtree(folder)
    told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    names = ", ".join(each.name for each in SIGNALS)
    sweep.tried(
        f"a search of three trials ended at a random moment ({names})", sum(ends.values()), told
    )
