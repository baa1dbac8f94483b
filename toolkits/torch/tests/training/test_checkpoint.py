"""Checkpoints are whole or not there; damage is named and falls back; nothing is unpickled."""

import logging
import os
import subprocess
import sys
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.errors import CheckpointError
from distcore_data.seals import sealed, unsealed
from distcore_data.stores.run_sync import Mirror
from distcore_torch.training import checkpoint
from distcore_torch.training.state import TrainState
from distcore_torch.training.tensorfile import read_tensors, tensor_writer

TENSORS = {
    "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "flag": torch.tensor([True, False, True]),
    "step": torch.tensor(7.0),
    "empty": torch.zeros(0, 3),
    "view": torch.arange(10)[2::2],
}
STATE = {"epoch": 1, "learning_rate": 0.1 + 0.2, "statistics": {"a": [1.0, None]}}


def save_three(directory):
    for step in (10, 20, 30):
        checkpoint.save(
            directory,
            step,
            {**TENSORS, "step": torch.tensor(float(step))},
            {**STATE, "step": step},
            keep=3,
        )


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_round_trip_keeps_every_bit(tmp_path):
    state = {**STATE, "worst": float("inf")}  # as the score of a run that diverges
    path = checkpoint.save(tmp_path, 123, TENSORS, state)
    assert path.name == "step-00000123"
    found = checkpoint.load_newest(tmp_path)
    assert (found.step, found.state) == (123, state)
    same(found.tensors, TENSORS)


@pytest.mark.parametrize("name", [".", "manifest.json", "state.json", "tensors.safetensors"])
def test_one_that_another_user_keeps_closed_is_told_and_not_passed_over(
    name, public_folder, as_another_user
):
    """Training on from the one before would remove it."""
    save_three(public_folder)
    closed = public_folder / "step-00000030" / name
    assert checkpoint.load_newest(public_folder).step == 30
    closed.chmod(0o600)

    def load_newest():
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load_newest(public_folder)
        return str(caught.value)

    said = as_another_user(load_newest)
    assert said.startswith(f"The checkpoint file {closed if name != '.' else closed / 'manifest'}")
    assert "cannot be read (permission denied)" in said


def test_another_layout_is_refused_by_its_version(tmp_path):
    path = checkpoint.save(tmp_path, 10, TENSORS, STATE) / "manifest.json"
    manifest = unsealed(path.read_bytes())
    path.write_bytes(sealed({**manifest, "version": checkpoint.VERSION + 1}))
    with pytest.raises(CheckpointError, match="version 2 instead of 1"):
        checkpoint.load(path.parent)


def test_the_newest_is_that_of_the_largest_step_not_of_the_last_name(tmp_path):
    for step in (99_999_999, 100_000_000):
        (tmp_path / f"step-{step}").mkdir()
    assert [each.name for each in checkpoint.list_checkpoints(tmp_path)] == [
        "step-100000000",
        "step-99999999",
    ]


def test_tensor_file_is_what_safetensors_writes(tmp_path):
    from safetensors.torch import save_file

    plain = {name: each.contiguous() for name, each in TENSORS.items()}
    save_file(plain, tmp_path / "theirs")
    with open(tmp_path / "ours", "wb") as file:
        tensor_writer(TENSORS)(file)
    same(read_tensors(tmp_path / "ours"), read_tensors(tmp_path / "theirs"))


def test_only_the_newest_are_kept_and_half_ones_are_swept(tmp_path):
    (tmp_path / "step-00000005.building-0123456789abcdef0123456789abcdef").mkdir()
    save_three(tmp_path)
    checkpoint.save(tmp_path, 40, TENSORS, STATE)
    assert sorted(os.listdir(tmp_path)) == ["step-00000030", "step-00000040"]


def test_one_with_another_flaw_is_passed_over(tmp_path, caplog):
    save_three(tmp_path)
    found = checkpoint.load_newest(tmp_path, lambda each: "of others" if each.step > 10 else "")
    assert found.step == 10
    assert caplog.text.count("is damaged (of others)") == 2


def test_the_newest_whole_one_comes_from_a_bucket(tmp_path):
    mirror, here = Mirror.at("memory://checkpoints/run"), tmp_path / "here"
    for step in (7, 99_999_999, 100_000_000):
        checkpoint.copy_to(mirror, checkpoint.save(here, step, TENSORS, STATE))
    for name in ("step-100000000", "step-99999999"):  # 7 is no more beside them
        there = tmp_path / name / "checkpoints"
        checkpoint.copy_newest_from(mirror, there)
        assert os.listdir(there) == [name]
        mirror.store.write(f"checkpoints/{name}/state.json", b"{}")
    checkpoint.copy_newest_from(mirror, tmp_path / "none")
    assert os.listdir(tmp_path / "none") == []


