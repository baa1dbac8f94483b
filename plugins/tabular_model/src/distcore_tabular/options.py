"""Options of the features number, binary and category.

Names and defaults are Ludwig's; what Ludwig knows and we do not carry out is refused by name,
unless it is left at Ludwig's default.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from distcore_data.base_options import Deferred
from distcore_tabular.options_network import COMPUTED, Options, refuse
from distcore_tabular.options_parts import (
    MOST_BINS,
    BinaryEncoder,
    BinaryLoss,
    BinaryLossOptions,
    BinaryRegressor,
    CategoryDenseOptions,
    CategoryEncoder,
    CategoryLoss,
    CategoryLossOptions,
    Classifier,
    ClassifierOptions,
    NumberEncoder,
    NumberLoss,
    NumberLossOptions,
    PassthroughOptions,
    PleOptions,
    Regressor,
    RegressorOptions,
    only,
)

UNKNOWN = "<UNK>"
"""Ludwig's label for values that have none of their own."""


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


def _as_value(value: Any) -> Any:
    """As the column's own values are read: text, without the blanks around it."""
    return str(value).strip() if isinstance(value, str | int | float) else value


def _old_spelling(value: Any) -> Any:
    """Ludwig before 0.6 wrote pandas' names."""
    return (
        {"backfill": "bfill", "pad": "ffill"}.get(value, value) if isinstance(value, str) else value
    )


