"""Losses are rows' losses: their mean is what Ludwig trains on."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from distcore_tabular import decoders, losses
from distcore_tabular.options import NumberOutputOptions
from distcore_tabular.options_parts import (
    BinaryLossOptions,
    CategoryLossOptions,
    ClassifierOptions,
    FocalOptions,
    HuberOptions,
    NumberLossOptions,
    PolyOptions,
    RegressorOptions,
)

PREDICTION = torch.tensor([1.0, -2.0, 0.5, 4.0])
TARGET = torch.tensor([1.5, 2.0, 0.0, 4.0])
PLAIN = {
    "normalization": None,
    "mean": 0.0,
    "std": 1.0,
    "shift": 0.0,
    "scale": 1.0,
    "standard": {"mean": 0.0, "std": 1.0},
}
"""Of a column whose codes, standard deviations and own units are the same."""


def number_options(kind: str, **options: Any) -> Any:
    return NumberOutputOptions.model_validate({"loss": {"type": kind, **options}}).loss


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mean_squared_error", F.mse_loss(PREDICTION, TARGET)),
        ("mean_absolute_error", F.l1_loss(PREDICTION, TARGET)),
        ("root_mean_squared_error", F.mse_loss(PREDICTION, TARGET).sqrt()),
        ("huber", F.huber_loss(PREDICTION, TARGET)),
    ],
)
def test_the_mean_of_the_rows_is_the_loss_and_has_its_gradient(
    kind: str, expected: torch.Tensor
) -> None:
    prediction = PREDICTION.clone().requires_grad_()
    rows = losses.number(prediction, TARGET, number_options(kind), PLAIN)
    assert rows.shape == (4,)
    torch.testing.assert_close(rows.mean(), expected)
    rows.mean().backward()
    step = 1e-3
    for index in range(4):
        moved = [PREDICTION.double(), PREDICTION.double()]
        moved[0][index] += step
        moved[1][index] -= step
        up, down = (
            losses.number(each, TARGET, number_options(kind), PLAIN).mean().item() for each in moved
        )
        assert prediction.grad[index].item() == pytest.approx((up - down) / (2 * step), abs=2e-3)


def test_percentages_are_of_the_target() -> None:
    rows = losses.number(
        torch.tensor([3.0]),
        torch.tensor([2.0]),
        number_options("mean_absolute_percentage_error"),
        PLAIN,
    )
    assert rows.tolist() == [0.5]
    options = number_options("root_mean_squared_percentage_error")
    assert losses.number(
        torch.tensor([3.0]), torch.tensor([2.0]), options, PLAIN
    ).tolist() == pytest.approx([0.5])
    zero = losses.number(torch.tensor([1.0]), torch.tensor([0.0]), options, PLAIN)
    assert zero.item() == pytest.approx(1e4), "a target of zero counts as 1e-4, as in Ludwig"


def test_a_root_of_no_error_has_a_finite_gradient() -> None:
    prediction = TARGET.clone().requires_grad_()
    losses.number(
        prediction, TARGET, number_options("root_mean_squared_error"), PLAIN
    ).mean().backward()
    assert torch.isfinite(prediction.grad).all()


def test_huber_delta() -> None:
    rows = losses.number(PREDICTION, TARGET, HuberOptions(delta=0.25), PLAIN)
    torch.testing.assert_close(rows, F.huber_loss(PREDICTION, TARGET, reduction="none", delta=0.25))


def test_delta_of_huber_is_in_encoded_units_and_errors_in_standard_deviations() -> None:
    metadata = {**PLAIN, "standard": {"mean": 0.0, "std": 2.0}}
    rows = losses.number_errors(PREDICTION, TARGET, HuberOptions(delta=0.5), metadata)
    torch.testing.assert_close(rows, F.huber_loss(PREDICTION, TARGET, reduction="none", delta=0.25))


def test_binary_is_torchs_cross_entropy_with_pos_weight() -> None:
    target = torch.tensor([0.0, 1.0, 1.0, 0.0])
    rows = losses.binary_weighted_cross_entropy(
        PREDICTION, target, BinaryLossOptions(positive_class_weight=3.0)
    )
    weight = torch.tensor(3.0)
    expected = F.binary_cross_entropy_with_logits(
        PREDICTION, target, pos_weight=weight, reduction="none"
    )
    torch.testing.assert_close(rows, expected)


def test_robust_lambda_and_confidence_penalty_of_a_binary() -> None:
    target, plain = torch.tensor([1.0]), losses.binary_weighted_cross_entropy
    base = plain(torch.tensor([2.0]), target, BinaryLossOptions()).item()
    robust = plain(torch.tensor([2.0]), target, BinaryLossOptions(robust_lambda=0.2)).item()
    assert robust == pytest.approx(0.8 * base + 0.1)
    unsure = plain(torch.tensor([0.0]), target, BinaryLossOptions(confidence_penalty=1.0)).item()
    sure = plain(torch.tensor([50.0]), target, BinaryLossOptions(confidence_penalty=1.0)).item()
    assert unsure == pytest.approx(math.log(2.0), abs=1e-6)
    assert sure == pytest.approx(1.0, abs=1e-6)


def test_category_is_torchs_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.int32)
    weights = torch.tensor([0.5, 1.0, 2.0])
    rows = losses.category(logits, target, CategoryLossOptions(), weights)
    torch.testing.assert_close(
        rows, F.cross_entropy(logits, target.long(), weight=weights, reduction="none")
    )


def test_robust_lambda_and_confidence_penalty_of_a_category() -> None:
    target, loss = torch.tensor([1]), losses.category
    even, sure = torch.zeros(1, 4), torch.tensor([[0.0, 99.0, 0.0, 0.0]])
    assert loss(even, target, CategoryLossOptions(robust_lambda=0.2)).item() == pytest.approx(
        0.8 * math.log(4) + 0.05
    )
    assert loss(even, target, CategoryLossOptions(confidence_penalty=2.0)).item() == pytest.approx(
        math.log(4), abs=1e-6
    )
    assert loss(sure, target, CategoryLossOptions(confidence_penalty=2.0)).item() == pytest.approx(
        2.0, abs=1e-6
    )


def test_focal_and_poly_losses_are_those_of_their_papers() -> None:
    logits, target = torch.tensor([[0.0, 1.0], [2.0, -1.0], [0.0, 1.0]]), torch.tensor([1, -1, 0])
    p = logits.softmax(-1)[0, 1].item()
    focal, poly = FocalOptions(gamma=1.5), PolyOptions(epsilon=0.5)
    rows = losses.category(logits, target, focal)
    assert rows.tolist() == pytest.approx(
        [(1 - p) ** 1.5 * -math.log(p), 0.0, p**1.5 * -math.log(1 - p)]
    )
    rows = losses.category(logits, target, poly)
    assert rows.tolist() == pytest.approx(
        [-math.log(p) + 0.5 * (1 - p), 0.0, -math.log(1 - p) + 0.5 * p]
    )
    q = 1 / (1 + math.exp(-0.5))
    rows = losses.binary(torch.tensor([0.5, 0.5]), torch.tensor([1, 0]), FocalOptions(alpha=0.3))
    assert rows.tolist() == pytest.approx(
        [0.3 * (1 - q) ** 2 * -math.log(q), 0.7 * q**2 * -math.log(1 - q)]
    )


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_a_focal_loss_has_a_gradient_where_a_row_is_certain(gamma: float) -> None:
    logits = torch.tensor([[40.0, -40.0], [0.3, 0.1]], requires_grad=True)
    losses.category(logits, torch.tensor([0, 1]), FocalOptions(gamma=gamma)).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[1].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_are_float32_whatever_the_logits_are(dtype: torch.dtype) -> None:
    logits = PREDICTION.to(dtype)
    assert losses.number(logits, TARGET, NumberLossOptions(), PLAIN).dtype == torch.float32
    assert (
        losses.binary_weighted_cross_entropy(logits, torch.ones(4), BinaryLossOptions()).dtype
        == torch.float32
    )
    rows = losses.category(logits[None], torch.tensor([2]), CategoryLossOptions())
    assert rows.dtype == torch.float32


def test_decoders() -> None:
    hidden = torch.randn(5, 8)
    assert decoders.regressor(8, RegressorOptions())(hidden).shape == (5,)
    options = ClassifierOptions.model_validate(
        {"num_fc_layers": 2, "fc_output_size": 6, "use_bias": False, "weights_initializer": "zeros"}
    )
    classifier = decoders.classifier(8, 3, options)
    assert not classifier(hidden).any()
    assert classifier.linear.bias is None
    assert classifier.linear.in_features == 6
    options = ClassifierOptions.model_validate(
        {"fc_layers": [{"output_size": 7}, {"output_size": 5}], "bias_initializer": "ones"}
    )
    classifier = decoders.classifier(8, 3, options)
    assert [classifier.fc_stack.output_size, *classifier.linear.bias] == [5, 1, 1, 1]
    assert classifier.linear.weight.any()
