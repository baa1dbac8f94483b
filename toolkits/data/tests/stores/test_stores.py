"""Stores: the same seven verbs over a folder, the memory of a process and a real HTTP S3, and what
faults do to them."""

import os
import pickle
import re
import signal
import stat
import threading
import time
import traceback
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import fsspec
import pytest
import xxhash

from distcore_core.errors import StoreError, UserError
from distcore_data.fast_digest import PassingDigest
from distcore_data.stores import Credentials, blocks, open_store
from distcore_data.stores import bucket as bucket_module
from distcore_data.stores.addresses import local_folder, store_kind, without_password
from distcore_data.stores.bucket import Bucket
from distcore_data.stores.filesystems import modified, open_filesystem, put_if_absent
from distcore_data.stores.retries import ATTEMPTS
from distcore_data.stores.store import read_credentials
from distcore_testing.buckets import BUCKET, KEY, SECRET, Fault

BIG = bytes(range(256)) * 44_000


def s3_store(proxy, **more):
    return open_store(f"s3://{BUCKET}/some/caches", Credentials(proxy.options(**more)))


@pytest.fixture(params=["path", "file", "memory", "s3"])
def store(request, tmp_path):
    if request.param == "s3":
        return s3_store(request.getfixturevalue("s3")[0])
    places = {
        "path": str(tmp_path / "a"),
        "file": f"file://{tmp_path}/a",
        "memory": f"memory://{uuid.uuid4().hex}/a",
    }
    return open_store(places[request.param])


def whole(file):
    with file:
        assert stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read()


# ------------------------------------------------------------------ every store


def test_what_is_written_is_read(store, tmp_path):
    store.write("key/small.json", b"{}")
    (tmp_path / "big").write_bytes(BIG)
    store.put("key/v1/train/00000.parquet", tmp_path / "big")
    assert store.read("key/small.json") == b"{}"
    assert whole(store.open("key/v1/train/00000.parquet", len(BIG))) == BIG
    assert {name: found.bytes for name, found in store.list().items()} == {
        "key/small.json": 2,
        "key/v1/train/00000.parquet": len(BIG),
    }
    assert list(store.list("key/v1/")) == ["key/v1/train/00000.parquet"]
    assert store.list("ke") == store.list("other/") == {}
    assert all(found.modified > 1.7e9 for found in store.list().values())
    store.write("key/small.json", b"[1]")
    assert store.read("key/small.json") == b"[1]"


def test_one_byte_more_or_less_shows(store):
    store.write("shard", b"12345")
    for expected in (4, 6, 0):
        assert len(whole(store.open("shard", expected))) != expected


def test_only_one_creates(store):
    assert store.create("key/manifest.json", b"first")
    assert not store.create("key/manifest.json", b"second")
    assert store.create("key/manifest.json", b"first") is (not hasattr(store, "root"))
    assert store.read("key/manifest.json") == b"first"


def test_of_many_at_once_one_creates(store):
    won, barrier = [], threading.Barrier(8)

    def work(number):
        barrier.wait()
        if store.create("key/manifest.json", b"%d" % number):
            won.append(b"%d" % number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [store.read("key/manifest.json")]


def test_deleted_is_gone_and_gone_is_fine(store):
    store.write("key/v1/a", b"1")
    store.write("key/b", b"1")
    store.delete(["key/v1/a", "key/v1/a", "key/none"])
    assert list(store.list()) == ["key/b"]
    with pytest.raises(FileNotFoundError):
        store.read("key/v1/a")
    with pytest.raises(FileNotFoundError):
        store.open("key/v1/a", 1)


def test_of_a_folder_what_is_left_empty_goes_and_what_is_no_object_is_none(tmp_path):
    store = open_store(tmp_path / "root")
    for name in ("key/v1/a", "key/b"):
        store.write(name, b"1")
    (tmp_path / "root" / "key" / ".left.tmp").touch()  # by who was killed
    store.delete(["key/v1/a"])
    assert list(store.list()) == ["key/b"]
    assert sorted(os.listdir(tmp_path / "root" / "key")) == [".left.tmp", "b"]
    (tmp_path / "root" / "key" / ".left.tmp").unlink()
    store.delete(["key/b"])
    assert os.listdir(tmp_path) == ["root"]
    assert os.listdir(tmp_path / "root") == []


def test_what_cannot_be_deleted_keeps_no_other_object(monkeypatch):
    store = open_store(f"memory://{uuid.uuid4().hex}/a")
    ask = Bucket._ask

    def denied(self, name, doing, *rest, **more):
        if (name, doing) == ("b", "deleted"):
            raise StoreError("b could not be deleted")
        return ask(self, name, doing, *rest, **more)

    monkeypatch.setattr(Bucket, "_ask", denied)
    for name in "abc":
        store.write(name, b"1")
    with pytest.raises(StoreError, match="b could not be deleted"):
        store.delete("abc")
    assert list(store.list()) == ["b"]


def test_objects_that_no_store_wrote_are_not_listed():
    """Of such a name none could be read or deleted."""
    root, files = uuid.uuid4().hex, fsspec.filesystem("memory")
    store = open_store(f"memory://{root}/a")
    store.write("key/b", b"1")
    for name in ("a/key/.hidden", "a/key/c?d", "a/e f", "ab/c", "c"):
        files.pipe_file(f"/{root}/{name}", b"1")
    assert list(store.list()) == list(store.list("key")) == ["key/b"]


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../a", "a/../b", "a//b", "a/./b", "a?b", ".hidden", "a\n", "a/"]
)
def test_names_that_lead_elsewhere_are_refused(store, name):
    for call in (store.read, lambda each: store.open(each, 1), lambda each: store.write(each, b"")):
        with pytest.raises(ValueError, match="is no name of an object"):
            call(name)
    with pytest.raises(ValueError, match="is no name of an object"):
        store.delete([name])


