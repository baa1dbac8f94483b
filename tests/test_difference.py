"""`distcore diff`: of thirty planted causes it names each, and two equal runs are equal."""

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.conftest import CONFIG, csv

import distcore
from distcore.cli.main import main
from distcore.workflow import receipt
from distcore.workflow.difference import FAULT, Cause, Difference, causes_of, in_lines, read_run
from distcore.workflow.receipt import distributions, installed
from distcore_core.errors import UserError
from distcore_core.registry.lock import files_of
from distcore_data.seals import sealed, unsealed
from distcore_testing.installed import lay_metadata
from distcore_torch.training.ledger import LEDGER, Ledger, read_ledger

STEPS = {"epochs": 4, "batch_size": 32, "ledger_steps": 3}
TEXT = CONFIG.replace("trainer: {epochs: 1, batch_size: 32}", f"trainer: {json.dumps(STEPS)}")


class Runs:
    """Trains in one folder, and keeps a copy of the first run to plant causes in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data.csv").write_text(csv())
        self.first = self.train("first", TEXT)

    def train(self, name, text, data="data.csv", **more):
        config = self.folder / f"{name}.yaml"
        config.write_text(text)
        found = distcore.train(
            config,
            self.folder / data,
            output_directory=self.folder,
            experiment_name=name,
            view="none",
            **more,
        )
        return found.directory

    def planted(self, change, step=6):
        """A copy of the first run whose receipt is changed, and its weights from a step on."""
        other = self.folder / "planted"
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(self.first, other)
        receipt = unsealed((other / "receipt.json").read_bytes())
        change(receipt)
        (other / "receipt.json").write_bytes(sealed(receipt))
        entries = [
            each if each.step < step or not each.weights else each._replace(weights="0" * 16)
            for each in read_ledger(other / LEDGER)[0]
        ]
        (other / LEDGER).unlink()
        Ledger(other / LEDGER).write(entries)
        return other


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


def option(path, value):
    def change(receipt):
        *names, last = path.split(".")
        found = receipt["config"]
        for name in names:
            found = found[int(name) if name.isdigit() else name]
        found[last] = value

    return change


def at(*path, value):
    def change(receipt):
        found = receipt
        for name in path[:-1]:
            found = found[name]
        found[path[-1]] = value

    return change


def offered_by_another(receipt):
    next(each for each in receipt["plugins"] if each["kind"] == "models")["distribution"] = (
        "other-model"
    )


PLANTED = {
    "learning rate": (option("trainer.learning_rate", 0.5), "config", "trainer.learning_rate"),
    "batch size": (option("trainer.batch_size", 16), "config", "trainer.batch_size"),
    "optimizer": (option("trainer.optimizer.type", "sgd"), "config", "trainer.optimizer.type"),
    "a beta": (option("trainer.optimizer.betas", [0.5, 0.9]), "config", "trainer.optimizer.betas"),
    "schedule": (
        option("trainer.learning_rate_scheduler.decay", "cosine"),
        "config",
        "trainer.learning_rate_scheduler.decay",
    ),
    "clipping": (option("trainer.gradient_clipping", None), "config", "trainer.gradient_clipping"),
    "penalty": (
        option("trainer.regularization_lambda", 0.1),
        "config",
        "trainer.regularization_lambda",
    ),
    "precision": (
        option("trainer.use_mixed_precision", True),
        "config",
        "trainer.use_mixed_precision",
    ),
    "shuffling": (option("trainer.should_shuffle", False), "config", "trainer.should_shuffle"),
    "type of a feature": (
        option("input_features.0.type", "category"),
        "config",
        "input_features.age.type",
    ),
    "split": (
        option("preprocessing.split.probabilities", [0.5, 0.2, 0.3]),
        "config",
        "preprocessing.split",
    ),
    "sample": (option("preprocessing.sample_ratio", 0.5), "config", "preprocessing.sample_ratio"),
    "combiner": (option("combiner", {"type": "concat", "num_fc_layers": 9}), "config", "combiner"),
    "data": (at("data", "digest", value="0"), "data", "digest of the data"),
    "seed": (at("random_seed", value=7), "seed", "random_seed"),
    "exact": (at("exact", value=True), "exact", "trainer.exact"),
    "parts": (at("parts", value=4), "parts", "number of parts"),
    "torch": (at("libraries", "torch", value="1.0"), "library", "version of torch"),
    "numpy": (at("libraries", "numpy", value="1.0"), "library", "version of numpy"),
    "pyarrow": (at("libraries", "pyarrow", value="1.0"), "library", "version of pyarrow"),
    "a plugin's version": (
        at("distributions", "distcore-tabular", "version", value="9"),
        "plugin",
        "version of distcore-tabular",
    ),
    "a plugin's files": (
        at("distributions", "distcore-local", "files", value="0"),
        "plugin",
        "installed files of distcore-local",
    ),
    "who offers the model": (offered_by_another, "plugin", "who offers tabular (models)"),
    "build of torch": (at("ranks", "torch_build", value="0"), "torch_build", "build of torch"),
    "instruction set": (
        at("ranks", "instruction_set", value="AVX"),
        "instruction_set",
        "instruction set",
    ),
    "processor": (at("ranks", "processor", value="an older one"), "processor", "processor"),
    "device": (at("ranks", "device", value="a GPU"), "device", "device"),
    "threads": (at("ranks", "threads", value=77), "threads", "number of threads"),
    "workers": (at("ranks", "workers", value=4), "workers", "number of workers"),
    "a switch": (at("switches", "MKL_CBWR", value="AVX2"), "switch", "MKL_CBWR"),
}
"""What is written into the receipt of a copy, and the cause that must be named: its kind and
words."""


def test_there_are_thirty():
    assert len(PLANTED) == 30


@pytest.mark.parametrize("name", PLANTED)
def test_a_cause_that_was_written_into_a_copys_receipt_is_named(runs, name):
    change, kind, what = PLANTED[name]
    found = distcore.diff(runs.first, runs.planted(change))
    assert not found.equal
    assert (found.first_step, found.last_equal) == (6, 3)
    assert [each.kind for each in found.causes] == [kind] * len(found.causes)
    assert all(each.what.startswith(what) for each in found.causes)
    assert found.causes
    assert found.causes[0].one != found.causes[0].other
    assert str(found.causes[0]) in str(found)


@pytest.mark.parametrize(
    ("text", "more", "kind", "what"),
    [
        (TEXT, {"random_seed": 7}, "seed", "random_seed"),
        (TEXT.replace('"batch_size": 32', '"batch_size": 16'), {}, "config", "trainer.batch_size"),
        (
            TEXT.replace("{name: city, type: category}", "{name: city, type: text}"),
            {},
            "config",
            "input_features.city",
        ),
        (TEXT, {"data": "other.csv"}, "data", "digest of the data"),
        (TEXT.replace('"epochs"', '"exact": true, "epochs"'), {}, "exact", "trainer.exact"),
    ],
    ids=["seed", "option", "feature", "data", "exact"],
)
def test_the_cause_of_two_real_runs_is_named(runs, text, more, kind, what):
    (runs.folder / "other.csv").write_text(csv().replace("Rome", "Roma", 1))
    found = distcore.diff(runs.first, runs.train("other", text, **more))
    assert not found.equal
    assert found.first_step is not None
    assert kind in {each.kind for each in found.causes}
    assert any(each.what.startswith(what) for each in found.causes)


NET = """from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
    def forward(self, batch):
        return self.layer(batch["age"][:, None]) * 1
