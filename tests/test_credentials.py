"""Credentials of a bucket reach those who open it, and nobody and nothing else: a canary that is
looked for everywhere."""

import json
import threading
from pathlib import Path

import psutil
import pytest
from tests.conftest import some

from distcore_testing.buckets import BUCKET, KEY, SECRET, Fault, fresh, s3_server

pytestmark = pytest.mark.system

CANARIES = (KEY.encode(), SECRET.encode())
HYPEROPT = """\
hyperopt:
  parameters:
    trainer.learning_rate: {space: loguniform, lower: 0.001, upper: 0.1}
  output_feature: bought
  metric: loss
  goal: minimize
  executor: {type: local, num_samples: 2}
"""


@pytest.fixture(scope="module")
def bucket():
    with s3_server() as (proxy, client):
        yield proxy, client


@pytest.fixture
def there(place, bucket, monkeypatch):
    """The place, with its cache in a bucket."""
    proxy, client = bucket
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fresh(proxy, client)
    return place


def config(place, credentials, backend="", more=""):
    text = (place.folder / place.config).read_text().replace("backend: local\n", "")
    lines = f"  cache_dir: s3://{BUCKET}/caches\n  cache_credentials: {json.dumps(credentials)}\n"
    place.write(place.config, f"{text}backend:\n  type: local\n{backend}{lines}{more}")


class Watch(threading.Thread):
    """Looks into the command line and the environment of every new process below this one, until
    it is told to end."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self.looked, self.ended = set(), set(), threading.Event()
        # A helper process of an earlier test in here may have another one's environment.
        self.before = set(psutil.Process().children(recursive=True))

    def run(self):
        while not self.ended.wait(0.02):
            for process in set(psutil.Process().children(recursive=True)) - self.before:
                for name in ("cmdline", "environ"):
                    try:
                        content = Path(f"/proc/{process.pid}/{name}").read_bytes()
                    except OSError:
                        continue
                    self.looked.add(process.pid)
                    if any(canary in content for canary in CANARIES):
                        self.seen.add((process.pid, name))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def assert_nowhere(place, client, done, *given):
    """In no output, in no file but those where the user wrote it, in no object."""
    assert not any(canary.decode() in done.out + done.err for canary in CANARIES)
    for path in place.folder.rglob("*"):
        if path.is_file() and path.name not in given:
            content = path.read_bytes()
            assert not any(canary in content for canary in CANARIES), path
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        content = client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        assert not any(canary in content for canary in CANARIES), each["Key"]


@pytest.mark.parametrize("written", some(["mapping", "file"], ["file"]))
def test_a_run_of_two_ranks(there, bucket, written):
    proxy, client = bucket
    given = proxy.options()
    if written == "file":
        there.write("credentials.json", json.dumps(proxy.options()))
        given = str(there.folder / "credentials.json")
    config(there, given, backend="  trainer: {type: ddp, num_workers: 2}\n")
    with Watch() as watch:
        done = there.process("experiment", "--logging_level", "debug")
    assert done.code == 0, done.err
    assert len(watch.looked) >= 3
    assert watch.seen == set()
    assert proxy.count("GET", "train/00000") >= 2
    assert list(there.folder.glob("results/*/checkpoints/step-*"))
    assert_nowhere(there, client, done, there.config, "credentials.json")


def test_a_search(there, bucket):
    proxy, client = bucket
    config(there, proxy.options(), more=HYPEROPT)
    with Watch() as watch:
        done = there.process("hyperopt", "--config", there.folder / there.config)
    assert done.code == 0, done.err
    assert watch.seen == set()
    assert list(there.folder.glob("results/*/trials/*/trial.json"))
    assert_nowhere(there, client, done, there.config)


@pytest.mark.parametrize("kind", ["denied", "expired"])
def test_an_error_with_its_whole_traceback(there, bucket, kind):
    """Also if the server says the secret back."""
    proxy, client = bucket
    config(there, proxy.options())
    proxy.expect(Fault(kind, "PUT", times=99))
    done = there.process("train", "--debug", "--logging_level", "debug")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "could not be created" in done.err
    assert_nowhere(there, client, done, there.config)


def test_wrong_options_are_told_without_their_values(there, bucket):
    proxy, client = bucket
    config(there, {**proxy.options(), "config_kwargs": {"no_such_option": SECRET}})
    done = there.process("train", "--debug")
    assert done.code != 0
    assert_nowhere(there, client, done, there.config)


@pytest.mark.parametrize(
    ("cache_dir", "said"),
    [
        ("http://169.254.169.254/latest/meta-data", r"is no store. Nothing was contacted"),
        (f"s3://user:{SECRET}@bucket/caches", "holds a password in a URL"),
        (f"s3://user:a/{SECRET}@bucket/caches", "holds a password in a URL"),
        ("s3://bucket/../other", "is no address of a folder"),
    ],
)
def test_addresses_that_are_refused(there, cache_dir, said):
    there.write(
        there.config,
        (there.folder / there.config)
        .read_text()
        .replace("backend: local", f"backend: {{cache_dir: '{cache_dir}'}}"),
    )
    message = there.refused(*there.words("train"))
    assert said in message
    assert "backend.cache_dir" in message
    assert SECRET not in message


def test_results_in_the_bucket(there, bucket):
    """With the command that reads them again, which is given the credentials apart."""
    proxy, client = bucket
    config(there, proxy.options(), backend="  trainer: {type: ddp, num_workers: 2}\n")
    results = f"s3://{BUCKET}/results"
    with Watch() as watch:
        done = there.process(
            "experiment", "--output_directory", results, "--logging_level", "debug"
        )
        assert done.code == 0, done.err
        assert_nowhere(there, client, done, there.config)
        there.write("credentials.json", json.dumps(proxy.options()))
        given = ["--credentials", there.folder / "credentials.json", "--logging_level", "debug"]
        done = there.process(
            "predict",
            "--model_path",
            f"{results}/experiment_run",
            "--output_directory",
            results,
            *given,
        )
        assert done.code == 0, done.err
    assert watch.seen == set()
    assert_nowhere(there, client, done, there.config, "credentials.json")


def test_the_environment_will_do(there, bucket, monkeypatch):
    proxy, client = bucket
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    there.write(
        there.config,
        (there.folder / there.config)
        .read_text()
        .replace("backend: local", f"backend: {{cache_dir: 's3://{BUCKET}/caches'}}"),
    )
    done = there.process("experiment")
    assert done.code == 0, done.err
    assert_nowhere(there, client, done)
