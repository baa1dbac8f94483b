"""predict and evaluate on a backend whose tasks run elsewhere: the bytes of one process, and
nothing done twice."""

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import distcore
from distcore.workflow import answers, partitioned
from distcore.workflow.partitioned import _cleared_if_wrong, answered_in_pieces
from distcore.workflow.partitioned.packed import Found, packed, unpacked
from distcore.workflow.partitioned.store import FOLDER, Store
from distcore.workflow.partitioned.task import Answer, Model, Task
from distcore_core.errors import ArtifactError, DataError, DistcoreError, UserError
from distcore_data.artifact import open_artifact
from distcore_data.dataset import Data
from distcore_data.seals import unsealed
from distcore_data.stores.local import LocalStore
from distcore_testing.installed import lay_metadata
from distcore_torch.prediction import predict_stream

ROWS = 40_000
BACKEND = '''
"""The backend `elsewhere`: tasks in this process, pickled there and back, or in processes of this machine."""

import os, pickle, time
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

class Noted:
    """Notes each task; answers from the third on wait for a file, if there is to be one."""
    def __init__(self, function):
        self.function = function
    def __call__(self, item):
        with open(os.environ["TASKS"], "a") as file:
            file.write(f"{type(self.function).__name__} {os.getpid()}\\n")
        with open(os.environ["TASKS"]) as file:
            answers = file.read().count("Answer")
        while answers > 2 and "GO" in os.environ and not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        return self.function(item)

@hookimpl
def distcore_make_backend(name, options):
    from distcore_local.backend import LocalBackend

    class Elsewhere(LocalBackend):
        name = "elsewhere"
        distributed = True
        def map(self, function, items):
            function = Noted(function)
            if os.environ.get("PROCESSES"):
                yield from super().map(function, items)
                return
            content = pickle.dumps(function)
            for item in items:
                yield pickle.loads(content)(pickle.loads(pickle.dumps(item)))

    return Elsewhere(options) if name == "elsewhere" else None
'''
STRATEGIES = """\
input_features:
  - {name: age, type: number, preprocessing: {missing_value_strategy: ffill}}
  - {name: city, type: category, preprocessing: {missing_value_strategy: drop_row}}
output_features:
  - {name: bought, type: binary, preprocessing: {missing_value_strategy: drop_row}}
  - {name: spent, type: number}
trainer: {epochs: 1, batch_size: 32}
backend: local
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Installs the backend; gives the file where it notes its tasks."""
    site = tmp_path / "site"
    lay_metadata(site, "elsewhere", {"backends": {"elsewhere": "elsewhere_plugin"}})
    (site / "elsewhere_plugin.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("TASKS", str(tmp_path / "tasks"))
    monkeypatch.delitem(sys.modules, "elsewhere_plugin", raising=False)
    return tmp_path / "tasks"


@pytest.fixture(scope="module")
def wide(tmp_path_factory, row):
    """A csv of some 20 MiB: a note that no feature reads makes five partitions of it. Ages are
    missing in long runs, one of them over a whole partition, and cities now and then."""
    path = tmp_path_factory.mktemp("wide") / "data.csv"
    note = "x" * 480
    with open(path, "w") as file:
        file.write("age,city,bought,spent,note\n")
        for number in range(ROWS):
            age, city, bought = row(number)
            gone = 7_000 < number < 17_500 or number % 97 == 5
            file.write(
                f"{'' if gone else age},{'' if number % 1000 == 999 else city},{bought},{age * 2},"
                f"{note}\n"
            )
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory, wide):
    """A model whose inputs are filled from other rows, or drop theirs."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.yaml").write_text(STRATEGIES)
    table = pacsv.read_csv(wide).slice(6_500, 2_000)
    return distcore.train(
        str(folder / "config.yaml"), table, output_directory=folder / "results"
    ).directory


@pytest.fixture(scope="module")
def expected(tmp_path_factory, model, wide):
    """What one process writes: {command: {file: bytes}}."""
    found = {}
    for command in (distcore.predict, distcore.evaluate):
        folder = tmp_path_factory.mktemp(command.__name__)
        command(model, wide, output_directory=folder, backend="local")
        found[command.__name__] = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def travelled(value):
    """As it arrives in another process."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))


def tasks(path, kind="Answer"):
    """The processes of the tasks of a kind."""
    return [line.split()[1] for line in path.read_text().splitlines() if line.startswith(kind)]