def test_one_that_is_damaged_here_alone_comes_from_the_bucket_again(tmp_path, caplog):
    """Training went back to the one before, though the bucket's newest was whole."""
    mirror, here = Mirror.at("memory://damaged-here/run"), tmp_path / "run" / "checkpoints"
    for step in (10, 20):
        newest = checkpoint.save(here, step, TENSORS, STATE)
        checkpoint.copy_to(mirror, newest)
    (newest / "tensors.safetensors").write_bytes(b"no more")
    checkpoint.copy_newest_from(mirror, here)
    assert checkpoint.load_newest(here).step == 20
    assert not caplog.messages


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "remove", "empty", "pipe", "endless"])
def test_a_damaged_newest_falls_back_loudly(tmp_path, caplog, file, harm):
    save_three(tmp_path)
    path = tmp_path / "step-00000030" / file
    content = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(content[:-3])
    elif harm == "flip":
        content[len(content) // 2] ^= 0x40
        path.write_bytes(content)
    elif harm == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if harm == "pipe":  # at which whoever opens it waits
            os.mkfifo(path)
        elif harm == "endless":
            path.symlink_to("/dev/zero")
    with caplog.at_level(logging.WARNING, "distcore"):
        found = checkpoint.load_newest(tmp_path)
    assert found.step == 20
    assert str(path if file != "manifest.json" else path.parent) in caplog.text


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_flipped_bit_is_noticed(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("flip")
    path = checkpoint.save(directory, 1, TENSORS, STATE)
    victim = path / data.draw(st.sampled_from(["tensors.safetensors", "state.json"]))
    content = bytearray(victim.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    victim.write_bytes(content)
    with pytest.raises(CheckpointError, match="None of the 1 checkpoint"):
        checkpoint.load_newest(directory)


def test_none_whole_and_none_at_all_are_errors(tmp_path):
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        checkpoint.load_newest(tmp_path / "nowhere")
    save_three(tmp_path)
    for path in checkpoint.list_checkpoints(tmp_path):
        (path / "state.json").unlink()
    with pytest.raises(CheckpointError, match="None of the 3 checkpoints"):
        checkpoint.load_newest(tmp_path)


def test_a_checkpoint_under_another_steps_name_is_refused(tmp_path):
    checkpoint.save(tmp_path, 10, TENSORS, STATE)
    (tmp_path / "step-00000010").rename(tmp_path / "step-00000099")
    with pytest.raises(CheckpointError):
        checkpoint.load_newest(tmp_path)


def test_saving_an_earlier_step_removes_what_was_passed_over(tmp_path):
    save_three(tmp_path)
    (tmp_path / "step-00000030" / "state.json").unlink()
    checkpoint.save(tmp_path, 25, TENSORS, STATE)
    assert checkpoint.load_newest(tmp_path).step == 25
    assert not (tmp_path / "step-00000030").exists()


def test_a_pickle_in_place_of_the_tensors_is_never_read(tmp_path):
    path = checkpoint.save(tmp_path, 1, TENSORS, STATE) / "tensors.safetensors"
    torch.save({"weight": torch.zeros(1)}, path)
    manifest = unsealed((path.parent / "manifest.json").read_bytes())
    digest = checkpoint.digest_file(path)
    manifest["files"]["tensors.safetensors"] = {"bytes": digest.bytes, "sha256": digest.sha256}
    (path.parent / "manifest.json").write_bytes(sealed(manifest))
    with pytest.raises(CheckpointError):
        checkpoint.load_newest(tmp_path)


def test_a_full_disk_is_said_and_older_checkpoints_are_intact(tmp_path):
    """A file-size limit stands in for the full disk's refusal half way through the bytes."""
    save_three(tmp_path)
    program = f"""
import resource, signal, errno, os
from pathlib import Path
import torch
from distcore_data import os_errors as disk
from distcore_torch.training import checkpoint
from distcore_core.errors import CheckpointError
disk.FULL = disk.FULL | {{errno.EFBIG}}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
directory = Path({str(tmp_path)!r})
try:
    checkpoint.save(directory, 40, {{"big": torch.zeros(1_000_000)}}, {{}})
except CheckpointError as error:
    print("no room" if "no room for the checkpoint" in str(error) else error)
print(checkpoint.load_newest(directory).step, sorted(os.listdir(directory)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    kept = ["step-00000010", "step-00000020", "step-00000030"]
    assert done.stdout.splitlines() == ["no room", f"30 {kept}"], done.stderr


def test_tensors_in_a_folder_whose_name_is_not_utf_8(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xfa\xdc")
    folder.mkdir()
    with open(folder / "t.safetensors", "wb") as file:
        tensor_writer({"a": torch.arange(3)})(file)
    assert read_tensors(folder / "t.safetensors")["a"].tolist() == [0, 1, 2]


def test_a_checkpoint_copies_lists_of_rounds_and_not_number_by_number():
    """20,000 rounds of 32 metrics took 0.85 s of each checkpoint, while training stood still."""

    class Number(float):
        def __deepcopy__(self, memo):
            raise AssertionError("a number was copied by itself")

    state = TrainState(step=4, best={"epoch": 1.0})
    for value in (Number(0.5), None, Number(0.25)):
        state.record("training", {"y": {"loss": value}})
    saved = state.as_json()
    state.record("training", {"y": {"loss": 9.0}})
    state.best["epoch"] = 2.0
    assert saved["statistics"] == {"training": {"y": {"loss": [0.5, None, 0.25]}}}
    assert saved["best"] == {"epoch": 1.0}
    assert [*saved] == [field.name for field in fields(TrainState)]
    assert TrainState.from_json(saved).as_json() == saved
