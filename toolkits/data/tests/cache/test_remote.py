"""Caches in a bucket: the same bytes as on a disk, committed by one put, whoever is killed, slow,
second or refused.

Run as a script, this file builds one cache of two shards: `test_remote.py ADDRESS`, the credentials
as JSON on stdin.
"""

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import Column, PluginRef
from distcore_core.errors import CacheError, StoreError, UserError
from distcore_core.registry.index import Encoder
from distcore_data.arrow import from_numpy
from distcore_data.cache import (
    SHARD_ROWS,
    Cache,
    Credentials,
    ensure_cache,
    open_cache,
    remote,
    remove,
    verify,
)
from distcore_data.cache import fetching as cache_fetching
from distcore_data.cache.manifest import RECIPE_LENGTH
from distcore_data.cache.versions import tell_other_versions
from distcore_data.seals import sealed, unsealed
from distcore_data.stores import Stat, bucket, open_store
from distcore_data.stores import lease as cache_lease
from distcore_testing.buckets import BUCKET, SECRET, Fault
from distcore_testing.counting import descriptors

KEY = "00ff" * 10
FORMAT = PluginRef(kind="caches", name="parquet", options={})
FEW = 3_000
TWO_SHARDS = SHARD_ROWS + 50
PLACE = f"s3://{BUCKET}/some/caches"
PATIENCE = 60.0
FEW_FILES = {"rows/00000.parquet", "train/00000.parquet", "validation/00000.parquet"}
FILES = FEW_FILES | {name.replace("0.", "1.") for name in FEW_FILES}


def encoded(rows=FEW):
    values = np.arange(rows, dtype=np.int32)
    return values, np.where(values % 10 < 8, -1, values % 10 - 8).astype(np.int8)