# ------------------------------------------------------------------ the same bytes


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_the_bytes_are_those_of_one_process(
    tmp_path, elsewhere, model, wide, expected, command, caplog
):
    folder = tmp_path / "out"
    with caplog.at_level("WARNING", "distcore"):
        getattr(distcore, command)(model, wide, output_directory=folder, backend="elsewhere")
    assert files(folder) == expected[command]
    if command == "evaluate":
        rows = pq.read_table(folder / "predictions.parquet").column("row").to_pylist()
        assert rows == [row for row in range(ROWS) if row % 1000 != 999]
    assert len(tasks(elsewhere)) == len(tasks(elsewhere, "Survey")) > 3
    assert f"40 of {ROWS} rows were left out" in caplog.text
    assert "the first is row 999" in caplog.text


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_column_of_which_the_model_knows_no_value_is_told(
    tmp_path, elsewhere, model, wide, command, known, caplog
):
    """Once, of all pieces: some rows that it knows are enough."""
    table = pacsv.read_csv(wide)
    place = table.schema.get_field_index("city")
    cities = pc.utf8_upper(table["city"]).to_pylist()
    if known:
        cities[-50:] = table["city"][-50:].to_pylist()
    told, folder = tmp_path / "told.csv", tmp_path / "out"
    pacsv.write_csv(table.set_column(place, "city", pa.array(cities)), told)
    with caplog.at_level("WARNING", "distcore"):
        getattr(distcore, command)(model, told, output_directory=folder, backend="elsewhere")
    assert len(tasks(elsewhere)) > 3
    said = [each for each in caplog.messages if "'city' has no value, in" in each]
    assert len(said) == (not known), caplog.text


@pytest.mark.system
def test_over_processes_and_from_a_name_on_the_command_line(
    place, elsewhere, model, wide, expected, monkeypatch
):
    monkeypatch.setenv("PROCESSES", "1")
    done = place.process(
        "evaluate", "--model_path", model, "--dataset", wide, "--backend", "elsewhere"
    )
    assert done.code == 0, done.err
    assert files(place.folder / "results") == expected["evaluate"]
    assert "Backend elsewhere: named" in done.err
    pids = tasks(elsewhere)
    assert 1 <= len(set(pids)) <= (os.cpu_count() or 1)
    assert len(pids) > len(set(pids)) or os.cpu_count() > 4


@pytest.mark.parametrize("kind", ["parquet", "frame", "short"])
def test_from_other_sources(tmp_path, model, wide, kind):
    table = pacsv.read_csv(wide)
    if kind == "frame":
        data = pl.from_arrow(table)
    else:
        data = tmp_path / "data.parquet"
        pq.write_table(table.slice(0, 20 if kind == "short" else None), data, row_group_size=9_000)
    for backend in ("local", "elsewhere"):
        distcore.evaluate(model, data, output_directory=tmp_path / backend, backend=backend)
    assert files(tmp_path / "elsewhere") == files(tmp_path / "local")


