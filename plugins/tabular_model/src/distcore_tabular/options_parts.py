"""Options of encoders, decoders and losses of number, binary and category: Ludwig's names and
defaults.

What Ludwig knows and we do not carry out is refused by name, unless it is left at Ludwig's default.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, GetJsonSchemaHandler

from distcore_core.contracts import JSON
from distcore_data.base_options import NonNegative
from distcore_tabular.options_network import (
    COMPUTED,
    Activation,
    Dropout,
    FCLayerOptions,
    FCStackOptions,
    Initializer,
    Norm,
    NormParams,
    Options,
)


def only(default: Any, why: str = "") -> AfterValidator:
    """A validator for an option that Ludwig has and we do not carry out: it accepts Ludwig's
    default alone, and the references say so. why: nothing else is carried out."""
    accepted = json.dumps(default)

    def check(value: Any) -> Any:
        if value != default:
            raise ValueError(
                f"known in Ludwig, but not carried out here{f' ({why})' if why else ''}; leave it "
                f"out (only {accepted} is accepted)"
            )
        return value

    return _Only(check, accepted)


@dataclass(frozen=True, slots=True)
class _Only(AfterValidator):
    accepted: str

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> JSON:
        told = f"Not carried out: only {self.accepted}."
        return {"const": json.loads(self.accepted), "description": told}


def by_type(
    default: str, carried_out: tuple[str, ...], known: tuple[str, ...] = ()
) -> BeforeValidator:
    """A validator that lets `encoder: dense` stand for `encoder: {type: dense}`, fills in the
    default type, and tells a type that Ludwig knows from a mistyped one."""

    def check(value: Any) -> Any:
        if value is None:
            return {"type": default}
        if isinstance(value, str):
            value = {"type": value}
        if isinstance(value, Mapping):
            value = {"type": default, **value}
            if value["type"] in known:
                options = ", ".join(carried_out)
                raise ValueError(
                    f"type {value['type']!r} is known in Ludwig, but not carried out here; what "
                    f"is: {options}"
                )
        return value

    return BeforeValidator(check)


def _all_weights(values: Any) -> Any:
    for weight in values.values() if isinstance(values, dict) else values or ():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weights must be finite and at least 0, not {weight!r}")
    return values


AnyFloat = Annotated[float, Field(allow_inf_nan=True)]
"""Of a list or a mapping, of which infinity would be told as a mistake of both."""

MOST_BINS = 4096
"""Of the encoder `ple`: its quantiles are listed in a model's metadata."""

# ------------------------------------------------------------------ encoders


class EncoderOptions(Options):
    """What every encoder of Ludwig's has beside its type, as in a config that Ludwig wrote out."""

    skip: Annotated[bool, only(False)] = False
    adapter: Annotated[dict[str, Any] | None, only(None)] = None


class PassthroughOptions(EncoderOptions):
    """`encoder: {type: passthrough}`: the value as it is."""

    type: Literal["passthrough"] = "passthrough"


class DenseOptions(EncoderOptions, FCStackOptions):
    """`encoder: {type: dense}` of a number or a binary: fully connected layers."""

    type: Literal["dense"] = "dense"
    num_layers: int = Field(
        1, ge=1, description="Fully connected layers, if `fc_layers` is not given."
    )
    input_size: Any = Field(None, description=COMPUTED)


class PleOptions(EncoderOptions, FCStackOptions):
    """`encoder: {type: ple}` of a number: its place among the quantiles of its column
    (piecewise linear encoding; Gorishniy et al., 2022) and the value itself, through fully
    connected layers. Quantiles are of at most 16,384 distinct values, rounded if there are more:
    256 KiB a column while statistics are made."""

    type: Literal["ple"] = "ple"
    num_bins: int = Field(
        64,
        ge=1,
        le=MOST_BINS,
        description="So many bins of equally many rows. A column of few values has a "
        "bin between each two of them.",
    )
    num_layers: int = Field(
        1, ge=1, description="Fully connected layers, if `fc_layers` is not given."
    )
    activation: Activation = Field(
        None, description="Activation of each layer; null: none, as in Ludwig."
    )
    input_size: Any = Field(None, description=COMPUTED)