def build(builder, through=lambda builder: builder, rows=FEW):
    values, splits = encoded(rows)
    (builder.scratch / "spill").write_bytes(b"1")
    for index in range(-(-rows // SHARD_ROWS)):
        part = slice(index * SHARD_ROWS, (index + 1) * SHARD_ROWS)
        writer = through(builder)
        for code, split in enumerate(("train", "validation")):
            kept = from_numpy(values[part][splits[part] == code])
            builder.record(
                [writer.write_shard(split, index, pa.Table.from_arrays([kept], names=["x"]))]
            )
        builder.record([writer.write_split_map(index, splits[part])])
    builder.finish([Column(name="x", dtype="int32")], {}, {"digest": "d", "rows": rows})


def refuse(builder):
    raise AssertionError("built where a hit was due")


build_two = partial(build, rows=TWO_SHARDS)


def assert_whole(cache, rows=FEW):
    verify(cache)
    values, splits = encoded(rows)
    with open_cache(cache) as reader:
        for code, split in enumerate(("train", "validation")):
            assert (
                reader.read(split, 0, reader.rows(split))
                .column(0)
                .equals(from_numpy(values[splits == code]))
            )
            assert reader.row_numbers(split).tolist() == np.flatnonzero(splits == code).tolist()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nobody waits half a minute for the dead, and what they left is old at once."""
    monkeypatch.setattr(cache_lease, "LOOK", 0.05)
    monkeypatch.setattr(cache_lease, "PATIENCE", 0.4)
    monkeypatch.setattr(cache_lease, "BEAT", 0.1)
    monkeypatch.setattr(remote, "DEAD_AFTER", -60.0)


@pytest.fixture
def ensure(s3):
    """ensure_cache in the bucket."""
    credentials = Credentials(s3[0].options())

    def call(build=build, place=PLACE, **more):
        return ensure_cache(place, KEY, FORMAT, build, credentials=credentials, **more)

    return call


def objects(client):
    """{name below the cache's folder: bytes}."""
    found = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    keys = [each["Key"] for each in found]
    return {
        key.removeprefix(f"some/caches/{KEY}/"): client.get_object(Bucket=BUCKET, Key=key)[
            "Body"
        ].read()
        for key in keys
    }


def assert_nothing_but(client, files=FEW_FILES):
    """The manifest, and the files of the version that it names."""
    found = objects(client)
    version = unsealed(found["manifest.json"])["folder"]
    assert set(found) == {"manifest.json"} | {f"{version}/{name}" for name in files}
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


# ------------------------------------------------------------------ what lies there


@pytest.mark.parametrize("copied", [False, True])
def test_the_files_are_those_of_a_disk(s3, ensure, tmp_path, copied):
    """Also when workers on other machines write them: each put comes from a pickled copy of the
    builder."""
    proxy, client = s3
    through = (
        (lambda builder: pickle.loads(pickle.dumps(builder)))  # noqa: S301
        if copied
        else (lambda builder: builder)
    )
    cache = ensure(lambda builder: build_two(builder, through))
    assert_whole(cache, TWO_SHARDS)
    assert_nothing_but(client, FILES)
    here = ensure_cache(tmp_path, KEY, FORMAT, build_two)
    found = objects(client)
    manifest, expected = (
        unsealed(found["manifest.json"]),
        unsealed((here.folder / "manifest.json").read_bytes()),
    )
    version = manifest.pop("folder")
    assert manifest == expected
    for name in FILES:
        assert found[f"{version}/{name}"] == (here.folder / name).read_bytes()
    assert ensure(refuse) == cache
    written = [path for method, path in proxy.seen if method == "PUT" and "building" not in path]
    assert written[-1].endswith("/manifest.json")
    assert len(written) == len(FILES) + 1


def test_no_scratch_is_left(ensure, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert_whole(ensure())
    with pytest.raises(ZeroDivisionError):
        ensure(lambda builder: 1 / 0, place=f"{PLACE}2")
    assert list(tmp_path.iterdir()) == []


def test_in_memory():
    place = f"memory://{uuid.uuid4().hex}"
    cache = ensure_cache(place, KEY, FORMAT, build)
    assert_whole(cache)
    assert ensure_cache(place, KEY, FORMAT, refuse) == cache
    with pytest.raises(UserError, match="is the memory of one process"):
        pickle.dumps(cache)
    remove(cache)
    assert open_store(place).list() == {}


@pytest.mark.parametrize("kind", ["bucket", "folder"])
def test_a_cache_that_other_versions_built_is_told(tmp_path, kind, caplog):
    place = tmp_path if kind == "folder" else f"memory://{uuid.uuid4().hex}/caches"

    def made(builder):
        finish = builder.finish
        by = {"feature loud": {"distribution": "distcore-loud", "version": "0.1", "data": "0.1"}}
        builder.finish = partial(finish, made_by=by)
        build(builder)

    recipe = KEY[:RECIPE_LENGTH]
    for rest in ("e" * 12, "f" * 12):
        cache = ensure_cache(place, recipe + rest, FORMAT, made)
    ensure_cache(place, "ee11" * 10, FORMAT, made)
    tell_other_versions(cache, {"feature loud": Encoder("distcore-loud", "0.1", "0.1")})
    assert "other versions" not in caplog.text
    tell_other_versions(cache, {"feature loud": Encoder("distcore-loud", "0.2", "0.2")})
    said = "was built with other versions: feature loud with distcore-loud 0.1, now distcore-loud"
    assert f"{recipe}eeeeeeeeeeee {said} 0.2." in caplog.text


def test_a_cache_of_another_version_is_told(tmp_path, monkeypatch, caplog):
    recipe = KEY[:RECIPE_LENGTH]
    ensure_cache(tmp_path, recipe + "e" * 12, FORMAT, build)
    monkeypatch.setattr("distcore_data.cache.manifest.CACHE_VERSION", 99)
    tell_other_versions(Cache.at(tmp_path, recipe + "f" * 12), {})
    assert "was written by an older distcore (cache version 3; this one reads 99)" in caplog.text


def test_of_one_release_the_version_of_the_data_is_told(tmp_path, caplog):
    def made(builder):
        finish = builder.finish
        builder.finish = partial(finish, made_by={"feature n": vars(Encoder("x", "1", "2"))})
        build(builder)

    recipe = KEY[:RECIPE_LENGTH]
    ensure_cache(tmp_path, recipe + "e" * 12, FORMAT, made)
    cache = Cache.at(tmp_path, recipe + "f" * 12)
    tell_other_versions(cache, {"feature n": Encoder("x", "2", "2")})
    assert not caplog.text  # encodes alike
    tell_other_versions(cache, {"feature n": Encoder("x", "1", "3")})
    assert "feature n with x 1 (data version 2), now x 1 (data version 3)" in caplog.text


def test_removed_is_gone_manifest_first(s3, ensure):
    proxy, client = s3
    cache = ensure()
    proxy.expect()
    remove(cache)
    assert objects(client) == {}
    assert next(path for method, path in proxy.seen if method == "DELETE").endswith("manifest.json")


def test_a_cache_that_was_copied_from_a_disk_is_read(s3, ensure, tmp_path):
    _, client = s3
    here = ensure_cache(tmp_path, KEY, FORMAT, build_two)
    for name in (*FILES, "manifest.json"):
        client.put_object(
            Bucket=BUCKET, Key=f"some/caches/{KEY}/{name}", Body=(here.folder / name).read_bytes()
        )
    assert_whole(ensure(refuse), TWO_SHARDS)


def test_nothing_shows_the_credentials(s3, ensure):
    cache = ensure()
    for text in (repr(cache), str(cache), cache.where, cache.directory):
        assert SECRET not in text
    copy = pickle.loads(pickle.dumps(cache))  # noqa: S301
    assert_whole(copy)


# ------------------------------------------------------------------ damage


@pytest.mark.parametrize("damage", ["missing", "cut", "longer", "manifest"])
def test_damage_that_a_listing_shows_is_built_again(s3, ensure, damage, caplog):
    _, client = s3
    ensure()
    found = objects(client)
    victim = next(name for name in found if name.endswith("train/00000.parquet"))
    victim = "manifest.json" if damage == "manifest" else victim
    content = {"cut": found[victim][:-1], "longer": found[victim] + b"1", "manifest": b"{}"}.get(
        damage
    )
    where = {"Bucket": BUCKET, "Key": f"some/caches/{KEY}/{victim}"}
    client.put_object(**where, Body=content) if content is not None else client.delete_object(
        **where
    )
    with caplog.at_level(logging.WARNING):
        assert_whole(ensure())
    assert victim in caplog.text
    assert "It is built again now." in caplog.text
    assert_nothing_but(client)


@pytest.mark.parametrize("piece", [1 << 24, 1 << 8], ids=["hashed on the way", "read back"])
def test_a_changed_byte_is_never_read(s3, ensure, piece, monkeypatch):
    monkeypatch.setattr(bucket, "PIECE", piece)
    _, client = s3
    cache = ensure(build_two)
    victim = next(name for name in objects(client) if name.endswith("train/00001.parquet"))
    content = bytearray(objects(client)[victim])
    content[len(content) // 2] ^= 1
    client.put_object(Bucket=BUCKET, Key=f"some/caches/{KEY}/{victim}", Body=bytes(content))
    with (
        open_cache(cache) as reader,
        pytest.raises(
            CacheError, match=rf"{PLACE}/{KEY}/{victim} .*xxh3.*what is damaged is made again"
        ),
    ):
        reader.read("train", 0, reader.rows("train"))
    with pytest.raises(CacheError, match=victim):
        verify(cache)


@pytest.mark.parametrize("folder", ["../other", "/etc", "x" * 32, 7])
def test_a_manifest_that_leads_elsewhere_is_refused(s3, ensure, folder):
    _, client = s3
    cache = ensure()
    document = {**unsealed(objects(client)["manifest.json"]), "folder": folder}
    client.put_object(Bucket=BUCKET, Key=f"some/caches/{KEY}/manifest.json", Body=sealed(document))
    with pytest.raises(CacheError, match="which is none of a cache"):
        open_cache(cache)


# ------------------------------------------------------------------ faults


def test_a_build_and_a_read_through_faults_of_every_kind(s3, ensure):
    proxy, client = s3
    proxy.expect(
        *(Fault(kind, method) for kind in ("503", "lost") for method in ("PUT", "GET", "DELETE")),
        *(Fault(kind, "PUT", "manifest.json", times=2) for kind in ("lost", "503")),
        Fault("reset", "GET"),
        Fault("slow", "GET", "list-type", seconds=0.3),
    )
    cache = ensure(build_two)
    assert_nothing_but(client, FILES)
    proxy.expect(
        Fault("503", "GET", "train", times=2),
        Fault("reset", "GET", "train", times=2),
        Fault("lost", "GET", "rows"),
    )
    assert_whole(cache, TWO_SHARDS)
    assert all(fault.times == 0 for fault in proxy.faults)


def test_a_put_of_the_manifest_that_was_never_answered_is_looked_at(s3, ensure):
    proxy, client = s3
    proxy.expect(Fault("lost", "PUT", "manifest.json", times=99))
    assert_whole(ensure())
    assert_nothing_but(client)


@pytest.mark.parametrize("when", ["put", "old files"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreError])
def test_a_build_that_ends_after_its_commit_leaves_what_it_committed(monkeypatch, when, error):
    """Its files were deleted, and the manifest that named them stayed."""
    place = f"memory://{uuid.uuid4().hex}/caches"
    ensure_cache(place, KEY, FORMAT, build)
    store = open_store(place)
    (old,) = {name.split("/")[1] for name in store.list() if name.endswith(".parquet")}
    store.write(f"{KEY}/{old}/train/00000.parquet", b"cut")
    create, listed, committed = bucket.Bucket.create, bucket.Bucket.list, []

    def created(self, name, content):
        done = create(self, name, content)
        if name == f"{KEY}/manifest.json":
            committed.append(name)
            if when == "put":
                raise error("now")
        return done

    def list_(self, prefix=""):
        if committed and prefix == f"{KEY}/{old}/":
            raise error("now")
        return listed(self, prefix)

    with monkeypatch.context() as patch:
        patch.setattr(bucket.Bucket, "create", created)
        patch.setattr(bucket.Bucket, "list", list_)
        with suppress(error):
            ensure_cache(place, KEY, FORMAT, build)
    assert committed
    assert_whole(ensure_cache(place, KEY, FORMAT, refuse))


@pytest.mark.parametrize("part", ["validation/00000", "manifest.json", "building.json"])
def test_a_store_that_stays_down_ends_the_build_and_nothing_is_left(s3, ensure, part):
    proxy, client = s3
    proxy.expect(Fault("503", "PUT", part, times=99))
    with pytest.raises(
        StoreError, match=rf"{part}.* could not be (written|created) in 6 attempts.* \(SlowDown"
    ):
        ensure()
    assert objects(client) == {}


def test_a_token_that_expires_is_told_and_the_next_run_builds(s3, ensure):
    """With a token that may do nothing any more, what was put stays, but no manifest names it."""
    proxy, client = s3
    proxy.expect(*(Fault("expired", method, "", times=0) for method in ("PUT", "GET", "DELETE")))

    def expire(builder):
        builder.record([builder.write_split_map(0, encoded()[1][:SHARD_ROWS])])
        for fault in proxy.faults:
            fault.times = 999
        build(builder)

    with pytest.raises(
        StoreError,
        match=r"train/00000\.parquet could not be written( within \d+ seconds)? \(ExpiredToken.*cache_credentials",
    ):
        ensure(expire)
    assert "manifest.json" not in objects(client)
    proxy.expect()
    assert_whole(ensure())
    assert_nothing_but(client)


def test_a_store_that_ignores_conditions_is_refused(s3, ensure):
    proxy, client = s3
    proxy.expect(Fault("unconditional", "PUT", times=99))
    with pytest.raises(StoreError, match="ignores the condition of a put"):
        ensure(refuse)
    assert objects(client) == {}


def test_a_bucket_that_is_not_there(s3):
    with pytest.raises(StoreError, match="NoSuchBucket"):
        ensure_cache(
            "s3://nobody-has-this/a", KEY, FORMAT, build, credentials=Credentials(s3[0].options())
        )


@pytest.mark.parametrize(("left", "told"), [(None, "is not there"), (b"cut", "has 3 bytes")])
def test_an_object_that_changed_is_noticed_before_the_commit(s3, ensure, left, told):
    _, client = s3

    def robbed(builder):
        build(builder)
        where = {"Bucket": BUCKET}
        where["Key"] = f"some/caches/{KEY}/{builder.version}/train/00000.parquet"
        client.put_object(**where, Body=left) if left else client.delete_object(**where)

    with pytest.raises(CacheError, match=rf"train/00000\.parquet was put with .* {told}"):
        ensure(robbed)
    assert objects(client) == {}


# ------------------------------------------------------------------ reading


def test_a_reader_fetches_only_what_it_reads(s3, ensure):
    proxy, _ = s3
    cache = ensure(build_two)
    proxy.expect()
    with open_cache(cache) as reader:
        reader.read("train", 0, 10)
    assert [path.rpartition("/")[2] for method, path in proxy.seen] == [
        "manifest.json",
        "00000.parquet",
    ]


@pytest.mark.parametrize("limit", ["AHEAD_FILES", "AHEAD_BYTES"])
def test_what_is_expected_is_fetched_ahead_and_no_more_than_there_is_room_for(
    s3, ensure, monkeypatch, tmp_path, limit
):
    proxy, _ = s3
    cache = ensure(build_two)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cache_fetching, limit, 1)
    handles = descriptors()
    with open_cache(cache) as reader:
        proxy.expect()
        reader.expect("train", 0, reader.rows("train"))
        deadline = time.monotonic() + PATIENCE
        while not proxy.count("GET", "train/00000"):
            assert time.monotonic() < deadline
        assert proxy.count("GET", "train/00001") == 0
        reader.read("train", 0, 1)
        while not proxy.count("GET", "train/00001"):
            assert time.monotonic() < deadline
        reader.expect("validation", 0, 1)
        reader.read("train", 0, reader.rows("train"))
        assert proxy.count("GET", "train/00000") == 1
    threads = [
        each.name for each in threading.enumerate() if each.name.startswith("distcore-ahead")
    ]
    assert threads == []
    # Some connections are kept for the next request.
    assert descriptors() <= handles + 4
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_too_many_bytes_are_closed_for_others(ensure, monkeypatch):
    cache = ensure(build_two)
    monkeypatch.setattr(cache_fetching.FetchedFiles, "most_bytes", 1)
    with open_cache(cache) as reader:
        rows = reader.rows("train")
        for _ in range(2):
            reader.read("train", 0, 1)
            reader.read("train", rows - 1, rows)
            assert len(reader._open) == 1


def test_an_error_while_fetching_ahead_is_told_to_who_reads(s3, ensure):
    proxy, _ = s3
    cache = ensure(build_two)
    with open_cache(cache) as reader:
        proxy.expect(Fault("denied", "GET", "train/00000", times=9))
        reader.expect("train", 0, reader.rows("train"))
        with pytest.raises(
            StoreError,
            match=r"train/00000\.parquet could not be read( within \d+ seconds)? \(AccessDenied",
        ):
            reader.read("train", 0, 1)


# ------------------------------------------------------------------ several builders


@pytest.mark.parametrize("damaged", [False, True])
def test_of_two_builders_at_once_the_second_reads_the_firsts(s3, ensure, monkeypatch, damaged):
    """The lease was lost: each believes that it builds alone."""
    monkeypatch.setattr(cache_lease, "BEAT", 60.0)
    _, client = s3
    caches, built = [], []
    if damaged:
        ensure()
        victim = next(name for name in objects(client) if name.endswith("train/00000.parquet"))
        client.delete_object(Bucket=BUCKET, Key=f"some/caches/{KEY}/{victim}")

    def second(builder):
        built.append(builder.version)
        build(builder)

    def first(builder):
        built.append(builder.version)
        client.delete_object(Bucket=BUCKET, Key=f"some/caches/{KEY}/building.json")
        caches.append(ensure(second))
        build(builder)

    caches.append(ensure(first))
    assert len(built) == 2
    assert unsealed(objects(client)["manifest.json"])["folder"] == built[1]
    assert_nothing_but(client)
    for cache in caches:
        assert_whole(cache)


def test_who_waits_says_so_and_hits(s3, ensure, monkeypatch):
    monkeypatch.setattr(cache_lease, "PATIENCE", 3.0)  # a busy machine's heart beats late
    waiting, done = threading.Event(), []

    def slowly(builder):
        thread.start()
        assert waiting.wait(PATIENCE)
        time.sleep(1.5 * cache_lease.PATIENCE)  # the lease is kept alive meanwhile
        build(builder)

    class Progress:
        def __setattr__(self, name, value):
            assert (name, value) == ("note", "waiting for another run that builds this cache")
            waiting.set()

    thread = threading.Thread(target=lambda: done.append(ensure(refuse, progress=Progress())))
    cache = ensure(slowly)
    thread.join(PATIENCE)
    assert done == [cache]


@pytest.mark.system
def test_eight_processes_build_one_cache(s3, tmp_path):
    proxy, client = s3
    command = [sys.executable, __file__, PLACE]
    runs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for run in runs:
        run.stdin.write(json.dumps(proxy.options()))
        run.stdin.close()
    said = [(run.wait(3 * PATIENCE), run.stdout.read()) for run in runs]
    assert sorted(said) == [(0, "built\n")] + 7 * [(0, "hit\n")]
    assert_nothing_but(client, FILES)
    assert_whole(
        Cache(directory=PLACE, key=KEY, credentials=Credentials(proxy.options())), TWO_SHARDS
    )


@pytest.mark.parametrize("leased", [True, False])
def test_a_build_sweeps_what_no_manifest_names_and_was_put_before_a_day(monkeypatch, leased):
    """Another builder may be at work on the rest, and nothing is old by no clock."""
    day = 86_400.0
    monkeypatch.setattr(remote, "DEAD_AFTER", day)
    store, given_up = open_store(f"memory://{uuid.uuid4().hex}/caches"), []
    monkeypatch.setattr(
        bucket.Bucket, "abort_uploads", lambda self, key, before: given_up.append((key, before))
    )
    dead, alive, named = (f"{KEY}/{digit * 32}" for digit in "def")
    days = {f"{dead}/a": 1.0, f"{dead}/b": 7.9, f"{alive}/a": 1.0, f"{alive}/b": 8.1}
    days |= {f"{named}/a": 1.0, f"{KEY}/manifest.json": 1.0} | {f"{KEY}/building.json": 9.0}
    if not leased:
        del days[f"{KEY}/building.json"]
    for name in days:
        store.write(name, b'{"folder": "%s"}' % (b"f" * 32))
    stats = {name: Stat(1, day * each) for name, each in days.items()}
    with monkeypatch.context() as patch:
        patch.setattr(store, "list", lambda prefix: stats)
        remote._sweep(store, KEY, SimpleNamespace(name=f"{KEY}/building.json"))
    gone = set(days) - set(store.list())
    assert gone == ({f"{dead}/a", f"{dead}/b"} if leased else set())
    assert given_up == [(KEY, 8 * day if leased else -day)]


# ------------------------------------------------------------------ killed


def noted(outcome, build, builder):
    outcome.append("built")
    build(builder)


def killed_at(number, before, proxy, ensure):
    """Build in a forked process that is killed when its number-th request that changes the bucket
    is about to reach the store, or was carried out there. True if it got to its end before."""
    changes = []
    born = threading.Event()
    child = os.fork()
    if child == 0:
        try:
            ensure(build)
            os._exit(0)
        finally:
            os._exit(1)

    def pause(method, path, now):
        assert born.wait(PATIENCE)
        if method in ("PUT", "POST", "DELETE") and now is before:
            changes.append(path)
            if len(changes) == number:
                os.kill(child, signal.SIGKILL)
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
                raise ConnectionAbortedError  # the proxy goes no further with this request

    proxy.pause = pause
    born.set()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    proxy.pause = None
    assert status in (0, -signal.SIGKILL)
    return status == 0


@pytest.mark.system
@pytest.mark.parametrize("state", ["nothing", pytest.param("damaged", marks=pytest.mark.slow)])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_killed_at_any_change_of_the_bucket_the_next_run_reads_or_builds(
    s3, ensure, state, before, monkeypatch
):
    """Enumerated: every put and delete of a build, until one gets to its end."""
    proxy, client = s3
    monkeypatch.setattr(
        cache_lease, "BEAT", 60.0
    )  # so that the changes of a build are the same ones each time
    cache, number, hits = (
        Cache(directory=PLACE, key=KEY, credentials=Credentials(proxy.options())),
        0,
        0,
    )
    while True:
        number += 1
        for name in objects(client):
            client.delete_object(Bucket=BUCKET, Key=f"some/caches/{KEY}/{name}")
        if state == "damaged":
            ensure(build)
            victim = next(name for name in objects(client) if name.endswith("train/00000.parquet"))
            client.delete_object(Bucket=BUCKET, Key=f"some/caches/{KEY}/{victim}")
        if killed_at(number, before, proxy, ensure):
            break
        outcome = []
        ensure(partial(noted, outcome, build))
        assert_whole(cache)
        hits += not outcome
        left = set(objects(client)) - {"building.json"}
        version = unsealed(objects(client)["manifest.json"])["folder"]
        assert left >= {"manifest.json"} | {f"{version}/{name}" for name in FEW_FILES}
        if outcome:
            assert_nothing_but(client)
    # At least the lease and its proof, the files, the manifest, and the end of the lease.
    assert number - 1 >= 2 + len(FEW_FILES) + 1 + 1 + (state == "damaged")
    # Once the manifest is there it is a hit, while the rest of a damaged version and the lease are
    # deleted.
    assert hits == (1 if before else 2) + (len(FEW_FILES) - 1 if state == "damaged" else 0)
    assert_nothing_but(client)


def main():
    outcome = []
    credentials = Credentials(json.load(sys.stdin))
    ensure_cache(
        sys.argv[1],
        KEY,
        FORMAT,
        partial(noted, outcome, build_two),
        credentials=credentials,
    )
    print(*outcome or ["hit"])


if __name__ == "__main__":
    main()