def test_the_batch_size_and_what_is_not_saved(tmp_path, model, wide, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for backend in ("local", "elsewhere"):
        folder = tmp_path / backend
        distcore.predict(model, wide, output_directory=folder, backend=backend, batch_size=1000)
        assert (
            distcore.predict(model, wide, backend=backend, skip={"skip_save_predictions"}) is None
        )
        scores = distcore.evaluate(
            model, wide, output_directory=folder, backend=backend, skip={"skip_save_predictions"}
        )
        assert json.loads((folder / "test_statistics.json").read_text()) == scores
    assert files(tmp_path / "elsewhere") == files(tmp_path / "local")
    assert not Path("results").exists()


def test_a_backend_with_options(tmp_path, model, wide, expected):
    distcore.predict(model, wide, output_directory=tmp_path / "out", backend={"type": "elsewhere"})
    assert files(tmp_path / "out") == expected["predict"]
    with pytest.raises(UserError, match="names no type"):
        distcore.predict(model, wide, output_directory=tmp_path / "other", backend={"workers": 3})


def test_pieces_of_several_partitions_have_the_rows_of_each(
    tmp_path, elsewhere, model, wide, monkeypatch
):
    """As of a dataset of many; values are filled from the rows around each partition."""
    monkeypatch.setattr("distcore_torch.prediction.LEAST_PIECES", 1)
    monkeypatch.setattr("distcore_torch.prediction.MOST_TOGETHER", 2)
    for backend in ("local", "elsewhere"):
        distcore.evaluate(model, wide, output_directory=tmp_path / backend, backend=backend)
    assert files(tmp_path / "elsewhere") == files(tmp_path / "local")
    assert len(tasks(elsewhere)) == 3


def test_rows_without_targets_are_predicted(tmp_path, model, wide, expected):
    inputs = tmp_path / "inputs.csv"
    inputs.write_bytes(wide.read_bytes().replace(b"bought,spent", b"target,other", 1))
    distcore.predict(model, inputs, output_directory=tmp_path / "out", backend="elsewhere")
    assert files(tmp_path / "out") == expected["predict"]


def test_what_is_told_is_of_all_pieces(monkeypatch):
    """Also of one that another process cleared away."""
    told = []
    for name in ("tell_left_out", "tell_unknown"):
        monkeypatch.setattr(
            f"distcore_data.encoding.stream.{name}", lambda *each: told.append(each[:3])
        )
    found = [Found(10, 0, -1, ["x"], []), Found(10, 2, 3, ["x", "z"], []), Found(5, 1, 0, "x", [])]
    features = SimpleNamespace(inputs=[SimpleNamespace(name=name) for name in "xyz"])
    session = SimpleNamespace(artifact=SimpleNamespace(features=features))
    store = SimpleNamespace(
        get=lambda index: found[index] if index < 2 else None, put=lambda index, content: content
    )
    answers = partitioned._read(session, found.__getitem__, range(3), store, None)
    assert list(answers) == []
    assert told == [(25, 3, 13), (22, {"x"}, features)]


# ------------------------------------------------------------------ killed, and started again


def started(place, command, model, wide):
    """With two pieces done it waits for the file `go`."""
    words = ["--model_path", model, "--dataset", wide, "--backend", "elsewhere"]
    return place.start(command, *words, GO=str(go(place)))


def go(place):
    return place.folder.with_name("go")


def pieces(folder):
    return sorted((folder / FOLDER).glob("*.piece"))


@pytest.mark.system
@pytest.mark.parametrize(("command", "how"), [("predict", "KILL"), ("evaluate", "INT")])
def test_a_driver_that_is_stopped_goes_on_with_the_pieces_that_are_missing(
    place, elsewhere, model, wide, expected, command, how
):
    process = started(place, command, model, wide)
    deadline = time.monotonic() + 120
    while len(pieces(place.folder / "results")) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, getattr(signal, f"SIG{how}"))
    go(place).touch()
    done = place.finish(process)
    if how == "INT":
        assert done.code == 130, done.err
        assert re.search(r"What is done \(\d+ pieces?\) is kept in", done.err)
        assert "Traceback" not in done.err
    kept = pieces(place.folder / "results")
    assert not (place.folder / "results" / "predictions.parquet").exists()
    total = len(tasks(elsewhere, "Survey"))
    elsewhere.unlink()
    again = place.finish(started(place, command, model, wide))
    assert again.code == 0, again.err
    assert f"{len(kept)} of {total} pieces found" in again.err
    assert len(tasks(elsewhere)) == total - len(kept)
    assert files(place.folder / "results") == expected[command]


