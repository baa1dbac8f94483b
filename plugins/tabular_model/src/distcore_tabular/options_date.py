"""Options of date inputs: Ludwig's names and defaults."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    model_validator,
)

from distcore_tabular.options import SETS, InputOptions, NoOutput, OldSpelling
from distcore_tabular.options_network import COMPUTED, FCStackOptions, Options
from distcore_tabular.options_parts import EncoderOptions, by_type, only


def _as_text(value: Any) -> Any:
    """YAML reads 2024-01-31 as a date."""
    return "" if value is None else value if isinstance(value, str) else str(value)


def _pattern(value: str | None) -> str | None:
    from distcore_tabular.date_texts import pattern_of

    if value is not None:
        pattern_of(value)
    return value


class DatePreprocessing(Options):
    """`preprocessing` of a date input."""

    missing_value_strategy: Annotated[
        Literal["fill_with_const", "bfill", "ffill", "drop_row"], OldSpelling
    ] = Field("fill_with_const", description=f"What stands in for a missing date. {SETS}")
    fill_value: Annotated[str, BeforeValidator(_as_text)] = Field(
        "",
        description="The date of fill_with_const; empty: a missing date stays one, with a vector "
        "of its own.",
    )
    computed_fill_value: Any = Field("", description=COMPUTED)
    datetime_format: Annotated[str | None, AfterValidator(_pattern)] = Field(
        None,
        description="How dates are spelled, as for Python's strptime, such as `%d/%m/%Y %H:%M`; "
        "names of months and days in English. null: YYYY-MM-DD or YYYY/MM/DD, and perhaps HH:MM, "
        "seconds, a fraction and an offset, as columns of dates and timestamps read too. Dates are "
        "by the clock they were written by: an offset shifts nothing.",
    )

    @model_validator(mode="after")
    def _fill_value_is_a_date(self) -> Self:
        from distcore_data.arrow import strings
        from distcore_tabular.date_texts import parse

        if self.fill_value and not parse(strings([self.fill_value]), self.datetime_format)[1][0]:
            form = self.datetime_format or "YYYY-MM-DD HH:MM:SS"
            raise ValueError(f"fill_value {self.fill_value!r} is no date of the form {form!r}")
        return self


class DateEmbedOptions(EncoderOptions, FCStackOptions):
    """`encoder: {type: embed}` of a date: a learned vector for each value of each part."""

    type: Literal["embed"] = "embed"
    embedding_size: int = Field(
        10, ge=1, description="Length of a part's vector, at most the values it has."
    )
    embeddings_on_cpu: Annotated[bool, only(False)] = False
    num_fc_layers: int = Field(
        0,
        ge=0,
        description="Fully connected layers, if `fc_layers` is not given; of none, "
        "output_size is not read.",
    )
    output_size: int = Field(10, ge=1, description="Output size of a fully connected layer.")


class DateWaveOptions(EncoderOptions, FCStackOptions):
    """`encoder: {type: wave}` of a date: sine and cosine of each part."""

    type: Literal["wave"] = "wave"
    num_fc_layers: int = Field(
        1, ge=0, description="Fully connected layers, if `fc_layers` is not given."
    )
    output_size: int = Field(10, ge=1, description="Output size of a fully connected layer.")


DateEncoder = Annotated[
    DateEmbedOptions | DateWaveOptions,
    Discriminator("type"),
    by_type("embed", ("embed", "wave")),
]


class DateInput(InputOptions):
    """`{type: date}` among the input features."""

    preprocessing: DatePreprocessing = DatePreprocessing.model_construct()
    encoder: DateEncoder = DateEmbedOptions.model_construct()


class NoDateOutput(NoOutput):
    """A date output, as Ludwig has none."""

    why = "a date is an input only; outputs are number, binary, category"


MODELS: dict[tuple[str, str, str], type[BaseModel]] = {
    ("features", "date", "input"): DateInput,
    ("features", "date", "output"): NoDateOutput,
}
