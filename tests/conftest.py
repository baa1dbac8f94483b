"""The whole system: the command line, in this process or in one of its own, and folders that
must stay as they were."""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from distcore_core.progress import Round
from distcore_testing.brake import Brake

ROWS = 240
CONFIG = """\
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
trainer: {epochs: 1, batch_size: 32}
backend: local
"""


INTERRUPTED = """
import os, signal, sys
from distcore_core import progress
from distcore.cli.main import main

stage, begin = sys.argv[1], progress.Progress.begin

def begun(self, name, *more, **options):
    begin(self, name, *more, **options)
    if name == stage:
        os.kill(os.getpid(), signal.SIGINT)

progress.Progress.begin = begun
sys.exit(main(sys.argv[2:]))
"""
"""The command line with a ctrl-C once a stage has begun."""


def some(values: Iterable[Any], tried: Collection[Any]) -> list[Any]:
    """A test's parameters: those that are tried are, all others only by `make faults` and, of
    attacks and faults, `make hostile`."""
    values = list(values)
    assert all(each in values for each in tried), tried
    return [
        each if each in tried else pytest.param(each, marks=pytest.mark.slow) for each in values
    ]


class Done(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str


def row_of(number: int) -> tuple[float, str, str]:
    """One row of the small dataset: both inputs say something about the target."""
    age = 20 + (number * 37) % 50
    city = ("Rome", "Oslo", "Lima")[number % 3]
    return age + number % 4 / 4, city, "yes" if age > 40 or city == "Lima" else "no"


def csv(rows: int = ROWS) -> str:
    return "age,city,bought\n" + "".join(
        f"{age},{city},{bought}\n" for age, city, bought in map(row_of, range(rows))
    )


def a_round(
    evaluation: int, value: float | None, best: float | None, at: int | None, **others
) -> Round:
    metrics = {
        "training": {"sick": {"loss": 0.4}, "combined": {"loss": 0.4}},
        "validation": {"sick": {"loss": 0.5, "roc_auc": value}, "combined": {"loss": 0.5}},
    }
    told = {
        "evaluation": evaluation,
        "epoch": float(evaluation),
        "epochs": 30.0,
        "step": evaluation * 10,
        "metrics": metrics,
        "split": "validation",
        "feature": "sick",
        "metric": "roc_auc",
        "value": value,
        "best": best,
        "best_evaluation": at,
        "patience_left": None if at is None else 5 - (evaluation - at),
        "seconds": 1.0,
    }
    return Round(**{**told, **others})


class Place:
    """A folder with a dataset and a config, where commands are run; temporary files and caches
    lie in it too."""

    data = "data.csv"
    config = "config.yaml"

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str] | None = None) -> None:
        self.folder = folder
        self.capsys = capsys
        folder.mkdir(parents=True, exist_ok=True)
        self.write(self.data, csv())
        self.write(self.config, CONFIG)

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def words(self, command: str, *more: object) -> list[str]:
        """The command on this place's config and dataset, unless `more` names others, with its
        results here, unless `more` says where they are."""
        given = [str(each) for each in more]
        words = [command]
        if command in ("experiment", "train", "preprocess") and not {
            "--config",
            "--config_str",
        } & set(given):
            words += ["--config", str(self.folder / self.config)]
        if not {"--dataset", "--training_set"} & set(given):
            words += ["--dataset", str(self.folder / self.data)]
        if command != "preprocess" and "--model_resume_path" not in given:
            words += ["--output_directory", str(self.folder / "results")]
        return words + given

    def run(self, command: str, *more: object) -> Done:
        """The command line in this process."""
        from distcore.cli.main import main

        assert self.capsys is not None
        self.capsys.readouterr()
        try:
            code = main(self.words(command, *more))
        except SystemExit as exit:  # argparse's own way out
            code = int(exit.code or 0)
        said = self.capsys.readouterr()
        return Done(code, said.out, said.err)

    def good(self, command: str, *more: object) -> Done:
        done = self.run(command, *more)
        assert done.code == 0, done.out + done.err
        return done

    def refused(self, *words: object, code: int = 2) -> str:
        """What a refused command said; it left everything as it was, and showed no traceback."""
        before = self.listing()
        done = self.run(*map(str, words))
        assert done.code == code, done.out + done.err
        assert self.listing() == before
        assert "Traceback" not in done.err
        assert "not expected" not in done.err
        return done.err[done.err.index("distcore: ") :].strip()

    def start(self, command: str, *more: object, **environment: str) -> subprocess.Popen[str]:
        """The command line in a process of its own, in its own session, as a terminal would
        start it."""
        return self.python("-m", "distcore", *self.words(command, *more), **environment)

    def interrupted(self, stage: str, command: str, *more: object) -> Done:
        """The command line, with a ctrl-C once the stage has begun."""
        return self.finish(self.python("-c", INTERRUPTED, stage, *self.words(command, *more)))

    def python(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return self.program(sys.executable, *words, **environment)

    def program(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """A program in a process of its own, in its own session."""
        return subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={
                **os.environ,
                "TMPDIR": str(self.folder / "tmp"),
                "OMP_NUM_THREADS": "1",
                **environment,
            },
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str], seconds: float = 600) -> Done:
        out, err = process.communicate(timeout=seconds)
        return Done(process.returncode, out, err)

    def process(self, command: str, *more: object, **environment: str) -> Done:
        return self.finish(self.start(command, *more, **environment))

    def beside(self, site: Path, *words: object, code: int = 0, **environment: str) -> str:
        """What a command says that also sees the distributions in the folder `site`."""
        given = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(given)
        done = self.finish(self.python("-m", "distcore", *map(str, words), **environment))
        assert done.code == code, done.out + done.err
        return done.out + done.err

    def weights(self, name: str) -> bytes:
        """Of the run of that experiment name."""
        return (
            self.folder / "results" / f"{name}_run" / "model" / "weights.safetensors"
        ).read_bytes()

    def train_killed_and_resumed(self, site: Path, brake: Brake) -> None:
        """Train as the experiment `killed`: killed after its second checkpoint, which it has
        saved by step 20, then gone on with."""
        brake.apply(after=20)
        environment = brake.environment
        environment["PYTHONPATH"] += f"{os.pathsep}{site}"
        killed = self.start("train", "--experiment_name", "killed", **environment)
        folder, deadline = self.folder / "results" / "killed_run", time.monotonic() + 300
        while len(list(folder.glob("checkpoints/step-*/manifest.json"))) < 2:
            assert killed.poll() is None, killed.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        killed.kill()
        self.finish(killed)
        assert not (folder / "model").exists()
        self.beside(site, *self.words("train", "--model_resume_path", folder))

    def listing(self) -> dict[str, str]:
        """{path: digest of the content, or "folder"} of all that lies here."""
        return {
            str(path.relative_to(self.folder)): digest(path)
            for path in sorted(self.folder.rglob("*"))
        }

    @property
    def results(self) -> Path:
        return self.folder / "results" / "experiment_run"


