"""A run's folder in a bucket: what is put and deleted, and in which order, so that a kill in
between leaves nothing that is taken for whole."""

import os
from pathlib import Path

import pytest

from distcore_core.errors import StoreError, TrainingError
from distcore_data.stores import lease as lease_module
from distcore_data.stores import run_sync
from distcore_data.stores.lease import Lease
from distcore_data.stores.run_sync import RUNNING, STARTED, Mirror, newest_checkpoint

M = "manifest.json"


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """With `calls`, what it asks of its store to change."""
    made = Mirror.at(f"memory://{tmp_path.name}/run")
    made.calls = []

    def noting(name, real):
        def call(what, *more):
            what = list(what) if name == "delete" else what
            made.calls.append((name, what))
            return real(what, *more)

        return call

    for name in ("put", "delete"):
        monkeypatch.setattr(made.store, name, noting(name, getattr(made.store, name)))
    return made


def folder_of(path, **files):
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


def test_a_folders_last_file_is_put_last_and_deleted_first(mirror, tmp_path):
    mirror.put_folder("model", folder_of(tmp_path / "one", a="1", z="2", manifest_json="m1"), M)
    puts = [("put", f"model/{name}") for name in ("a", "z", M)]
    assert [each for each in mirror.calls if each != ("delete", [])] == puts
    mirror.calls.clear()
    mirror.put_folder("model", folder_of(tmp_path / "two", b="3", z="4", manifest_json="m2"), M)
    assert mirror.calls == [
        ("delete", [f"model/{M}"]),
        *(("put", f"model/{name}") for name in ("b", "z", M)),
        ("delete", ["model/a"]),
    ]
    for name in (STARTED, "a.json", "t.json", "models/a", "model/deeper/x"):
        mirror.store.create(name, b"1")
    mirror.calls.clear()
    mirror.remove_folder("model", M)
    mirror.remove()
    assert mirror.calls == [
        ("delete", [f"model/{M}", "model/b", "model/deeper/x", "model/z"]),
        ("delete", ["a.json", "models/a", "t.json", STARTED]),
    ]
    for name in (f"checkpoints/b/{M}", "checkpoints/a/x", f"checkpoints/c/d/{M}", "checkpoints/e"):
        mirror.store.create(name, b"1")
    assert mirror.folders("checkpoints") == ["checkpoints/a", "checkpoints/b"]
    assert mirror.folders("checkpoints", M) == ["checkpoints/b"]


