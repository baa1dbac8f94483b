"""What nobody holds is removed, and nothing else: temporaries of the dead, of no living process
and of no user."""

import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcore_core.errors import UserError
from distcore_core.io.atomic import DirectoryBuilder, write_file
from distcore_data.dataset import Data
from distcore_data.stores.local import LocalStore
from distcore_data.temporaries import (
    is_temporary,
    sweep,
    sweep_system,
    sweep_tree,
    temporary_folder,
    unnamed_file,
)

HEX = uuid.UUID(int=7).hex
LEFT = (f".report.html.{HEX}.tmp", f"model.building-{HEX}", f"model.removing-{HEX}")
USERS = (
    ".report.html.tmp",
    "model.building-",
    f".{HEX}.tmp",
    f"notes.{HEX}.tmp",
    f"model.building-{HEX}.old",
    "predictions.parquet",
    ".lock",
)

WORKING = """
import sys, time
from pathlib import Path
from distcore_core.io.atomic import DirectoryBuilder, new_file_beside
from distcore_data.temporaries import temporary_folder

folder = Path(sys.argv[1])
with DirectoryBuilder(folder / "model") as building, new_file_beside(folder / "scores.json") as (_, file):
    with temporary_folder("group") as scratch:
        (building / "weights").write_bytes(b"w")
        (scratch / "log").write_bytes(b"l")
        file.write(b"s")
        print("working", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results beside the system's temporary folder, `tmp`."""
    for name in ("results", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def make(path: Path) -> None:
    if ".building-" in path.name or ".removing-" in path.name:
        (path / "inner").mkdir(parents=True)
        (path / "inner" / "file").touch()
    else:
        path.touch()


def test_what_is_left_over_goes_and_what_a_user_made_stays(place: Path) -> None:
    folder = place / "results"
    for name in (*LEFT, *USERS):
        make(folder / name)
    sweep(folder)
    assert names(folder) == set(USERS)
    sweep(folder / "missing")


def test_only_what_was_on_its_way_to_a_name(place: Path) -> None:
    folder = place / "results"
    for name in LEFT:
        make(folder / name)
    sweep(folder, "report.html")
    assert names(folder) == set(LEFT[1:])


def test_a_whole_run_with_the_locks_of_the_dead(place: Path) -> None:
    trial = place / "results" / "trials" / "0001"
    trial.mkdir(parents=True)
    for name in (*LEFT, ".lock", "trial.json"):
        make(trial / name)
    (place / "results" / "linked").symlink_to(place / "tmp")
    (place / "tmp" / LEFT[0]).touch()
    sweep_tree(place / "results")
    assert names(trial) == {"trial.json"}
    assert names(place / "tmp") == {LEFT[0]}, "a link was followed"


def test_in_the_systems_folder_only_names_that_nobody_else_chooses(place: Path) -> None:
    ours = [f"distcore-{what}-{HEX}" for what in ("group", "progress", "run")]
    users = ["distcore-results", "distcore-run", f"distcore-run-{HEX[:-1]}", "group", f"x{ours[0]}"]
    for name in (*ours, *users):
        (place / "tmp" / name).mkdir()
    sweep_system()
    assert names(place / "tmp") == set(users)


def test_a_system_without_a_folder_for_them(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(place / "gone")])
    for need in (sweep_system, temporary_folder("here").__enter__, partial(unnamed_file, "here")):
        with pytest.raises(UserError, match="Let TMPDIR name a folder that can be written"):
            need()


def test_a_link_with_a_name_of_ours_is_not_followed(place: Path) -> None:
    (place / "results" / "data.csv").touch()
    (place / "tmp" / f"distcore-run-{HEX}").symlink_to(place / "results")
    sweep_system()
    assert names(place / "results") == {"data.csv"}


