"""Commands that are killed before every call of whatever makes, changes, forces or removes files,
and then run again: the same files with the same bytes, and nothing left over."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.hostile.killing import Killing
from tests.hostile.test_network import SEARCH

from distcore_testing.buckets import BUCKET, fresh, s3_server


@pytest.fixture
def killing(place):
    found = Killing(place.folder)
    yield found
    found.close()


TIMES = {
    "hyperopt_statistics.json",
    "log.txt",
    "receipt.json",
    "report.html",
    "rounds.jsonl",
    "started.json",
    "study.journal",
    "summary.json",
    "training_log.jsonl",
    "trial.json",
}
"""Files that tell times, or a digest of one that does, so that two runs have the same bytes by chance
alone. Those of every other file are the same each time."""


def same_each_time(first, again):
    """The digests of two runs' files that tell no times: the same in both."""
    first, again = (
        {name: digest for name, digest in files.items() if Path(name).name not in TIMES}
        for files in (first, again)
    )
    assert first == again
    return first


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
        first = self.undisturbed()
        self.names, self.bytes = set(first), same_each_time(first, self.undisturbed())
        self.calls = len(self.fresh()["calls"])

    def found(self):
        return {
            name: digest for name, digest in self.place.listing().items() if name not in self.before
        }

    def fresh(self, at=0, errors=None):
        """The command, where it never was run before; `errors` as `Killing.run` takes them."""
        for name in sorted(self.found()):
            path = self.place.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return self.killing.run(*self.words, at=at, errors=errors)

    def undisturbed(self):
        done = self.fresh()
        assert done["code"] == 0, done["said"]
        return self.found()

    def killed(self, at):
        """Killed before a call; then run again, or gone on with."""
        done = self.fresh(at)
        assert done["code"] == -9, done["said"]
        again = self.again()
        assert again["code"] == 0, f"killed at {at}: {done['said']}\n{again['said']}"
        found = self.found()
        assert set(found) == self.names, (at, self.names ^ set(found))
        self.assert_same(at)

    def again(self):
        """The command once more, or gone on with."""
        folder = self.folder_to_go_on_from()
        return self.killing.run(*self.words, *(["--model_resume_path", folder] if folder else []))

    def folder_to_go_on_from(self):
        """The folder of results, if there is something in it to go on from."""
        folder = next(self.place.folder.glob("results/*/"), None)
        begun = folder is not None and self.begun is not None and any(folder.glob(self.begun))
        return folder if begun else None

    def assert_same(self, told):
        """The files have the bytes that they always have."""
        found = self.found()
        other = [name for name in self.bytes if found.get(name) != self.bytes[name]]
        assert not other, (told, other)

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
    anywhere = Anywhere(
        killing, place, place.words(command, "--model_path", trained, "--overwrite")
    )
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


# ------------------------------------------------------------------ results in a bucket


RESULTS = f"s3://{BUCKET}/results"
RUN = "results/experiment_run/"
BRIEF = {
    "distcore_data.stores.retries:FIRST_WAIT": 0.01,
    "distcore_data.stores.retries:LONGEST_WAIT": 0.1,
    "distcore_data.stores.lease:PATIENCE": 2.0,
    "distcore_data.stores.lease:LOOK": 0.1,
    "distcore_data.stores.lease:BEAT": 60.0,
}
"""What is killed here does not come back; and the changes of a run are the same ones each time."""


class InBucket:
    """An experiment whose results are in a bucket, killed when a change of the bucket is asked for,
    or carried out and not yet answered."""

    def __init__(self, place, proxy, client):
        self.place, self.proxy, self.client = place, proxy, client
        self.killing = Killing(place.folder, BRIEF)
        self.words = [*place.words("experiment"), "--output_directory", RESULTS]
        self.files = set(place.listing())
        self.changes, first = [], self.undisturbed()
        self.files |= set(place.listing())
        self.names, self.bytes = set(first), same_each_time(first, self.undisturbed())

    def objects(self):
        listed = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        keys = [each["Key"] for each in listed]
        bodies = [self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys]
        return dict(zip(keys, (hashlib.sha256(each).hexdigest() for each in bodies), strict=True))

    def run(self, *more, at=0, before=True):
        """Killed at the bucket's change of that number; 0: never."""
        self.changes = []

        def pause(method, path, now):
            if method in ("PUT", "POST", "DELETE") and now is before:
                self.changes.append((method, path))
                if len(self.changes) == at:
                    os.kill(self.killing.process, signal.SIGKILL)
                    raise ConnectionAbortedError  # the proxy goes no further with this request

        self.proxy.pause = pause
        done = self.killing.run(*self.words, *more)
        self.proxy.pause = None
        return done

    def undisturbed(self):
        fresh(self.proxy, self.client)
        done = self.run()
        assert done["code"] == 0, done["said"]
        return self.objects()

    def killed(self, at, before):
        fresh(self.proxy, self.client)
        done = self.run(at=at, before=before)
        assert done["code"] == -9, done["said"]
        begun = any(name.endswith("/manifest.json") for name in self.objects())
        again = self.run(*(["--model_resume_path", f"s3://{BUCKET}/{RUN}"] if begun else []))
        told = f"killed at {at}: {done['said']}\n{again['said']}"
        assert again["code"] == 0, told
        found = self.objects()
        assert set(found) == self.names, (told, self.names ^ set(found))
        assert not [name for name in self.bytes if found[name] != self.bytes[name]], told
        assert set(self.place.listing()) == self.files, told


@pytest.fixture
def in_bucket(place, monkeypatch):
    with s3_server() as (proxy, client):
        fresh(proxy, client)
        for name, value in proxy.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        found = InBucket(place, proxy, client)
        yield found
        found.killing.close()


def test_an_experiment_whose_results_are_in_a_bucket(in_bucket, sweep):
    in_bucket.undisturbed()
    assert f"{RUN}model/weights.safetensors" in in_bucket.bytes
    changes = len(in_bucket.changes)
    every = [(at, before) for at in range(1, changes + 1) for before in (True, False)]
    count = sweep.times(2, len(every))
    for at, before in sorted(sweep.random.sample(every, count)):
        in_bucket.killed(at, before)
    sweep.tried(
        f"SIGKILL before and after a change of the bucket that takes the results of `experiment` "
        f"({changes} of them), then the same again",
        count,
        f"{count} ended with the objects of a run that nobody killed, {len(in_bucket.bytes)} of "
        "them with the same bytes (the others tell times); nothing left over",
    )
