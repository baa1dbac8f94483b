"""`distcore verify`: a run that is as it was is equal to its replay; every planted change is
found."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from tests.conftest import CONFIG, csv

import distcore
from distcore.cli.main import main
from distcore.workflow.difference import read_run
from distcore.workflow.folders import alone_in
from distcore.workflow.replay import _data, refuse_mixed
from distcore.workflow.verify import verify
from distcore_core.errors import UserError
from distcore_core.io.digest import digest_file
from distcore_data.dataset import called
from distcore_data.locks import locked
from distcore_data.model_folder import model_place
from distcore_data.seals import sealed, unsealed
from distcore_data.stores import bucket, lease
from distcore_data.stores.run_sync import RUNNING, Mirror
from distcore_data.temporaries import LOCK
from distcore_torch.training.ledger import LEDGER, Entry, Ledger, read_ledger

TEXT = CONFIG.replace("epochs: 1", "epochs: 3, ledger_steps: 3")


class Run:
    """A folder with data and one run, of which a copy is made for each change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data.csv"
        self.data.write_text(csv())
        config = folder / "config.yaml"
        config.write_text(TEXT)
        self.first = distcore.experiment(
            config, self.data, output_directory=folder / "results", view="none"
        ).directory

    def copy(self):
        copied = self.folder / "copy"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(self.first, copied)
        return copied


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("verify"))


def digests(folder):
    return {
        str(each.relative_to(folder)): digest_file(each).sha256
        for each in folder.rglob("*")
        if each.is_file()
    }