def test_the_local_store_follows_no_link(tmp_path):
    (tmp_path / "secret").write_bytes(b"1")
    (tmp_path / "root" / "key").mkdir(parents=True)
    (tmp_path / "root" / "key" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "linked").symlink_to(tmp_path)
    store = open_store(tmp_path / "root")
    with pytest.raises(OSError, match=r"symbolic links"):
        store.read("key/link")
    (tmp_path / "root" / "linked_too").symlink_to(tmp_path / "root")
    for name in ("linked/secret", "linked_too/key/link", "linked_too/key"):
        with pytest.raises(OSError, match="is a link"):
            store.open(name, 1)
        with pytest.raises(OSError, match="is a link"):
            store.read(name)
    assert store.list() == {}


# ------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    "place",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://example.com/cache",
        "ftp://example.com/cache",
        "simplecache::s3://bucket/cache",
        "zip://a.zip::http://169.254.169.254/x",
        "github://owner:repo@main/x",
        "S3X://bucket",
    ],
)
def test_what_is_no_store_is_refused_before_anything_is_contacted(place, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("something was contacted"))
    with pytest.raises(UserError, match=r"is no store\. Nothing was contacted"):
        open_store(place)


@pytest.mark.parametrize(
    "place", ["s3://bucket/../other", "s3://bucket/a?versionId=1", "s3://bucket/#a", "s3:///a"]
)
def test_addresses_that_no_folder_has_are_refused(place):
    with pytest.raises(UserError, match=r"Give (a plain|an) address such as s3://bucket/folder"):
        open_store(place)


@pytest.mark.parametrize(
    "place",
    ["s3://AKIA:se/cr+et@bucket/x", "s3://user:secret@bucket/x", "s3a://user:se@c:ret@bucket"],
)
def test_a_password_in_an_address_is_refused_and_not_shown(place):
    with pytest.raises(UserError, match=r"^s3a?://bucket(/x)? was given with a password in it"):
        open_store(place)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://bucket//x", "has an empty part"),
        ("memory://a//b", "has an empty part"),
        ("file://elsewhere/x", "names another machine, elsewhere"),
    ],
)
def test_addresses_that_would_lead_elsewhere_are_refused(place, said):
    with pytest.raises(UserError, match=said):
        open_store(place)


def test_a_schemes_case_does_not_matter(s3):
    store = open_store(
        f"S3://{BUCKET}/a/",
        Credentials({**s3[0].options(), "config_kwargs": None, "client_kwargs": None}),
    )
    store.write("x", b"1")
    assert s3_store(s3[0]).list() == {}
    assert store.list().keys() == {"x"}


def test_a_password_in_the_endpoint_is_not_shown(monkeypatch):
    options = {
        "key": KEY,
        "secret": SECRET,
        "endpoint_url": "http://user:pass/word1234@127.0.0.1:9",
    }
    monkeypatch.setattr("distcore_data.stores.retries.FIRST_WAIT", 0.01)
    with pytest.raises(StoreError) as caught:
        open_store("s3://bucket/a", Credentials(options)).write("b", b"1")
    assert "word1234" not in "".join(traceback.format_exception(caught.value))