class EmbeddingOptions(EncoderOptions):
    """What the encoders `dense` and `sparse` of a category share."""

    vocab: Any = Field(None, description=COMPUTED)
    dropout: Dropout = Field(0.0, description="Probability of dropping a value of the vector.")
    embedding_initializer: Initializer | None = Field(
        None,
        description="Default: uniform in ±0.05 (±1 if not trained). Ludwig's: {type: uniform, a: "
        "-1, b: 1}.",
    )
    embeddings_on_cpu: Annotated[bool, only(False)] = False
    pretrained_embeddings: Annotated[str | None, only(None)] = None


class CategoryDenseOptions(EmbeddingOptions):
    """`encoder: {type: dense}` of a category: a learned vector for each value."""

    type: Literal["dense"] = "dense"
    embedding_size: int = Field(
        50, ge=1, description="Length of the vector; at most the number of values is used."
    )
    embeddings_trainable: bool = Field(
        True, description="false: the vectors stay as they were initialised."
    )


class CategorySparseOptions(EmbeddingOptions):
    """`encoder: {type: sparse}` of a category: a one at the value's place."""

    type: Literal["sparse"] = "sparse"
    embedding_initializer: Annotated[Initializer | None, only(None)] = None
    embeddings_trainable: bool = Field(
        False, description="true: a square table that starts as the identity."
    )


class OneHotOptions(EncoderOptions):
    """`encoder: {type: onehot}` of a category: a one at the value's place, never learned."""

    vocab: Any = Field(None, description=COMPUTED)
    type: Literal["onehot"] = "onehot"


NumberEncoder = Annotated[
    PassthroughOptions | DenseOptions | PleOptions,
    Discriminator("type"),
    by_type("passthrough", ("passthrough", "dense", "ple"), ("periodic", "bins")),
]
BinaryEncoder = Annotated[
    PassthroughOptions | DenseOptions,
    Discriminator("type"),
    by_type("passthrough", ("passthrough", "dense")),
]
CategoryEncoder = Annotated[
    PassthroughOptions | CategoryDenseOptions | CategorySparseOptions | OneHotOptions,
    Discriminator("type"),
    by_type("dense", ("dense", "sparse", "onehot", "passthrough"), ("target", "hash")),
]

# ------------------------------------------------------------------ decoders


class OwnDecoderOptions(Options):
    """What a decoder of another plugin's has beside its own options."""


class DecoderOptions(Options):
    """Fully connected layers between the combiner and the last, linear layer; and that layer."""

    fc_layers: list[FCLayerOptions] | None = Field(
        None, description="The layers one by one, each with what differs."
    )
    num_fc_layers: int = Field(
        0,
        ge=0,
        description="Fully connected layers, if `fc_layers` is not given; of none, "
        "fc_output_size is not read.",
    )
    fc_output_size: int = Field(256, ge=1, description="Output size of a fully connected layer.")
    fc_use_bias: bool = True
    fc_weights_initializer: Initializer = "xavier_uniform"
    fc_bias_initializer: Initializer = "zeros"
    fc_norm: Norm = None
    fc_norm_params: NormParams = None
    fc_activation: Activation = "relu"
    fc_dropout: Dropout = 0.0
    use_bias: bool = Field(True, description="Whether the last layer has a bias.")
    weights_initializer: Initializer = "xavier_uniform"
    bias_initializer: Initializer = "zeros"
    input_size: Any = Field(None, description=COMPUTED)


class RegressorOptions(DecoderOptions):
    """`decoder: {type: regressor}` of a number or a binary: one linear unit."""

    type: Literal["regressor"] = "regressor"


class ClassifierOptions(DecoderOptions):
    """`decoder: {type: classifier}` of a category: a linear unit for each class."""

    type: Literal["classifier"] = "classifier"
    num_classes: Any = Field(None, description=COMPUTED)
    calibration: Annotated[str | None, only(None)] = None
    mc_dropout_samples: Annotated[int, only(0)] = 0


Regressor = Annotated[RegressorOptions, by_type("regressor", ("regressor",), ("passthrough",))]
BinaryRegressor = Annotated[
    RegressorOptions, by_type("regressor", ("regressor",), ("mlp_classifier",))
]
Classifier = Annotated[
    ClassifierOptions,
    by_type("classifier", ("classifier",), ("mlp_classifier", "category_extractor")),
]