def test_the_newest_checkpoint_is_the_one_of_the_most_steps(mirror, tmp_path):
    """By its name alone, the one of 100 million steps came before that of 99,999,999."""
    assert newest_checkpoint(tmp_path, None) == newest_checkpoint(None, None) == ""
    assert newest_checkpoint(tmp_path, mirror) == ""
    for name in ("step-99999999", "step-100000000", "step-00000007", "step-100000001.building-0"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    last = "checkpoints/step-100000000"
    assert newest_checkpoint(tmp_path, None) == str(tmp_path / last)
    for name in (f"step-99999999/{M}", f"step-100000000/{M}", "step-100000001/state.json"):
        mirror.store.create(f"checkpoints/{name}", b"1")
    assert newest_checkpoint(tmp_path, mirror) == f"{mirror.url}/{last}"


def test_a_folder_comes_whole_in_place_of_another_one_and_once(mirror, tmp_path, monkeypatch):
    mirror.put_folder("model", folder_of(tmp_path / "there", a="1", manifest_json="m1"), M)
    mirror.store.create("model/deeper/x", b"1")
    here = folder_of(tmp_path / "here", old="0", manifest_json="m0")
    mirror.get_folder("model", here, M)
    assert {each.name: each.read_text() for each in here.iterdir()} == {"a": "1", M: "m1"}
    (here / "a").write_text("kept")
    opened, real = [], mirror.store.open
    monkeypatch.setattr(mirror.store, "open", lambda *what: opened.append(what[0]) or real(*what))
    mirror.get_folder("model", here, M)  # it is there already
    assert opened == [f"model/{M}"]
    assert (here / "a").read_text() == "kept"
    with pytest.raises(FileNotFoundError):
        mirror.get_folder("other", tmp_path / "nowhere", M)
    assert not (tmp_path / "nowhere").exists()


def test_files_may_be_larger_than_what_is_read_in_one_request(mirror, tmp_path, monkeypatch):
    """A model.json of 64 MB of categories went into the bucket, and never out of it."""
    monkeypatch.setattr("distcore_data.stores.bucket.SMALL", 3)
    mirror.put_folder("model", folder_of(tmp_path / "there", a="1234", manifest_json="12345"), M)
    mirror.get_folder("model", tmp_path / "here", M)
    assert (tmp_path / "here" / M).read_text() == "12345"
    assert mirror.read(f"model/{M}") == b"12345"
    monkeypatch.setattr(mirror, "_size", lambda name, told=[4, 5]: told.pop(0))
    assert mirror.read(f"model/{M}") == b"12345"  # it grew since its size was told
    monkeypatch.undo()
    mirror.get_file(f"model/{M}", tmp_path / "file", 4)
    assert (tmp_path / "file").read_text() == "12345"
    with pytest.raises(FileNotFoundError):
        mirror.read("model/none")


def test_a_file_that_this_machine_has_no_room_for_is_told(mirror, tmp_path):
    mirror.store.create("ledger.jsonl", b"1")
    with pytest.raises(TrainingError) as caught:
        mirror.get_file("ledger.jsonl", Path("/dev/full"))
    assert "no room for a copy of memory://" in str(caught.value)
    assert "run/ledger.jsonl in /dev" in str(caught.value)
    assert "or point TMPDIR to a larger disk" in str(caught.value)


def test_a_folder_that_changes_while_it_is_copied_is_told(mirror, tmp_path, monkeypatch):
    """Its files were of two models: the reader said damaged, and to take it from a backup."""
    one = folder_of(tmp_path / "one", a="1", b="1", manifest_json="m1")
    two = folder_of(tmp_path / "two", a="2", b="2", manifest_json="m2")
    here = folder_of(tmp_path / "here", manifest_json="m0")
    opened = mirror.store.open
    for change in (
        lambda: mirror.put_folder("model", two, M),
        lambda: mirror.store.write("model/a", b"22"),
        lambda: mirror.remove_folder("model", M),
    ):
        mirror.put_folder("model", one, M)
        todo = [change]

        def changing(name, size, seen=None, todo=todo):
            file = opened(name, size, seen)
            if todo:
                todo.pop()()
            return file

        monkeypatch.setattr(mirror.store, "open", changing)
        with pytest.raises(StoreError, match="run/model was replaced or removed while it was cop"):
            mirror.get_folder("model", here, M)
        assert [each.name for each in here.iterdir()] == [M]


def test_files_are_put_once_and_again_when_they_changed(mirror, tmp_path, caplog):
    run = folder_of(tmp_path / "run", a_json="1", _hidden="1")
    unnamed = "größe.txt"
    for name in ("checkpoints/step-1/a", "model/model.json", "logs/b.txt", "logs/.c", unnamed):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("1")
    (run / "logs" / unnamed).write_text("1")
    (run / "link.json").symlink_to(run / "a.json")
    mirror.put_files(run)
    assert mirror.calls == [("put", "a.json"), ("put", "logs/b.txt")]
    told = "stays on this machine: no object can have its name."
    mirror.put_files(run)
    assert len(mirror.calls) == 2
    assert caplog.messages == [f"{run / where} {told}" for where in (unnamed, f"logs/{unnamed}")]
    status = (run / "a.json").stat()
    (run / "a.json").write_text("22")
    os.utime(run / "a.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(run / "logs" / "b.txt", ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    mirror.put_files(run)
    assert mirror.calls[2:] == [("put", "a.json"), ("put", "logs/b.txt")]
    assert mirror.store.read("a.json") == b"22"


def test_a_file_that_is_removed_while_others_are_put_is_passed_over(mirror, tmp_path, monkeypatch):
    """As one of an extension that writes beside the checkpoints."""
    run, real = folder_of(tmp_path / "run", a_json="1", b_json="1", c_json="1"), mirror.store.put

    def put(name, path):
        (run / "b.json").unlink(missing_ok=True)
        real(name, path)

    found = sorted(run.rglob("*"))
    monkeypatch.setattr(type(run), "rglob", lambda *_: iter(found))
    monkeypatch.setattr(type(run), "is_file", lambda path: True)  # it still was, when it was asked
    monkeypatch.setattr(mirror.store, "put", put)
    mirror.put_files(run)
    assert sorted(mirror.store.list()) == ["a.json", "c.json"]


def test_files_of_a_run_under_way_come_with_their_digests_last(mirror, tmp_path, monkeypatch):
    """Scores may be replaced meanwhile, and what shows that a process lives may go."""
    for name in ("digests.json", RUNNING, "z.json", "page.html", "deeper/a.json"):
        mirror.store.create(name, b"1")
    real, opened = mirror.store.open, []

    def open_(name, size):
        opened.append(name)
        mirror.store.delete([RUNNING])
        return real(name, size)

    monkeypatch.setattr(mirror.store, "open", open_)
    mirror.get_files(tmp_path, ".json", last="digests.json")
    assert opened == [RUNNING, "z.json", "digests.json"]
    assert sorted(each.name for each in tmp_path.glob("*.json")) == ["digests.json", "z.json"]


def test_two_runs_share_no_folder_but_one_that_makes_room(tmp_path):
    root = f"memory://{tmp_path.name}"
    urls = [Mirror.begin(root, "run").url for _ in range(2)]
    assert [each.rpartition("/")[2] for each in urls] == ["run", "run_1"]
    Mirror.at(f"{root}/run_2").store.create("mine.txt", b"1")  # no run's, and nobody's claim
    asked = []

    def makes_room(mirror):
        asked.append(mirror.url.rpartition("/")[2])
        return asked[-1] == "run_1"

    before = Mirror.at(urls[1]).store.read(STARTED)
    assert Mirror.begin(root, "run", makes_room=makes_room).url == urls[1]
    assert asked == ["run", "run_1"]
    assert Mirror.at(urls[1]).store.read(STARTED) != before
    assert Mirror.begin(root, "run").url.endswith("run_3")


def test_of_what_is_removed_no_holder_is_waited_for(mirror, tmp_path, monkeypatch):
    with Lease(mirror.store, RUNNING) as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        mirror.holder = lease.id
        mirror.remove()
        monkeypatch.setattr(run_sync, "is_lost", lambda *_: pytest.fail("it looked for a holder"))
        mirror.put_files(folder_of(tmp_path / "run", manifest_json="m"))


@pytest.mark.parametrize("done", [False, True])
def test_who_was_taken_for_dead_saves_nothing_more(mirror, tmp_path, monkeypatch, done):
    """A checkpoint or model of its own would lie among those of the process that went on, and has
    perhaps ended."""
    saved = folder_of(tmp_path / "run", a="1", manifest_json="m")
    with Lease(mirror.store, RUNNING) as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        mirror.holder = lease.id
        mirror.put_folder("model", saved, M)
        monkeypatch.setattr(lease_module, "BEAT", 0.01)
        monkeypatch.setattr(lease_module, "LOOK", 0.01)
        if done:
            mirror.store.delete([RUNNING])
        else:
            mirror.store.write(RUNNING, Lease(mirror.store, RUNNING)._content(0))
        before = len(mirror.calls)
        for what in (
            lambda: mirror.put_folder("model", saved, M),
            lambda: mirror.remove_folder("model", M),
            lambda: mirror.put_files(saved),
            lambda: mirror.put_file("a", saved / "a"),
            mirror.remove,
            lambda: mirror.delete_file("a"),
        ):
            with pytest.raises(
                StoreError, match="Another process has gone on with the run"
            ) as caught:
                what()
            assert type(caught.value).recurs, "workers that are started again would meet it again"
        assert len(mirror.calls) == before
        mirror.store.write(RUNNING, lease._content(1))
        mirror.put_files(saved)
