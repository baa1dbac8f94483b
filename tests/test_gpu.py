"""On a GPU of NVIDIA's, one is enough: `make gpu`. What several would do together is not tried."""

import json
import logging
import os
import signal
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

import distcore
from distcore_core.errors import Stopped, TrainingError, UserError
from distcore_local.transfer import Transfer
from distcore_tabular.network import TabularModel
from distcore_torch.batch import Batch, Layout, Ragged
from distcore_torch.training.replay import Replay
from distcore_torch.training.sentinel import Sentinel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")

ROWS = 4000
NUMBERS = ("age", "height")
TRAINER = {
    "train_steps": 200,
    "batch_size": 128,
    "learning_rate": 0.01,
    "steps_per_checkpoint": 100,
    "early_stop": -1,
}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(5)
    age, height = random.normal(40, 12, ROWS), random.normal(170, 9, ROWS)
    city, job = random.integers(0, 40, ROWS), random.integers(0, 900, ROWS)
    said = [" ".join(f"w{each}" for each in random.integers(0, 50, 1 + n % 7)) for n in range(ROWS)]
    score = (age - 40) / 12 + (city % 3) - 1 + random.normal(0, 0.5, ROWS)
    return pa.table(
        {
            "age": age,
            "height": height,
            "city": [f"c{each}" for each in city],
            "job": [f"j{each}" for each in job],
            "words": said,
            "bought": np.where(score > 0, "yes", "no"),
            "spent": 10 + 3 * score,
        }
    )


