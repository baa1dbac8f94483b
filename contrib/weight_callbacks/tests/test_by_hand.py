"""Beside loops written by hand, and in runs of the command's own story."""

from copy import deepcopy

import pytest
import torch

import distcore
from distcore_core.errors import ConfigError, UserError
from distcore_core.plugin import Rank
from distcore_testing import data
from distcore_testing.loops import TinyLoader, TinyNet, TinyRun, tiny_batch, tiny_loop
from distcore_torch import SingleProcess

EPOCHS, RATE = 3, 0.05
PLAIN = {"epochs": EPOCHS, "learning_rate": RATE, "optimizer": "sgd", "gradient_clipping": None}


def last_weights(*callbacks):
    """Of a run of the training loop."""
    strategy = SingleProcess()
    strategy.setup(Rank())
    options = {**PLAIN, "callbacks": list(callbacks), "early_stop": -1}
    loop, _, _ = tiny_loop(TinyRun(options, dropout=0.0), strategy)
    return loop.run().last_weights


def batches():
    """The module of that run and its batches."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = TinyNet(dropout=0.0)
    loader = TinyLoader(tiny_batch(150), 16, Rank())
    return module, [batch for epoch in range(EPOCHS) for batch in loader.batches(epoch)]


def gradients(module, batch):
    """Of the mean loss."""
    found = module(batch)
    loss = (found["y"] - batch["y"]).square().mean()
    loss += torch.nn.functional.binary_cross_entropy_with_logits(found["z"], batch["z"])
    return torch.autograd.grad(loss, list(module.parameters()))


@torch.no_grad()
def move(module, by):
    for each, change in zip(module.parameters(), by, strict=True):
        each.add_(change)


def equal(found, module):
    for name, each in module.state_dict().items():
        torch.testing.assert_close(found[name], each, rtol=1e-6, atol=1e-7)


def test_ema_is_the_average_of_a_loop_by_hand():
    module, each = batches()
    average = deepcopy(module)
    for batch in each:
        move(module, [-RATE * one for one in gradients(module, batch)])
        for mine, one in zip(average.parameters(), module.parameters(), strict=True):
            mine.data = 0.9 * mine.data + 0.1 * one.data
    found = last_weights({"type": "ema", "decay": 0.9})
    equal(found, average)
    with pytest.raises(AssertionError):
        equal(found, module)


def test_sam_steps_as_a_loop_by_hand():
    module, each = batches()
    for batch in each:
        here = gradients(module, batch)
        norm = sum(one.square().sum() for one in here).sqrt()
        shifted = deepcopy(module)
        move(shifted, [0.3 * one / norm for one in here])
        move(module, [-RATE * one for one in gradients(shifted, batch)])
    equal(last_weights({"type": "sam", "radius": 0.3}), module)


def config(tmp_path, callbacks, **trainer):
    made = data.config(str(tmp_path / "cache"))
    made["trainer"] |= {"callbacks": callbacks, "early_stop": -1, **trainer}
    return made


def weights(outcome):
    return (outcome.model / "weights.safetensors").read_bytes()


@pytest.mark.system
def test_an_exact_run_has_the_same_bytes_on_one_worker_and_on_two(tmp_path):
    both = ["sam", {"type": "ema", "decay": 0.9}]
    found = []
    for workers in (1, 2):
        given = config(tmp_path, both, exact=True)
        given["backend"]["trainer"] = {"type": "data_parallel", "num_workers": workers}
        found.append(distcore.train(given, data.table(), output_directory=tmp_path / str(workers)))
    plain = distcore.train(
        config(tmp_path, [], exact=True), data.table(), output_directory=tmp_path / "plain"
    )
    assert weights(found[0]) == weights(found[1]) != weights(plain)
    assert found[0].training_statistics == found[1].training_statistics


def test_a_resumed_run_is_an_undisturbed_one(tmp_path):
    """And one with another average is another run."""
    callbacks = [{"type": "ema", "decay": 0.99}]
    first = distcore.train(config(tmp_path, callbacks), data.table(), output_directory=tmp_path)
    longer = config(tmp_path, callbacks, epochs=5)
    resumed = distcore.train(longer, data.table(), model_resume_path=first.directory)
    whole = distcore.train(longer, data.table(), output_directory=tmp_path / "whole")
    assert weights(resumed) == weights(whole)
    other = config(tmp_path, [{"type": "ema", "decay": 0.9}], epochs=6)
    with pytest.raises(UserError, match=r"trainer\.callbacks"):
        distcore.train(other, data.table(), model_resume_path=first.directory)


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ("[{type: ema, decai: 0.9}]", r"trainer\.callbacks\[0\]\.decai.*did you mean 'decay'"),
        ("[sam, {type: ema, decay: 1}]", r"trainer\.callbacks\[1\]\.decay: should be less than 1"),
        ("[emma]", r"trainer\.callbacks\[0\].*callback 'emma'.*did you mean 'ema'"),
        ("[{decay: 0.9}]", r"trainer\.callbacks\[0\].*a mapping with a type.*known: ema, sam"),
        ("ema", r"trainer\.callbacks"),
    ],
)
def test_mistakes_are_told_by_their_place(tmp_path, callbacks, message):
    import yaml

    given = config(tmp_path, yaml.safe_load(callbacks))
    with pytest.raises(ConfigError, match=message):
        distcore.train(given, data.table(), output_directory=tmp_path)


def test_sam_with_a_line_search_is_refused(tmp_path):
    given = config(tmp_path, ["sam"], optimizer="lbfgs")
    with pytest.raises(UserError, match="Leave out the callback"):
        distcore.train(given, data.table(), output_directory=tmp_path)
