"""Datasets fetched from a real HTTP server and a real S3 protocol: whole or not at all, and
nothing left behind."""

import gzip
import http.server
import io
import os
import re
import socket
import threading
import traceback
import zipfile
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from distcore.cli.main import main
from distcore_core.errors import DataError
from distcore_data.dataset import called
from distcore_data.sources import fetch
from distcore_data.sources.registry import column_names, open_source

ROWS = 3_000
RAW = {"x": "number", "name": "category"}


def table(first=0, rows=ROWS):
    numbers = range(first, first + rows)
    return pa.table(
        {"x": pa.array(numbers, pa.float64()), "name": [f"n{number % 7}" for number in numbers]}
    )


def csv(rows=ROWS):
    sink = io.BytesIO()
    pa.csv.write_csv(table(rows=rows), sink)
    return sink.getvalue()


def parquet(first=0, rows=ROWS):
    sink = io.BytesIO()
    pa.parquet.write_table(table(first, rows), sink)
    return sink.getvalue()


MOVED = {"/away.csv": "http://127.0.0.1:1/?hush-hush", "/file.csv": "file:///etc/hush-hush"}
"""Where a path's answer sends the client."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `files`; a path that ends in .cut promises all bytes and sends half of them."""

    protocol_version = "HTTP/1.1"
    files: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body):
        path = self.path.partition("?")[0]
        if path in MOVED:
            self.send_response(302)
            self.send_header("Location", MOVED[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status = {"/forbidden.csv": 403, "/gone.csv": 410, "/broken.csv": 500}.get(
            path, 200 if path in self.files else 404
        )
        content = self.files.get(path, b"") if status == 200 else b""
        start, stop = 0, len(content)
        ranged = self.headers.get("Range")
        if ranged and status == 200 and not path.endswith(".plain.csv"):
            first, _, last = ranged.removeprefix("bytes=").partition("-")
            start, stop, status = int(first), min(int(last) + 1 if last else stop, stop), 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        if not path.endswith(".plain.csv"):
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if not body:
            return
        if path.endswith(".cut.csv") and stop - start > 4096:
            self.wfile.write(content[start : start + (stop - start) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.wfile.write(content[start:stop])

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def web():
    """The address of a server, whose files a test adds to."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def rows_of(url, scratch, **options):
    """All rows of a dataset, and nothing left behind once it is closed."""
    source = open_source(url, RAW, scratch=scratch, **options)
    try:
        batches = [part.read() for part in source.partitions(1 << 20)]
    finally:
        source.close()
    assert list(scratch.iterdir()) == []
    found = pa.Table.from_batches(batches)
    return found.column("x").to_pylist(), found.column("name").cast(pa.string()).to_pylist()


def expected(rows=ROWS):
    return table(rows=rows).column("x").to_pylist(), table(rows=rows).column("name").to_pylist()


# ------------------------------------------------------------------ HTTP


@pytest.mark.parametrize(
    "name", ["data.csv", "data.csv?key=hush-hush", "data.plain.csv", "data.parquet", "data.csv.gz"]
)
def test_a_file_over_http(web, scratch, name):
    path = "/" + name.partition("?")[0]
    content = {"data.parquet": parquet, "data.csv.gz": lambda: gzip.compress(csv())}.get(
        path[1:], csv
    )()
    Handler.files[path] = content
    assert rows_of(f"{web}/{name}", scratch) == expected()
    assert column_names(f"{web}/{name}") == ["x", "name"]
    assert list(scratch.iterdir()) == []


def test_a_file_of_several_chunks(web, scratch, monkeypatch):
    """Of ours, and of those that fsspec reads ahead."""
    monkeypatch.setattr(fetch, "PIECE", 1 << 16)
    content = csv(600_000)
    assert len(content) > 6 << 20
    Handler.files["/large.csv"] = content
    source = open_source(f"{web}/large.csv", RAW, scratch=scratch)
    assert sum(part.read().num_rows for part in source.partitions(1 << 20)) == 600_000
    source.close()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.csv", r"missing\.csv: no such file\. Correct the dataset's URL"),
        ("gone.csv", r"gone\.csv: no such file\. Correct the dataset's URL"),
        (
            "forbidden.csv?token=hush-hush",
            r"forbidden\.csv: cannot be fetched \(.*403.*Check URL, network and cred",
        ),
        ("broken.csv", r"broken\.csv: cannot be fetched \(HTTP status 500\)\."),
        ("some.cut.csv", r"some\.cut\.csv: cannot be fetched \(ClientPayloadError: \w+"),
    ],
)
def test_what_cannot_be_fetched_is_an_error_that_leaves_nothing(web, scratch, name, said):
    Handler.files["/some.cut.csv"] = csv(60_000)
    with pytest.raises(DataError, match=said) as caught:
        open_source(f"{web}/{name}", RAW, scratch=scratch)
    assert "hush-hush" not in str(caught.value)
    assert list(scratch.iterdir()) == []


def test_a_body_that_is_shorter_than_was_promised_is_not_taken_for_the_whole(web, scratch):
    """The connection ends between two chunks, after whole records: every byte that came can be
    read."""
    Handler.files["/short.cut.csv"] = csv(300_000)
    with pytest.raises(DataError, match=r"short\.cut\.csv: cannot be fetched"):
        open_source(f"{web}/short.cut.csv", RAW, scratch=scratch)
    assert list(scratch.iterdir()) == []


def test_nobody_listens(scratch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError, match=r"data\.csv: cannot be fetched \(.*Check URL, network"):
        open_source(f"http://user:hush-hush@127.0.0.1:{port}/data.csv", RAW, scratch=scratch)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:hush@host/a.csv?sig=hush", "http://host/a.csv"),
        ("HTTPS://host/a.csv?X-Amz-Signature=hush", "HTTPS://host/a.csv"),
        ("https://hush@host:8000/a@b.csv", "https://host:8000/a@b.csv"),
        ("http://host:8000/a@b.csv", "http://host:8000/a@b.csv"),
        ("s3://key:hu/sh@bucket/a.csv", "s3://bucket/a.csv"),
        ("s3://arn:aws:s3:eu:1:accesspoint/a@b.csv", "s3://arn:aws:s3:eu:1:accesspoint/a@b.csv"),
        ("s3://bucket/part-?.parquet", "s3://bucket/part-?.parquet"),
        ("az://container/a.csv?sv=1&sig=hush", "az://container/a.csv"),
        ("zip://a.csv::https://user:hush@host/a.zip?sig=hush", "zip://a.csv::https://host/a.zip"),
        ("filecache::s3://key:hush@bucket/a.csv", "filecache::s3://bucket/a.csv"),
        ("zip://a.csv::/data/a@b.zip", "zip://a.csv::/data/a@b.zip"),
        ("https://user:hu::sh@host/a.csv", "https://host/a.csv"),
        ("https://user:/hush@host/a.csv", "https://host/a.csv"),
        ("http://user:hush@[::1]:8000/a.csv?sig=hush", "http://[::1]:8000/a.csv"),
        ("http://[::1]:8000/a@b.csv", "http://[::1]:8000/a@b.csv"),
    ],
)
def test_what_is_shown_of_a_url(url, shown):
    assert called(url) == shown
    with pytest.raises(DataError, match=re.escape(f"{shown}: no column is asked for")):
        open_source(url, {})


@pytest.mark.parametrize(
    "name", ["missing.csv", "forbidden.csv", "some.cut.csv", "away.csv", "file.csv"]
)
@pytest.mark.parametrize("packed", ["", "zip://a.csv::"])
def test_no_traceback_shows_what_a_url_hides(web, scratch, name, packed):
    Handler.files["/some.cut.csv"] = csv(60_000)
    url = f"{packed}{web.replace('://', '://hush-user:hush-hush@')}/{name}?signature=hush-hush"
    with pytest.raises(DataError) as caught:
        open_source(url, RAW, scratch=scratch)
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert list(scratch.iterdir()) == []


def test_init_says_how_to_train_without_what_a_url_hides(web, tmp_path, capsys):
    Handler.files["/data.csv"] = csv()
    url = f"{web.replace('://', '://hush-user:hush-hush@')}/data.csv"
    config = str(tmp_path / "config.yaml")
    assert main(["init", "--dataset", url, "--target", "x", "--output", config]) == 0
    assert capsys.readouterr().out.endswith(f"--config {config} --dataset {web}/data.csv\n")


# ------------------------------------------------------------------ S3


@pytest.fixture(scope="module")
def bucket():
    """The client of an S3 server of this process, with a bucket in it, to which the environment
    leads."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as environment:
        for name in [each for each in os.environ if each.startswith("AWS_")]:
            environment.delenv(name)
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
        environment.setenv("AWS_ENDPOINT_URL", endpoint)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        s3fs.S3FileSystem.clear_instance_cache()  # what another module's tests opened
        yield client
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_file_a_folder_and_a_pattern_in_s3(bucket, scratch):
    bucket.put_object(Bucket="bucket", Key="data.csv", Body=csv())
    half = ROWS // 2
    for number in range(2):
        bucket.put_object(
            Bucket="bucket", Key=f"folder/part-{number}.parquet", Body=parquet(number * half, half)
        )
    bucket.put_object(Bucket="bucket", Key="folder/_SUCCESS", Body=b"")
    for path in ("data.csv", "folder", "folder/*.parquet", "folder/part-?.parquet"):
        assert rows_of(f"s3://bucket/{path}", scratch) == expected()


@pytest.mark.parametrize("address", ["zip://folder::", "zip://folder/**::", "zip://**::"])
def test_a_name_in_a_listing_that_leads_out_of_the_folder(tmp_path, scratch, address):
    """An archive or a bucket of somebody else's: its files would lie where their names lead."""
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("folder/a.parquet", parquet())
    assert rows_of(f"{address}{archive}", scratch) == expected()
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("folder/../../../../slipped.parquet", parquet())
    with pytest.raises(DataError, match=r"'folder/.*slipped\.parquet', leads out of the folder"):
        open_source(f"{address}{archive}", RAW, scratch=scratch)
    assert list(scratch.iterdir()) == []
    assert list(tmp_path.rglob("slipped*")) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("path", ["data.csv", "folder"])
def test_an_object_that_is_replaced_while_it_is_fetched(bucket, scratch, monkeypatch, path, when):
    """By a csv of the same size, so that only its version tells."""
    name = "folder/a.parquet" if path == "folder" else path
    versions = (
        [parquet(), parquet(first=1)] if path == "folder" else [csv(), csv().replace(b"n1", b"n2")]
    )
    assert path == "folder" or len(versions[0]) == len(versions[1])
    bucket.put_object(Bucket="bucket", Key=name, Body=versions[0])
    copy = fetch.copy

    def copied(*arguments, **named):
        if when == "after":
            copy(*arguments, **named)
        bucket.put_object(Bucket="bucket", Key=name, Body=versions[1])
        if when == "before":
            copy(*arguments, **named)

    monkeypatch.setattr(fetch, "copy", copied)
    with pytest.raises(
        DataError, match=r"(data\.csv|a\.parquet).*changed while it was being fetched"
    ):
        open_source(f"s3://bucket/{path}", RAW, scratch=scratch)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("path", ["folder", "folder/*.parquet"])
@pytest.mark.parametrize("change", ["replaced", "deleted", "deleted before"])
def test_a_folder_whose_files_change_one_after_another(bucket, scratch, monkeypatch, path, change):
    """Each copy is whole, and all of them together are a dataset that never was."""
    for name in "ab":
        bucket.put_object(Bucket="bucket", Key=f"changing/folder/{name}.parquet", Body=parquet())
    fetch_one, turn, fetched = fetch._fetch, threading.Lock(), []

    def one(filesystem, file, *arguments, **named):
        with turn:
            if fetched:
                key = (file if change == "deleted before" else fetched[0]).removeprefix("bucket/")
                if change == "replaced":
                    bucket.put_object(Bucket="bucket", Key=key, Body=parquet(first=1))
                else:
                    bucket.delete_object(Bucket="bucket", Key=key)
            fetch_one(filesystem, file, *arguments, **named)
            fetched.append(file)

    monkeypatch.setattr(fetch, "_fetch", one)
    with pytest.raises(DataError, match=r"[ab]\.parquet.*changed while it was being fetched"):
        open_source(f"s3://bucket/changing/{path}", RAW, scratch=scratch)
    assert list(scratch.iterdir()) == []


def test_a_file_that_comes_while_a_folder_is_fetched_is_of_the_next_run(
    bucket, scratch, monkeypatch
):
    bucket.put_object(Bucket="bucket", Key="growing/a.parquet", Body=parquet())
    fetch_one, came = fetch._fetch, []

    def one(*arguments, **named):
        if not came:
            came.append(bucket.put_object(Bucket="bucket", Key="growing/b.parquet", Body=parquet()))
        fetch_one(*arguments, **named)

    monkeypatch.setattr(fetch, "_fetch", one)
    for files in (1, 2):
        source = open_source("s3://bucket/growing", RAW, scratch=scratch)
        assert source.rows() == files * ROWS
        source.close()


@pytest.mark.parametrize("path", ["", "/*.parquet"])
def test_a_folder_that_this_process_listed_before_is_listed_again(bucket, scratch, path):
    """fsspec keeps what a process has listed, for whoever asks next."""
    import s3fs

    bucket.put_object(Bucket="bucket", Key=f"again{len(path)}/a.parquet", Body=parquet())
    assert len(s3fs.S3FileSystem().ls(f"bucket/again{len(path)}")) == 1
    bucket.put_object(Bucket="bucket", Key=f"again{len(path)}/b.parquet", Body=parquet())
    source = open_source(f"s3://bucket/again{len(path)}{path}", RAW, scratch=scratch)
    assert source.rows() == 2 * ROWS
    source.close()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("bucket/missing.csv", "no such file"),
        ("nobucket/data.csv", "no such file"),
        ("bucket/empty", "no such file|holds no Parquet files"),
        ("bucket/*.parquet", "holds no Parquet files"),
    ],
)
def test_what_is_not_in_s3(bucket, scratch, path, said):
    with pytest.raises(DataError, match=said) as caught:
        open_source(f"s3://{path}", RAW, scratch=scratch)
    assert "hush" not in str(caught.value)
    assert list(scratch.iterdir()) == []


def test_a_whole_run_on_a_dataset_in_s3(bucket, tmp_path, monkeypatch):
    """With credentials from the environment, as on a cluster: they are in no file of the
    experiment."""
    import distcore
    from distcore_testing import data

    sink = io.BytesIO()
    pa.csv.write_csv(data.table(), sink)
    bucket.put_object(Bucket="bucket", Key="train.csv", Body=sink.getvalue())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    outcome = distcore.experiment(
        data.config(str(tmp_path / "cache")),
        "s3://bucket/train.csv",
        output_directory=tmp_path / "results",
    )
    assert outcome.test_statistics is not None
    assert list((tmp_path / "tmp").iterdir()) == []
    for path in outcome.directory.rglob("*"):
        assert path.is_dir() or b"hush-hush" not in path.read_bytes()
