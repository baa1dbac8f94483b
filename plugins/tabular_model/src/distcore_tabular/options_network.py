"""Options of the models `tabular` and `module`: the combiner's are Ludwig's.

What Ludwig knows and we do not carry out is refused by name, unless it is left at Ludwig's default.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from distcore_data import base_options

COMPUTED = "Found from the data; what is given is not read."

COMBINERS = (
    "comparator",
    "cross_attention",
    "ft_transformer",
    "gated_fusion",
    "hypernetwork",
    "perceiver",
    "project_aggregate",
    "sequence",
    "sequence_concat",
    "tab_transformer",
    "tabnet",
    "tabpfn_v2",
    "transformer",
)
"""Ludwig's combiners that are not carried out here."""

ActivationName = Literal[
    "elu",
    "leakyRelu",
    "logSigmoid",
    "relu",
    "sigmoid",
    "tanh",
    "softmax",
    "gelu",
    "silu",
    "swish",
    "mish",
    "selu",
    "prelu",
    "relu6",
    "hardswish",
    "hardsigmoid",
    "softplus",
    "celu",
]
InitializerName = Literal[
    "uniform",
    "normal",
    "constant",
    "ones",
    "zeros",
    "eye",
    "identity",
    "dirac",
    "xavier_uniform",
    "xavier_normal",
    "kaiming_uniform",
    "kaiming_normal",
    "orthogonal",
    "sparse",
]


NUMBER, NUMBER_OR_NULL, WHOLE, FLAG = (
    "a number",
    "a number or null",
    "a whole number from 1",
    "true or false",
)
"""What an argument of torch's may be; or words, of which it is one."""

Arguments = Mapping[str, str | tuple[str, ...]]