def test_kinds():
    assert [
        store_kind(each)
        for each in (
            "a/b",
            "/a",
            "file:///a",
            "s3://b/c",
            "gs://b",
            "abfs://c@account/x",
            "memory://a",
        )
    ] == [*("file", "file", "file", "s3", "gs", "abfs", "memory")]
    assert str(local_folder("file:///tmp/a%20b")) == "/tmp/a%20b"
    assert str(local_folder("file://localhost/tmp/a")) == "/tmp/a"
    assert local_folder("s3://b/c") is None
    assert without_password("s3://user:pass@bucket/a") == "s3://bucket/a"
    assert without_password("abfs://container@account/a") == "abfs://container@account/a"


def test_a_package_that_is_missing_is_named():
    with pytest.raises(UserError, match=r"pip install 'distcore\[gs\]'"):
        open_store("gs://bucket/cache").list()


def test_the_memory_of_another_process_is_not_taken_for_ours():
    store = pickle.loads(pickle.dumps(open_store("memory://a")))  # noqa: S301
    store.write("b", b"1")
    child = os.fork()
    if child == 0:
        try:
            store.read("b")
        except UserError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.usefixtures("in_a_minute")
def test_a_forked_process_fetches_large_objects_itself(monkeypatch):
    """It waited for threads that only its parent has."""
    monkeypatch.setattr(bucket_module, "PIECE", 10)
    monkeypatch.setattr(bucket_module, "REQUESTS", 1)
    store = open_store("memory://forked")
    store.write("shard", b"x" * 25)
    assert whole(store.open("shard", 25)) == b"x" * 25
    monkeypatch.setattr(store, "_only", None)  # as if the store were outside
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os._exit(7 if whole(store.open("shard", 25)) == b"x" * 25 else 1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_piece_that_fails_closes_no_file_that_others_are_written_to(monkeypatch):
    """Its number could be another file's by then."""
    monkeypatch.setattr(bucket_module, "PIECE", 10)
    store, second, late = open_store("memory://late"), threading.Event(), []
    opened = store._there()

    def fetched(path, start, stop):
        if start == 0:
            assert second.wait(60)
            raise FileNotFoundError(path)
        second.set()
        time.sleep(0.2)
        yield b"x" * (stop - start)

    def pwrite(handle, data, start):
        os.fstat(handle)  # raises for one that is closed
        late.append(start)
        return len(data)

    monkeypatch.setattr(store, "_opened", (os.getpid(), opened._replace(blocks=fetched)))
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(FileNotFoundError):
        store.open("shard", 15)
    assert late == [10]


# ------------------------------------------------------------------ S3 with faults


def test_a_bucket_s_library_neither_asks_again_nor_keeps_listings_by_itself():
    """Its attempts would multiply ours."""
    options = {"key": KEY, "secret": SECRET, "config_kwargs": {"read_timeout": 5}}
    files, root = open_filesystem("s3://bucket/a/", "s3", Credentials(options))
    assert files.config_kwargs == {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "read_timeout": 5,
    }
    assert (files.retries, files.dircache.use_listings_cache, root) == (1, False, "bucket/a")
    assert options["config_kwargs"] == {"read_timeout": 5}


@pytest.mark.parametrize("size", [9, 10])
def test_the_parts_of_a_large_upload_that_failed_are_given_up(tmp_path, monkeypatch, size):
    """They lie in the bucket, are paid for and are in no listing. What failed is told, whatever
    becomes of them."""

    def put_file(here, there, **options):
        asked.append((here, there, options))
        raise PermissionError("closed")

    def abort(name):
        asked.append(name)
        raise StoreError("of the parts")

    asked, bucket, path = [], Bucket("s3://bucket/a"), tmp_path / "f"
    path.write_bytes(bytes(size))
    monkeypatch.setattr(bucket_module, "ONE_PUT", 10)
    opened = SimpleNamespace(files=SimpleNamespace(put_file=put_file), root="bucket/a")
    monkeypatch.setattr(bucket, "_there", lambda: opened)
    monkeypatch.setattr(bucket, "abort_uploads", abort)
    with pytest.raises(StoreError, match=r"a/n could not be written.*closed"):
        bucket.put("n", path)
    assert asked[0] == (str(path), "bucket/a/n", bucket_module.UPLOAD["s3"])
    assert asked[1:] == (["n"] if size == 10 else [])


def test_what_a_bucket_said_is_told_also_of_a_file_that_is_gone_by_then(tmp_path, monkeypatch):
    def ask(*_, **__):
        path.unlink()
        raise StoreError("the bucket's word")

    bucket, path = Bucket("s3://bucket/a"), tmp_path / "f"
    path.write_bytes(b"1")
    monkeypatch.setattr(bucket, "_ask", ask)
    with pytest.raises(StoreError, match="the bucket's word"):
        bucket.put("n", path)


def test_a_conditional_put_is_the_filesystem_s_own():
    """By its name for the condition; one that has none is too old."""
    called = []

    def by_mode(path, content, mode="overwrite"):
        called.append((path, content, mode))

    def by_overwrite(path, content, overwrite=True):
        called.append((path, content, overwrite))

    for put in (by_mode, by_overwrite):
        put_if_absent(SimpleNamespace(_pipe_file=put, pipe_file=put), "abfs", "a/b", b"1")
    assert called == [("a/b", b"1", "create"), ("a/b", b"1", False)]
    old = SimpleNamespace(pipe_file=lambda path, content: None)
    with pytest.raises(StoreError, match=r"too old for conditional puts\. Upgrade"):
        put_if_absent(old, "abfs", "a/b", b"1")


def test_times_of_objects_are_seconds_whatever_they_are_called():
    when = datetime(2020, 1, 2, tzinfo=UTC)
    for name in ("LastModified", "last_modified", "updated", "mtime", "created"):
        for value in (when, when.isoformat(), when.timestamp()):
            assert modified({"size": 1, name: value}) == 1577923200.0
    assert modified({"LastModified": None, "created": 5, "updated": 7}) == 7.0
    assert modified({"size": 1}) == 0.0


@pytest.mark.parametrize("kind", ["503", "reset", "lost"])
def test_a_store_that_stumbles_is_asked_again(s3, kind, monkeypatch):
    monkeypatch.setattr(bucket_module, "PIECE", 1 << 20)
    proxy, _ = s3
    store = s3_store(proxy)
    store.write("shard", BIG)
    proxy.expect(Fault(kind, "GET", times=3))
    assert whole(store.open("shard", len(BIG))) == BIG
    proxy.expect(Fault(kind, "GET", times=3))
    assert set(store.list()) == {"shard"}
    proxy.expect(Fault(kind, "PUT", times=3))
    store.write("shard", b"new")
    assert store.read("shard") == b"new"


@pytest.mark.parametrize("kind", ["503", "reset", "lost"])
def test_a_digest_is_taken_of_what_is_fetched_in_one_piece(s3, kind, monkeypatch):
    proxy, _ = s3
    store = s3_store(proxy)
    store.write("shard", BIG)
    proxy.expect(Fault(kind, "GET", times=2))
    passing = PassingDigest()
    store.open("shard", len(BIG), passing).close()
    assert passing.of(len(BIG)) == xxhash.xxh3_64(BIG).hexdigest()
    assert passing.of(len(BIG) + 1) is None
    monkeypatch.setattr(bucket_module, "PIECE", 1 << 20)
    pieces = PassingDigest()
    store.open("shard", len(BIG), pieces).close()
    assert pieces.of(len(BIG)) is None


@pytest.mark.parametrize(
    "more", [{}, {"requester_pays": True}, {"version_aware": True}, {"cache_regions": True}]
)
def test_large_objects_come_with_whatever_options(s3, monkeypatch, more):
    """Blocking requests read them; if options are for asyncio's client alone, that one does."""
    monkeypatch.setattr(bucket_module, "PIECE", 1 << 20)
    proxy, client = s3
    client.put_object(Bucket=BUCKET, Key="some/caches/shard", Body=BIG)
    store = s3_store(proxy, **more)
    assert whole(store.open("shard", len(BIG))) == BIG
    assert proxy.count("GET", "shard") == len(BIG) // (1 << 20) + 1
    with pytest.raises(FileNotFoundError):
        store.open("none", 1)


def test_credentials_that_no_client_takes_are_told_with_the_object(s3, monkeypatch):
    """Half of a pair in the environment, and a profile that is not there."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    for options, said in (
        ({}, "PartialCredentialsError"),
        ({"profile": "nobody"}, "ProfileNotFound"),
    ):
        store = open_store(f"s3://{BUCKET}/a", Credentials({"endpoint_url": s3[0].url, **options}))
        with pytest.raises(
            StoreError, match=rf"a/shard could not be read( within \d+ seconds)? \({said}"
        ):
            store.open("shard", 5)


def test_a_public_bucket_is_read_without_credentials(s3):
    proxy, client = s3
    client.put_object(Bucket=BUCKET, Key="a/shard", Body=b"12345", ACL="public-read")
    store = open_store(f"s3://{BUCKET}/a", Credentials({"anon": True, "endpoint_url": proxy.url}))
    assert whole(store.open("shard", 5)) == b"12345"


def test_an_object_that_is_cut_shows_whatever_its_pieces(store, monkeypatch):
    monkeypatch.setattr(bucket_module, "PIECE", 10)
    for length in (0, 9, 10, 11, 20, 29, 31):
        store.write("shard", b"x" * length)
        assert len(whole(store.open("shard", 30))) == length
    store.write("shard", b"x" * 40)
    assert len(whole(store.open("shard", 30))) != 30


def test_an_object_of_whole_pieces_comes_by_asyncios_client_too(s3, monkeypatch):
    """The piece after the last one begins where nothing lies, which is no fault of the store's."""
    monkeypatch.setattr(bucket_module, "PIECE", 10)
    store = s3_store(s3[0], version_aware=True)
    store.write("shard", b"x" * 20)
    assert whole(store.open("shard", 20)) == b"x" * 20


@pytest.mark.parametrize("option", blocks.NOT_SHARED)
def test_options_that_go_with_each_request_are_left_to_asyncios_client(option):
    files = SimpleNamespace(storage_options={option: {"SSECustomerKey": "canary"}})
    assert blocks._blocking_client.__wrapped__(files, 1, os.getpid()) is None


def test_retries_are_bounded_and_the_error_names_key_and_cause(s3):
    proxy, _ = s3
    store = s3_store(proxy)
    store.write("key/shard", b"1")
    for kind, said in (
        ("503", "SlowDown, HTTP status 503"),
        ("reset", "Payload|Incomplete|Connection"),
    ):
        proxy.expect(Fault(kind, "GET", times=99))
        with pytest.raises(
            StoreError,
            match=rf"s3://bucket/some/caches/key/shard could not be read in {ATTEMPTS} att.*{said}",
        ):
            store.read("key/shard")
        assert proxy.count("GET") == ATTEMPTS


def test_a_store_that_is_busy_for_longer_is_waited_for_and_told(s3, monkeypatch, caplog):
    proxy, _ = s3
    monkeypatch.setattr("distcore_data.stores.retries.PATIENCE_SECONDS", 300.0)
    monkeypatch.setattr("distcore_data.stores.retries.LONGEST_WAIT", 0.01)
    store = s3_store(proxy)
    store.write("key/shard", b"1")
    proxy.expect(Fault("503", "GET", times=8 * ATTEMPTS))
    assert store.read("key/shard") == b"1"
    (told,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert told.endswith(
        f"could not be read in {ATTEMPTS} attempts (HTTP status 503); it is tried for 300 seconds."
    )


def test_an_expired_token_is_told_at_once(s3):
    proxy, _ = s3
    store = s3_store(proxy, token="canary-token-1234")
    proxy.expect(Fault("expired", "GET", times=99))
    with pytest.raises(
        StoreError,
        match=r"key/shard could not be read( within \d+ seconds)? \(ExpiredToken.*cache_credentials",
    ):
        store.read("key/shard")
    assert proxy.count("GET") == 1


def test_a_secret_that_the_server_echoes_is_not_shown(s3):
    proxy, _ = s3
    proxy.expect(Fault("denied", "PUT", times=9))
    with pytest.raises(StoreError, match=r"\*\*\*") as caught:
        s3_store(proxy).write("a", b"1")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_no_repr_shows_credentials(s3):
    store = s3_store(s3[0])
    for each in (store, store.credentials, pickle.loads(pickle.dumps(store))):  # noqa: S301
        assert KEY not in repr(each)
        assert SECRET not in repr(each)
    assert pickle.loads(pickle.dumps(store)).list() == {}  # noqa: S301


def test_credentials_come_from_a_pipe_too():
    """As of `--credentials <(vault read …)`."""
    reading, writing = os.pipe()
    os.write(writing, b'{"key": "k"}')
    os.close(writing)
    assert read_credentials(f"/dev/fd/{reading}").options == {"key": "k"}
    os.close(reading)


def test_nobody_listens():
    options = {"key": KEY, "secret": SECRET, "endpoint_url": "http://127.0.0.1:9"}
    store = open_store("s3://bucket/a", Credentials(options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distcore_data.stores.retries.FIRST_WAIT", 0.01)
        with pytest.raises(
            StoreError,
            match=rf"a/b could not be read in {ATTEMPTS} attempts( within \d+ seconds)? \(EndpointConnectionError",
        ):
            store.read("b")


def test_a_bucket_that_is_not_there_is_no_empty_one(s3):
    store = open_store("s3://nobody-has-this/a", Credentials(s3[0].options()))
    for call in (store.list, lambda: store.write("b", b"1"), lambda: store.create("b", b"1")):
        with pytest.raises(StoreError, match="NoSuchBucket"):
            call()


# ------------------------------------------------------------------ conditional puts


@pytest.mark.parametrize("kind", ["lost", "503"])
def test_a_put_that_happened_but_was_not_answered_counts(s3, kind):
    proxy, client = s3
    proxy.expect(Fault(kind, "PUT", "manifest", times=2))
    assert s3_store(proxy).create("key/manifest.json", b"ours")
    assert (
        client.get_object(Bucket=BUCKET, Key="some/caches/key/manifest.json")["Body"].read()
        == b"ours"
    )


def test_a_put_that_was_lost_behind_anothers_does_not_count(s3):
    proxy, _ = s3
    store = s3_store(proxy)
    store.create("key/manifest.json", b"theirs")
    proxy.expect(Fault("lost", "PUT", "manifest", times=2))
    assert not store.create("key/manifest.json", b"ours")
    assert store.read("key/manifest.json") == b"theirs"


def test_a_store_without_conditional_puts_says_so(s3):
    proxy, _ = s3
    proxy.expect(Fault("501", "PUT", times=9))
    with pytest.raises(StoreError, match="does not put an object on condition that there is none"):
        s3_store(proxy).create("a", b"1")
    assert proxy.count("PUT") == 1


# ------------------------------------------------------------------ uploads in parts


@pytest.fixture
def small_parts(monkeypatch):
    """s3fs uploads in parts of 5 MiB, the least that S3 takes."""
    monkeypatch.setattr(bucket_module, "ONE_PUT", 5 << 20)
    monkeypatch.setattr(
        bucket_module, "UPLOAD", {"s3": {"chunksize": 5 << 20, "max_concurrency": 2}}
    )


@pytest.mark.parametrize("kind", ["503", "lost", "reset"])
def test_a_large_object_goes_up_in_parts(s3, tmp_path, small_parts, kind):
    proxy, client = s3
    (tmp_path / "big").write_bytes(BIG)
    proxy.expect(Fault(kind, "PUT", "partNumber=2", times=2))
    s3_store(proxy).put("big", tmp_path / "big")
    assert proxy.faults[0].times < 2
    assert client.get_object(Bucket=BUCKET, Key="some/caches/big")["Body"].read() == BIG
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_an_upload_that_fails_leaves_no_parts(s3, tmp_path, small_parts):
    proxy, client = s3
    (tmp_path / "big").write_bytes(BIG)
    proxy.expect(Fault("503", "PUT", "partNumber=3", times=99), Fault("lost", "DELETE", times=2))
    with pytest.raises(StoreError, match=re.escape("caches/big could not be written")):
        s3_store(proxy).put("big", tmp_path / "big")
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    assert not client.list_objects_v2(Bucket=BUCKET).get("Contents")


def test_uploads_of_the_dead_are_given_up(s3):
    proxy, client = s3
    client.create_multipart_upload(Bucket=BUCKET, Key="some/caches/key/v1/a")
    client.create_multipart_upload(Bucket=BUCKET, Key="other")
    store = s3_store(proxy)
    assert isinstance(store, Bucket)
    assert store.abort_uploads("key", before=1.0) == 0
    assert store.abort_uploads("key") == 1
    assert [each["Key"] for each in client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]] == [
        "other"
    ]
    client.abort_multipart_upload(
        Bucket=BUCKET,
        Key="other",
        UploadId=client.list_multipart_uploads(Bucket=BUCKET)["Uploads"][0]["UploadId"],
    )