"""


def test_a_network_whose_code_was_changed_is_the_cause_and_no_fault_of_the_hardware(
    runs, monkeypatch
):
    monkeypatch.syspath_prepend(runs.folder)
    file, folders = runs.folder / "net_that_changes.py", []
    for text in (NET, NET.replace("* 1", "* 2")):
        file.write_text(text)
        monkeypatch.delitem(sys.modules, "net_that_changes", raising=False)
        importlib.invalidate_caches()
        shutil.rmtree(runs.folder / "__pycache__", ignore_errors=True)
        net = importlib.import_module("net_that_changes").Net
        folders.append(runs.train("net", TEXT, model=net))
    monkeypatch.delitem(sys.modules, "net_that_changes")
    found = distcore.diff(*folders)
    assert not found.equal
    assert [each.kind for each in found.causes] == ["code"]
    assert FAULT not in str(found)
    assert re.search(r"classes: [0-9a-f]{12}… and [0-9a-f]{12}…", str(found))


def test_an_option_is_named_with_its_lines(runs):
    text = (
        TEXT.replace("backend: local\n", "")
        .replace("trainer:", "backend: local\ntrainer:")
        .replace("32", "64")
    )
    found = distcore.diff(runs.first, runs.train("moved", text))
    (cause,) = found.causes
    assert str(cause) == "trainer.batch_size: 32 (line 6) and 64 (line 7)"


def test_runs_of_thousands_of_other_columns_are_told_in_some_lines():
    """It looked for each option's line among all features, for minutes, and told all of them."""

    def receipt(name, epochs):
        features = [{"name": f"{name}{each}", "type": "number"} for each in range(5000)]
        lines = {f"input_features[{each}].type": each + 2 for each in range(5000)}
        config = {"input_features": features, "trainer": {"epochs": epochs}}
        same = {name: {} for name in ("libraries", "distributions", "ranks", "switches", "data")}
        same |= dict.fromkeys(("random_seed", "exact", "parts", "workers", "backend", "trainer"))
        return {**same, "config": config, "lines": lines, "plugins": []}

    causes = tuple(causes_of(receipt("a", 1), receipt("b", 2)))
    assert len(causes) == 10_002
    lines = [*in_lines([*causes, Cause("workers", "number of workers", 1, 2)])]
    assert lines[0].startswith("  input_features (their order): ")
    assert lines[1] == "  trainer.epochs: 1 and 2"
    assert "  input_features.a1000.type: number (line 1002) and not there" in lines
    assert lines[-2] == "  and 9,902 more of the options of the config, which --json names"
    assert lines[-1] == "  number of workers: 1 and 2"