_GAIN: Arguments = {"gain": NUMBER}
_KAIMING: Arguments = {
    "a": NUMBER,
    "mode": ("fan_in", "fan_out"),
    "nonlinearity": (
        *("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"),
        *("conv1d", "conv2d", "conv3d"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    ),
}
INITIALIZER_ARGUMENTS: dict[str, Arguments] = {
    "uniform": {"a": NUMBER, "b": NUMBER},
    "normal": {"mean": NUMBER, "std": NUMBER},
    "constant": {"val": NUMBER},
    "dirac": {"groups": WHOLE},
    "xavier_uniform": _GAIN,
    "xavier_normal": _GAIN,
    "kaiming_uniform": _KAIMING,
    "kaiming_normal": _KAIMING,
    "orthogonal": _GAIN,
    "sparse": {"sparsity": NUMBER, "std": NUMBER},
}
"""Arguments of the functions of torch.nn.init; others take none. Here, because options are
checked without torch."""

NEEDED = {"constant": "val", "sparse": "sparsity"}
"""Initializers with an argument that has no default."""

NORM_ARGUMENTS: dict[str, Arguments] = {
    "batch": {
        "eps": NUMBER,
        "momentum": NUMBER_OR_NULL,
        "affine": FLAG,
        "track_running_stats": FLAG,
    },
    "layer": {"eps": NUMBER, "elementwise_affine": FLAG, "bias": FLAG},
}
"""Arguments of torch's BatchNorm1d and LayerNorm."""


def refuse(known: tuple[str, ...], carried_out: tuple[str, ...], why: str = "") -> BeforeValidator:
    """A validator that tells a word Ludwig knows from a mistyped one: it says what is carried
    out instead."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in known and value not in carried_out:
            reason = f" ({why})" if why else ""
            options = ", ".join(carried_out)
            raise ValueError(
                f"{value!r} is known in Ludwig, but not carried out here{reason}; what is: "
                f"{options}"
            )
        return value

    return BeforeValidator(check)


def _check_initializer(value: Any) -> Any:
    """An initializer's name, or a mapping with `type` and the arguments of the torch.nn.init
    function."""
    if isinstance(value, dict) and "type" not in value:
        raise ValueError(
            "an initializer given as a mapping needs `type`, such as {type: normal, mean: 0, std: "
            "1}"
        )
    name = value["type"] if isinstance(value, dict) else value
    if name is not None and name not in get_args(InitializerName):
        raise ValueError(f"unknown initializer; known: {', '.join(get_args(InitializerName))}")
    given = value if isinstance(value, dict) else {}
    arguments = {each: given[each] for each in given if each != "type"}
    _check_arguments(f"initializer {name}", arguments, INITIALIZER_ARGUMENTS.get(name, {}))
    needed = NEEDED.get(name)
    if needed is not None and needed not in given:
        raise ValueError(
            f"initializer {name} needs {needed}, such as {{type: {name}, {needed}: 0.1}}"
        )
    return value


def _check_arguments(of: str, given: Mapping[str, Any], known: Arguments) -> None:
    unknown = sorted(map(str, set(given) - set(known)))
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes none"
        raise ValueError(f"{of} has no argument {', '.join(map(repr, unknown))}; it {takes}")
    for name, value in given.items():
        kind = known[name]
        if not _is_of(value, kind):
            wanted = kind if isinstance(kind, str) else f"one of {', '.join(kind)}"
            raise ValueError(f"{name} of {of} should be {wanted}; got {value!r}")


def _is_of(value: Any, kind: str | tuple[str, ...]) -> bool:
    if not isinstance(kind, str):
        return isinstance(value, str) and value in kind
    if isinstance(value, bool) or kind == FLAG:
        return kind == FLAG and value in (False, True)  # or 0 or 1, which are equal to them
    if kind == WHOLE:
        return isinstance(value, int) and value >= 1
    if value is None:
        return kind == NUMBER_OR_NULL
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _check_norm_params(value: Any) -> Any:
    if isinstance(value, dict):
        _check_arguments("a norm", value, {**NORM_ARGUMENTS["batch"], **NORM_ARGUMENTS["layer"]})
        if not value.get("track_running_stats", True):
            raise ValueError(
                "track_running_stats: false is not carried out: a prediction would depend on the "
                "rows beside it, and one row alone would have none. Leave it out, or choose norm "
                "layer, which looks at each row by itself"
            )
    return value


Activation = Annotated[
    ActivationName | None,
    refuse(
        ("swiglu", "geglu", "reglu", "sparsemax", "entmax15"),
        get_args(ActivationName),
        "it changes the width, or needs a package of its own",
    ),
]
Norm = Annotated[Literal["batch", "layer"] | None, refuse(("ghost",), ("batch", "layer"))]
NormParams = Annotated[dict[str, Any] | None, BeforeValidator(_check_norm_params)]
Initializer = Annotated[str | dict[str, Any], BeforeValidator(_check_initializer)]
Dropout = Annotated[float, Field(ge=0, le=1)]


class Options(base_options.Options):
    """Base: a norm takes its own parameters alone."""

    @model_validator(mode="after")
    def _norm_takes_its_params(self) -> Self:
        given = self.__dict__  # pydantic takes a microsecond to say that a field is not there
        for prefix in ("", "fc_"):
            norm, params = given.get(f"{prefix}norm"), given.get(f"{prefix}norm_params")
            if norm is not None and params:
                _check_arguments(f"norm {norm}", params, NORM_ARGUMENTS[norm])
        inherited = given.get("norm") or given.get("fc_norm")
        for layer in given.get("fc_layers") or ():
            norm = layer.norm if "norm" in layer.model_fields_set else inherited
            if norm is not None and layer.norm_params:
                _check_arguments(f"norm {norm}", layer.norm_params, NORM_ARGUMENTS[norm])
        return self


class FCLayerOptions(Options):
    """One entry of `fc_layers`; what is not given is as for the whole stack."""

    output_size: int = Field(256, ge=1)
    use_bias: bool = True
    weights_initializer: Initializer = "xavier_uniform"
    bias_initializer: Initializer = "zeros"
    norm: Norm = None
    norm_params: NormParams = None
    activation: Activation = "relu"
    dropout: Dropout = 0.0


class FCStackOptions(Options):
    """Fully connected layers: of each layer, unless `fc_layers` says otherwise."""

    fc_layers: list[FCLayerOptions] | None = Field(
        None, description="The layers one by one, each with what differs."
    )
    output_size: int = Field(256, ge=1, description="Output size of a fully connected layer.")
    use_bias: bool = Field(True, description="Whether layers have a bias.")
    weights_initializer: Initializer = Field(
        "xavier_uniform", description="A name, or {type: name, argument: value}."
    )
    bias_initializer: Initializer = Field(
        "zeros", description="A name, or {type: name, argument: value}."
    )
    norm: Norm = Field(
        None, description="batch (over a worker's own rows) or layer; also of the stack's input."
    )
    norm_params: NormParams = Field(
        None, description="Arguments of torch's BatchNorm1d or LayerNorm."
    )
    activation: Activation = Field("relu", description="Activation of each layer; null: none.")
    dropout: Dropout = Field(
        0.0, description="Probability of dropping a value; also applied to the stack's input."
    )


class ConcatOptions(FCStackOptions):
    """`combiner: {type: concat}`: the encoders' outputs side by side, then fully connected
    layers."""

    type: Annotated[Literal["concat"], refuse(COMBINERS, ("concat",))] = "concat"
    num_fc_layers: int = Field(
        0,
        ge=0,
        description="Fully connected layers, if `fc_layers` is not given; of none, "
        "output_size is not read.",
    )
    residual: bool = Field(
        False, description="Add a layer's input to its output if both are of one size."
    )
    flatten_inputs: bool = Field(
        False, description="Accepted; every encoder gives a vector here, so nothing changes."
    )
    batch_ensemble: bool = Field(False, description="Not carried out: only false.")
    num_ensemble_members: int = Field(4, ge=1, description="Read by batch_ensemble alone.")

    @model_validator(mode="after")
    def _no_ensemble(self) -> Self:
        if self.batch_ensemble:
            raise ValueError(
                "batch_ensemble is known in Ludwig, but not carried out here; remove it"
            )
        return self


class TabularOptions(Options):
    """`model: {type: tabular}`: the network that the features declare."""

    combiner: ConcatOptions = Field(
        ConcatOptions.model_construct(type="concat", num_fc_layers=2, output_size=256),
        description="Default: two layers of 256. `{type: concat}` alone has none, as in Ludwig: a "
        "linear model.",
    )


class ModuleOptions(Options):
    """`model: {type: module}`: the user's own torch.nn.Module."""

    class_: str = Field(alias="class", description="Where the class is: package.module:Net.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of the class."
    )


MODELS: dict[tuple[str, str, str], type[BaseModel]] = {
    ("models", "tabular", ""): TabularOptions,
    ("models", "module", ""): ModuleOptions,
}
