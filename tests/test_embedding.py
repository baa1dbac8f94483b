"""A program that calls distcore: what it has set changes no bit, and stays as it is."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import distcore
from distcore_core.errors import DistcoreError
from distcore_testing import data
from distcore_torch.guests import put_back
from distcore_torch.modes import flushes, plain_torch


@contextmanager
def default_type(type_: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(type_)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def precision(name: str) -> Iterator[None]:
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


def settings() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.matmul.fp32_precision,
        torch.backends.mkldnn.enabled,
        torch.backends.cuda.matmul.fp32_precision,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
    )


SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64 by default": lambda: default_type(torch.float64),
    "bfloat16 by default": lambda: default_type(torch.bfloat16),
    "products in bfloat16": lambda: precision("medium"),
    "no oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "another device by default": lambda: torch.device("meta"),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """What comes of it where nothing is set."""
    return results(tmp_path_factory.mktemp("alone"))


def results(folder: Path) -> tuple[Any, ...]:
    table, config = data.table(200), data.config(str(folder / "cache"))
    colours = ("red", "green", "blue")
    texts = [" ".join(colours[row * place % 3] for place in range(5)) for row in range(200)]
    table = table.append_column("text", [texts])
    config["input_features"].append({"name": "text", "type": "text"})  # of convolutions
    outcome = distcore.experiment(config, table, output_directory=folder, view="none")
    assert outcome.model is not None
    model = distcore.load(outcome.model)
    weights = Path(outcome.model, "weights.safetensors").read_bytes()
    return weights, outcome.test_statistics, model.predict(table), model.evaluate(table)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_torch_is_set_to_changes_no_bit_and_is_put_back(
    tmp_path: Path, alone: tuple[Any, ...], name: str
) -> None:
    """In float64 by default the weights were others, and of autocast and of products in bfloat16
    the predictions; the rest ended in errors of torch's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with SETTINGS[name]():
            before = settings()
            found = results(tmp_path)
            assert settings() == before
            with pytest.raises(DistcoreError):
                distcore.load(tmp_path / "none")
            assert settings() == before
    assert found == alone


KERNELS: dict[str, Callable[[bool], object]] = {
    "flush_denormal": lambda on: torch.set_flush_denormal(not on),
    "flash_sdp": torch.backends.cuda.enable_flash_sdp,
    "fastpath": torch.backends.mha.set_fastpath_enabled,
}


def kernels() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    attention = cuda.flash_sdp_enabled(), torch.backends.mha.get_fastpath_enabled()
    return (not flushes(), *attention, cuda.math_sdp_enabled())


def computed() -> bytes:
    """A product below the smallest normal number, attention, and an encoder of it."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 4, 16, 8, generator=random)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    for each in layer.parameters():
        each.data = torch.randn(each.shape, generator=random)
    with plain_torch(), torch.inference_mode():
        found = (
            torch.full((64,), 1e-30) * torch.full((64,), 1e-10),
            torch.nn.functional.scaled_dot_product_attention(rows, rows.exp(), rows),
            layer(rows[0]),
        )
    return b"".join(each.numpy().tobytes() for each in found)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_and_tiny_numbers_are_as_torch_has_them_and_are_put_back(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    plain, found = kernels(), computed()
    KERNELS[name](False)
    try:
        before = kernels()
        assert before != plain
        assert computed() == found
        assert kernels() == before
    finally:
        KERNELS[name](True)
    with put_back("Extension 'x' at run_started"):
        KERNELS[name](False)
    assert kernels() == plain
    assert [each.getMessage().endswith("; that was undone") for each in caplog.records] == [True]


def test_what_the_program_has_frozen_stays_frozen(tmp_path: Path) -> None:
    """A server freezes what it has before it forks, so that its children share the memory."""
    frozen_before = gc.get_freeze_count()
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        assert before > frozen_before
        config = data.config(str(tmp_path / "cache"))
        distcore.train(config, data.table(100), output_directory=tmp_path, view="none")
        assert gc.get_freeze_count() > 0.9 * before  # what is no longer used leaves it
    finally:
        gc.unfreeze()
    distcore.train(config, data.table(100), output_directory=tmp_path, view="none")
    assert not gc.get_freeze_count()
    if frozen_before:
        gc.freeze()


BARE = """
import distcore
from distcore_testing import data

config = data.config("cache")
config["backend"]["trainer"] = {"type": "data_parallel", "num_workers": 2, "use_gpu": False}
distcore.train(config, data.table(), output_directory="results")
"""


def test_a_program_that_its_own_workers_would_run_again_is_told(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(BARE)
    command = [sys.executable, "bare.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "A worker reads the program that started it again" in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "rank 0" in last or "rank 1" in last  # whichever ended first
    assert 'under `if __name__ == "__main__":`' in last
    assert not list(tmp_path.glob("results/*"))
    assert "started again (" not in done.stderr
