"""`distcore runs` and `distcore compare` of runs that lie in a bucket: a real S3 server."""

import json
import shutil
from pathlib import Path

import pytest

import distcore
from distcore.cli.main import main
from distcore.config import document_of
from distcore.config.overrides import override
from distcore_data.stores import lease
from distcore_data.stores.run_sync import Mirror
from distcore_report.runs import find_runs
from distcore_testing.buckets import BUCKET, fresh, s3_server

PENGUINS = Path(__file__).parent.parent / "examples" / "penguins"
RESULTS = f"s3://{BUCKET}/results"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """Two runs in the bucket's `results`, of which only the second was tested; the first is here,
    too. The client of the store."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("config.yaml", "penguins.csv"):
        shutil.copy(PENGUINS / name, folder)
    with s3_server() as (proxy, client), pytest.MonkeyPatch.context() as patch:
        fresh(proxy, client)
        for name, value in {**proxy.environment(), "AWS_EC2_METADATA_DISABLED": "true"}.items():
            patch.setenv(name, value)
        patch.setattr(lease, "LOOK", 0.05)
        patch.setattr(lease, "BEAT", 0.5)
        for name, work, rate, place in (
            ("first", distcore.train, 0.01, RESULTS),
            ("second", distcore.experiment, 0.02, RESULTS),
            ("first", distcore.train, 0.01, folder / "results"),
        ):
            settings = ["trainer.epochs=2", f"trainer.learning_rate={rate}"]
            config = override(document_of(folder / "config.yaml"), settings)
            work(config, folder / "penguins.csv", output_directory=place, model_name=name)
        yield client, folder


def test_runs_are_those_of_a_folder(bucket, capsys):
    _, folder = bucket
    assert main(["runs", str(folder / "results")]) == 0
    _, here = capsys.readouterr().out.splitlines()
    assert main(["runs", RESULTS]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.startswith("RUN ")
    assert first.split()[:2] == ["experiment_first", "finished"]
    assert second.split()[:2] == ["experiment_second", "finished"]
    end = ["validation", "species", "accuracy"]
    assert first.split()[-6:-3] == end == here.split()[-6:-3]
    assert first.split()[-3:] == here.split()[-3:]  # the same bits: the same best value
    assert float(second.split()[-1]) > 0.5


def test_a_run_of_it_as_json(bucket, capsys):
    assert main(["runs", "--json", f"{RESULTS}/experiment_second/"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["path"] == f"{RESULTS}/experiment_second"
    assert found["name"] == "experiment_second"
    assert found["test"]["species"]["accuracy"] > 0.5
    assert found["evaluations"] == 2


def test_a_folder_and_a_bucket_are_compared(bucket, tmp_path, capsys):
    _, folder = bucket
    page = tmp_path / "page.html"
    places = [str(folder / "results/experiment_first"), f"{RESULTS}/experiment_second", RESULTS]
    assert main(["compare", *places, "--output", str(page)]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["trainer.learning_rate", "0.01", "0.02", "0.01"] in lines
    names = [line[0] for line in lines[1:4]]
    here, second, there = names  # the second is named twice, and told once
    assert here == str(folder / "results/experiment_first")
    assert (second, there) == ("experiment_second", f"{RESULTS}/experiment_first")
    assert "<h2>Curves</h2>" in page.read_text()


def test_who_is_at_work_there_is_seen(bucket):
    client, _ = bucket
    store = Mirror.at(f"{RESULTS}/experiment_first").store
    with lease.Lease(store, "running.json") as held:
        assert held.acquire_from_the_dead(lambda: None)
        states = {each.name: each.state for each in find_runs(RESULTS)}
    assert states == {"experiment_first": "running", "experiment_second": "finished"}
    store.write("running.json", b"left by a process that was killed")
    client.delete_object(Bucket=BUCKET, Key="results/experiment_first/training_statistics.json")
    client.delete_object(Bucket=BUCKET, Key="results/experiment_first/model/model.json")
    (found,) = find_runs(f"{RESULTS}/experiment_first")
    assert found.state == "stopped"


def test_a_run_that_ends_while_it_is_asked_whether_it_lives_is_finished(bucket, monkeypatch):
    """What lay there before would be that of a run which was killed."""
    place = f"{RESULTS}/experiment_second"
    store = Mirror.at(place).store
    names = ("training_statistics.json", "test_statistics.json", "model/model.json")
    at_the_end = {name: store.read(name) for name in names}
    store.delete(names)
    store.write("running.json", b"of the run that is under way")

    def ends_meanwhile(*_):
        for name, content in at_the_end.items():
            store.write(name, content)
        store.delete(["running.json"])
        return set()

    monkeypatch.setattr("distcore_report.remote_runs.alive", ends_meanwhile)
    (found,) = find_runs(place)
    assert found.state == "finished"
    assert found.test


def test_an_address_without_runs_is_told(bucket, capsys):
    assert main(["runs", f"s3://{BUCKET}/nothing"]) == 2
    assert "s3://bucket/nothing".replace("bucket", BUCKET) in capsys.readouterr().err
    assert main(["runs", "s3://no-such-bucket-at-all/x"]) == 1
    assert "no-such-bucket-at-all" in capsys.readouterr().err
    assert main(["compare", RESULTS, "nfs://x/y"]) == 2
    assert "nfs:// is no store. Nothing was contacted" in capsys.readouterr().err
