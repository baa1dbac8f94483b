"""The base of every options model: strict, and at ease with Ludwig's options that are not carried
out; no torch.

An option of Ludwig's that is not carried out (`ludwig_only`) may stand at Ludwig's default; else it
is an error.

Modules of options that every run imports have no `from __future__ import annotations`: each
annotation would be a text, which pydantic compiles, a third of what making the models of a config
takes. (This one has, and that of the trainer: they are part of the plugin API, which is recorded in
the words of its code.)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_building = threading.RLock()


class Deferred(BaseModel):
    """Base of the bases: a validator is built when it is first used, since most types' options are
    in no config. So a default that is itself a model is made by `model_construct()`:
    `model_validate({})` would build one for it."""

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def model_rebuild(cls, **arguments: Any) -> bool | None:
        """As pydantic's, and no two threads at once: before 2.14 the second could meet a model half
        built, and validate by the rules of its base."""
        with _building:
            return super().model_rebuild(**arguments)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """As pydantic's, which before 2.14 cannot write a default whose validator is not built."""
        for field in cls.model_fields.values():
            if isinstance(field.default, BaseModel):
                type(field.default).model_rebuild()
        return super().__get_pydantic_json_schema__(core_schema, handler)


class Options(Deferred):
    """Base: an unknown option is an error, and so are NaN and infinity.

    ludwig_only: options that Ludwig has and that are not carried out, with Ludwig's defaults; at
    its default one is accepted and dropped, at any other value an error tells what it is.
    read_with: of these, options that Ludwig reads with another one alone: {option: the other}.
    While that one is at its default (or is refused for itself), they change nothing at any value.
    beside_data: of a feature's options, those by which it neither fits nor encodes, so that caches
    do not go by them; of a loader's, those that change no batch, so that a run may go on with
    others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    ludwig_only: ClassVar[Mapping[str, Any]] = {}
    read_with: ClassVar[Mapping[str, str]] = {}
    beside_data: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def about_unknown(cls, option: str) -> str | None:
        """What an option is that this model does not have; None: it does not know it either."""
        if option not in cls.ludwig_only:
            return None
        default = json.dumps(cls.ludwig_only[option]).strip('"')
        return (
            f"Ludwig's option {option!r} is not carried out here; leave it out, or at Ludwig's "
            f"default, {default}"
        )

    @model_validator(mode="before")
    @classmethod
    def _drop_defaults_of_ludwig(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            name: each for name, each in values.items() if not cls._changes_nothing(name, values)
        }

    @classmethod
    def _changes_nothing(cls, name: str, values: Mapping[str, Any]) -> bool:
        """Whether an option is Ludwig's alone and, with these values beside it, says nothing."""
        if name not in cls.ludwig_only:
            return False
        switch = cls.read_with.get(name)
        if switch is not None:
            off = cls.ludwig_only.get(switch)
            return switch not in cls.ludwig_only or values.get(switch, off) == off
        return bool(values[name] == cls.ludwig_only[name])


Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


def _in_capitals(resources: dict[str, float]) -> dict[str, float]:
    for name in resources:
        if name != name.upper() in ("CPU", "GPU"):  # of which nobody would take any notice
            raise ValueError(f"{name}: this resource is called {name.upper()}")
    return resources


Resources = Annotated[dict[str, NonNegative], AfterValidator(_in_capitals)]
"""{resource: how much of it}: CPU, GPU, and what a cluster's own are called."""


def _fewest_first(workers: int | tuple[int, int]) -> int | tuple[int, int]:
    if isinstance(workers, tuple) and workers[0] > workers[1]:
        raise ValueError(f"[{workers[0]}, {workers[1]}] must be [fewest, most]")
    return workers


Workers = Annotated[Count | tuple[Count, Count], AfterValidator(_fewest_first)]
"""How many processes train: a number, or the fewest and the most."""
