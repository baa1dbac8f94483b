"""Looking after caches: what is listed, who uses it, and that only what is ours and unused is
ever removed."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faulty_builds import Build, ended, forked, listing, shard, until

from distcore_core.errors import StoreError, UserError
from distcore_core.io.atomic import remove_directory
from distcore_data.arrow import from_numpy
from distcore_data.cache import Cache, Credentials, ensure_cache
from distcore_data.cache import prune as pruning
from distcore_data.cache import use as uses
from distcore_data.cache.listing import Entry, bucket_entries, list_caches
from distcore_data.cache.prune import Rules, chosen, prune, remove_unused
from distcore_data.cache.repair import repair
from distcore_data.cache.use import begin_use
from distcore_data.locks import lock_file, locked
from distcore_data.stores import Stat, open_store
from distcore_data.stores.bucket import Bucket
from distcore_testing.buckets import BUCKET, Fault

build = Build("parquet", 2000)
KEYS = [digit * 40 for digit in "abc"]
HOUR, DAY = 3600.0, 86_400.0
TAIL = "0" * 32
ALL = Rules(unused=True)


def old_at_once(monkeypatch):
    """What a dead builder left in a bucket is old."""
    for module in ("listing", "prune"):
        monkeypatch.setattr(f"distcore_data.cache.{module}.DEAD_AFTER", -1.0)


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path):
    """Three caches, used one, two and three hours ago, where the place is a folder."""
    root = (
        str(tmp_path / "caches")
        if request.param == "folder"
        else f"memory://{tmp_path.name}/caches"
    )
    for number, key in enumerate(KEYS):
        cache = ensure_cache(root, key, build.format, build)
        if request.param == "folder":
            ago = time.time() - (3 - number) * HOUR
            os.utime(cache.folder, (ago, ago))
            os.utime(cache.folder / "manifest.json", (ago, ago))
    return root


def states(place):
    return {entry.key[0]: entry.state for entry in list_caches(place)}


def decided(decisions):
    return {each.entry.key[0]: each.what for each in decisions}


# ------------------------------------------------------------------ what is listed


def test_each_cache_is_told_with_its_size_rows_and_source(place):
    found = list_caches(place)
    assert [entry.key for entry in found] == KEYS
    for entry in found:
        sizes = [stat.bytes for name, stat in open_store(place).list(f"{entry.key}/").items()]
        assert entry.bytes == sum(sizes)
        assert (entry.state, entry.format, entry.rows) == ("whole", "parquet", 1500)
        assert entry.source == {"digest": "d", "rows": 2000}
        assert (entry.in_use, entry.users) == (False, ())
        assert abs(time.time() - entry.built) < 4 * HOUR


def test_a_damaged_cache_says_why(place):
    store = open_store(place)
    name = next(name for name in store.list(f"{KEYS[0]}/") if "train" in name)
    store.write(name, b"cut")
    store.write(f"{KEYS[1]}/manifest.json", b"torn")
    found = {entry.key[0]: entry for entry in list_caches(place)}
    assert states(place)["a"] == states(place)["b"] == "damaged"
    assert name in found["a"].why
    assert "manifest.json is damaged" in found["b"].why
    assert states(place)["c"] == "whole"


@pytest.mark.parametrize(("now", "who"), [(99, "an older"), (0, "a newer")])
def test_a_cache_of_another_version_is_not_called_damaged(place, monkeypatch, now, who):
    monkeypatch.setattr("distcore_data.cache.manifest.CACHE_VERSION", now)
    for entry in list_caches(place):
        assert entry.state == "other version"
        assert f"was written by {who} distcore (cache version 3; this one reads {now})" in entry.why
    assert decided(prune(place, ALL)) == dict.fromkeys("abc", "removed")
    assert list_caches(place) == []


def test_a_place_with_nothing_in_it(tmp_path):
    assert list_caches(tmp_path) == list_caches(tmp_path / "missing") == []
    assert prune(tmp_path / "missing", ALL) == []
    assert not (tmp_path / "missing").exists()
    with pytest.raises(UserError, match="cannot be looked at"):
        list_caches("/dev/null")


def test_looking_changes_nothing(place, tmp_path):
    before = listing(tmp_path), open_store(place).list()
    list_caches(place)
    prune(place, Rules(older_than=0, keep=0, unused=True), dry_run=True)
    assert (listing(tmp_path), open_store(place).list()) == before


# ------------------------------------------------------------------ who uses it


def test_a_use_is_seen_and_keeps_the_cache(place):
    use = begin_use(Cache.at(place, KEYS[0]))
    found = next(entry for entry in list_caches(place) if entry.key == KEYS[0])
    assert found.in_use
    assert str(os.getpid()) in found.users[0]
    assert decided(prune(place, ALL)) == {"a": "kept", "b": "removed", "c": "removed"}
    assert states(place) == {"a": "whole"}
    use.close()
    use.close()
    assert not next(iter(list_caches(place))).in_use
    assert decided(prune(place, ALL)) == {"a": "removed"}
    assert open_store(place).list() == {}


def test_one_cache_goes_unless_it_is_used(place):
    cache = Cache.at(place, KEYS[0])
    use = begin_use(cache)
    assert str(os.getpid()) in remove_unused(cache)
    assert states(place) == {"a": "whole", "b": "whole", "c": "whole"}
    use.close()
    assert remove_unused(cache) == ""
    assert states(place) == {"b": "whole", "c": "whole"}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_use_ends_with_its_process(tmp_path, end):
    cache = ensure_cache(tmp_path, KEYS[0], build.format, build)

    def work():
        use = begin_use(cache)
        (tmp_path / "begun").touch()
        time.sleep(600)
        use.close()

    child = forked(work)
    until((tmp_path / "begun").exists)
    (entry,) = list_caches(tmp_path)
    assert (entry.in_use, entry.users) == (True, (str(child),))
    assert decided(prune(tmp_path, ALL)) == {"a": "kept"}
    os.kill(child, end)
    ended(child)
    assert decided(prune(tmp_path, ALL)) == {"a": "removed"}
    assert os.listdir(tmp_path) == ["begun"]


def test_several_uses_and_a_hit_live_side_by_side(tmp_path):
    cache = ensure_cache(tmp_path, KEYS[0], build.format, build)
    first, second = begin_use(cache), begin_use(cache)
    first.close()
    assert next(iter(list_caches(tmp_path))).in_use
    ensure_cache(tmp_path, KEYS[0], build.format, build)
    second.close()
    assert not next(iter(list_caches(tmp_path))).in_use


def test_the_last_use_is_kept(place):
    begin_use(Cache.at(place, KEYS[0])).close()
    assert [entry.key for entry in list_caches(place)][-1] == KEYS[0]


def test_a_use_of_a_cache_that_is_gone_is_none_and_leaves_nothing(place):
    use = begin_use(Cache.at(place, KEYS[0]))
    store = open_store(place)
    store.delete([name for name in store.list() if not Path(name).name.startswith(uses.READING)])
    assert begin_use(Cache.at(place, KEYS[1])) is None
    store.delete(store.list())
    use.close()  # its cache went with its own object: it notes no last use of it
    assert store.list() == {}


def test_a_lock_of_a_manifest_is_of_the_one_that_lies_there(tmp_path, monkeypatch):
    """While it was waited for, the cache was removed and built again."""
    path = tmp_path / "manifest.json"
    path.write_text("old")
    real = fcntl.flock

    def replaced(handle, how):
        if path.read_text() == "old":
            path.unlink()
            path.write_text("new")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    handle = lock_file(path, fcntl.LOCK_SH)
    assert os.read(handle, 9) == b"new"
    os.close(handle)


def test_over_nfs_a_use_is_seen_and_what_is_unused_goes(tmp_path, monkeypatch):
    """Its exclusive locks are for files that are open for writing."""
    real, cache = fcntl.flock, ensure_cache(tmp_path, KEYS[0], build.format, build)

    def flock(handle, how):
        if how & fcntl.LOCK_EX and fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    use = begin_use(cache)
    assert [each.in_use for each in list_caches(tmp_path)] == [True]
    use.close()
    assert [each.in_use for each in list_caches(tmp_path)] == [False]
    assert decided(prune(tmp_path, ALL)) == {"a": "removed"}


@pytest.mark.parametrize(("number", "then"), [(errno.ENOLCK, "removed"), (errno.EBADF, "kept")])
def test_who_uses_a_cache_is_not_seen_where_its_manifest_has_no_locks(
    tmp_path, monkeypatch, number, then
):
    """EBADF: over NFS, of another user's."""
    real = fcntl.flock
    ensure_cache(tmp_path, KEYS[0], build.format, build)

    def flock(handle, how):
        if os.readlink(f"/proc/self/fd/{handle}").endswith("manifest.json"):
            raise OSError(number, os.strerror(number))
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert [(each.state, each.in_use) for each in list_caches(tmp_path)] == [("whole", False)]
    assert decided(prune(tmp_path, ALL)) == {"a": then}


