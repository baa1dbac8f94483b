"""What is wrong with a section of the config, in words: core's, and where an option belongs that
was written one level too high."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from distcore_core.config.document import KeyPath
from distcore_core.config.issues import Problem, fields_at, models_at, problems_of

if TYPE_CHECKING:
    from pydantic import ValidationError


def mistakes_in(error: ValidationError, model: Any, values: Any) -> Iterator[Problem]:
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