def test_the_same_run_twice_is_equal(runs, capsys):
    again = runs.train("again", TEXT)
    assert main(["diff", str(runs.first), str(again)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Equal: the same weights after every recorded step up to ")
    found = distcore.diff(runs.first, again)
    assert (found.equal, found.causes) == (True, ())


def test_what_cannot_matter_to_an_exact_run_is_no_cause(runs):
    def both(receipt):
        receipt["exact"] = True

    one = runs.planted(both)
    kept = shutil.copytree(one, runs.folder / "kept", dirs_exist_ok=True)
    changed = runs.planted(
        lambda receipt: (
            both(receipt),
            receipt["ranks"].update(workers=4, threads=9),
            receipt.update(backend="ray"),
        )
    )
    assert distcore.diff(kept, changed).causes == ()

    def learns_otherwise(receipt):
        both(receipt)
        option("trainer.exact", "told by itself")(receipt)
        option("backend.trainer", {"num_workers": 4})(receipt)
        option("trainer.learning_rate", 0.5)(receipt)

    (cause,) = distcore.diff(kept, runs.planted(learns_otherwise)).causes
    assert cause.what == "trainer.learning_rate"

    def deals_otherwise(receipt):
        both(receipt)
        option("backend.loader", {"lanes": 8})(receipt)

    (cause,) = distcore.diff(kept, runs.planted(deals_otherwise)).causes
    assert cause.what == "backend.loader.lanes"


def test_the_version_of_torch_is_told_once_and_hides_nothing(runs):
    def change(receipt):
        receipt["libraries"]["torch"] = "1.0"
        receipt["ranks"].update(torch="1.0", threads=77)

    found = distcore.diff(runs.first, runs.planted(change)).causes
    assert [each.what for each in found] == ["version of torch", "number of threads"]


def test_other_weights_of_equal_inputs_are_a_fault(runs, capsys):
    other = runs.planted(lambda receipt: None)
    assert main(["diff", str(runs.first), str(other)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "The weights differ after step 6; they are equal after step 3.",
        FAULT,
    ]


def test_json_and_a_longer_run(runs, capsys):
    other = runs.train("longer", TEXT.replace('"epochs": 4', '"epochs": 5'))
    assert main(["diff", str(runs.first), str(other), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["first_step"] is None
    assert found["steps"][0] < found["steps"][1]
    assert [each["what"] for each in found["causes"]] == ["trainer.epochs"]


@pytest.mark.parametrize(
    ("last_equal", "told"),
    [
        (0, "The weights are equal after every step recorded of both, up to 0; one has come to"),
        (None, "No step is recorded of both; one has come to step 7, the other to 9."),
    ],
)
def test_steps_that_no_record_has_are_not_called_equal(last_equal, told):
    """Ledgers of steps 0 and 7, and 0 and 9."""
    assert str(Difference(False, None, last_equal, (7, 9))).startswith(told)


def test_of_a_killed_run_the_whole_lines_count_and_a_changed_one_is_refused(tmp_path):
    (tmp_path / "receipt.json").write_bytes(sealed({"ranks": None}))
    lines = [{"step": 0, "run": {"workers": 2}}, {"step": 4, "weights": "ab"}, {"step": 8}]
    *whole, last = (sealed(each, line=True) for each in lines)
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(whole) + last[:-4])
    receipt, found = read_run(tmp_path, "mine")
    assert (receipt["ranks"], found) == ({"workers": 2}, {4: "ab"})
    (tmp_path / "ledger.jsonl").write_bytes(b"".join([whole[0], last[:-4], b"\n", whole[1]]))
    with pytest.raises(UserError, match=r"mine/ledger\.jsonl.*line 2"):
        read_run(tmp_path, "mine")


def test_a_folder_without_records_and_a_changed_receipt_are_refused(runs, tmp_path, capsys):
    assert main(["diff", str(runs.first), str(tmp_path)]) != 0
    assert f"{tmp_path} holds no receipt.json" in capsys.readouterr().err
    shutil.copy(runs.first / "receipt.json", tmp_path)
    assert main(["diff", str(runs.first), str(tmp_path)]) != 0
    assert "Trainers of trees keep no ledger" in capsys.readouterr().err
    other = runs.planted(lambda receipt: None)
    raw = (other / "receipt.json").read_bytes()
    (other / "receipt.json").write_bytes(raw.replace(b'"random_seed": 42', b'"random_seed": 43'))
    with pytest.raises(UserError, match=r"receipt\.json is damaged, or was changed"):
        distcore.diff(runs.first, other)


@pytest.mark.usefixtures("in_a_minute")
@pytest.mark.parametrize("name", ["receipt.json", LEDGER])
def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(runs, tmp_path, name):
    folder = tmp_path / "run"
    shutil.copytree(runs.first, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=rf"{name} is damaged.*\(it is a pipe or a device\)"):
        distcore.diff(folder, runs.first)


def test_what_the_receipt_says(runs):
    receipt = unsealed((runs.first / "receipt.json").read_bytes())
    assert receipt["workers"] == receipt["ranks"]["workers"] == 1
    assert (receipt["exact"], receipt["parts"]) == (False, None)
    assert receipt["lines"]["trainer.epochs"] == 6
    assert receipt["distributions"]["distcore-tabular"].keys() >= {"version", "files"}
    assert {"ledger.jsonl", "model/model.json", "description.json"} <= receipt["files"].keys()


@pytest.mark.parametrize("path", ["edited/__init__.py", "edited.py"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("top_level.txt", "edited\n"),  # of setuptools
        ("entry_points.txt", "[distcore.extensions]\nmine = edited\n"),
        ("RECORD", "edited.pth,,\n"),  # of flit
    ],
)
def test_an_edit_is_seen_whoever_made_the_installation_editable(
    tmp_path, monkeypatch, path, name, text
):
    """Only that of a package that top_level.txt names was."""
    info, module = lay_metadata(tmp_path, "edited", {}), tmp_path / path
    finder = tmp_path / "__editable___edited_1_finder.py"
    module.parent.mkdir(exist_ok=True)
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    (info / "RECORD").write_text(f"{finder.name},,\n")
    (tmp_path / "edited.pth").touch()
    with open(info / name, "a") as file:
        file.write(text)
    monkeypatch.syspath_prepend(tmp_path)

    def said(source, checkout):
        module.write_text(source)
        finder.write_text(f"CHECKOUT = {checkout!r}\n")
        importlib.invalidate_caches()
        files_of("edited", anew=True)
        return installed.__wrapped__("edited")

    assert said("one = 1\n", "/here") == said("one = 1\n", "/there")
    assert said("one = 1\n", "/here") != said("one = 2\n", "/here")


@pytest.mark.parametrize("path", ["plug_edited.py", "plug_edited/__init__.py"])
def test_a_plugin_that_is_edited_while_a_process_works_is_told(tmp_path, monkeypatch, caplog, path):
    """Its workers had the edited files, and the receipt said otherwise."""
    name = f"plug-{path.count('/')}"
    info, module = lay_metadata(tmp_path, name, {}), tmp_path / path
    module.parent.mkdir(exist_ok=True)
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    (info / "top_level.txt").write_text("plug_edited\n")
    module.write_text("one = 1\n")
    os.utime(module, (1, 1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plug_edited", raising=False)
    importlib.import_module("plug_edited")
    before = distributions([name])
    assert before[name]["editable"]

    def told(*, anew=True):
        """How often the next run says so, or the end of this one."""
        del caplog.records[:]
        if anew:
            receipt._told.clear()
        assert distributions([name, "never-there"]) == before
        said = f"{name} was edited after this process had imported it"
        return sum(each.startswith(said) for each in caplog.messages)

    assert told() == 0
    os.utime(module, (3, 3))  # as it was, but for its time
    assert told() == 0
    for text in ("one = 2\n", "one = 3\n"):
        module.write_text(text)
        os.utime(module, (2, 2))  # as tools do that keep a file's time
        assert (told(), told(anew=False), told()) == (1, 0, 1)
        files_of(name, anew=True)  # as a lock asks
        assert told() == 1
    module.write_text("one = 1\n")
    assert told() == 0
    module.rename(module.with_suffix(".old"))  # the process goes on
    assert told() == 1
    monkeypatch.delitem(sys.modules, "plug_edited")


def test_what_is_installed_is_told_by_the_sources_or_by_the_record(tmp_path, monkeypatch):
    info = lay_metadata(tmp_path, "faked", {}, version="1")
    module = tmp_path / "faked" / "__init__.py"
    for path, text in (
        (info / "top_level.txt", "faked\n"),
        (info / "direct_url.json", '{"dir_info": {"editable": true}}'),
        (module, "one = 1\n"),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def said():
        files_of("faked", anew=True)
        return installed.__wrapped__("faked")

    before = said()
    assert (before["version"], before["editable"]) == ("1", True)
    assert said() == before
    module.write_text("one = 2\n")
    assert said()["files"] != before["files"]
    (info / "direct_url.json").unlink()
    record = info / "RECORD"
    record.write_text("faked/__init__.py,sha256=a,8\n")
    wheel = said()
    assert wheel.keys() == {"version", "files"}
    with open(record, "a") as file:  # what the installer adds
        file.write("faked/x.pyc,,\nfaked-1.dist-info/INSTALLER,sha256=c,4\n../../bin/faked,,\n")
    assert said() == wheel
    record.write_text("faked/__init__.py,sha256=b,8\n")
    assert said() != wheel