def test_caches_are_listed_where_no_file_has_locks(tmp_path, monkeypatch):
    (tmp_path / f"{KEYS[0]}.lock").touch()

    def lockless(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", lockless)
    assert states(tmp_path) == {"a": "left over"}
    assert decided(prune(tmp_path, ALL)) == {"a": "kept"}


def test_a_use_in_a_bucket_counts_until_it_expires_and_for_ever_without_a_clock():
    store = open_store("memory://users/caches")
    names = {
        name: f"k/{uses.READING}{name}.json" for name in ("late", "now", "gone", "ever", "odd")
    }
    for process, (name, path) in enumerate(names.items()):
        if name != "gone":
            who = b"?" if name == "odd" else b'{"host": "h", "process": %d}' % process
            store.write(path, who)
    times = {"late": 0.5, "now": 1.5, "ever": 0.0, "odd": 9.0, "gone": 9.0}
    found = {path: Stat(9, times[name]) for name, path in names.items()}
    found[f"other/{uses.READING}x.json"] = Stat(9, 9.0)
    assert uses.users_there(store, found, "k", uses.EXPIRY + 1.0) == ["h:1", "h:3", "unknown"]


COMES = """
import sys
from distcore_data.cache import Cache
from distcore_data.cache.use import begin_use
print("comes", flush=True)
print(begin_use(Cache(directory=sys.argv[1], key=sys.argv[2])))
"""


def test_who_comes_while_a_cache_is_removed_finds_none(tmp_path, monkeypatch):
    """It waits for the lock on the manifest, which is gone then."""
    cache = ensure_cache(tmp_path, KEYS[0], build.format, build)
    real, comers = pruning.remove_directory, []

    def slow(path):
        comer = subprocess.Popen(
            [sys.executable, "-c", COMES, tmp_path, KEYS[0]], stdout=subprocess.PIPE, text=True
        )
        comers.append(comer)
        assert comer.stdout.readline() == "comes\n"
        time.sleep(0.3)
        assert comer.poll() is None
        real(path)

    monkeypatch.setattr(pruning, "remove_directory", slow)
    assert decided(prune(tmp_path, ALL)) == {"a": "removed"}
    assert comers[0].communicate(timeout=60) == ("None\n", None)
    assert begin_use(cache) is None


def test_a_reader_that_came_first_gets_its_bucket_back(monkeypatch):
    """Its object was written before the manifest went, so it shows afterwards."""
    place = "memory://came-first/caches"
    cache = ensure_cache(place, KEYS[0], build.format, build)
    store, came = type(open_store(place)), []
    real = store.delete

    def delete(self, names):
        names = list(names)
        if not came and names == [f"{KEYS[0]}/manifest.json"]:
            came.append(begin_use(cache))
        real(self, names)

    monkeypatch.setattr(store, "delete", delete)
    assert decided(prune(place, ALL)) == {"a": "kept"}
    build.assert_whole(cache)
    came[0].close()
    assert decided(prune(place, ALL)) == {"a": "removed"}


def test_a_bucket_that_fails_while_a_cache_is_removed_keeps_it(monkeypatch):
    """Its manifest was gone by then: a run that used it ended, and its files were nobody's."""
    place = "memory://fails-meanwhile/caches"
    cache = ensure_cache(place, KEYS[0], build.format, build)
    manifest, real = f"{KEYS[0]}/manifest.json", {"list": Bucket.list, "delete": Bucket.delete}

    def failing(name):
        def call(self, *what):
            done = real[name](self, *what)
            if what[:1] != (manifest,) and manifest not in real["list"](self):
                raise StoreError("busy")
            return done

        return call

    for name in real:  # a request that fails may have been done
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, name, failing(name))
            with pytest.raises(StoreError, match="busy"):
                prune(place, ALL)
        build.assert_whole(cache)
    assert decided(prune(place, ALL)) == {"a": "removed"}