def _none_word(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() in ("none", "null") else value


Text = Annotated[str, BeforeValidator(_as_text)]
Reduce = (
    Literal[
        "last",
        "sum",
        "mean",
        "avg",
        "max",
        "concat",
        "attention",
        "attention_pooling",
        "none",
        "None",
    ]
    | None
)
NEIGHBOURS = ("bfill", "ffill", "drop_row")
OldSpelling = BeforeValidator(_old_spelling)
SETS = (
    "Where separate sets are given, ffill and bfill also take a value of another set, as in Ludwig."
)
MISSING = f"What a missing value becomes. {SETS}"

# ------------------------------------------------------------------ preprocessing


class NumberPreprocessing(Options):
    """`preprocessing` of a number input."""

    missing_value_strategy: Annotated[
        Literal[
            "fill_with_const", "fill_with_mode", "fill_with_mean", "bfill", "ffill", "drop_row"
        ],
        OldSpelling,
    ] = Field("fill_with_const", description=MISSING)
    fill_value: float = Field(0.0, description="The constant of fill_with_const.")
    computed_fill_value: Any = Field(0.0, description=COMPUTED)
    normalization: Annotated[
        Literal["zscore", "minmax", "log1p", "iq"] | None, BeforeValidator(_none_word)
    ] = Field(
        "zscore",
        description="zscore: (x - mean) / std; minmax: to [0, 1]; log1p: log(1 + x); iq: by "
        "quartiles.",
    )
    outlier_strategy: Annotated[
        Literal["fill_with_const", "fill_with_mode", "fill_with_mean"] | None,
        refuse(NEIGHBOURS, ("fill_with_const", "fill_with_mode", "fill_with_mean")),
        OldSpelling,
    ] = Field(None, description="What a value far from the mean becomes; null: it stays.")
    outlier_threshold: float = Field(
        3.0, ge=0, description="Standard deviations from the mean that are far."
    )
    computed_outlier_fill_value: Any = Field(0.0, description=COMPUTED)
    quantiles: int | None = Field(
        None,
        ge=1,
        le=MOST_BINS,
        description="So many bins of equally many rows, whose edges the metadata list. With the "
        "encoder ple its `num_bins`, whatever is given; null: none.",
    )


class NumberOutputPreprocessing(NumberPreprocessing):
    """`preprocessing` of a number output."""

    missing_value_strategy: Annotated[
        Literal[
            "fill_with_const", "fill_with_mode", "fill_with_mean", "bfill", "ffill", "drop_row"
        ],
        OldSpelling,
    ] = Field("drop_row", description=MISSING)
    normalization: Annotated[
        Literal["zscore", "minmax", "log1p", "iq"] | None, BeforeValidator(_none_word)
    ] = Field(
        None,
        description="As for an input. Metrics and predictions are in the target's own units "
        "whatever it is, the loss in standard deviations of what it gives.",
    )


BinaryMissing = Annotated[
    Literal[
        "fill_with_false",
        "fill_with_true",
        "fill_with_mode",
        "fill_with_const",
        "bfill",
        "ffill",
        "drop_row",
    ],
    OldSpelling,
]


class BinaryPreprocessing(Options):
    """`preprocessing` of a binary input."""

    missing_value_strategy: BinaryMissing = Field("fill_with_false", description=MISSING)
    fallback_true_label: Annotated[str | None, BeforeValidator(_as_value)] = Field(
        None,
        description="The value that is true if the two values are not ones like yes and no, or 1 "
        "and 0.",
    )
    fill_value: bool | int | float | str | None = Field(
        None, description="The constant of fill_with_const."
    )
    computed_fill_value: Any = Field(None, description=COMPUTED)

    @model_validator(mode="after")
    def _has_a_constant(self) -> Self:
        if self.missing_value_strategy == "fill_with_const" and self.fill_value is None:
            raise ValueError("fill_with_const needs fill_value, such as true or 'no'")
        return self


class BinaryOutputPreprocessing(BinaryPreprocessing):
    """`preprocessing` of a binary output."""

    missing_value_strategy: BinaryMissing = Field("drop_row", description=MISSING)


class CategoryPreprocessing(Options):
    """`preprocessing` of a category input."""

    missing_value_strategy: Annotated[
        Literal["fill_with_const", "fill_with_mode", "bfill", "ffill", "drop_row"], OldSpelling
    ] = Field("fill_with_const", description=MISSING)
    fill_value: Text = Field(UNKNOWN, description="The constant of fill_with_const.")
    computed_fill_value: Any = Field(UNKNOWN, description=COMPUTED)
    lowercase: bool = Field(
        False, description="Whether values are made lower case before they are told apart."
    )
    most_common: int | None = Field(
        10000, ge=1, description="Values that get a code of their own; null: all."
    )
    cache_encoder_embeddings: Annotated[bool, only(False)] = False


class CategoryOutputPreprocessing(CategoryPreprocessing):
    """`preprocessing` of a category output."""

    missing_value_strategy: Annotated[
        Literal["fill_with_const", "fill_with_mode", "bfill", "ffill", "drop_row"], OldSpelling
    ] = Field("drop_row", description=MISSING)


# ------------------------------------------------------------------ features


class InputOptions(Options):
    """What every input feature has beside name, type and column."""

    beside_data: ClassVar[tuple[str, ...]] = ("encoder", "tied", "active")

    tied: Annotated[str | None, only(None)] = None
    active: Annotated[bool, only(True)] = True


class NoOutput(Deferred):
    """An output of a type that has none: refused.

    why: in words."""

    model_config = ConfigDict(extra="allow")
    why: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        raise ValueError(cls.why)


class OutputOptions(Options):
    """What every output feature has beside name, type and column."""

    beside_data: ClassVar[tuple[str, ...]] = (
        "decoder",
        "loss",
        "metrics",
        "dependencies",
        "reduce_dependencies",
        "reduce_input",
        "active",
        "calibration",
        "input_size",
        "num_classes",
        "default_validation_metric",
    )

    metrics: list[str | dict[str, Any]] = Field(
        [],
        description="Other plugins' metrics, beside the type's own: names, or sections with a type "
        "and its options.",
    )
    dependencies: Annotated[list[str], only([])] = Field([])
    reduce_dependencies: Reduce = Field("sum", description="Read with dependencies alone.")
    reduce_input: Reduce = Field(
        "sum", description="Accepted; the combiner gives a vector, so nothing is reduced."
    )
    active: Annotated[bool, only(True)] = True
    input_size: Any = Field(None, description=COMPUTED)
    num_classes: Any = Field(None, description=COMPUTED)


class NumberInputOptions(InputOptions):
    """`{type: number}` among the input features."""

    preprocessing: NumberPreprocessing = NumberPreprocessing.model_construct()
    encoder: NumberEncoder = PassthroughOptions.model_construct()

    @model_validator(mode="after")
    def _quantiles_of_the_encoder(self) -> Self:
        """What ple asks of the statistics becomes an option of the preprocessing, by which caches
        go."""
        if not isinstance(self.encoder, PleOptions):
            return self
        asked = self.preprocessing.model_copy(update={"quantiles": self.encoder.num_bins})
        return self.model_copy(update={"preprocessing": asked})


class NumberOutputOptions(OutputOptions):
    """`{type: number}` among the output features."""

    beside_data: ClassVar[tuple[str, ...]] = (*OutputOptions.beside_data, "clip")

    preprocessing: NumberOutputPreprocessing = NumberOutputPreprocessing.model_construct()
    decoder: Regressor = RegressorOptions.model_construct()
    loss: NumberLoss = NumberLossOptions.model_construct()
    clip: tuple[float, float] | None = Field(
        None, description="Predictions are clipped to [low, high]."
    )
    default_validation_metric: Literal["mean_squared_error"] = "mean_squared_error"

    @model_validator(mode="after")
    def _clip_is_a_range(self) -> Self:
        if self.clip is None:
            return self
        if self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip must be [low, high] with low < high, not {list(self.clip)}")
        if self.preprocessing.normalization == "log1p" and self.clip[1] <= -1.0:
            raise ValueError(
                f"clip must end above -1, as all predictions with the normalization log1p lie "
                f"there, not at {self.clip[1]}"
            )
        return self


class BinaryInputOptions(InputOptions):
    """`{type: binary}` among the input features."""

    preprocessing: BinaryPreprocessing = BinaryPreprocessing.model_construct()
    encoder: BinaryEncoder = PassthroughOptions.model_construct()


class BinaryOutputOptions(OutputOptions):
    """`{type: binary}` among the output features."""

    beside_data: ClassVar[tuple[str, ...]] = (*OutputOptions.beside_data, "threshold")

    preprocessing: BinaryOutputPreprocessing = BinaryOutputPreprocessing.model_construct()
    decoder: BinaryRegressor = RegressorOptions.model_construct()
    loss: BinaryLoss = BinaryLossOptions.model_construct()
    threshold: float = Field(
        0.5, ge=0, le=1, description="Probabilities of at least this are predicted as true."
    )
    calibration: Annotated[bool, only(False)] = False
    default_validation_metric: Literal["roc_auc"] = "roc_auc"


class CategoryInputOptions(InputOptions):
    """`{type: category}` among the input features."""

    preprocessing: CategoryPreprocessing = CategoryPreprocessing.model_construct()
    encoder: CategoryEncoder = CategoryDenseOptions.model_construct()


class CategoryOutputOptions(OutputOptions):
    """`{type: category}` among the output features."""

    beside_data: ClassVar[tuple[str, ...]] = (*OutputOptions.beside_data, "top_k")

    preprocessing: CategoryOutputPreprocessing = CategoryOutputPreprocessing.model_construct()
    decoder: Classifier = ClassifierOptions.model_construct()
    loss: CategoryLoss = CategoryLossOptions.model_construct()
    top_k: int = Field(
        3, ge=1, description="hits_at_k counts a row whose class is among the k likeliest."
    )
    calibration: Annotated[bool, only(False)] = False
    default_validation_metric: Literal["accuracy"] = "accuracy"


MODELS: dict[tuple[str, str, str], type[BaseModel]] = {
    ("features", "number", "input"): NumberInputOptions,
    ("features", "number", "output"): NumberOutputOptions,
    ("features", "binary", "input"): BinaryInputOptions,
    ("features", "binary", "output"): BinaryOutputOptions,
    ("features", "category", "input"): CategoryInputOptions,
    ("features", "category", "output"): CategoryOutputOptions,
}
