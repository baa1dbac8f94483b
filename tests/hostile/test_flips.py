"""Single bits flipped in a results folder: an error or a warning names the file, or nothing is
different.

The commands run in this process, so that torch is loaded once. What counts as different:
predictions, the bytes of weights, what a report says, and which trial is the best.
"""

import hashlib
import logging
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.conftest import Sweep

import distcore
from distcore_core.errors import DistcoreError
from distcore_report.page import render

SEARCH = """\
hyperopt:
  output_feature: bought
  metric: roc_auc
  goal: maximize
  parameters: {trainer.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}}
  executor: {type: local, num_samples: 3, max_concurrent_trials: 1}
"""


class Said(logging.Handler):
    """The warnings of one try."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def said() -> Iterator[Said]:
    handler = Said()
    logging.getLogger("distcore").addHandler(handler)
    yield handler
    logging.getLogger("distcore").removeHandler(handler)


def flips(
    path: Path, times: int, sweep: Sweep, said: Said, outcome: Callable[[], Any], name: str = ""
) -> None:
    """Flip `times` single bits of a file, one after another, and cut it as often as a tenth of
    that."""
    name, content, whole = name or path.name, path.read_bytes(), outcome()
    said.lines.clear()
    found: Counter[str] = Counter()
    for number in range(times):
        at, bit = sweep.random.randrange(len(content)), sweep.random.randrange(8)
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        path.write_bytes(changed[:at] if number % 10 == 9 else changed)
        said.lines.clear()
        where = f"{path}: bit {bit} of byte {at}, or cut there"
        try:
            same, error = outcome() == whole, ""
        except DistcoreError as caught:
            same, error = False, str(caught)
        except Exception:
            pytest.fail(f"{where}: {traceback.format_exc()}")
        assert not error or name in error, f"{where}: {error}"
        told = any(name in line for line in said.lines)
        assert same or told or error, f"{where} changed what came of it in silence"
        found["error" if error else "warning" if told else "same"] += 1
    path.write_bytes(content)
    assert outcome() == whole
    words = {
        "error": "errors that name it",
        "warning": "warnings that name it",
        "same": "changed nothing",
    }
    outcomes = ", ".join(f"{found[kind]} {text}" for kind, text in words.items() if found[kind])
    sweep.tried(f"a bit flipped in {name}, or the file cut", times, f"{outcomes}; 0 silent, 0 raw")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_a_models_files(place, trained, sweep, said, name):
    model = shutil.copytree(trained / "model", place.folder / "model")
    data = place.folder / place.data

    def outcome() -> Any:
        return distcore.load(model).predict(str(data)).to_pydict()

    flips(model / name, sweep.times(15, 500), sweep, said, outcome)


REPORTED = (
    "description.json",
    "training_statistics.json",
    "test_statistics.json",
    "test_diagnostics.json",
    "digests.json",
)


@pytest.mark.parametrize("name", REPORTED)
def test_the_files_of_a_report(place, trained, sweep, said, name):
    run = shutil.copytree(trained, place.folder / "run")
    flips(run / name, sweep.times(20, 500), sweep, said, lambda: render(run))


def test_what_a_run_was_begun_with(place, trained, sweep, said):
    """What `--model_resume_path` without `--config` reads."""
    from distcore.workflow.going_on import config_to_resume

    run = shutil.copytree(trained, place.folder / "run")
    flips(
        run / "description.json",
        sweep.times(20, 500),
        sweep,
        said,
        lambda: config_to_resume(None, run).as_json(),
    )


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "tensors.safetensors"])
def test_a_checkpoints_files(place, trained, sweep, said, name):
    from distcore_torch.training.checkpoint import load_newest

    run = shutil.copytree(trained, place.folder / "run")
    folder = sorted((run / "checkpoints").iterdir())[-1]

    def outcome() -> Any:
        found = load_newest(run / "checkpoints")
        return (
            found.step,
            found.state,
            {each: value.tolist() for each, value in found.tensors.items()},
        )

    flips_of_newest(folder / name, sweep.times(15, 500), sweep, said, outcome)


def flips_of_newest(
    path: Path, times: int, sweep: Sweep, said: Said, outcome: Callable[[], Any]
) -> None:
    """An error of the search for a whole checkpoint speaks of the folder; the file is in the
    warning before it."""

    def named() -> Any:
        try:
            return outcome()
        except DistcoreError as error:
            raise DistcoreError(f"{error} {' '.join(said.lines)}") from error

    flips(path, times, sweep, said, named)


# ------------------------------------------------------------------ a search


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search that has ended, with its data and config beside it; nobody writes
    in it."""
    from tests.conftest import Place

    place = Place(tmp_path_factory.mktemp("searched"))
    config = (place.folder / place.config).read_text() + SEARCH
    place.write(place.config, config)
    distcore.hyperopt(
        str(place.folder / place.config),
        str(place.folder / place.data),
        output_directory=place.folder / "results",
        view="none",
    )
    return place.folder


@pytest.mark.parametrize(
    "name", ["trial.json", "search.json", "study.journal", "model.json", "weights.safetensors"]
)
def test_a_searchs_files_when_it_is_gone_on_with(tmp_path, searched, sweep, said, name):
    """The best trial and its model are the same, or the file is named; no other trial is crowned
    in silence."""
    folder = shutil.copytree(searched, tmp_path / "place")
    results = folder / "results" / "hyperopt_run"
    best = distcore_best(results)
    kept = shutil.copytree(results, tmp_path / "kept")
    paths = {
        "trial.json": Path("trials", best, name),
        "model.json": Path("trials", best, "model", name),
        "weights.safetensors": Path("trials", best, "model", name),
    }

    def outcome() -> Any:
        """Each try begins with the search as it was, but for the flipped file."""
        changed = (results / paths.get(name, Path(name))).read_bytes()
        shutil.rmtree(results)
        shutil.copytree(kept, results)
        (results / paths.get(name, Path(name))).write_bytes(changed)
        found = distcore.hyperopt(
            str(folder / "config.yaml"),
            str(folder / "data.csv"),
            model_resume_path=results,
            view="none",
            skip={"skip_save_report"},
        )
        return found.best["name"], found.best["score"], digest(found.model / "weights.safetensors")

    flips(results / paths.get(name, Path(name)), sweep.times(4, 500), sweep, said, outcome)


def distcore_best(results: Path) -> str:
    from distcore_data.seals import read_sealed

    best: str = read_sealed(results / "hyperopt_statistics.json", "")["best_trial"]
    return best


def test_a_searchs_statistics_in_its_report(tmp_path, searched, sweep, said):
    results = shutil.copytree(searched / "results" / "hyperopt_run", tmp_path / "search")
    flips(
        results / "hyperopt_statistics.json",
        sweep.times(20, 500),
        sweep,
        said,
        lambda: render(results),
    )


def test_the_rounds_of_a_trial(tmp_path, searched, sweep, said):
    """What the score of a stopped trial is made of."""
    from distcore_search import rounds

    def seen():
        rounds._told.clear()  # a process says it once of a line
        return rounds.rounds_of(path)

    trial = next((searched / "results" / "hyperopt_run" / "trials").iterdir())
    path = tmp_path / "rounds.jsonl"
    lines = (trial / "rounds.jsonl").read_bytes()
    path.write_bytes(lines)
    flips(path, sweep.times(30, 500), sweep, said, seen)