def test_this_machines_clock_does_not_judge_who_uses_a_bucket(monkeypatch):
    """By a clock that was ahead nobody did: the manifest went, and was put back a moment later."""
    place = "memory://ahead/caches"
    cache = ensure_cache(place, KEYS[0], build.format, build)
    use, now, deleted, real = begin_use(cache), time.time(), [], Bucket.delete

    def delete(self, names):
        deleted.extend(names := list(names))
        real(self, names)

    monkeypatch.setattr(Bucket, "delete", delete)
    monkeypatch.setattr(time, "time", lambda: now + 365 * DAY)
    for rules in (ALL, Rules(older_than=DAY), Rules(keep=0)):
        assert decided(prune(place, rules)) == {"a": "kept"}
    assert all(name.startswith("clock-") for name in deleted)
    use.close()


def test_a_use_in_a_bucket_beats_and_expires(monkeypatch):
    place = "memory://expires/caches"
    cache = ensure_cache(place, KEYS[0], build.format, build)
    monkeypatch.setattr(uses, "BEAT", 0.01)
    use, store = begin_use(cache), open_store(place)
    first = store.read(use._name)
    until(lambda: store.read(use._name) != first)
    use._heart.stop()  # as a process that is killed leaves it
    assert decided(prune(place, ALL)) == {"a": "kept"}
    monkeypatch.setattr(uses, "EXPIRY", -1.0)
    assert decided(prune(place, ALL)) == {"a": "removed"}
    assert store.list() == {}