def test_a_damaged_piece_is_worked_on_again(tmp_path, elsewhere, model, wide, expected, caplog):
    whole = stopped(tmp_path / "out", model, wide)
    damaged = bytearray(whole[1].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    whole[1].write_bytes(damaged)
    whole[2].write_bytes(whole[2].read_bytes()[:-7])
    whole[3].write_bytes(b"")
    with caplog.at_level("WARNING", "distcore"):
        distcore.predict(model, wide, output_directory=tmp_path / "out", backend="elsewhere")
    assert caplog.text.count("is damaged, or of another version or place, so this piece") == 3
    assert files(tmp_path / "out") == expected["predict"]


def stopped(folder, model, wide, **arguments):
    """A prediction that was stopped when all was found and nothing written; gives the pieces."""

    class Stopped(BaseException):
        pass

    def stop(*_, **__):
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distcore.workflow.results.predictions", stop)
        with pytest.raises(Stopped):
            distcore.predict(model, wide, output_directory=folder, backend="elsewhere", **arguments)
    return pieces(folder)


def test_other_data_another_model_or_other_options_do_not_take_these_pieces(
    tmp_path, elsewhere, model, wide, trained
):
    out = tmp_path / "out"
    before = stopped(out, model, wide)
    changed = tmp_path / "data.csv"
    changed.write_bytes(wide.read_bytes().replace(b"Rome", b"Oslo", 1))
    for arguments in ({"dataset": changed}, {"model_path": trained}, {"batch_size": 100}):
        elsewhere.unlink()
        distcore.predict(
            **{"model_path": model, "dataset": wide} | arguments,
            output_directory=out,
            backend="elsewhere",
            overwrite=True,
        )
        assert len(tasks(elsewhere)) == len(before)
        assert pieces(out) == before


def test_pieces_are_kept_by_all_that_decides_what_is_in_them(monkeypatch):
    def key(digest="d", form=None, partitions=2, readers=(), used=(), **asked):
        name = Answer(
            **{"model": Model(Path("m"), "d", None, False, ()), "rows": 9}
            | {"score": False, "decode": True}
            | asked
        )
        source = SimpleNamespace(digest=lambda: digest)
        return partitioned._key(name, used, source, form, range(partitions), readers)

    other = Model(Path("m"), "e", None, False, ())
    keys = [key(), key("e"), key(form="csv"), key(partitions=3), key(readers=["a 1"])]
    keys += [key(model=other), key(score=True), key(decode=False), key(rows=8)]
    keys += [key(used=["pytest"])]
    assert key(used=["distcore-torch", "gone-since"]) == key()
    for name in ("distcore", "distcore-torch", "distcore-tabular"):  # changed, in one file say
        monkeypatch.setattr(
            "distcore.workflow.receipt.installed",
            lambda each, changed=name: {"files": str(each == changed)},
        )
        keys += [key()]
    assert len({*keys}) == 13
    elsewhere = Model(Path("n"), "d", {"model.json": b""}, True, ("x",))
    assert key(model=elsewhere) == key()


def test_pieces_of_the_same_bytes_under_another_name_are_taken(
    tmp_path, elsewhere, model, wide, expected
):
    stopped(tmp_path / "out", model, wide)
    shutil.copytree(model / "model", tmp_path / "copied")
    shutil.copy(wide, tmp_path / "renamed.csv")
    elsewhere.unlink()
    distcore.predict(
        tmp_path / "copied",
        tmp_path / "renamed.csv",
        output_directory=tmp_path / "out",
        backend="elsewhere",
    )
    assert tasks(elsewhere) == []
    assert files(tmp_path / "out") == expected["predict"]


def test_two_at_once_are_refused(place, model, wide):
    process = started(place, "predict", model, wide)
    try:
        deadline = time.monotonic() + 120
        while not pieces(place.folder / "results"):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        with pytest.raises(
            UserError, match=r"Another process is predicting into .*give another --output_directory"
        ):
            distcore.predict(
                model, wide, output_directory=place.folder / "results", backend="elsewhere"
            )
    finally:
        go(place).touch()
        done = place.finish(process)
    assert done.code == 0, done.err
    assert set(files(place.folder / "results")) == {"predictions.parquet"}


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_what_is_wrong_with_the_place_costs_no_pieces(tmp_path, elsewhere, model, wide, command):
    """A folder that refuses, or another's predictions that came there meanwhile."""
    out = tmp_path / "out"
    scores = ["test_statistics.json"] if command == "evaluate" else []

    def refused(path, batches, *_, **__):
        list(batches)
        raise UserError("It refuses.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distcore.workflow.results.predictions", refused)
        with pytest.raises(UserError, match="It refuses"):
            getattr(distcore, command)(model, wide, output_directory=out, backend="elsewhere")
    whole = len(tasks(elsewhere))
    assert len(pieces(out)) == whole > 3
    elsewhere.unlink()
    (out / "predictions.parquet").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distcore.workflow.answers._free_files", came_later)
        with pytest.raises(UserError, match=r"predictions\.parquet"):
            getattr(distcore, command)(model, wide, output_directory=out, backend="elsewhere")
    assert len(pieces(out)) == whole
    (out / "predictions.parquet").unlink()
    getattr(distcore, command)(model, wide, output_directory=out, backend="elsewhere")
    assert {"predictions.parquet", *scores} <= files(out).keys()
    assert pieces(out) == tasks(elsewhere) == []


def came_later(asked, place):
    """The files of an answer, as if none had been there."""
    scores = place.folder / "test_statistics.json" if asked.command == "evaluate" else None
    return answers._Files(place.folder / "predictions.parquet", scores)


def test_a_column_to_keep_that_is_not_there_is_told_before_any_work(
    tmp_path, elsewhere, model, wide
):
    before = stopped(tmp_path / "out", model, wide)
    elsewhere.unlink()
    for name, said in (("aeg", "aeg"), ("bought_predictions", "--keep bought_predictions")):
        with pytest.raises(UserError, match=said):
            distcore.predict(
                model, wide, output_directory=tmp_path / "out", backend="elsewhere", keep=[name]
            )
    assert not elsewhere.exists()
    assert pieces(tmp_path / "out") == before


def test_nothing_to_evaluate_leaves_no_pieces(tmp_path, model, wide):
    table = pacsv.read_csv(wide).slice(0, 50)
    place = table.schema.get_field_index("bought")
    unknown = table.set_column(place, "bought", pa.array([None] * 50, pa.string()))
    with pytest.raises(DataError, match="nothing to evaluate"):
        distcore.evaluate(model, unknown, output_directory=tmp_path / "out", backend="elsewhere")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ what cannot be done


@pytest.mark.parametrize("processes", ["", "1"])
def test_wrong_data_are_told_with_their_line_and_leave_nothing(
    tmp_path, model, wide, monkeypatch, processes
):
    monkeypatch.setenv("PROCESSES", processes)
    lines = wide.read_text().splitlines(keepends=True)
    lines[30_000] = "old" + lines[30_000]
    bad = tmp_path / "bad.csv"
    bad.write_text("".join(lines))
    with pytest.raises(DataError, match=r"bad\.csv, line 30001.*age"):
        distcore.predict(
            model, bad, output_directory=tmp_path / "deep" / "out", backend="elsewhere"
        )
    assert not (tmp_path / "deep").exists()


def test_a_dataset_that_a_worker_cannot_see_is_named_with_the_worker(tmp_path, model, wide):
    copy = tmp_path / "here.csv"
    shutil.copy(wide, copy)
    artifact = open_artifact(model)
    answer = Answer(Model.of(artifact, trust=False), score=False, decode=True, rows=4096)
    for path in (copy, tmp_path / "here.parquet"):
        if path.suffix == ".parquet":
            pq.write_table(pacsv.read_csv(wide), path)
        with Data(path).open(artifact.features.raw(("input",)), artifact.delimited()) as source:
            task = travelled(Task(tuple(source.partitions(4 << 20)[:1])))
            path.unlink()
            with pytest.raises(
                UserError, match=r"here\.\w+ cannot be seen from \S+, a machine of the cluster"
            ) as caught:
                answer(task)
            assert not isinstance(caught.value, DataError), "pieces of other machines stay"


def test_pieces_stay_when_a_disk_fails(tmp_path, model, wide, monkeypatch):
    def fails(*_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    path = tmp_path / "here.parquet"
    pq.write_table(pacsv.read_csv(wide), path)
    artifact = open_artifact(model)
    answer = Answer(Model.of(artifact, trust=False), score=False, decode=True, rows=4096)
    store = Store(LocalStore(tmp_path / "pieces"), "0" * 32)
    store.files.write(store.name(0), b"done")
    with Data(path).open(artifact.features.raw(("input",)), artifact.delimited()) as source:
        partition = source.partitions(4 << 20)[0]
        monkeypatch.setattr(type(partition), "_rows", fails)
        with pytest.raises(UserError, match=r"cannot read it.*network") as caught:
            answer(Task((partition,)))
        assert not isinstance(travelled(caught.value), DataError)
        with pytest.raises(DataError, match="cannot read it"), _cleared_if_wrong(store):
            partition.read()
    assert store.there()
    with pytest.raises(DataError), _cleared_if_wrong(store):
        raise DataError("line 3 is wrong")
    assert not store.there()


def test_a_model_that_a_worker_cannot_see_comes_along_unless_it_is_large(
    tmp_path, model, wide, monkeypatch
):
    monkeypatch.setattr("distcore.workflow.partitioned.task._opened", {})
    copy = shutil.copytree(model / "model", tmp_path / "copy")
    artifact = open_artifact(copy)
    small = travelled(Model.of(artifact, trust=False))
    monkeypatch.setattr("distcore.workflow.partitioned.task.SHIPPED_BYTES", 1000)
    large = travelled(Model.of(artifact, trust=False))
    assert large.open().manifest == artifact.manifest
    monkeypatch.setattr("distcore.workflow.partitioned.task._opened", {})
    shutil.rmtree(copy)
    with pytest.raises(ArtifactError, match=r"copy cannot be seen from .* too large to travel"):
        large.open()
    opened = small.open()
    table = pacsv.read_csv(wide).slice(0, 50)
    assert list(predict_stream(opened, table)) == list(predict_stream(artifact, table))
    assert small.open() is opened  # once a process


@pytest.mark.parametrize("place", ["here", "travels", "bucket"])
def test_a_worker_opens_a_model_with_what_the_driver_may(tmp_path, monkeypatch, place):
    monkeypatch.setattr("distcore.workflow.partitioned.task._opened", {})
    (tmp_path / "model.json").write_bytes(b"{}")
    asked, digest = [], hashlib.sha256(b"{}").hexdigest()
    monkeypatch.setattr(
        "distcore_data.artifact.open_artifact",
        lambda at, **how: asked.append((at, how)) or SimpleNamespace(digest=digest),
    )
    store = SimpleNamespace(url="memory://a") if place == "bucket" else tmp_path
    if place == "travels":
        (tmp_path / "model.json").write_bytes(b"another")
    Model(store, digest, {"model.json": b"{}"}, True, ("parquet_cache",)).open()
    ((at, how),) = asked
    assert (at is store) == (place != "travels")
    assert (how["trust"], tuple(how["plugins"].block)) == (True, ("parquet_cache",))


def test_another_model_in_the_same_place_is_not_taken_for_it(tmp_path, model, trained, monkeypatch):
    monkeypatch.setattr("distcore.workflow.partitioned.task._opened", {})
    copy = shutil.copytree(model / "model", tmp_path / "copy")
    wanted = Model.of(open_artifact(copy), trust=False)
    shutil.rmtree(copy)
    shutil.copytree(trained / "model", copy)
    assert wanted.open().manifest == unsealed((model / "model" / "model.json").read_bytes())


def test_a_result_that_was_changed_on_its_way_is_refused():
    batch = pa.record_batch({"x": pa.array([1.0, None])})
    content = packed(Found(4, 3, 1, ["x"], [batch, batch]))
    found = unpacked(content)
    assert (found.rows, found.left_out, found.first, found.unknown) == (4, 3, 1, ["x"])
    assert [each.equals(batch) for each in found.batches] == [True, True]
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 4
        with pytest.raises(DistcoreError, match="damaged"):
            unpacked(bytes(changed))


def test_a_piece_in_anothers_place_is_worked_on_again(tmp_path, caplog):
    """Its digest told of its content alone: the rows of one stood in another's place."""
    stores = [Store(LocalStore(tmp_path), digit * 32) for digit in "01"]
    for rows in (0, 1):
        assert stores[0].put(rows, packed(Found(rows, 0, -1, [], []))).rows == rows
    assert [stores[0].get(index).rows for index in (0, 1)] == [0, 1]
    first, second = (stores[0].files.read(stores[0].name(index)) for index in (0, 1))
    stores[0].files.write(stores[0].name(0), second)
    stores[1].files.write(stores[1].name(0), first)
    stores[0].files.write(stores[0].name(1), packed(Found(1, 0, -1, [], [])))  # an older version's
    assert [stores[0].get(0), stores[0].get(1), stores[1].get(0)] == [None] * 3
    assert caplog.text.count("is damaged, or of another version or place, so this piece") == 3


def test_a_backend_here_gets_no_pieces(tmp_path, monkeypatch, model, wide):
    monkeypatch.setattr(
        "distcore.workflow.partitioned.answered_in_pieces", lambda *_: pytest.fail("in pieces")
    )
    assert answered_in_pieces is not None
    distcore.predict(model, wide, output_directory=tmp_path, backend="local")


def test_predicting_here_imports_nothing_of_it(trained, tmp_path):
    code = (
        "import sys, distcore\n"
        f"distcore.predict({str(trained)!r}, {{'age': [3.0], 'city': ['Rome']}}, "
        f"output_directory={str(tmp_path)!r})\n"
        "sys.exit(sorted(name for name in sys.modules if "
        "name.startswith('distcore.workflow.partitioned')) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
