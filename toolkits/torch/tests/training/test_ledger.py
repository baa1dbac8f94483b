"""The ledger: an entry every n steps, the same after any death, whole lines only; flips in one
process."""

import errno
import hashlib
import importlib
import json
import logging
import re
import resource
import sys

import pytest
import torch

from distcore_core.contracts import Rank
from distcore_core.errors import CheckpointError, TrainingError
from distcore_data.seals import sealed
from distcore_testing.loops import TinyRun, tiny_loop, train_tiny
from distcore_torch.training import facts
from distcore_torch.training.fingerprint import Fingerprint, hexadecimal
from distcore_torch.training.ledger import LEDGER, Entry, Ledger, read_ledger
from distcore_torch.training.sentinel import accusation
from distcore_torch.training.strategy import SingleProcess

OPTIONS = {"epochs": 4, "steps_per_checkpoint": 7, "ledger_steps": 4, "early_stop": -1}


def entries(folder):
    found, flaws = read_ledger(folder / LEDGER)
    assert flaws == []
    return found


def digests(folder):
    return {each.step: each.weights for each in entries(folder) if each.weights}


def interrupted(folder, step):
    """A run that gets a ctrl-C under way to a step, and then its end."""
    run = TinyRun(OPTIONS, checkpoints=str(folder), norm=True)
    loop, loader, _ = tiny_loop(run, SingleProcess())
    loader.actions[step] = lambda: setattr(loop.progress, "stop", True)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    return run


def test_entries_come_every_n_steps_and_at_rounds_and_checkpoints(tmp_path):
    result = train_tiny(Rank(), TinyRun(OPTIONS, checkpoints=str(tmp_path)))
    found = entries(tmp_path)
    steps = result["state"]["step"]
    assert [each.step for each in found if each.weights] == sorted(
        {*range(0, steps + 1, 4), *range(0, steps, 7), steps}
    )
    assert [each.step for each in found if each.optimizer] == sorted({*range(7, steps, 7), steps})
    assert [each.step for each in found if each.run] == [0]


def test_an_entry_is_the_fingerprint_of_all_weights_and_buffers(tmp_path):
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path), norm=True)
    loop = tiny_loop(run, SingleProcess())[0]
    loop.run()
    now = Fingerprint(loop.work.module.state_dict().items()).total()
    assert entries(tmp_path)[-1].weights == hexadecimal(now)


def test_a_digest_a_step_can_be_had(tmp_path):
    train_tiny(Rank(), TinyRun({**OPTIONS, "ledger_steps": 1}, checkpoints=str(tmp_path)))
    assert list(digests(tmp_path)) == list(range(max(digests(tmp_path)) + 1))


def test_no_ledger_is_kept_if_none_is_asked_for(tmp_path):
    train_tiny(Rank(), TinyRun({**OPTIONS, "ledger_steps": 0}, checkpoints=str(tmp_path)))
    assert not (tmp_path / LEDGER).exists()


@pytest.mark.parametrize("step", [5, 13, 22])
def test_a_resumed_run_ends_with_the_ledger_of_an_undisturbed_one(tmp_path, step):
    train_tiny(Rank(), TinyRun(OPTIONS, checkpoints=str(tmp_path / "whole"), norm=True))
    run = interrupted(tmp_path / "cut", step)
    later = Entry(
        step + 9, weights="0" * 16
    )  # as a run that was killed after its last checkpoint leaves
    Ledger(tmp_path / "cut" / LEDGER).write([later])
    train_tiny(Rank(), run)
    whole, again = digests(tmp_path / "whole"), digests(tmp_path / "cut")
    assert {step: again[step] for step in whole} == whole
    assert set(again) - set(whole) <= {step + 1}  # the checkpoint of the ctrl-C


def test_a_ledger_may_begin_at_any_step(tmp_path):
    """As of a run that is gone on with after it was told to keep none."""
    assert Ledger(tmp_path / LEDGER).begin(7, {"workers": 1}) is None
    assert entries(tmp_path) == [Entry(7, run={"workers": 1})]


