"""The spaces of `hyperopt.parameters`, by Ludwig's and Ray Tune's names: what is asked, drawn and
put into the config.

An executor searches over *raw* values, which any engine can sample: a number in a range, or the
position of a category. `value(raw)` is what the config gets. Bounds are Ray Tune's: `randint` and
`lograndint` leave `upper` out; a quantised space has both ends in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from statistics import NormalDist
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, model_validator

from distcore_core.contracts import Axis
from distcore_data.base_options import Count, Options
from distcore_search.variants import value_at

Positive = Annotated[float, Field(gt=0)]
Base = Annotated[float, Field(gt=1)]

EDGE = 1e-6
"""Least probability of either tail of a normal: a quantile of 0 would be minus infinity."""

BETWEEN = (3 - 5**0.5) / 2
"""Where between two bounds a value is tried: at no fraction that makes whole numbers of them."""

LOGARITHM = "Base of the logarithm; it changes nothing of what is drawn."
QUANTUM = "Values are multiples of it, both ends included."


class Space(Options):
    """Base of all spaces."""

    space: str

    def axis(self) -> Axis:
        """What an engine samples."""
        raise NotImplementedError

    def value(self, raw: Any) -> Any:
        """The raw value as the config has it."""
        return raw

    def raw(self, value: Any) -> Any:
        """The raw value of a config's value. Raises ValueError if the space does not have it."""
        axis = self.axis()
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not axis.low <= value <= axis.high
        ):
            raise ValueError(f"should be from {axis.low:g} to {axis.high:g}, not {value!r}")
        return round(value) if axis.kind == "int" else value

    def draw(self, u: float) -> Any:
        """The raw value at u, uniform in [0, 1)."""
        return value_at(self.axis(), u)

    def extremes(self) -> list[tuple[tuple[str | int, ...], Any]]:
        """(the option that says so, value): what must be right for every value to be right."""
        axis = self.axis()
        return [(("lower",), self.value(axis.low)), (("upper",), self.value(axis.high))]

    def between(self) -> list[tuple[tuple[str | int, ...], Any]]:
        """As `extremes`: a real number between the bounds, which may both be whole ones."""
        return [((), self.value(self.draw(BETWEEN)))] if self.axis().kind == "float" else []


class _Range(Space):
    @model_validator(mode="after")
    def _in_order(self) -> _Range:
        lower, upper = getattr(self, "lower"), getattr(self, "upper")  # noqa: B009 - declared by those below
        if not lower < upper:
            raise ValueError(f"upper ({upper:g}) should be larger than lower ({lower:g})")
        if "log" in self.space and lower <= 0:
            raise ValueError(f"lower should be larger than 0 in a logarithmic space; got {lower:g}")
        quantum = getattr(self, "q", None)
        for name, bound in (("lower", lower), ("upper", upper)):
            if quantum is not None and bound != _quantised(bound, quantum):
                raise ValueError(f"{name} ({bound:g}) should be a multiple of q ({quantum:g})")
        return self


class Uniform(_Range):
    """Real numbers, uniform; `float` is the word of Ludwig's example for Optuna."""

    space: Literal["uniform", "float"]
    lower: float = Field(description="Least value.")
    upper: float = Field(description="Largest value.")

    def axis(self) -> Axis:
        return Axis(kind="float", low=self.lower, high=self.upper)


class QUniform(_Range):
    """Real numbers, uniform, in steps."""

    space: Literal["quniform"]
    lower: float = Field(description="Least value.")
    upper: float = Field(description="Largest value.")
    q: Positive = Field(description=QUANTUM)

    def axis(self) -> Axis:
        return Axis(kind="float", low=self.lower, high=self.upper, step=self.q)

    def value(self, raw: Any) -> Any:
        return _quantised(raw, self.q)


class LogUniform(_Range):
    """Real numbers whose logarithm is uniform."""

    space: Literal["loguniform"]
    lower: Positive = Field(description="Least value.")
    upper: Positive = Field(description="Largest value.")
    base: Base = Field(10, description=LOGARITHM)

    def axis(self) -> Axis:
        return Axis(kind="float", low=self.lower, high=self.upper, log=True)


class QLogUniform(_Range):
    """Real numbers whose logarithm is uniform, rounded to steps."""

    space: Literal["qloguniform"]
    lower: Positive = Field(description="Least value.")
    upper: Positive = Field(description="Largest value.")
    q: Positive = Field(description=QUANTUM)
    base: Base = Field(10, description=LOGARITHM)

    def axis(self) -> Axis:
        return Axis(kind="float", low=self.lower, high=self.upper, log=True)

    def value(self, raw: Any) -> Any:
        return min(max(_quantised(raw, self.q), self.lower), self.upper)


class RandInt(_Range):
    """Whole numbers, uniform; `randint` without upper, `int` (of Ludwig's optuna executor) with
    it."""

    space: Literal["randint", "int"]
    lower: int = Field(description="Least value.")
    upper: int = Field(description="End of the range: left out by randint, included by int.")

    def axis(self) -> Axis:
        return Axis(kind="int", low=self.lower, high=self.upper - (self.space == "randint"))


