"""What is wrong with a section of the config, in words: core's, and where an option belongs that
was written one level too high."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from distcore_core.config.document import KeyPath
from distcore_core.config.issues import Problem, fields_at, models_at, problems_of

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound="BaseModel")

MOST = 2**63 - 1
"""The largest whole number of 64 bits."""

NOT_WRITTEN = (
    "its plugin declares a secret (SecretStr, or exclude=True), which the config of a run would "
    "not keep: it would come as stars, or not at all. Secrets are no options; the plugin should "
    "take the name of an environment variable or of a file. Report this to its authors"
)


def validated(model: type[M], values: Any) -> tuple[M | None, list[Problem]]:
    """The values as a model has them, and what is wrong with them; None: the model refused them."""
    from pydantic import ValidationError

    try:
        made = model.model_validate(values)
    except ValidationError as error:
        return None, list(_mistakes_in(error, model, values))
    kept = made.model_dump(by_alias=True, exclude_unset=True)
    fields = type(made).model_fields
    left_out = [each for each in made.model_fields_set if each in fields and fields[each].exclude]
    problems = [Problem((each,), NOT_WRITTEN) for each in sorted(left_out)]
    return made, [*problems, *_not_kept(values, kept, ())]


def _not_kept(given: Any, made: Any, path: KeyPath) -> Iterator[Problem]:
    """What a model has as a number, and should not: pydantic reads true as 1, and `num_layers: yes`
    is a mistake; numbers that no array, no float or no JSON can hold; and secrets."""
    if isinstance(made, Mapping) and isinstance(given, Mapping):
        for name in given.keys() & made.keys():
            yield from _not_kept(given[name], made[name], (*path, name))
    elif isinstance(made, list | tuple) and isinstance(given, list | tuple):
        for place, pair in enumerate(zip(given, made, strict=False)):
            yield from _not_kept(*pair, (*path, place))
    elif isinstance(given, bool) and not isinstance(made, bool) and isinstance(made, int | float):
        yield Problem(path, f"should be a number, not a boolean; got {given}")
    elif isinstance(made, float) and not math.isfinite(made):
        yield Problem(path, f"should be a finite number; got {given}")
    elif isinstance(made, int) and abs(made) > MOST:
        shown = str(made) if len(str(made)) <= 40 else f"a number of {len(str(made))} digits"
        yield Problem(path, f"should be at most {MOST} (64 bits); got {shown}")
    elif hasattr(made, "get_secret_value"):
        yield Problem(path, NOT_WRITTEN)


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