def digest(path: Path) -> str:
    return "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Place:
    """A fresh place; what is unpacked or downloaded goes into its `tmp`, so that leftovers are
    seen."""
    found = Place(tmp_path / "place", capsys)
    (found.folder / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found.folder / "tmp"))
    monkeypatch.chdir(found.folder)
    return found


def wait_for_the_end_of(what: Literal["group", "session"], number: int) -> None:
    """Every process of a process group or a session ends within minutes, also one that was being
    started when the one that started it was killed."""
    deadline = time.monotonic() + 300
    while left := _living(what, number):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _living(what: str, number: int) -> list[int]:
    """A zombie is none of them: it waits for whoever adopted it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, _, group, session = path.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX" and int(group if what == "group" else session) == number:
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def brake(tmp_path: Path) -> Brake:
    """For a run whose processes have its environment: slow, where the test must meet it."""
    return Brake(tmp_path / "brake")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment's folder, for tests that read a model; nobody writes in it."""
    from distcore import experiment

    place = Place(tmp_path_factory.mktemp("trained"))
    return experiment(
        str(place.folder / place.config),
        str(place.folder / place.data),
        output_directory=place.folder / "results",
    ).directory


@pytest.fixture(scope="session")
def row() -> Callable[[int], tuple[float, str, str]]:
    return row_of


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a distribution be as if it were not installed, for what this process looks up."""
    from distcore_core.registry import index

    def taken_out(distribution: str) -> None:
        left = {
            kind: [each for each in offers if each.distribution != distribution]
            for kind, offers in index.all_offers().items()
        }
        monkeypatch.setattr(index, "all_offers", lambda: left)

    return taken_out


@pytest.fixture(scope="session")
def distribution() -> Callable[..., Path]:
    """Lays down an installed distribution."""
    from tests import distributions

    return distributions.distribution
