"""Options of the optimizers, by Ludwig's names; no torch."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from distcore_data.base_options import Beta, Count, Fraction, NonNegative, Options


class SGD(Options):
    """Stochastic gradient descent (torch.optim.SGD)."""

    type: Literal["sgd"] = "sgd"
    momentum: NonNegative = Field(0.0, description="Momentum factor.")
    weight_decay: NonNegative = Field(0.0, description="L2 penalty.")
    dampening: NonNegative = Field(0.0, description="Dampening of the momentum.")
    nesterov: bool = Field(
        False, description="Nesterov momentum; needs momentum > 0 and dampening 0."
    )

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise ValueError("nesterov needs a momentum above 0 and a dampening of 0")
        return self


class Adam(Options):
    """Adam (torch.optim.Adam; Kingma and Ba, 2015)."""

    type: Literal["adam"] = "adam"
    betas: tuple[Beta, Beta] = Field(
        (0.9, 0.999), description="Decay of the averages of gradient and its square."
    )
    eps: NonNegative = Field(1e-8, description="Added to the denominator.")
    weight_decay: NonNegative = Field(0.0, description="L2 penalty, added to the gradient.")
    amsgrad: bool = Field(False, description="The AMSGrad variant.")


class AdamW(Options):
    """Adam with decoupled weight decay (torch.optim.AdamW; Loshchilov and Hutter, 2019)."""

    type: Literal["adamw"] = "adamw"
    betas: tuple[Beta, Beta] = Field(
        (0.9, 0.999), description="Decay of the averages of gradient and its square."
    )
    eps: NonNegative = Field(1e-8, description="Added to the denominator.")
    weight_decay: NonNegative = Field(0.0, description="Decoupled weight decay.")
    amsgrad: bool = Field(False, description="The AMSGrad variant.")


class RMSprop(Options):
    """RMSprop (torch.optim.RMSprop)."""

    type: Literal["rmsprop"] = "rmsprop"
    momentum: NonNegative = Field(0.0, description="Momentum factor.")
    alpha: Fraction = Field(0.99, description="Decay of the average of the squared gradient.")
    eps: NonNegative = Field(1e-8, description="Added to the denominator.")
    centered: bool = Field(False, description="Divide by an estimate of the gradient's variance.")
    weight_decay: NonNegative = Field(0.0, description="L2 penalty.")


class Adagrad(Options):
    """Adagrad (torch.optim.Adagrad)."""

    type: Literal["adagrad"] = "adagrad"
    initial_accumulator_value: NonNegative = Field(
        0.0, description="Start of the sum of squared gradients."
    )
    lr_decay: NonNegative = Field(0.0, description="Decay of the learning rate.")
    weight_decay: NonNegative = Field(0.0, description="L2 penalty.")
    eps: NonNegative = Field(1e-10, description="Added to the denominator.")


class LBFGS(Options):
    """Limited-memory BFGS (torch.optim.LBFGS); a batch should be the whole training split."""

    type: Literal["lbfgs"] = "lbfgs"
    max_iter: Count = Field(20, description="Iterations of one step.")
    max_eval: Count | None = Field(
        None, description="Evaluations of the loss in one step; default: 1.25 max_iter."
    )
    tolerance_grad: NonNegative = Field(1e-7, description="Stop when the gradient is this small.")
    tolerance_change: NonNegative = Field(
        1e-9, description="Stop when loss or weights change this little."
    )
    history_size: Count = Field(100, description="Updates that are kept.")
    line_search_fn: Literal["strong_wolfe"] | None = Field(None, description="Line search.")


LUDWIG_OPTIMIZERS = (
    "adadelta",
    "adamax",
    "nadam",
    "radam",
    "adafactor",
    "schedule_free_adamw",
    "muon",
    "soap",
    "lamb",
    "lars",
    "lion",
    "sgd_8bit",
    "adam_8bit",
    "adamw_8bit",
    "adagrad_8bit",
    "rmsprop_8bit",
    "lamb_8bit",
    "lars_8bit",
    "lion_8bit",
    "paged_adam",
    "paged_adam_8bit",
    "paged_adamw",
    "paged_adamw_8bit",
    "paged_lion",
    "paged_lion_8bit",
)
"""Ludwig's optimizers that are not carried out here."""


def _optimizer(value: Any) -> Any:
    """`optimizer: adam`, and a section without a type, which is Adam."""
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, dict):
        return value
    value = {"type": "adam", **value}
    if value["type"] in LUDWIG_OPTIMIZERS:
        raise ValueError(
            f"Ludwig's optimizer {value['type']!r} is not carried out here; "
            "use sgd, adam, adamw, rmsprop, adagrad or lbfgs"
        )
    return value


MODELS = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "adagrad": Adagrad,
    "lbfgs": LBFGS,
}
"""Of the toolkit's own optimizers."""

Optimizer = Annotated[
    SGD | Adam | AdamW | RMSprop | Adagrad | LBFGS,
    Field(discriminator="type"),
    BeforeValidator(_optimizer),
]
"""The `trainer.optimizer` section."""