class QRandInt(_Range):
    """Whole numbers, uniform, in steps."""

    space: Literal["qrandint"]
    lower: int = Field(description="Least value.")
    upper: int = Field(description="Largest value.")
    q: Count = Field(description=QUANTUM)

    def axis(self) -> Axis:
        return Axis(kind="int", low=self.lower, high=self.upper, step=self.q)

    def value(self, raw: Any) -> Any:
        return int(_quantised(raw, self.q))


class LogRandInt(_Range):
    """Whole numbers whose logarithm is uniform, without upper."""

    space: Literal["lograndint"]
    lower: int = Field(description="Least value.")
    upper: int = Field(description="End of the range, left out.")
    base: Base = Field(10, description=LOGARITHM)

    def axis(self) -> Axis:
        return Axis(kind="int", low=self.lower, high=self.upper - 1, log=True)


class QLogRandInt(_Range):
    """Whole numbers whose logarithm is uniform, rounded to steps."""

    space: Literal["qlograndint"]
    lower: int = Field(description="Least value.")
    upper: int = Field(description="Largest value.")
    q: Count = Field(description=QUANTUM)
    base: Base = Field(10, description=LOGARITHM)

    def axis(self) -> Axis:
        return Axis(kind="int", low=self.lower, high=self.upper, log=True)

    def value(self, raw: Any) -> Any:
        return int(min(max(_quantised(raw, self.q), self.lower), self.upper))


class Normal(Space):
    """Real numbers of a normal distribution. An engine samples the quantile, for not every one
    has normals."""

    space: Literal["randn", "normal"]
    mean: float = Field(0.0, description="Mean.")
    sd: Positive = Field(1.0, description="Standard deviation.")

    def axis(self) -> Axis:
        return Axis(kind="float", low=EDGE, high=1 - EDGE)

    def value(self, raw: Any) -> Any:
        return NormalDist(self.mean, self.sd).inv_cdf(raw)

    def raw(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"should be a number, not {value!r}")
        return min(max(NormalDist(self.mean, self.sd).cdf(value), EDGE), 1 - EDGE)

    def extremes(self) -> list[tuple[tuple[str | int, ...], Any]]:
        """Three standard deviations to either side, beyond which lie 0.3 % of all draws."""
        return [(("sd",), self.value(NormalDist().cdf(side))) for side in (-3, 3)]


class QNormal(Normal):
    """Real numbers of a normal distribution, rounded to steps."""

    space: Literal["qrandn", "qnormal"]  # type: ignore[assignment]
    q: Positive = Field(description="Values are multiples of it.")

    def value(self, raw: Any) -> Any:
        return _quantised(super().value(raw), self.q)


class Choice(Space):
    """One of some values: numbers, words, lists, or whole sections of the config as mappings."""

    space: Literal["choice", "categorical"]
    categories: list[Any] = Field(min_length=1, description="What is chosen from.")

    def axis(self) -> Axis:
        return Axis(kind="choice", low=0, high=len(self.categories) - 1)

    def value(self, raw: Any) -> Any:
        return self.categories[int(raw)]

    def raw(self, value: Any) -> Any:
        return _position(value, self.categories)

    def extremes(self) -> list[tuple[tuple[str | int, ...], Any]]:
        return [(("categories", index), each) for index, each in enumerate(self.categories)]


class Grid(Space):
    """Every one of some values, `num_samples` times."""

    space: Literal["grid_search"]
    values: list[Any] = Field(min_length=1, description="What is tried, one after the other.")

    def axis(self) -> Axis:
        return Axis(kind="choice", low=0, high=len(self.values) - 1, grid=True)

    def value(self, raw: Any) -> Any:
        return self.values[int(raw)]

    def raw(self, value: Any) -> Any:
        return _position(value, self.values)

    def extremes(self) -> list[tuple[tuple[str | int, ...], Any]]:
        return [(("values", index), each) for index, each in enumerate(self.values)]


AnySpace = Annotated[
    Uniform
    | QUniform
    | LogUniform
    | QLogUniform
    | RandInt
    | QRandInt
    | LogRandInt
    | QLogRandInt
    | Normal
    | QNormal
    | Choice
    | Grid,
    Field(discriminator="space"),
]
SPACES: tuple[type[Space], ...] = get_args(get_args(AnySpace)[0])


def parse_spaces(parameters: Mapping[str, Any]) -> Mapping[str, Space]:
    """{parameter: its space} of a section that was validated before."""
    return TypeAdapter(dict[str, AnySpace]).validate_python(dict(parameters))


def values_of(spaces: Mapping[str, Space], raw: Mapping[str, Any]) -> dict[str, Any]:
    """{parameter: what the config gets}."""
    return {name: space.value(raw[name]) for name, space in spaces.items()}


def _position(value: Any, among: list[Any]) -> int:
    if value not in among:
        raise ValueError(f"{value!r} is none of its values")
    return among.index(value)


def _quantised(value: float, quantum: float) -> float:
    """The nearest multiple, as people write it: 0.3, not 0.30000000000000004."""
    return float(Decimal(repr(quantum)) * round(value / quantum))