def test_a_torn_last_line_is_dropped(tmp_path, caplog):
    run = interrupted(tmp_path, 9)
    path = tmp_path / LEDGER
    with open(path, "ab") as file:
        file.write(sealed({"step": 11, "weights": "ab"}, line=True)[:-9])
    found, flaws = read_ledger(path)
    assert [each.torn for each in flaws] == [True]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "distcore"):
        train_tiny(Rank(), run)
    assert entries(tmp_path)[: len(found)] == found
    assert caplog.text == ""


def test_a_changed_line_is_told_and_left_out(tmp_path, caplog):
    run = interrupted(tmp_path, 9)
    path = tmp_path / LEDGER
    lines = path.read_bytes().splitlines(keepends=True)
    caplog.clear()
    lines[2] = lines[2].replace(b'"step": 4', b'"step": 5')
    path.write_bytes(b"".join(lines))
    found, flaws = read_ledger(path)
    assert (len(found), [each.line for each in flaws]) == (len(lines) - 1, [3])
    with caplog.at_level(logging.WARNING, "distcore"):
        train_tiny(Rank(), run)
    assert f"{path}, line 3, is damaged" in caplog.text
    assert 4 not in digests(tmp_path)


def test_what_a_full_disk_cut_short_is_taken_back(tmp_path, monkeypatch):
    ledger, entry = Ledger(tmp_path / LEDGER), Entry(4, "ab")
    ledger.write([entry])

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(CheckpointError):
            ledger.write([Entry(8, "cd")])
    assert read_ledger(ledger.path) == ([entry], [])