def config(cache, words=False, use_gpu=True, dropout=0.1, **trainer):
    inputs = [{"name": each, "type": "number"} for each in NUMBERS]
    inputs += [{"name": each, "type": "category"} for each in ("city", "job")]
    if words:
        inputs.append({"name": "words", "type": "text"})
    return {
        "input_features": inputs,
        "output_features": [
            {"name": "bought", "type": "binary"},
            {"name": "spent", "type": "number"},
        ],
        "combiner": {"type": "concat", "num_fc_layers": 2, "output_size": 64, "dropout": dropout},
        "trainer": {**TRAINER, **trainer},
        "backend": {
            "type": "local",
            "cache_dir": str(cache),
            "trainer": {"type": "local", "use_gpu": use_gpu},
        },
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def trained(cache, table, folder, words=False, use_gpu=True, **trainer):
    return distcore.train(
        config(cache, words, use_gpu, **trainer), table, output_directory=folder, view="none"
    )


def weights(outcome):
    return load_file(outcome.model / "weights.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def loss(outcome, split="validation"):
    return outcome.training_statistics[split]["combined"]["loss"][-1]


@pytest.mark.parametrize("words", [False, True])
def test_two_runs_have_the_same_bits(cache, table, tmp_path, words):
    one, other = (trained(cache, table, tmp_path / name, words) for name in "ab")
    assert same(weights(one), weights(other))


@pytest.mark.parametrize("precision", [False, "bf16"])
@pytest.mark.parametrize(
    "optimizer", [{"type": "adam"}, {"type": "adamw"}, {"type": "sgd", "momentum": 0.9}]
)
def test_replayed_steps_have_the_bits_of_launched_ones(
    cache, table, tmp_path, caplog, optimizer, precision
):
    options = {
        "optimizer": optimizer,
        "use_mixed_precision": precision,
        "learning_rate_scheduler": {"warmup_fraction": 0.1, "decay": "cosine"},
        "regularization_lambda": 0.01,
    }
    with caplog.at_level(logging.INFO, "distcore"):
        replayed = trained(cache, table, tmp_path / "a", **options)
    assert "launched one by one" not in caplog.text
    launched = trained(cache, table, tmp_path / "b", **options, replay=False)
    assert same(weights(replayed), weights(launched))
    assert replayed.training_statistics == launched.training_statistics


def test_steps_are_replayed(cache, table, tmp_path, monkeypatch):
    replay, count = torch.cuda.CUDAGraph.replay, []
    monkeypatch.setattr(
        torch.cuda.CUDAGraph, "replay", lambda self: (count.append(1), replay(self))[1]
    )
    trained(cache, table, tmp_path)
    assert len(count) > 150
    count.clear()
    trained(cache, table, tmp_path / "words", words=True)  # as many numbers as there are words
    assert not count


class Waits(torch.nn.Module):
    """A network that looks at a number in each pass."""

    replayable = True

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(len(NUMBERS), 2)

    def forward(self, batch):
        found = self.layer(torch.stack([batch[name] for name in NUMBERS], 1))
        if float(found.detach().abs().max()) > 1e6:
            raise ValueError("too large")
        return {"bought": found[:, 0], "spent": found[:, 1]}


def test_a_network_that_waits_for_the_gpu_is_not_captured(table, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(TabularModel, "build", lambda self, features: Waits())
    with caplog.at_level(logging.INFO, "distcore"):
        outcome = trained(tmp_path / "cache", table, tmp_path / "results")
    assert "launched one by one: it waits for the GPU (test_gpu.py" in caplog.text
    assert outcome.training_statistics["training"]["combined"]["loss"]


def test_a_capture_that_fails_costs_nothing(cache, table, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Replay, "watching", lambda *_: nullcontext())
    monkeypatch.setattr(TabularModel, "build", lambda self, features: Waits())
    with caplog.at_level(logging.INFO, "distcore"):
        one = trained(tmp_path / "cache", table, tmp_path / "a")
    assert "launched one by one" in caplog.text
    other = trained(tmp_path / "cache", table, tmp_path / "b", replay=False)
    assert same(weights(one), weights(other))


def test_a_run_that_was_stopped_ends_with_the_bits_of_one_that_was_not(
    cache, table, tmp_path, monkeypatch
):
    whole = trained(cache, table, tmp_path / "whole")
    stepped = Sentinel.stepped

    def stops(self, step):
        stepped(self, step)
        if step == 157:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Sentinel, "stepped", stops)
    with pytest.raises(Stopped):
        trained(cache, table, tmp_path / "stopped")
    monkeypatch.undo()
    run = next(each for each in (tmp_path / "stopped").iterdir() if each.is_dir())
    again = distcore.train(None, table, model_resume_path=run, view="none")
    assert same(weights(whole), weights(again))
    assert whole.training_statistics == again.training_statistics


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_ends_close_to_full_precision(cache, table, tmp_path, precision):
    full = trained(cache, table, tmp_path / "full")
    mixed = trained(cache, table, tmp_path / "mixed", use_mixed_precision=precision)
    assert loss(mixed) != loss(full)
    assert loss(mixed) == pytest.approx(loss(full), rel=0.1)


@pytest.mark.parametrize("words", [False, True])
def test_first_steps_are_those_of_a_cpu(cache, table, tmp_path, words):
    """Within rounding: of TF32, which torch computes convolutions in there, where there are texts."""
    few = {"train_steps": 5, "steps_per_checkpoint": 5, "learning_rate": 0.001, "dropout": 0.0}
    here, there = (
        trained(cache, table, tmp_path / str(gpu), words, use_gpu=gpu, **few)
        for gpu in (True, False)
    )
    assert loss(here) == pytest.approx(loss(there), rel=1e-3 if words else 1e-6)


def test_a_model_of_a_gpu_predicts_and_is_evaluated(cache, table, tmp_path):
    outcome = trained(cache, table, tmp_path / "run", words=True)
    found = distcore.predict(outcome.model, table, output_directory=tmp_path / "p", view="none")
    assert found is not None
    said = distcore.evaluate(outcome.model, table, output_directory=tmp_path / "e", view="none")
    assert said is not None


def test_batches_come_through_pinned_memory_as_they_are():
    """The same batches on the device as in memory, with texts, on a stream of their own."""
    random = torch.Generator().manual_seed(1)
    made = []
    for rows in (1, 100, 3000):
        packed = torch.randint(0, 1 << 30, (rows, 7), generator=random, dtype=torch.int32)
        ends = torch.randint(0, 5, (rows + 1,), generator=random).cumsum(0)
        values = torch.arange(int(ends[-1]), dtype=torch.int32)
        made.append(Batch(packed, Layout({}, ("w",)), {"w": Ragged(values, ends)}))
    transfer = Transfer("cuda:0")
    sent = [transfer.send(each) for each in made for _ in range(50)]
    for place, (batch, event) in enumerate(sent):
        found, expected = transfer.receive(batch, event), made[place // 50]
        assert found.packed.device.type == "cuda"
        assert torch.equal(found.packed.cpu(), expected.packed)
        assert torch.equal(found["w"].values.cpu(), expected["w"].values)
        assert torch.equal(found["w"].offsets.cpu(), expected["w"].offsets)


def test_a_bit_that_flips_in_the_weights_is_found(cache, table, tmp_path, monkeypatch):
    stepped = Sentinel.stepped

    def flips(self, step):
        stepped(self, step)
        if step == 110:
            weight = next(iter(self._module.parameters())).detach()
            weight.reshape(-1)[:1].view(torch.int32).bitwise_xor_(1 << 20)

    monkeypatch.setattr(Sentinel, "stepped", flips)
    with pytest.raises(TrainingError, match="bit 20"):
        trained(cache, table, tmp_path)


def test_exact_training_is_refused(cache, table, tmp_path):
    with pytest.raises(UserError, match="holds on CPUs, and this rank has cuda"):
        trained(cache, table, tmp_path, exact=True)


def test_more_workers_than_gpus_are_refused(cache, table, tmp_path):
    given = config(cache)
    count = torch.cuda.device_count() + 1
    given["backend"]["trainer"] = {"type": "ddp", "num_workers": count, "use_gpu": True}
    with pytest.raises(UserError, match="GPU"):
        distcore.train(given, table, output_directory=tmp_path, view="none")


def test_the_collectives_go_through_nccl(tmp_path):
    """With one rank: that nccl takes these dtypes, and the flat buffers that hold them."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16):
            values = torch.arange(1000, device="cuda").to(dtype)
            dist.all_reduce(values)
            assert torch.equal(values, torch.arange(1000, device="cuda").to(dtype))
    finally:
        dist.destroy_process_group()


def test_the_device_is_named_in_what_a_run_says(cache, table, tmp_path):
    outcome = trained(cache, table, tmp_path)
    name = torch.cuda.get_device_name(0)
    said = "".join(
        path.read_text() for path in outcome.model.parent.rglob("*.json*") if path.is_file()
    )
    assert json.dumps(name)[1:-1] in said
