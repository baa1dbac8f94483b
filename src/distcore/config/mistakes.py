"""What is wrong with a section of the config, in words: core's, and where an option belongs that
was written one level too high."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from distcore_core.config.document import KeyPath
from distcore_core.config.issues import Problem, fields_at, models_at, problems_of

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound="BaseModel")


def validated(model: type[M], values: Any) -> tuple[M | None, list[Problem]]:
    """The values as a model has them, and what is wrong with them; None: the model refused them."""
    from pydantic import ValidationError

    try:
        made = model.model_validate(values)
    except ValidationError as error:
        return None, list(_mistakes_in(error, model, values))
    return made, list(
        _read_as_numbers(values, made.model_dump(by_alias=True, exclude_unset=True), ())
    )


def _read_as_numbers(given: Any, made: Any, path: KeyPath) -> Iterator[Problem]:
    """Booleans that a model has as numbers: pydantic reads true as 1, and `num_layers: yes` is a
    mistake."""
    if isinstance(given, bool):
        if isinstance(made, int | float) and not isinstance(made, bool):
            yield Problem(path, f"should be a number, not a boolean; got {given}")
    elif isinstance(given, Mapping) and isinstance(made, Mapping):
        for name in given.keys() & made.keys():
            yield from _read_as_numbers(given[name], made[name], (*path, name))
    elif isinstance(given, list | tuple) and isinstance(made, list | tuple):
        for place, pair in enumerate(zip(given, made, strict=False)):
            yield from _read_as_numbers(*pair, (*path, place))


def _mistakes_in(error: ValidationError, model: Any, values: Any) -> Iterator[Problem]:
    """One for each thing wrong with values that the model refused."""
    for path, message in problems_of(error, model, values):
        belongs = message.startswith("unknown option") and _one_level_too_high(model, path, values)
        yield Problem(path, belongs or message)


def _one_level_too_high(model: Any, path: KeyPath, values: Any) -> str:
    """What to say of an unknown option that a section beside it knows, such as `normalization` of a
    feature, which is `preprocessing`'s; empty if none does, or if only some of the types that may
    stand there have such a section: `type` may be left out, and the default one may lack it."""
    *above, option = path
    known = [set(fields_at(each, ())) for each in models_at(model, above, values)]
    for section in sorted(set.intersection(*known)) if known else ():
        if option in fields_at(model, (*above, section), values):
            return (
                f"unknown option {option!r} here; it belongs into `{section}`: write "
                f"{section}: {{{option}: …}}"
            )
    return ""