def test_lines_of_which_the_disk_takes_a_part_are_an_error_and_taken_back(tmp_path):
    """The system says so in the next write, and there was none."""
    ledger, entry = Ledger(tmp_path / LEDGER), Entry(4, "ab")
    ledger.write([entry])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.path.stat().st_size + 60, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="ulimit -f"):
            ledger.write([Entry(8, "cd"), Entry(12, "ef")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_ledger(ledger.path) == ([entry], [])


def test_two_fingerprints_of_a_step_are_one_entry_and_two_runs_are_two(tmp_path):
    ledger = Ledger(tmp_path / LEDGER)
    runs = [Entry(4, run={"threads": each}) for each in (1, 2)]
    others = [Entry(4, "ab"), Entry(4, "ab", "ef"), Entry(4, "cd"), Entry(5, "cd")]
    ledger.write([*runs, *others])
    assert read_ledger(ledger.path) == ([*runs, *others[1:]], [])


ANOTHER = {
    "instruction set": (torch.backends.cpu, "get_cpu_capability", lambda: "ANOTHER"),
    "maker": (facts, "maker", lambda: "ANOTHER"),
}


@pytest.mark.parametrize("what", ANOTHER)
def test_going_on_with_another_processor_is_told_in_one_line(tmp_path, caplog, monkeypatch, what):
    run = interrupted(tmp_path, 9)
    caplog.clear()
    monkeypatch.setattr(*ANOTHER[what])
    with caplog.at_level(logging.WARNING, "distcore"):
        train_tiny(Rank(), run)
    told = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert len(told) == 1
    assert re.search(rf"the {what} of the processor was \S+ and is ANOTHER\. ", told[0])
    assert [each.step for each in entries(tmp_path) if each.run] == [0, 10]


def test_facts_of_ranks_are_told_once_if_they_are_the_same():
    mine = facts.rank_facts("cpu", torch.nn.Linear(1, 1))
    assert facts.of_group([mine, mine]) == {"workers": 2, **mine}
    assert facts.of_group([mine, {**mine, "threads": 99}])["threads"] == [mine["threads"], 99]
    assert json.loads(json.dumps(mine)) == mine
    assert re.fullmatch(r"[0-9a-f]{64}", mine["torch_build"])


def test_the_code_of_a_network_is_that_of_the_files_of_its_own_classes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_layer.py").write_text("from torch import nn\nclass Layer(nn.Linear): pass\n")
    layer = importlib.import_module("own_layer").Layer(1, 1)
    before = facts.code_of(torch.nn.Sequential(layer))
    assert facts.code_of(torch.nn.Linear(1, 1)) == {}
    assert facts.code_of(torch.nn.Sequential(layer, layer)) == before
    (tmp_path / "own_layer.py").write_text("from torch import nn\nclass Layer(nn.Linear): x = 1\n")
    layer = importlib.reload(sys.modules["own_layer"]).Layer(1, 1)
    now = facts.code_of(torch.nn.Sequential(layer))
    (told,) = facts.changes(before, now)
    assert told.startswith("the code of the network's own classes was ")
    monkeypatch.delitem(sys.modules, "own_layer")
    assert facts.code_of(layer).keys() == {"code"}  # a class without a file


def test_a_file_that_is_edited_after_its_import_is_told_and_the_code_is_what_was_imported(
    tmp_path, monkeypatch, caplog
):
    text = "from torch import nn\nclass Layer(nn.Linear):\n    def one(self): return {}\n"
    text += "class Other(nn.Linear): pass\n"
    file = tmp_path / "edited_layer.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file.write_text(text.format(1))
    module = importlib.import_module("edited_layer")
    kind, other = module.Layer, module.Other
    layer = torch.nn.Sequential(kind(1, 1), other(1, 1))
    before = facts.code_of(layer)
    assert caplog.messages == []
    file.write_text(text.format(2))
    assert facts.code_of(layer) == facts.code_of(layer) == before
    (told,) = caplog.messages  # once for both classes
    assert f"{file} was changed after this process had imported it" in told
    file.write_text(text.format(3))
    assert facts.code_of(layer) == before
    assert len(caplog.messages) == 2

    kind.extra = lambda self: None  # by which the class is none of another file
    assert facts.code_of(layer) == before
    assert len(caplog.messages) == 2

    old, kind_now = kind, importlib.reload(module).Layer
    after = facts.code_of(torch.nn.Sequential(kind_now(1, 1), module.Other(1, 1)))
    assert after != before
    assert facts.code_of(old(1, 1)) == before  # what is still of the class of before
    del caplog.records[:]
    old.one.__code__ = kind_now.one.__code__  # as IPython's %autoreload does
    assert facts.code_of(old(1, 1)) == after
    file.unlink()
    assert facts.code_of(old(1, 1)) == after
    assert caplog.messages == []
    monkeypatch.delitem(sys.modules, "edited_layer")


@pytest.mark.parametrize("wrapped", ["", "    @torch.no_grad()\n"])
@pytest.mark.parametrize("edited", ["", "a method", "another class"])
def test_an_edit_between_import_and_first_use_is_told(
    tmp_path, monkeypatch, caplog, edited, wrapped
):
    """The edited file was taken for the one that had been imported."""
    text = "from __future__ import annotations\nimport torch\nclass Layer(torch.nn.Linear):\n"
    text += f"    size: int = 1\n{wrapped}    def forward(self, x):\n        return x * 1\n"
    file = tmp_path / "early_layer.py"
    monkeypatch.syspath_prepend(tmp_path)
    file.write_text(text)
    sys.modules.pop("early_layer", None)
    layer = importlib.import_module("early_layer").Layer(1, 1)
    for _ in range(100):  # by which Python changes a function's code
        layer(1)
    layer.__class__.extra = lambda self: None  # is of another file
    if edited == "a method":
        file.write_text(text.replace("x * 1", "x * 10"))
    elif edited:
        file.write_text(f"{text}class Other(torch.nn.Linear): pass\n")
    said = facts.code_of(layer)
    unknown = {"code": hashlib.sha256(b"0\0").hexdigest()}
    assert (said == unknown) == (edited == "a method")
    assert facts.code_of(layer) == said
    assert len(caplog.messages) == (edited == "a method")


def test_a_class_of_attributes_alone_that_autoreload_updates_is_of_the_new_file(
    tmp_path, monkeypatch, caplog
):
    file = tmp_path / "plain_layer.py"
    monkeypatch.syspath_prepend(tmp_path)
    file.write_text("import torch\nclass Layer(torch.nn.Linear): size = 1\n")
    module = importlib.import_module("plain_layer")
    kind = module.Layer
    before = facts.code_of(kind(1, 1))
    file.write_text("import torch\nclass Layer(torch.nn.Linear): size = 10\n")
    kind.size = importlib.reload(module).Layer.size  # as IPython does
    assert facts.code_of(kind(1, 1)) == facts.code_of(module.Layer(1, 1)) != before
    assert caplog.messages == []


# ------------------------------------------------------------------ the sentinel, in one process


@pytest.mark.parametrize("part", ["weights", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("bit", [0, 22, 31])
def test_a_flipped_bit_between_two_updates_is_found_and_named(tmp_path, part, bit):
    run = TinyRun({**OPTIONS, "ledger_steps": 1}, checkpoints=str(tmp_path))
    loop, loader, _ = tiny_loop(run, SingleProcess())

    def flip():
        tensor = loop.work.module.first.weight
        tensor = tensor if part == "weights" else loop.stepper.optimizer.state[tensor][part]
        tensor.detach().view(-1).view(torch.int32)[11] ^= -(1 << 31) if bit == 31 else 1 << bit

    loader.actions[9] = flip
    name = "first.weight" if part == "weights" else rf"first\.weight \({part}\)"
    with pytest.raises(
        TrainingError,
        match=rf"^After step 9 the memory of rank 0 .*: {name} \(bit {bit} of number 11\) ",
    ):
        loop.run()
    assert max(int(each.name[-8:]) for each in tmp_path.glob("step-*")) == 7


def test_a_flip_while_a_round_is_evaluated_is_not_saved(tmp_path):
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path))
    loop, _, _ = tiny_loop(run, SingleProcess())
    validation = loop.work.validation
    seen = []

    def flip():
        seen.append(1)
        if len(seen) == 2:
            loop.work.module.last.weight.data.view(-1).view(torch.int32)[1] ^= 1 << 5

    validation.actions[0] = flip
    with pytest.raises(
        TrainingError, match=r"After step 14 the memory of rank 0 changed by itself: last\.weight"
    ):
        loop.run()
    assert [each.name for each in tmp_path.glob("step-*")] == ["step-00000007"]


def rank(**each):
    return {"changed": False, "where": [], "each": {"w": 1, "w (exp_avg)": 2, "b": 3, **each}}


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([rank(), rank(), rank(w=9)], "rank 2 of 3 differs from the others in w. "),
        (
            [rank(), rank(**{"w (exp_avg)": 9, "w": 9}), rank()],
            "rank 1 of 3 differs from the others in w (exp_avg). ",
        ),
        (
            [rank(), rank(b=4)],
            "ranks 0 and 1 differ in b, and no majority tells which of them is wrong",
        ),
        ([rank(b=4), rank(b=5), rank(b=6)], "ranks 0 to 2 differ in b, and no majority"),
        (
            [rank(), {**rank(), "changed": True, "where": []}],
            "the memory of rank 1 changed by itself: weights or",
        ),
        (
            [{**rank(b=5), "changed": True, "where": ["b (bit 31 of number 7)"]}, rank()],
            "the memory of rank 0 changed by itself: b (bit 31 of number 7) is not what the rank "
            "left behind",
        ),
    ],
)
def test_who_is_accused(ranks, said):
    assert accusation(12, ranks).startswith(f"After step 12 {said}")
