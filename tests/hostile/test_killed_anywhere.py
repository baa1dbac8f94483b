"""Commands that are killed before every call of whatever makes, changes, forces or removes files,
and then run again: the same files with the same bytes, and nothing left over."""

import shutil

import pytest
from tests.hostile.killing import Killing
from tests.hostile.test_network import SEARCH


@pytest.fixture
def killing(place):
    found = Killing(place.folder)
    yield found
    found.close()


class Anywhere:
    """One command, killed at any of its calls.

    Args:
        words: The command line.
        begun: What lies in a run's folder that can be gone on with (a pattern); None: the same
            command is run again.
    """

    def __init__(self, killing, place, words, begun=None):
        self.killing, self.place, self.words, self.begun = killing, place, words, begun
        self.before = set(place.listing())
        self.names, self.bytes = self.undisturbed(), {}
        first = self.found()
        self.undisturbed()
        self.bytes = {
            name: digest for name, digest in self.found().items() if first[name] == digest
        }
        self.calls = self.fresh()["calls"]

    def found(self):
        return {
            name: digest for name, digest in self.place.listing().items() if name not in self.before
        }

    def fresh(self, at=0):
        """The command, where it never was run before."""
        for name in sorted(self.found()):
            path = self.place.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return self.killing.run(*self.words, at=at)

    def undisturbed(self):
        done = self.fresh()
        assert done["code"] == 0, done["said"]
        return set(self.found())

    def killed(self, at):
        """Killed before a call; then run again, or gone on with."""
        done = self.fresh(at)
        assert done["code"] == -9, done["said"]
        folder, pattern = next(self.place.folder.glob("results/*/"), None), self.begun
        begun = folder is not None and pattern is not None and any(folder.glob(pattern))
        again = self.killing.run(*self.words, *(["--model_resume_path", folder] if begun else []))
        assert again["code"] == 0, f"killed at {at}: {done['said']}\n{again['said']}"
        found = self.found()
        assert set(found) == self.names, (at, self.names ^ set(found))
        other = [name for name in self.bytes if found[name] != self.bytes[name]]
        assert not other, (at, other)

    def swept(self, sweep, what):
        count = sweep.times(3, self.calls)
        for at in sorted(sweep.random.sample(range(1, self.calls + 1), min(count, self.calls))):
            self.killed(at)
        sweep.tried(
            f"SIGKILL before a call of `{what}` that makes, changes, forces or removes a file "
            f"({self.calls} of them), then the same again",
            count,
            f"{count} ended with the files of a run that nobody killed, {len(self.bytes)} of them "
            "with the same bytes (the others tell times); nothing left over",
        )


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_an_answer(place, trained, killing, sweep, command):
    more = ["--overwrite"] if command == "predict" else []
    anywhere = Anywhere(killing, place, place.words(command, "--model_path", trained, *more))
    assert any("predictions" in name for name in anywhere.bytes) or command == "evaluate"
    anywhere.swept(sweep, command)


def test_an_experiment(place, killing, sweep):
    anywhere = Anywhere(
        killing, place, place.words("experiment"), begun="checkpoints/step-????????"
    )
    run = "results/experiment_run"
    assert {f"{run}/model/weights.safetensors", f"{run}/predictions.parquet"} <= set(anywhere.bytes)
    anywhere.swept(sweep, "experiment")


def test_a_search(place, killing, sweep):
    with (place.folder / place.config).open("a") as file:
        file.write(SEARCH)
    words = ["hyperopt", "--config", str(place.folder / place.config)]
    anywhere = Anywhere(killing, place, [*place.words("hyperopt"), *words[1:]], begun="search.json")
    assert any(name.endswith("weights.safetensors") for name in anywhere.bytes)
    anywhere.swept(sweep, "hyperopt")