def test_a_living_process_keeps_what_it_works_on_and_a_killed_one_does_not(place: Path) -> None:
    results, tmp = place / "results", place / "tmp"
    process = subprocess.Popen(
        [sys.executable, "-c", WORKING, str(results)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"working\n"
    working = names(results), names(tmp)
    assert [len(each) for each in working] == [2, 1]
    sweep(results)
    sweep_system()
    assert (names(results), names(tmp)) == working
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    sweep(results)
    sweep_system()
    assert (names(results), names(tmp)) == (set(), set())


def test_writing_beside_somebody_who_sweeps_without_end(place: Path) -> None:
    folder, over = place / "results", threading.Event()

    def sweeping() -> None:
        while not over.is_set():
            sweep(folder)
            sweep_system()

    threads = [threading.Thread(target=sweeping) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        for number in range(150):
            write_file(folder / "scores.json", f"{number}".encode())
            assert (folder / "scores.json").read_text() == f"{number}"
            with DirectoryBuilder(folder / "model") as building:
                (building / "weights").write_text(f"{number}")
            assert (folder / "model" / "weights").read_text() == f"{number}"
            assert LocalStore(folder).create(f"claim-{number}", b"x")
            with temporary_folder("group") as scratch:
                (scratch / "log").touch()
                assert (scratch / "log").exists()
    finally:
        over.set()
        for each in threads:
            each.join()
    assert names(place / "tmp") == set()
    assert names(folder) == {"scores.json", "model", *(f"claim-{number}" for number in range(150))}


def test_a_temporary_folder_is_for_this_user_and_is_gone_also_after_an_error(place: Path) -> None:
    with temporary_folder("group") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(KeyError), temporary_folder("group"):
        raise KeyError
    assert names(place / "tmp") == set()


def test_the_system_s_folder_itself_is_no_temporary_of_ours(place, monkeypatch):
    """An IndexError for the dataset /tmp, and for `.` in it."""
    monkeypatch.chdir(tempfile.gettempdir())
    assert not is_temporary(tempfile.gettempdir())
    assert not is_temporary(".")
    with temporary_folder("source") as folder:
        assert is_temporary(folder)
        assert is_temporary(folder / "data.csv")


def test_a_file_without_a_name_leaves_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for flag in (
        os.O_TMPFILE,
        os.O_DIRECTORY,
    ):  # the second: a file system that knows no such files
        monkeypatch.setattr(os, "O_TMPFILE", flag)
        with unnamed_file("shard") as file:
            assert names(place / "tmp") == set()
            file.write(b"abc")
            file.seek(0)
            assert file.read() == b"abc"


@pytest.mark.parametrize("when", ["made", "removed"])
def test_ctrl_c_at_any_time_leaves_no_folder(tmp_path, monkeypatch, when):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    real, target = (
        (Path.mkdir, (Path, "mkdir")) if when == "made" else (shutil.rmtree, (shutil, "rmtree"))
    )
    interrupts = [KeyboardInterrupt]

    def interrupted(path, *arguments, **options):
        if when == "made":
            real(path, *arguments, **options)
        if interrupts:
            raise interrupts.pop()
        if when == "removed":
            real(path, *arguments, **options)

    monkeypatch.setattr(*target, interrupted)
    with pytest.raises(KeyboardInterrupt), temporary_folder("tried") as folder:
        (folder / "file").write_text("of ours")
    assert not interrupts
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_that_needs_no_place_takes_none(place: Path, monkeypatch) -> None:
    """A service may have no folder to write to; and of each request one was made and removed."""
    rows = pa.table({"a": [1.0, 2.0]})
    pq.write_table(rows, place / "a.parquet")
    (place / "a.csv").write_text("a\n1\n2\n")
    with gzip.open(place / "a.csv.gz", "wt") as file:
        file.write("a\n1\n2\n")

    with Data(place / "a.csv.gz").open({"a": "number"}) as source:  # which is unpacked
        (made,) = os.listdir(tempfile.tempdir)
        assert made.startswith("distcore-source-")
        assert len(source.partitions(1 << 20)) == 1
    assert os.listdir(tempfile.tempdir) == []
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    (place / "none").touch()
    for each in (rows, rows.to_pydict(), place / "a.parquet", place / "a.csv"):
        with Data(each).open({"a": "number"}) as source:
            (partition,) = source.partitions(1 << 20)
            assert partition.read()["a"].to_pylist() == [1.0, 2.0]