def flip(path):
    """One bit in the middle of a file."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def flipped(name):
    return lambda folder: flip(next(iter(sorted(folder.glob(name)))))


def a_folder(name):
    def change(run):
        (run / name).unlink()
        (run / name).mkdir()

    return change


def a_pipe(name):
    def change(run):
        (run / name).unlink()
        os.mkfifo(run / name)

    return change


def lists(name, said):
    """Has the receipt say something of another file; it is sealed anew, and right."""

    def change(folder):
        path = folder / "receipt.json"
        receipt = unsealed(path.read_bytes())
        receipt["files"][name] = said
        path.write_bytes(sealed(receipt))

    return change


def a_name_outside(folder):
    """So that what lies elsewhere would be read."""
    (folder.parent / "elsewhere").write_bytes(b"x")
    found = digest_file(folder.parent / "elsewhere")
    lists("../elsewhere", {"bytes": found.bytes, "sha256": found.sha256})(folder)


def missing(name):
    return lambda folder: next(iter(sorted(folder.glob(name)))).unlink()


def lines(change):
    def planted(folder):
        path = folder / LEDGER
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return planted


def other_predictions(folder):
    path = folder / "predictions.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)


def indented(folder):
    path = folder / "test_statistics.json"
    path.write_text(json.dumps(json.loads(path.read_text())))


FILES = {
    "a bit of the weights": (
        flipped("model/weights.safetensors"),
        "weights.safetensors was changed",
    ),
    "no weights": (missing("model/weights.safetensors"), "weights.safetensors is missing"),
    "a bit of model.json": (flipped("model/model.json"), "model.json was changed"),
    "no model.json": (missing("model/model.json"), "model.json is missing"),
    "a bit of description.json": (flipped("description.json"), "description.json was changed"),
    "a bit of receipt.json": (flipped("receipt.json"), "receipt.json was changed"),
    "a bit of the training statistics": (
        flipped("training_statistics.json"),
        "training_statistics.json was changed",
    ),
    "a bit of the test statistics": (
        flipped("test_statistics.json"),
        "test_statistics.json was changed",
    ),
    "the test statistics written anew": (indented, "test_statistics.json was changed"),
    "a bit of the diagnostics": (
        flipped("test_diagnostics.json"),
        "test_diagnostics.json was changed",
    ),
    "no digests": (missing("digests.json"), "digests.json is missing"),
    "a prediction less": (other_predictions, "predictions.parquet was changed"),
    "no predictions": (missing("predictions.parquet"), "predictions.parquet is missing"),
    "a bit of the ledger": (flipped(LEDGER), "line "),
    "a line of the ledger less": (
        lines(lambda each: [*each[:3], *each[4:]]),
        "ledger.jsonl was changed",
    ),
    "the ledger's last line cut": (
        lines(lambda each: [*each[:-1], each[-1][:-20]]),
        "ledger.jsonl was changed",
    ),
    "two lines of the ledger exchanged": (
        lines(lambda each: [*each[:-2], *each[:-3:-1]]),
        "ledger.jsonl was changed",
    ),
    "a bit of a checkpoint": (
        flipped("checkpoints/*/tensors.safetensors"),
        "tensors.safetensors is damaged",
    ),
    "a bit of a checkpoint's state": (flipped("checkpoints/*/state.json"), "state.json is damaged"),
    "no manifest": (missing("checkpoints/*/manifest.json"), "manifest.json is damaged"),
    "a bit of the log": (flipped("training_log.jsonl"), "training_log.jsonl was changed"),
    "a folder in the log's place": (
        a_folder("training_log.jsonl"),
        "training_log.jsonl cannot be read (Is a directory)",
    ),
    "a folder in the ledger's place": (
        a_folder("ledger.jsonl"),
        "ledger.jsonl cannot be read (Is a directory)",
    ),
    "a pipe in the log's place": (
        a_pipe("training_log.jsonl"),
        "training_log.jsonl is a pipe or a device",
    ),
    "a pipe in the receipt's place": (a_pipe("receipt.json"), "it is a pipe or a device"),
    "a name that leads elsewhere": (
        a_name_outside,
        "receipt.json names a file outside of its folder, '../elsewhere'",
    ),
    "a name that no file can have": (
        lists("a\0b", {}),
        "receipt.json names a file 'a\\x00b' (embedded null byte)",
    ),
    "a number in the place of a digest": (
        lists("summary.json", 3),
        "summary.json was changed after it was written",
    ),
}
"""What is done to a file of the results, and what must be said."""


def reseal(folder, change):
    """Change the receipt, and make it vouch for the files as they are now: as a forger would."""
    path = folder / "receipt.json"
    receipt = unsealed(path.read_bytes())
    change(receipt)
    for name in receipt["files"]:
        found = digest_file(folder / name)
        receipt["files"][name] = {"bytes": found.bytes, "sha256": found.sha256}
    path.write_bytes(sealed(receipt))


def forged_option(folder):
    def change(receipt):
        receipt["config"]["trainer"]["learning_rate"] = 0.5

    path = folder / "description.json"
    description = unsealed(path.read_bytes())
    change(description)
    path.write_bytes(sealed(description))
    reseal(folder, change)


def forged_seed(folder):
    reseal(folder, lambda receipt: receipt.update(random_seed=43))


def forged_ledger(folder):
    entries = read_ledger(folder / LEDGER)[0]
    (folder / LEDGER).unlink()
    Ledger(folder / LEDGER).write(
        each._replace(weights="0" * 16) if each.step == 9 else each for each in entries
    )
    reseal(folder, lambda receipt: receipt["libraries"].update(torch="0.1"))


def forged_weights(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "model" / "weights.safetensors"
    weights = load_file(path)
    weights[sorted(weights)[0]] += 1
    save_file(weights, path)
    manifest = unsealed((folder / "model" / "model.json").read_bytes())
    found = digest_file(path)
    manifest["files"]["weights.safetensors"] = {"bytes": found.bytes, "sha256": found.sha256}
    (folder / "model" / "model.json").write_bytes(sealed(manifest))
    reseal(folder, lambda receipt: None)


FORGED = {
    "an option": forged_option,
    "the seed": forged_seed,
    "the ledger": forged_ledger,
    "the weights": forged_weights,
}
"""Changes whose seals were all made anew, so that only a replay can tell."""


def test_there_are_more_than_twenty():
    assert len(FILES) + len(FORGED) + 1 >= 20


@pytest.mark.usefixtures("in_a_minute")
@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_found_and_nothing_is_replayed(run, name):
    plant, said = FILES[name]
    folder = run.copy()
    plant(folder)
    found = verify(folder)
    assert not found.equal
    assert any(said in each for each in found.flaws), found.flaws
    assert found.compared == ()


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_is_found_by_the_replay(run, name):
    folder = run.copy()
    FORGED[name](folder)
    found = verify(folder)
    assert (found.flaws, found.equal) == ((), False)
    other_model = name == "the weights"
    assert found.other_model == other_model
    assert (found.first_step is None) == other_model, "no step of equal weights is named"
    assert ("recorded steps, but kept another model" in str(found)) == other_model
    assert ("to other weights after" in str(found)) != other_model
    if name == "the ledger":
        assert "to other weights after step 9; it came to the same after step 6." in str(found)
        (cause,) = found.causes
        assert (cause.what, cause.one) == ("version of torch", "0.1"), "the run comes first"


def test_other_data_in_their_place_are_found(run):
    folder, whole = run.copy(), run.data.read_text()
    try:
        run.data.write_text(whole.replace("Oslo", "Bonn", 1))
        found = verify(folder)
    finally:
        run.data.write_text(whole)
    assert not found.equal
    assert found.flaws == (
        f"The data are not those that {folder} was trained on: their digest is another one.",
    )


def test_a_run_that_is_as_it_was_is_equal_and_stays_so(run, capsys):
    before = digests(run.first)
    assert main(["verify", str(run.first)]) == 0
    assert capsys.readouterr().out.startswith(
        "Equal: every sealed file is as it was written, and a replay came to the same"
    )
    assert digests(run.first) == before


def test_a_run_that_was_ended_before_it_had_a_model_is_replayed(run):
    """Its receipt lists no files yet."""
    folder = run.copy()
    receipt = unsealed((folder / "receipt.json").read_bytes())
    del receipt["files"]
    (folder / "receipt.json").write_bytes(sealed(receipt))
    shutil.rmtree(folder / "model")
    assert verify(folder).equal


def test_a_run_that_was_killed_while_gone_on_with_is_told_from_a_damaged_one(run, monkeypatch):
    """Lines were added to its ledger: the receipt's digest is that of what lies before them."""

    def killed(*_):
        raise KeyboardInterrupt

    folder = run.copy()
    with monkeypatch.context() as patch:
        patch.setattr("distcore.workflow.run.results.remove_what_told_of", killed)
        with pytest.raises(KeyboardInterrupt):
            distcore.train(
                TEXT.replace("epochs: 3", "epochs: 5"),
                run.data,
                model_resume_path=folder,
                view="none",
            )
    first, *changed = verify(folder).flaws
    assert first == (
        f"{folder} was gone on with after it had ended and has not ended again, so its files do "
        f"not belong together. Go on with it: --model_resume_path {folder}."
    )
    assert any("ledger.jsonl was changed" in each for each in changed)


