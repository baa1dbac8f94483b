"""Results, checkpoints and models in a bucket: the bits of a folder, whole or not there, and
nothing lost by a kill."""

import hashlib
import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import distcore
from distcore.cli.main import main
from distcore.workflow import run
from distcore_core.errors import ArtifactError
from distcore_data.stores.bucket import Bucket
from distcore_testing.buckets import BUCKET, Fault, fresh, s3_server

pytestmark = pytest.mark.system

RESULTS = f"s3://{BUCKET}/results"
RUN = "results/experiment_run"
CONFIG = """\
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
trainer: {epochs: 3, batch_size: 32, early_stop: -1}
backend: local
"""
WRITTEN = {
    *(
        "started.json",
        "description.json",
        "training_statistics.json",
        "test_statistics.json",
        "test_diagnostics.json",
    ),
    *("training_log.jsonl", "summary.json", "ledger.jsonl", "receipt.json"),
    *(
        "digests.json",
        "predictions.parquet",
        "report.html",
        "model/model.json",
        "model/weights.safetensors",
    ),
}


@pytest.fixture(scope="module")
def server():
    with s3_server() as (proxy, client):
        yield proxy, client


@pytest.fixture
def bucket(place, server, monkeypatch):
    """(proxy, client) of an empty bucket, which the environment has the credentials of."""
    proxy, client = server
    fresh(proxy, client)
    for name, value in {**proxy.environment(), "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("distcore_data.stores.retries.FIRST_WAIT", 0.01)
    monkeypatch.setattr(
        "distcore_data.stores.lease.PATIENCE", 2.0
    )  # what is killed here does not come back
    monkeypatch.setattr("distcore_data.stores.lease.LOOK", 0.1)
    place.write(place.config, CONFIG)
    return proxy, client


def objects(client, prefix=f"{RUN}/"):
    """{name below the prefix: content}."""
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return {
        each["Key"][len(prefix) :]: client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        for each in found
    }


def bits(found):
    """Of what training leaves behind, whatever the place."""
    names = ("model/weights.safetensors", "model/last.safetensors", "training_statistics.json")
    return {name: hashlib.sha256(found[name]).hexdigest() for name in names if name in found}


def folder(path):
    return {
        each.relative_to(path).as_posix(): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file()
    }


def nothing_left_here(place):
    return not list((place.folder / "tmp").glob("distcore-*"))


# ------------------------------------------------------------------ the same as in a folder


def test_an_experiment_is_that_of_a_folder(place, bucket):
    _, client = bucket
    place.good("experiment", "--model_name", "here")
    done = place.good("experiment", "--output_directory", RESULTS)
    assert done.out.splitlines()[-1] == f"{RESULTS}/experiment_run"
    here, there = folder(place.folder / "results/experiment_here"), objects(client)
    assert there.keys() >= WRITTEN
    assert there.keys() - {"started.json"} == here.keys()
    assert bits(there) == bits(here)
    for name in ("predictions.parquet", "test_statistics.json"):
        assert there[name] == here[name]
    checkpoints = {name for name in there if name.startswith("checkpoints/")}
    assert len(checkpoints) == 6
    assert all(
        there[name] == here[name]
        for name in checkpoints
        if not name.endswith(("manifest.json", "state.json"))
    )
    assert nothing_left_here(place)


def test_the_model_predicts_and_is_scored_from_there(place, bucket):
    _, client = bucket
    address = f"{RESULTS}/experiment_run"
    place.good("experiment", "--output_directory", RESULTS)
    local = place.folder / "copy"
    for name, content in objects(client).items():
        place.write(f"copy/{name}", content)
    place.good("predict", "--model_path", local, "--output_directory", place.folder / "here")
    done = place.good(
        "predict", "--model_path", address, "--output_directory", f"s3://{BUCKET}/answers"
    )
    assert done.out.strip() == f"s3://{BUCKET}/answers/predictions.parquet"
    answers = objects(client, "answers/")
    assert answers == {
        "predictions.parquet": (place.folder / "here" / "predictions.parquet").read_bytes()
    }
    place.good(
        "evaluate",
        "--model_path",
        f"{address}/model",
        "--output_directory",
        f"s3://{BUCKET}/scores",
    )
    assert objects(client, "scores/").keys() == {
        "predictions.parquet",
        "test_statistics.json",
        "digests.json",
    }
    said = place.refused("evaluate", "--model_path", local, "--output_directory", address)
    assert f"{address}/description.json is a run's" in said
    client.delete_object(Bucket=BUCKET, Key="results/experiment_run/description.json")
    said = place.refused("evaluate", "--model_path", local, "--output_directory", address)
    assert f"{address}/receipt.json is a run's" in said
    frame = pl.read_csv(place.folder / place.data)
    assert distcore.load(address).predict(frame) == distcore.load(local).predict(frame)
    assert nothing_left_here(place)


def test_where_answers_come_is_listed_before_the_work_and_after_it(place, bucket, monkeypatch):
    place.good("train")
    listed, list_of = [], Bucket.list

    def counted(self, prefix=""):
        listed.append(self.url)
        return list_of(self, prefix)

    monkeypatch.setattr(Bucket, "list", counted)
    there = f"s3://{BUCKET}/answers"
    for command in ("evaluate", "predict"):
        listed.clear()
        place.good(
            command, "--model_path", place.results, "--output_directory", f"{there}/{command}"
        )
        assert listed == [f"{there}/{command}"] * 2


def test_credentials_can_be_given(place, bucket, monkeypatch):
    proxy, _ = bucket
    place.good("train", "--output_directory", RESULTS)
    address, frame = f"{RESULTS}/experiment_run", pl.read_csv(place.folder / place.data)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = place.process("predict", "--model_path", address)
    assert done.code == 1
    assert "Check the credentials" in done.err
    assert distcore.load(address, credentials=proxy.options()).predict(frame).num_rows == len(frame)
    path = place.write("credentials.json", json.dumps(proxy.options()))
    place.good("predict", "--model_path", address, "--credentials", path)
    assert (
        main(
            [
                "report",
                address,
                "--credentials",
                str(path),
                "--output",
                str(place.folder / "again.html"),
            ]
        )
        == 0
    )
    assert "--credentials: the file is not JSON" in place.refused(
        *place.words(
            "predict", "--model_path", address, "--credentials", place.folder / place.config
        )
    )


def test_the_report_is_made_anew_in_the_bucket(place, bucket):
    _, client = bucket
    place.good("train", "--output_directory", RESULTS)
    before = objects(client)["report.html"]
    client.delete_object(Bucket=BUCKET, Key=f"{RUN}/report.html")
    assert main(["report", f"{RESULTS}/experiment_run"]) == 0
    assert objects(client)["report.html"] == before


def test_a_report_of_a_run_in_the_bucket_replaces_no_file_but_a_page(place, bucket, capsys):
    place.good("train", "--output_directory", RESULTS)
    table, page = place.folder / "table.csv", place.folder / "page.html"
    table.write_text("a,b\n1,2\n")
    words = ["report", f"{RESULTS}/experiment_run", "--output"]
    assert main([*words, str(table)]) == 2
    assert "table.csv exists, is no page of distcore's" in capsys.readouterr().err
    assert table.read_text() == "a,b\n1,2\n"
    assert main([*words, str(place.folder / "nowhere" / "page.html")]) == 2
    assert "page.html cannot be written: No such file" in capsys.readouterr().err
    for _ in range(2):
        assert main([*words, str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")


def test_a_model_to_start_from(place, bucket):
    """By two ranks, each of which reads it."""
    _, client = bucket
    place.good("train", "--output_directory", RESULTS, "--model_name", "first")
    place.write(
        "two.yaml",
        CONFIG.replace(
            "backend: local", "backend: {type: local, trainer: {type: ddp, num_workers: 2}}"
        ),
    )
    given = ["--config", place.folder / "two.yaml", "--model_load_path"]
    place.good("train", *given, f"{RESULTS}/experiment_first", "--model_name", "there")
    for name, content in objects(client, "results/experiment_first/").items():
        place.write(f"first/{name}", content)
    place.good("train", *given, place.folder / "first", "--model_name", "here")
    found = [
        bits(folder(place.folder / f"results/experiment_{name}")) for name in ("there", "here")
    ]
    assert found[0] == found[1]
    client.delete_object(Bucket=BUCKET, Key="results/experiment_first/model/model.json")
    message = place.refused(
        *place.words("train", "--model_load_path", f"{RESULTS}/experiment_first"), code=2
    )
    assert f"{RESULTS}/experiment_first holds no model" in message
    assert f"`distcore train --model_resume_path {RESULTS}/experiment_first" in message


def test_what_is_not_to_be_saved_is_not_in_the_bucket(place, bucket):
    _, client = bucket
    skips = ("model", "progress", "report", "predictions", "training_description")
    place.good(
        "experiment", "--output_directory", RESULTS, *(f"--skip_save_{each}" for each in skips)
    )
    assert objects(client).keys() == {
        *(
            "started.json",
            "training_statistics.json",
            "test_statistics.json",
            "test_diagnostics.json",
        ),
        *("training_log.jsonl", "digests.json", "ledger.jsonl"),
    }


def test_a_rank_on_another_machine_works_in_a_folder_of_its_own(place, bucket, monkeypatch):
    """The driver's folder is not there; what the rank writes comes back through the bucket."""
    _, client = bucket
    make = run.train_job

    def elsewhere(*given):
        job = make(*given)
        return replace(job, directory=Path("/no/such/machine") / job.directory.name)

    monkeypatch.setattr(run, "train_job", elsewhere)
    place.good("experiment", "--output_directory", RESULTS)
    assert objects(client).keys() >= WRITTEN
    assert nothing_left_here(place)


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_ranks_of_torchrun_are_one_run(place, bucket, where):
    """In a bucket each had a run of its own, and all but one were refused when it was gone on
    with."""
    _, client = bucket
    results = RESULTS if where == "bucket" else place.folder / "results"

    def left():
        if where == "bucket":
            return objects(client, "results/")
        return folder(results)

    def launched(*more):
        words = ("--standalone", "--nproc-per-node", "2", "-m", "distcore")
        words = (*words, *place.words("train", *more))
        done = place.finish(place.python("-m", "torch.distributed.run", *words))
        assert done.code == 0, done.err

    launched("--output_directory", results)
    first = left()
    assert {name.partition("/")[0] for name in first} == {"experiment_run"}
    launched("--model_resume_path", f"{results}/experiment_run")
    again = left()
    assert again.keys() == first.keys()
    model = "experiment_run/model/weights.safetensors"
    assert again[model] == first[model]
    assert nothing_left_here(place)


# ------------------------------------------------------------------ two runs, refusals


def test_two_runs_at_once_share_no_folder(place, bucket):
    _, client = bucket
    place.good("preprocess")
    processes = [place.start("train", "--output_directory", RESULTS) for _ in range(2)]
    done = [place.finish(each) for each in processes]
    assert [each.code for each in done] == [0, 0], done
    assert {each.out.split()[-1] for each in done} == {
        f"{RESULTS}/experiment_run",
        f"{RESULTS}/experiment_run_1",
    }
    first, second = objects(client), objects(client, "results/experiment_run_1/")
    assert bits(first) == bits(second)
    assert first["started.json"] != second["started.json"]


@pytest.mark.parametrize(
    ("command", "option", "place_given", "said"),
    [
        (
            "train",
            "--output_directory",
            "http://169.254.169.254/latest",
            "http:// is no store. Nothing was contacted",
        ),
        ("train", "--output_directory", "s3://user:pass@bucket/x", "was given with a password"),
        ("train", "--output_directory", "s3:/bucket/x", "an address that lost a slash"),
        ("train", "--model_resume_path", f"{RESULTS}/none", "holds no run to go on with"),
        ("train", "--model_load_path", f"{RESULTS}/none", "holds no model"),
        ("predict", "--model_path", f"{RESULTS}/none", "holds no model"),
        ("predict", "--model_path", "ftp://bucket/none", "ftp:// is no store"),
        ("hyperopt", "--output_directory", RESULTS, "A search lies in a folder"),
        ("hyperopt", "--model_resume_path", RESULTS, "A search lies in a folder"),
    ],
)
def test_what_cannot_be_is_told_before_any_work(place, bucket, command, option, place_given, said):
    _, client = bucket
    more = ["--config", place.folder / place.config] if command == "hyperopt" else []
    assert said in place.refused(*place.words(command, *more, option, place_given))
    assert objects(client, "") == {}


def test_a_bucket_that_cannot_be_used_is_told_before_any_work(place, bucket):
    message = place.refused(
        *place.words("train", "--output_directory", "s3://no-such-bucket/x"), code=1
    )
    assert "s3://no-such-bucket/x" in message
    assert "NoSuchBucket" in message


def test_a_name_that_no_object_can_have_is_told(place, bucket):
    place.good("preprocess")
    message = place.refused(
        *place.words("train", "--output_directory", RESULTS, "--model_name", "a b")
    )
    assert "'experiment_a b' cannot be the name of a folder in a bucket" in message


def test_a_run_that_is_refused_leaves_nothing(place, bucket):
    _, client = bucket
    place.good("preprocess")
    place.write(
        place.config,
        CONFIG.replace("trainer: {", "trainer: {learning_rate: 1.0e+30, optimizer: {type: sgd}, "),
    )
    message = place.refused(*place.words("train", "--output_directory", RESULTS), code=1)
    assert "The loss of bought became" in message
    assert objects(client, "") == {}


def test_a_run_that_cannot_hold_its_folder_leaves_nothing(place, bucket):
    proxy, client = bucket
    place.good("preprocess")
    proxy.expect(Fault("denied", "PUT", "running.json", times=9))
    message = place.refused(*place.words("train", "--output_directory", RESULTS), code=1)
    assert "running.json could not be created" in message
    assert objects(client, "") == {}


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_a_run_that_is_under_way_cannot_be_gone_on_with(place, bucket, monkeypatch, where):
    """Two processes would remove each other's checkpoints. Nothing is changed by the one that is
    refused."""
    proxy, client = bucket
    monkeypatch.setattr("distcore_data.stores.lease.PATIENCE", 60.0)
    place.write(
        place.config, CONFIG.replace("epochs: 3", "epochs: 100000, steps_per_checkpoint: 300")
    )
    results = RESULTS if where == "bucket" else place.folder / "results"
    process = place.start("train", "--output_directory", results)
    while not (
        proxy.count("PUT", "step-00000300/manifest.json")
        or list(place.results.glob("checkpoints/step-*/manifest.json"))
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    done = place.run("train", "--model_resume_path", f"{results}/experiment_run")
    assert done.code == 2, done.err
    assert f"Another process is training in {results}/experiment_run. Wait for it" in done.err
    process.send_signal(signal.SIGINT)
    stopped = place.finish(process)
    assert stopped.code == 130, stopped.err
    assert "Go on from there" in stopped.err
    assert "running.json" not in objects(client)


def test_a_run_that_was_taken_for_dead_ends_when_it_comes_back(place, bucket):
    """Paused, or cut off from the bucket, for longer than another process waited."""
    proxy, client = bucket
    place.write(
        place.config, CONFIG.replace("epochs: 3", "epochs: 100000, steps_per_checkpoint: 300")
    )
    process = place.start("train", "--output_directory", RESULTS)
    while not proxy.count("PUT", "step-00000300/manifest.json"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    theirs = json.dumps({"id": "another"}).encode()
    # A beat of the first may be on its way, and come after one of these.
    until = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < until:
        client.put_object(Bucket=BUCKET, Key=f"{RUN}/running.json", Body=theirs)
        time.sleep(0.5)
    ended = place.finish(process, seconds=10)
    assert ended.code == 1, ended.err
    assert f"Another process has gone on with the run in {RESULTS}/" in ended.err
    assert "Traceback" not in ended.err
    assert objects(client)["running.json"] == theirs
    assert "ended.json" not in objects(client)


# ------------------------------------------------------------------ faults and damage


def test_a_store_that_stumbles_changes_nothing(place, bucket):
    proxy, client = bucket
    place.good("experiment", "--model_name", "here")
    proxy.expect(
        *(
            Fault(kind, "PUT", part)
            for kind in ("503", "lost")
            for part in ("started", "tensors", "/model/", "report")
        ),
        Fault("slow", "GET", "list-type", seconds=0.5),
    )
    place.good("experiment", "--output_directory", RESULTS)
    assert all(fault.times == 0 for fault in proxy.faults)
    assert bits(objects(client)) == bits(folder(place.folder / "results/experiment_here"))
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_checkpoint_that_cannot_be_put_ends_the_run_and_the_ones_before_stay(place, bucket):
    """And it goes on from there once the store is well again."""
    proxy, client = bucket
    place.good("train", "--model_name", "here")
    proxy.expect(Fault("denied", "PUT", "checkpoints/step-00000012/tensors", times=99))
    done = place.run("train", "--output_directory", RESULTS)
    assert done.code == 1
    assert (
        f"{RESULTS}/experiment_run/checkpoints/step-00000012/tensors.safetensors could not be "
        "written" in done.err
    )
    assert "AccessDenied" in done.err
    assert [name for name in objects(client) if name.endswith("manifest.json")] == [
        "checkpoints/step-00000006/manifest.json"
    ]
    assert nothing_left_here(place)
    proxy.expect()
    place.good("train", "--model_resume_path", f"{RESULTS}/experiment_run")
    assert bits(objects(client)) == bits(folder(place.folder / "results/experiment_here"))


def test_what_told_of_the_model_before_goes_with_it(place, bucket):
    _, client = bucket
    place.good("experiment", "--output_directory", RESULTS)
    assert objects(client).keys() >= {"test_statistics.json", "predictions.parquet"}
    again = (
        "--model_resume_path",
        f"{RESULTS}/experiment_run",
        "--config",
        place.folder / place.config,
    )
    place.good("train", *again, "--set", "trainer.epochs=5")
    left = objects(client).keys()
    assert not {"test_statistics.json", "test_diagnostics.json", "predictions.parquet"} & left
    assert {"summary.json", "report.html"} <= left


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(place, bucket):
    _, client = bucket
    place.good("train", "--output_directory", RESULTS)
    before = objects(client)
    newest = sorted(name for name in before if name.endswith("tensors.safetensors"))[-1]
    content = bytearray(before[newest])
    content[-3] ^= 1
    client.put_object(Bucket=BUCKET, Key=f"{RUN}/{newest}", Body=bytes(content))
    done = place.good("train", "--model_resume_path", f"{RESULTS}/experiment_run")
    assert f"The checkpoint file {RESULTS}/experiment_run/{newest} is damaged" in done.err
    after = objects(client)
    assert bits(after) == bits(before)
    assert after[newest] == before[newest]


@pytest.mark.parametrize("damage", ["cut", "swapped", "missing"])
def test_a_damaged_model_is_told_with_its_address(place, bucket, damage):
    _, client = bucket
    place.good("train", "--output_directory", RESULTS)
    name = f"{RUN}/model/weights.safetensors"
    content = objects(client)["model/weights.safetensors"]
    if damage == "missing":
        client.delete_object(Bucket=BUCKET, Key=name)
    else:
        client.put_object(
            Bucket=BUCKET, Key=name, Body=content[:-1] if damage == "cut" else content[::-1]
        )
    with pytest.raises(ArtifactError, match=rf"s3://{BUCKET}/{name} (was changed|is missing)"):
        distcore.load(f"{RESULTS}/experiment_run")
    assert nothing_left_here(place)


# ------------------------------------------------------------------ ctrl-C and kills


def test_ctrl_c_says_how_to_go_on(place, bucket):
    proxy, client = bucket
    place.good("train", "--model_name", "whole")
    running = []

    def press(method, path, before):
        if method == "PUT" and "step-00000006/manifest" in path and before:
            os.kill(running[0].pid, signal.SIGINT)

    proxy.pause = press
    running.append(place.start("train", "--output_directory", RESULTS))
    done = place.finish(running[0])
    proxy.pause = None
    assert done.code == 130, done.err
    assert f"--model_resume_path {RESULTS}/experiment_run" in done.err
    assert nothing_left_here(place)
    assert "ended.json" in objects(client)
    place.good("train", "--model_resume_path", f"{RESULTS}/experiment_run")
    assert "ended.json" not in objects(client)
    assert bits(objects(client)) == bits(folder(place.folder / "results/experiment_whole"))


class Killer:
    """Kills a process when one of its changing requests, by number, is about to reach the store
    or was carried out."""

    def __init__(self, number, before):
        self.number, self.before = number, before
        self.process = None
        self.seen = []
        self.lock = threading.Lock()

    def __call__(self, method, path, before):
        if method == "GET" or method == "HEAD" or before != self.before:
            return
        with self.lock:
            self.seen.append((method, path))
            if len(self.seen) - 1 == self.number:
                os.killpg(self.process.pid, signal.SIGKILL)


def killed_and_resumed(place, bucket, number, before):
    """What lies in the bucket after a run that was killed there and gone on with; None: it was
    over before."""
    proxy, client = bucket
    killer = Killer(number, before)
    proxy.pause = killer
    process = killer.process = place.start("train", "--output_directory", RESULTS)
    done = place.finish(process)
    proxy.pause = None
    if done.code == 0:
        return None
    assert done.code == -signal.SIGKILL, done.err
    left = objects(client)
    for name in [
        each for each in left if each.endswith("/manifest.json")
    ]:  # what is there is whole
        for file, expected in json.loads(left[name])["files"].items():
            assert (
                hashlib.sha256(left[name.replace("manifest.json", file)]).hexdigest()
                == expected["sha256"]
            )
    again = ("train", "--model_resume_path", f"{RESULTS}/experiment_run")
    if any(name.endswith("/manifest.json") for name in left):
        place.good(*again)
    else:
        assert re.search(
            rf"holds no run|There is no checkpoint in {RESULTS}/experiment_run/",
            place.run(*again).err,
        )
        for name in left:
            client.delete_object(Bucket=BUCKET, Key=f"{RUN}/{name}")
        place.good("train", "--output_directory", RESULTS)
    return objects(client)


@pytest.fixture
def whole(place, bucket):
    place.good("train", "--model_name", "whole")
    return bits(folder(place.folder / "results/experiment_whole"))


@pytest.mark.parametrize(("number", "before"), [(4, True), (12, False)])
def test_a_killed_run_goes_on_elsewhere(place, bucket, whole, number, before):
    """At the first checkpoint's manifest, and where an old one is being deleted; nothing of this
    machine is used again."""
    found = killed_and_resumed(place, bucket, number, before)
    assert found is not None
    assert bits(found) == whole


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_killed_at_every_request_that_changes_the_bucket(place, bucket, whole, before):
    proxy, client = bucket
    number = 0
    while (found := killed_and_resumed(place, bucket, number, before)) is not None:
        assert bits(found) == whole, number
        # One more than usual if the kill came before the last one was given up: nothing is saved
        # after that.
        assert len({name.split("/")[1] for name in found if name.startswith("checkpoints/")}) in (
            2,
            3,
        )
        fresh(proxy, client)
        number += 1
    assert number >= 15