LEFT_OPEN = """
from distcore_data.cache import Cache
from distcore_data.cache.use import begin_use
cache = Cache.at("memory://left/caches", "a" * 40)
cache.store().write(cache.key + "/manifest.json", b"{}")
use = begin_use(cache)
print(bool(use))
"""


def test_a_process_ends_that_leaves_a_use_in_a_bucket_open():
    words = [sys.executable, "-c", LEFT_OPEN]
    done = subprocess.run(words, capture_output=True, text=True, timeout=uses.BEAT)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# ------------------------------------------------------------------ what goes


@pytest.mark.parametrize(
    ("rules", "going"),
    [
        (Rules(), ""),
        (Rules(unused=True), "abc"),
        (Rules(older_than=2.5 * HOUR), "a"),
        (Rules(older_than=1.5 * HOUR), "ab"),
        (Rules(older_than=DAY), ""),
        (Rules(older_than=2.5 * HOUR, keep=0), "abc"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_rules(tmp_path, rules, going, dry_run):
    place = tmp_path
    for number, key in enumerate(KEYS):
        cache, ago = (
            ensure_cache(place, key, build.format, build),
            time.time() - (3 - number) * HOUR,
        )
        for path in (cache.folder / "manifest.json", cache.folder):
            os.utime(path, (ago, ago))
    found = decided(prune(place, rules, dry_run=dry_run))
    said = "would be removed" if dry_run else "removed"
    assert found == {key[0]: said if key[0] in going else "kept" for key in KEYS}
    assert "".join(sorted(states(place))) == (
        "abc" if dry_run else "".join(sorted(set("abc") - set(going)))
    )


def test_keeping_a_size_lets_go_of_what_was_used_longest_ago(place):
    sizes = {entry.key[0]: entry.bytes for entry in list_caches(place)}
    if place.startswith("memory"):
        for key in KEYS:
            begin_use(Cache.at(place, key)).close()
        sizes = {entry.key[0]: entry.bytes for entry in list_caches(place)}
    assert decided(prune(place, Rules(keep=sum(sizes.values())))) == dict.fromkeys("abc", "kept")
    kept = Rules(keep=sizes["b"] + sizes["c"])
    assert decided(prune(place, kept)) == {"a": "removed", "b": "kept", "c": "kept"}
    use = begin_use(Cache.at(place, KEYS[1]))
    assert decided(prune(place, Rules(keep=0))) == {"b": "kept", "c": "removed"}
    use.close()


@pytest.mark.parametrize(
    ("rules", "going"),
    [
        (Rules(), "l"),
        (Rules(older_than=100.0), "lo"),  # older than that, by the later of use and building
        (Rules(keep=40), "l"),  # of caches: what is left over or foreign does not count
        (Rules(keep=39), "lo"),
        (Rules(keep=20), "lob"),  # what is used counts, and stays
        (Rules(unused=True), "lobd"),
    ],
)
def test_of_caches_that_nobody_uses_the_oldest_go(rules, going):
    entries = [
        Entry("l", "left over", 99),
        Entry("f", "foreign", 99),
        Entry("n", "building", 99),
        Entry("u", "whole", 10, used=1.0, in_use=True),
        Entry("o", "whole", 10, used=890.0, built=10.0),
        Entry("b", "damaged", 10, used=10.0, built=900.0),
        Entry("d", "whole", 10, used=950.0),
    ]
    assert "".join(entries[at].key for at in chosen(entries, rules, 1000.0)) == going


def test_what_changed_since_it_was_listed_stays(tmp_path, monkeypatch):
    """A run begins to build where a killed one left files; another's upload goes on."""
    left = tmp_path / f"{KEYS[0]}.building-{TAIL}"
    left.mkdir()
    with monkeypatch.context() as patch:
        found = list_caches(tmp_path)
        patch.setattr(pruning, "listed", lambda *_: found)
        with locked(tmp_path / f"{KEYS[0]}.lock"):
            assert decided(prune(tmp_path, Rules())) == {"a": "kept"}
    assert left.exists()

    place = "memory://changed/caches"
    store = open_store(place)
    store.write(f"{KEYS[0]}/{TAIL}/train/00000.parquet", b"12345")
    old_at_once(monkeypatch)
    found = list_caches(place)
    store.write(f"{KEYS[0]}/{TAIL}/train/00001.parquet", b"12345")
    monkeypatch.setattr(pruning, "listed", lambda *_: found)
    assert decided(prune(place, Rules())) == {"a": "kept"}
    assert len(store.list(f"{KEYS[0]}/")) == 2


def test_left_overs_go_and_what_is_being_built_stays(tmp_path):
    dead, live = "d" * 40, "e" * 40
    for name in (f"{dead}.building-{TAIL}", f"{dead}.removing-{TAIL}", f"{live}.building-{TAIL}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"12345")
    (tmp_path / f"{dead}.lock").touch()
    with locked(tmp_path / f"{live}.lock"):
        assert states(tmp_path) == {"d": "left over", "e": "building"}
        assert {entry.key[0]: entry.bytes for entry in list_caches(tmp_path)} == {"d": 10, "e": 5}
        assert decided(prune(tmp_path, Rules())) == {"d": "removed", "e": "kept"}
        assert sorted(os.listdir(tmp_path)) == [f"{live}.building-{TAIL}", f"{live}.lock"]
    assert decided(prune(tmp_path, Rules())) == {"e": "removed"}
    assert os.listdir(tmp_path) == []


def test_what_goes_while_it_is_listed_is_passed_over(tmp_path, monkeypatch):
    """A run that builds renames and removes files all the time, and another may prune."""
    gone = ensure_cache(tmp_path, KEYS[0], build.format, build).folder
    ensure_cache(tmp_path, KEYS[1], build.format, build)
    building, real = tmp_path / f"{'e' * 40}.building-{TAIL}", os.walk
    building.mkdir()
    for name in ("kept", "renamed"):
        (building / name).write_bytes(b"12345")

    def walk(folder):
        for found in real(folder):
            if Path(folder) == building:
                (building / "renamed").unlink(missing_ok=True)
            elif Path(folder) == gone:
                remove_directory(gone)
            yield found

    monkeypatch.setattr(os, "walk", walk)
    found = list_caches(tmp_path)
    assert sorted((each.key[0], each.state) for each in found) == [
        ("b", "whole"),
        ("e", "left over"),
    ]
    assert next(each.bytes for each in found if each.key[0] == "e") == 5


def test_left_overs_in_a_bucket_go_after_a_day(monkeypatch):
    place = "memory://left/caches"
    cache, store = ensure_cache(place, KEYS[0], build.format, build), open_store(place)
    store.write(f"{KEYS[0]}/{TAIL}/train/00000.parquet", b"12345")
    assert sorted((entry.state, entry.bytes > 5) for entry in list_caches(place)) == [
        ("building", False),
        ("whole", True),
    ]
    assert [each.what for each in prune(place, Rules())] == ["kept", "kept"]
    old_at_once(monkeypatch)
    given_up, now = [], time.time()
    monkeypatch.setattr(
        Bucket, "abort_uploads", lambda self, key, before: given_up.append((key, before > now))
    )
    assert sorted(each.what for each in prune(place, Rules())) == ["kept", "removed"]
    assert given_up == [(KEYS[0], True)]
    assert len(list_caches(place)) == 1
    build.assert_whole(cache)


def test_a_build_in_a_bucket_of_more_than_a_day_is_no_left_over():
    """Its first files are old; what it put last, or its lease, is not."""
    store, now = open_store("memory://long-build/caches"), 9 * DAY
    first, last = (f"{KEYS[0]}/{TAIL}/train/0000{number}.parquet" for number in (0, 1))
    for times, state in (
        ({first: 7.0, last: 8.5}, "building"),
        ({first: 7.0, last: 7.5}, "left over"),
        ({first: 7.0, f"{KEYS[0]}/building.json": 8.5}, "building"),
    ):
        found = {name: Stat(5, days * DAY) for name, days in times.items()}
        assert [entry.state for entry in bucket_entries(store, KEYS[0], found, now)] == [state]


def test_a_file_that_a_killed_process_did_not_finish_is_one_of_a_cache(tmp_path):
    cache = ensure_cache(tmp_path, KEYS[0], build.format, build)
    (cache.folder / "train" / f".00000.parquet.{TAIL}.tmp").write_bytes(b"12345")
    assert states(tmp_path) == {"a": "whole"}
    assert decided(prune(tmp_path, ALL)) == {"a": "removed"}


def test_what_is_not_ours_is_never_touched(tmp_path):
    """The default folder lies beside the user's data, and a folder of ours may hold a file of
    theirs."""
    mixed = ensure_cache(tmp_path, KEYS[0], build.format, build).folder
    (mixed / "train" / "notes.txt").write_text("mine")
    linked = ensure_cache(tmp_path, KEYS[1], build.format, build).folder
    (linked / "link").symlink_to(tmp_path)
    (linked / "train" / "gone").symlink_to("nowhere")
    (tmp_path / ("f" * 40)).mkdir()
    (tmp_path / ("f" * 40) / "manifest.json").write_text("{}")
    (tmp_path / ("9" * 40)).write_text("a file")
    for name in ("data.csv", "poetry.lock", f"my.building-{TAIL}", f"{KEYS[0]}.csv", "0123"):
        (tmp_path / name).write_text("mine")
    whole = ensure_cache(tmp_path / "elsewhere", KEYS[2], build.format, build).folder
    for name in ("7777", "7" * 40):
        (tmp_path / name).symlink_to(whole)
    (tmp_path / f"{'8' * 40}.lock").mkdir()
    (tmp_path / f"{'8' * 40}.building-{TAIL}").write_text("a file")
    before = listing(tmp_path)
    found = {entry.key[0]: entry for entry in list_caches(tmp_path)}
    assert {key: entry.state for key, entry in found.items()} == dict.fromkeys("abf", "foreign")
    assert "notes.txt" in found["a"].why
    assert set(decided(prune(tmp_path, Rules(older_than=0, keep=0, unused=True))).values()) == {
        "kept"
    }
    assert listing(tmp_path) == before


def test_what_is_not_ours_in_a_bucket_is_never_touched(monkeypatch):
    """A git commit is named like a key, and builds and images are kept below such names."""
    place = "memory://theirs/caches"
    cache, store = ensure_cache(place, KEYS[0], build.format, build), open_store(place)
    theirs = {
        f"{KEYS[0]}/notes.txt": b"beside a cache",
        f"{KEYS[1]}/build.tar.gz": b"",
        f"{KEYS[1]}/{TAIL}/core.dump": b"",
        f"{KEYS[2]}/manifest.json": b'{"schemaVersion":2}',
        f"{'d' * 40}/reading-list.json": b"{}",
        f"{'e' * 40}/train/00000.tar": b"shards of webdataset",
        f"{'f' * 40}/train/00000.tar": b"beside a manifest of theirs",
        f"{'f' * 40}/manifest.json": b'{"schemaVersion":2}',
    }
    for name, content in theirs.items():
        store.write(name, content)
    old_at_once(monkeypatch)
    before = store.list()
    found = {entry.key[0]: entry for entry in list_caches(place)}
    assert {key: entry.state for key, entry in found.items()} == dict.fromkeys("abcdef", "foreign")
    assert "notes.txt" in found["a"].why
    assert all("no manifest.json" in found[each].why for each in "cf")
    assert set(decided(prune(place, Rules(older_than=0, keep=0, unused=True))).values()) == {"kept"}
    assert "notes.txt" in remove_unused(cache)
    assert store.list().keys() == before.keys()
    build.assert_whole(cache)


@pytest.mark.parametrize("damage", ["end", "start", "all", "alone", "file"])
def test_a_damaged_cache_in_a_bucket_may_go(damage):
    """One bit of its manifest, wherever, or that has lost all of its files."""
    place = f"memory://damage-{damage}/caches"
    ensure_cache(place, KEYS[0], build.format, build)
    store, manifest = open_store(place), f"{KEYS[0]}/manifest.json"
    content = store.read(manifest)
    files = [name for name in store.list() if name != manifest]
    if damage == "alone":
        store.delete(files)
    elif damage == "file":
        store.write(files[0], b"cut")
        store.write(f"{files[0].rsplit('/', 2)[0]}/damaged.json", b"[]")
    else:
        broken = {"end": content[:-2] + b"!", "start": b"!" + content[1:], "all": b""}
        store.write(manifest, broken[damage])
    assert "damaged" in [entry.state for entry in list_caches(place)]
    assert "removed" in [each.what for each in prune(place, ALL)]
    assert manifest not in store.list()


def test_a_cache_of_another_version_in_a_bucket_is_not_left_over(monkeypatch):
    """Its files were, and its manifest stayed alone; so were those of a damaged one."""
    place = "memory://newer/caches"
    ensure_cache(place, KEYS[0], build.format, build)
    store, manifest = open_store(place), f"{KEYS[0]}/manifest.json"
    store.write(manifest, store.read(manifest).replace(b'"version": 3', b'"version": 4'))
    old_at_once(monkeypatch)
    before = store.list()
    assert [entry.state for entry in list_caches(place)] == ["damaged"]
    assert decided(prune(place, Rules())) == {"a": "kept"}
    assert store.list().keys() == before.keys()
    assert decided(prune(place, ALL)) == {"a": "removed"}
    assert store.list() == {}


def test_a_cache_that_was_copied_into_a_bucket_is_one(tmp_path, monkeypatch):
    """It has no folder of a version: its files were taken for what a dead builder left."""
    folder = ensure_cache(tmp_path, KEYS[0], build.format, build).folder
    place = "memory://copied/caches"
    store = open_store(place)
    for path in filter(Path.is_file, folder.rglob("*")):
        store.write(f"{KEYS[0]}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    old_at_once(monkeypatch)
    assert [entry.state for entry in list_caches(place)] == ["whole"]
    assert decided(prune(place, Rules())) == {"a": "kept"}
    build.assert_whole(Cache.at(place, KEYS[0]))
    assert decided(prune(place, ALL)) == {"a": "removed"}
    assert store.list() == {}


def test_a_damaged_cache_may_go(tmp_path):
    ensure_cache(tmp_path, "00ff" * 10, build.format, build)
    shard(tmp_path).write_bytes(b"cut")
    assert [each.what for each in prune(tmp_path, Rules())] == ["kept"]
    assert [each.what for each in prune(tmp_path, ALL)] == ["removed"]


def test_a_folder_that_cannot_be_changed_is_told(tmp_path, monkeypatch):
    ensure_cache(tmp_path, KEYS[0], build.format, build)

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(pruning, "remove_directory", refused)
    (decision,) = prune(tmp_path, ALL)
    assert decision.what == "kept"
    assert "cannot be removed" in decision.why


# ------------------------------------------------------------------ over HTTP


def test_a_bucket_over_http(s3, monkeypatch):
    """Uses, repair, expiry by the store's clock, and an empty bucket in the end."""
    proxy, client = s3
    place, credentials = f"s3://{BUCKET}/caches", Credentials(proxy.options())
    cache = ensure_cache(place, KEYS[0], build.format, build, credentials=credentials)
    use, store = begin_use(cache), cache.store()
    (entry,) = list_caches(place, credentials)
    assert entry.in_use
    assert entry.users[0].endswith(f":{os.getpid()}")
    assert [each.what for each in prune(place, ALL, credentials)] == ["kept"]
    use.close()
    (name,) = (name for name in store.list() if "/test/" in name)
    content = store.read(name)
    store.write(name, content[:-1])
    assert [entry.state for entry in list_caches(place, credentials)] == ["damaged"]

    def make(builder, manifest, shards):
        values, splits = build.encoded()
        builder.record(
            [builder.write_shard("test", 0, pa.table({"x": from_numpy(values[splits == 2])}))]
        )

    assert repair(cache, make) == 1
    assert store.read(name) == content
    killed = begin_use(cache)
    killed._heart.stop()
    assert [each.what for each in prune(place, ALL, credentials)] == ["kept"]
    monkeypatch.setattr(uses, "EXPIRY", -60.0)
    assert [each.what for each in prune(place, ALL, credentials)] == ["removed"]
    assert client.list_objects_v2(Bucket=BUCKET).get("KeyCount") == 0


def test_who_may_only_read_is_not_seen_and_reads(s3):
    proxy, _ = s3
    place = f"s3://{BUCKET}/caches"
    cache = ensure_cache(
        place, KEYS[0], build.format, build, credentials=Credentials(proxy.options())
    )
    proxy.expect(Fault("denied", "PUT", "reading-"))
    use = begin_use(cache)
    build.assert_whole(cache)
    use.close()
    assert not list_caches(place, Credentials(proxy.options()))[0].in_use