def test_steps_are_replayed_from_a_checkpoint(run, capsys):
    first = min(int(each.name[-8:]) for each in (run.first / "checkpoints").iterdir())
    assert main(["verify", str(run.first), "--steps", f"{first}:{first + 3}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is True
    assert found["compared"] == [first, first + 3]


def begun_with(model, run, folder):
    """A run that begins with the weights of a model."""
    return distcore.train(
        run.folder / "config.yaml",
        run.data,
        model_load_path=model,
        output_directory=folder,
        view="none",
    ).directory


def test_steps_that_differ_are_not_blamed_on_what_was_before_them(run, tmp_path):
    """The weights that the run began with, and what it computed with until it went on."""
    started = begun_with(run.first / "model", run, tmp_path)
    first = min(int(each.name[-8:]) for each in (started / "checkpoints").iterdir())
    entries = read_ledger(started / LEDGER)[0]
    (begun,) = [each for each in entries if each.run]
    other = begun._replace(run={**begun.run, "threads": 7})
    now = begun._replace(step=first)
    at = next(n for n, each in enumerate(entries) if each.step == first) + 1
    changed = [each._replace(weights="0") if each.step == first + 3 else each for each in entries]
    (started / LEDGER).unlink()
    Ledger(started / LEDGER).write([other, *changed[1:at], now, *changed[at:]])
    reseal(started, lambda receipt: None)
    found = verify(started, steps=(first, first + 3))
    assert (found.first_step, found.causes) == (first + 3, ())
    whole = [str(each) for each in verify(started).causes]
    assert whole == [f"number of threads: 7, then {begun.run['threads']} after step {first} and 1"]


def test_a_replay_on_another_backend_deals_the_rows_as_the_run_did(run):
    text = TEXT.replace(
        "backend: local", "backend: {type: local, loader: {type: packed, lanes: 8}}"
    )
    trained = distcore.train(
        yaml.safe_load(text), run.data, output_directory=run.folder / "dealt", view="none"
    )
    assert verify(trained.directory, backend="local").equal


def test_a_run_that_began_with_the_weights_of_another_is_replayed_from_these(run, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(run.first / "model", model)
    started = begun_with(model, run, tmp_path)
    assert verify(started).equal
    causes = distcore.diff(run.first, started).causes
    assert [each.kind for each in causes] == ["weights"]
    longer = yaml.safe_load(TEXT.replace("epochs: 3", "epochs: 4"))
    distcore.train(longer, run.data, model_resume_path=started, view="none")
    assert verify(started).equal, "its receipt was written again"
    for change, why in (
        (lambda: shutil.copytree(started / "model", model, dirs_exist_ok=True), "they are others"),
        (lambda: shutil.rmtree(model), "holds no model"),
    ):
        change()
        with pytest.raises(UserError, match=f"cannot be replayed, because .*{why}"):
            verify(started)


def test_weights_of_which_a_receipt_does_not_tell_are_not_taken_for_none(run, tmp_path):
    started = begun_with(run.first / "model", run, tmp_path)
    reseal(started, lambda receipt: receipt.pop("initial_weights"))
    (cause,) = distcore.diff(run.first, started).causes
    assert str(cause) == "weights that training began with: not there and not recorded"
    longer = yaml.safe_load(TEXT.replace("epochs: 3", "epochs: 4"))
    distcore.train(longer, run.data, model_resume_path=started, view="none")
    assert "initial_weights" not in unsealed((started / "receipt.json").read_bytes())
    (cause,) = verify(started).causes
    assert str(cause) == "weights that training began with: not recorded and not there"

    folder = run.copy()
    reseal(folder, lambda receipt: receipt.pop("initial_weights"))
    assert verify(folder).equal


def test_a_run_that_went_on_with_another_number_of_workers_is_no_fault_of_the_machine(run, capsys):
    folder = run.copy()
    entries = read_ledger(folder / LEDGER)[0]
    place = len(entries) // 2
    step, facts = entries[place].step, entries[0].run
    entries.insert(place + 1, Entry(step, run={**facts, "workers": 2}))
    (folder / LEDGER).unlink()
    Ledger(folder / LEDGER).write(entries)
    reseal(folder, lambda receipt: receipt.update(workers=2))
    assert main(["verify", str(folder)]) == 2
    told = capsys.readouterr().err
    assert f"went on with another number of workers: 1 after step 0, 2 after step {step}." in told
    (cause,) = distcore.diff(run.first, folder).causes
    assert (cause.kind, cause.one) == ("workers", 1)
    assert cause.other == f"1, then 2 after step {step}"

    receipt, _ = read_run(folder, folder)
    refuse_mixed(receipt, step, None)
    with pytest.raises(UserError, match="cannot be replayed as a whole"):
        refuse_mixed(receipt, 0, step)  # by one worker, whose trainer is not known
    for whole in ({"exact": True}, {"starts": {}}, {"starts": {0: {"workers": 2}}}):
        refuse_mixed({**receipt, **whole}, 0, None)


NET = """from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
    def forward(self, batch):
        return self.layer(batch["age"][:, None])
"""


def test_a_network_that_was_given_with_its_weights_is_replayed_from_these(
    run, tmp_path, monkeypatch
):
    (tmp_path / "net_with_weights.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    net = importlib.import_module("net_with_weights").Net()
    torch.nn.init.constant_(net.layer.weight, 0.25)
    folder = distcore.train(
        run.folder / "config.yaml", run.data, model=net, output_directory=tmp_path, view="none"
    ).directory
    assert verify(folder).equal
    (folder / "initial.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be replayed, because it began with the weights"):
        verify(folder)


def test_a_run_in_a_bucket_is_verified(run, monkeypatch):
    """One whose files are larger than what a store calls a small object, too."""
    place = "memory://verified/whole"
    store = Mirror.at(place).store
    for path in filter(Path.is_file, run.first.rglob("*")):
        store.put(path.relative_to(run.first).as_posix(), path)
    monkeypatch.setattr(bucket, "SMALL", 100)
    assert verify(place).equal
    assert distcore.diff(place, run.first).equal
    store.write("digests.json", b"{}")
    (flaw,) = verify(place).flaws
    assert flaw.startswith(f"{place}/digests.json was changed after it was written")


def test_weights_in_a_bucket_are_opened_with_the_credentials_that_are_given(
    run, tmp_path, monkeypatch
):
    model = "memory://verified/model"
    store = Mirror.at(model).store
    for path in (run.first / "model").iterdir():
        store.put(path.name, path)
    folder = distcore.train(
        run.folder / "config.yaml",
        run.data,
        model_load_path=model,
        output_directory=tmp_path,
        view="none",
    ).directory

    def place(path, credentials=None):
        if credentials is None:
            raise OSError("403: no access")
        assert credentials.options == {"key": "k"}
        return model_place(path)

    monkeypatch.setattr("distcore.workflow.replay.model_place", place)
    monkeypatch.setattr("distcore_data.model_folder.model_place", place)
    monkeypatch.setattr("distcore_data.artifact.model_place", place)
    assert verify(folder, credentials={"key": "k"}).equal
    with pytest.raises(UserError, match=r"cannot be had: 403: no access\. Put them back"):
        verify(folder)


@pytest.mark.parametrize("where", ["folder", "trial", "bucket"])
def test_a_run_under_way_is_not_verified(run, where, monkeypatch):
    """Checkpoints are removed while it is looked at: they would be called damaged."""
    monkeypatch.setattr(lease, "LOOK", 0.05)
    monkeypatch.setattr(lease, "BEAT", 0.2)
    copied = run.copy()
    place = "memory://verified/copy" if where == "bucket" else copied
    with ExitStack() as held:
        if where == "bucket":
            holder = held.enter_context(lease.Lease(Mirror.at(place).store, RUNNING))
            assert holder.acquire_from_the_dead(lambda: None)
        else:
            held.enter_context(alone_in(copied) if where == "folder" else locked(copied / LOCK))
        with pytest.raises(UserError, match=r"A process is at work in .*copy, so its files change"):
            verify(place)
    next(copied.glob("checkpoints/*/manifest.json")).unlink()
    assert not verify(copied).equal


@pytest.mark.parametrize("written", ["~/table.parquet", "t?ble.*", "file://{}/table.parquet"])
def test_data_are_there_as_the_run_named_them(tmp_path, monkeypatch, written):
    """Patterns, and paths from the user's folder, were not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    named = written.format(tmp_path)
    receipt = {"data": {"dataset": named}}
    with pytest.raises(UserError, match="are not there to be read again"):
        _data(receipt, {})
    (tmp_path / "table.parquet").touch()
    assert _data(receipt, {}) == {"dataset": named}


def test_data_are_found_in_another_locale_than_the_run_s(tmp_path):
    """Where Python's encoding of paths is ASCII, "ü" has no bytes."""
    file = tmp_path / "ü.csv"
    file.write_text("a\n1\n")
    code = (
        "import json, sys; from distcore.workflow.replay import _data\n"
        "receipt = json.loads(sys.argv[1])\n"
        "print(sys.getfilesystemencoding(), len(open(_data(receipt, {})['dataset']).read()))"
    )
    receipt = json.dumps({"data": {"dataset": str(file)}})
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, receipt],
        env={**os.environ, **ascii_only},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["ascii", "4"], done.stderr


def test_a_folder_in_memory_is_there_and_a_frame_is_not(tmp_path, monkeypatch):
    """What ends as a frame is called was taken for one, though it lay there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables in memory").mkdir()
    for where in ("tables in memory", str(tmp_path / "tables in memory")):
        assert _data({"data": {"dataset": where}}, {}) == {"dataset": where}
    for frame in ({}, pa.table({"x": [1]})):
        where = called(frame)
        with pytest.raises(UserError, match=f"The run's data, {re.escape(where)}, are not there"):
            _data({"data": {"training_set": where}}, {})


def test_data_that_have_moved_are_named(run):
    moved = run.data.rename(run.folder / "moved.csv")
    try:
        with pytest.raises(
            UserError, match=r"are not there to be read again\. Say where they are: --dataset PATH"
        ):
            verify(run.copy())
        assert verify(run.copy(), moved).equal
    finally:
        moved.rename(run.data)


def test_a_set_that_has_moved_is_named_and_the_others_are_where_they_were(run, capsys):
    sets = {}
    for name in ("training_set", "validation_set", "test_set"):
        sets[name] = run.folder / f"{name}.csv"
        sets[name].write_text(csv())
    folder = distcore.train(
        run.folder / "config.yaml", **sets, output_directory=run.folder / "sets", view="none"
    ).directory
    moved = sets["validation_set"].rename(run.folder / "moved_set.csv")
    assert main(["verify", str(folder)]) == 2
    assert "Say where they are: --validation_set PATH." in capsys.readouterr().err
    assert main(["verify", str(folder), "--validation_set", str(moved)]) == 0
    assert main(["verify", str(folder), "--dataset", "a", "--test_set", "b"]) == 2
    assert "Both a dataset and separate sets were given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "9"], "'9' is no range of steps"),
        (["--steps", "2:9"], "The run has no checkpoint of step 2; it has those of steps"),
    ],
)
def test_what_cannot_be_replayed_is_said(run, capsys, words, said):
    assert main(["verify", str(run.first), *words]) == 2
    assert said in capsys.readouterr().err
