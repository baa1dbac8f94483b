"""What the losses of a plugin's feature must be."""

import pytest
import torch

from distcore_core.errors import PluginBroken
from distcore_testing.loops import TinyFeature, TinyFeatures, TinyNet, tiny_batch
from distcore_torch.train_options import TrainerOptions
from distcore_torch.training.losses import Losses


def losses():
    return Losses(TinyNet(), TinyFeatures(), TrainerOptions(), torch.device("cpu"))


@pytest.mark.parametrize(
    ("loss", "given"),
    [
        (lambda logits, target: (logits - target).square().mean(), r"Tensor of the shape \(\)"),
        (lambda logits, target: logits - target[:, None], r"Tensor of the shape \(16, 16\)"),
        (lambda logits, target: None, "NoneType"),
        (lambda logits, target: (logits - target).detach().numpy(), r"ndarray of the shape \(16,"),
    ],
)
def test_a_loss_that_is_no_number_a_row_is_told_by_its_output(monkeypatch, loss, given):
    """A mean learned at a rate of a batch's share, and pairs of rows learned something else."""
    monkeypatch.setattr(TinyFeature, "loss", lambda self, logits, target, _: loss(logits, target))
    with pytest.raises(PluginBroken, match=rf"The loss of y \(TinyFeature\) gave a {given}"):
        losses().rows(tiny_batch(16))


def test_a_batch_of_one_row_tells_nothing_yet(monkeypatch):
    monkeypatch.setattr(TinyFeature, "loss", lambda self, logits, target, _: (logits - target)[0])
    found = losses()
    found.rows(tiny_batch(1))
    with pytest.raises(PluginBroken, match="for 2 rows"):
        found.rows(tiny_batch(2))