# ------------------------------------------------------------------ losses


class LossOptions(Options):
    """What every loss has."""

    weight: NonNegative = Field(
        1.0, description="Weight of this output's loss in the sum that is trained on."
    )


class NumberLossOptions(LossOptions):
    """Losses of a number that have no options of their own."""

    type: Literal[
        "mean_squared_error",
        "mean_absolute_error",
        "mean_absolute_percentage_error",
        "root_mean_squared_error",
        "root_mean_squared_percentage_error",
    ] = "mean_squared_error"


class HuberOptions(LossOptions):
    """`loss: {type: huber}`: squared near zero, absolute beyond `delta`."""

    type: Literal["huber"] = "huber"
    delta: float = Field(
        1.0, gt=0, description="Where the squared loss goes over into the absolute one."
    )


class BinaryLossOptions(LossOptions):
    """`loss: {type: binary_weighted_cross_entropy}`."""

    type: Literal["binary_weighted_cross_entropy"] = "binary_weighted_cross_entropy"
    positive_class_weight: NonNegative | None = Field(
        None, description="Multiplies the loss of rows that are true."
    )
    robust_lambda: float = Field(
        0.0, ge=0, le=1, description="Loss becomes (1 - robust_lambda) loss + robust_lambda / 2."
    )
    confidence_penalty: NonNegative = Field(
        0.0, description="Adds this times (max_entropy - entropy) / max_entropy."
    )


class CategoryLossOptions(LossOptions):
    """`loss: {type: softmax_cross_entropy}`."""

    type: Literal["softmax_cross_entropy"] = "softmax_cross_entropy"
    class_weights: Annotated[
        list[AnyFloat] | dict[str, AnyFloat] | None, AfterValidator(_all_weights)
    ] = Field(
        None, description="{class: weight}, or a list in the order of the metadata's idx2str."
    )
    robust_lambda: float = Field(
        0.0, ge=0, le=1, description="Loss becomes (1 - robust_lambda) loss + robust_lambda / c."
    )
    confidence_penalty: NonNegative = Field(
        0.0, description="Adds this times (max_entropy - entropy) / max_entropy."
    )
    class_similarities: Annotated[list[Any] | None, only(None)] = None
    class_similarities_temperature: Annotated[float, only(0)] = 0


class FocalOptions(LossOptions):
    """`loss: {type: focal}` of a binary or a category (Lin et al., 2017): rows that are easy
    count less."""

    type: Literal["focal"] = "focal"
    alpha: float = Field(
        0.25, ge=0, le=1, description="Weight of true rows, 1 - alpha of false ones; binary only."
    )
    gamma: NonNegative = Field(2.0, description="How fast easy rows lose weight; 0: not at all.")


class PolyOptions(LossOptions):
    """`loss: {type: poly}` of a category (Leng et al., 2022): the cross entropy and epsilon (1 -
    p)."""

    type: Literal["poly"] = "poly"
    epsilon: NonNegative = Field(
        1.0, description="Weight of 1 - p, where p is the probability of the row's class."
    )


NUMBER_LOSSES = (
    "mean_squared_error",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "root_mean_squared_error",
    "root_mean_squared_percentage_error",
    "huber",
)
OTHER_LOSSES = ("corn", "entropic_open_set", "objectosphere", "sparsemax", "entmax15")
NumberLoss = Annotated[
    NumberLossOptions | HuberOptions,
    Discriminator("type"),
    by_type("mean_squared_error", NUMBER_LOSSES),
]
BinaryLoss = Annotated[
    BinaryLossOptions | FocalOptions,
    Discriminator("type"),
    by_type(
        "binary_weighted_cross_entropy", ("binary_weighted_cross_entropy", "focal"), OTHER_LOSSES
    ),
]
CategoryLoss = Annotated[
    CategoryLossOptions | FocalOptions | PolyOptions,
    Discriminator("type"),
    by_type("softmax_cross_entropy", ("softmax_cross_entropy", "focal", "poly"), OTHER_LOSSES),
]
