"""Turn pydantic's errors into our mistakes: dotted path, what is wrong, and the nearest right
word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

from distcore_core.errors import ConfigError, ConfigIssue

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound="BaseModel")


class Problem(NamedTuple):
    """What is wrong at a path inside the values that were validated."""

    path: tuple[str | int, ...]
    message: str


def validate(model: type[M], values: Mapping[str, Any], where: str) -> M:
    """An instance of the model. Raises ConfigError with every mistake, paths relative to
    `where`, lines unknown (0)."""
    from pydantic import ValidationError

    try:
        return model.model_validate(values)
    except ValidationError as error:
        issues = [
            ConfigIssue(0, dotted(where, *path), without_passwords(message))
            for path, message in problems_of(error, model, values)
        ]
        raise ConfigError(issues, where) from error


def problems_of(error: ValidationError, model: type[BaseModel], values: Any) -> list[Problem]:
    """One problem for each thing wrong. values: what was validated; the names that pydantic puts
    into a path for the branches of a union (`int`, the tag of a model) are left out, and the
    branches' messages become one."""
    found: dict[tuple[str | int, ...], dict[str, None]] = {}
    errors = error.errors(include_url=False)
    for each in errors:
        path = _without_branches(each, values)
        if each["type"] in ("union_tag_invalid", "union_tag_not_found"):
            path = (*path, each["ctx"]["discriminator"].strip("'"))
        found.setdefault(path, {})[_message(each, model)] = None
    # If the `type` itself is wrong, nothing can be said about the options beside it.
    unknown = {each["loc"] for each in errors if each["type"] == "extra_forbidden"}
    wrong = found.keys() - unknown
    beside = {path for path in unknown if (*path[:-1], "type") in wrong}
    return [Problem(path, _joined([*said])) for path, said in found.items() if path not in beside]


def unknown_option(name: str, known: Iterable[str]) -> str:
    """`unknown option 'x'; did you mean 'y'?`, or the list of what is known."""
    return f"unknown option {name!r}; {nearest(name, known)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'y'?` if a known word is near, else `known: a, b, c`."""
    known = sorted(set(known))
    if near := difflib.get_close_matches(name.lower(), known, n=1):
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(known)}" if known else "it takes no options; remove it"


HOST = r"[^/:@,[]*(?:\[[\w:.%]+\])?(?::\d+)?"
PASSWORD = re.compile(
    rf"(?s)(://(?!(?:[^/:]*@)?{HOST}(?:,{HOST})*/|arn:(?:[^/:@]*:){{4}}[^/@]*/"
    r"|[^/:]*(?:::[\w.+-]+)*::(?:[\w.+-]+:/)?/)[^/:]*:).+"
)
"""Where an `@` follows; hosts, an access point's ARN and a further URL behind `::` are none."""


def without_passwords(text: str) -> str:
    """`s3://me:secret@host` becomes `s3://me:***@host`; a password may hold `/` and `@`."""
    runs = (run.rpartition("@") for run in re.split(r"(\s+)", text))
    return "".join(PASSWORD.sub(r"\1***", head) + at + end for head, at, end in runs)


def dotted(*parts: Any) -> str:
    """("trainer", "betas", 0) → "trainer.betas[0]"."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "":
            path += f".{part}" if path else str(part)
    return path


def fields_at(model: Any, path: Sequence[str | int], values: Any = None) -> list[str]:
    """The option names that a model knows at a path, through nested models, optionals, lists and
    tagged unions.

    values: what lies at the path's start; if it is given, a union's branch is chosen by its
        `type`."""
    return sorted({name for each in models_at(model, path, values) for name in _names(each)})


def models_at(model: Any, path: Sequence[str | int], values: Any = None) -> list[Any]:
    """The models that may stand at a path of a model; as `fields_at`."""
    candidates = list(_models_in(model))
    for part in path:
        values = _step(values, part)
        if isinstance(part, int):
            continue
        inside = [
            each for candidate in candidates for each in _models_in(_annotation(candidate, part))
        ]
        tagged = [each for each in candidates if _has_tag(each, part)]
        candidates = inside or tagged
        kind = values.get("type") if isinstance(values, Mapping) else None
        candidates = [each for each in candidates if _has_tag(each, kind)] or candidates
    return candidates


# ------------------------------------------------------------------ one error in words


PLAIN = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "a text"}
PLAIN |= {"list": "a list", "tuple": "a list", "dict": "a mapping", "model": "a mapping"}
"""What a user's YAML calls pydantic's types."""


def _message(error: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(str(error["loc"][-1]), models_at(model, error["loc"][:-1]))
    if kind in ("missing", "union_tag_not_found"):
        return "is required"
    if kind == "union_tag_invalid":
        near = nearest(str(context["tag"]), _quoted(context["expected_tags"]))
        return f"unknown type {context['tag']!r}; {near}"
    text = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    text = re.sub(r"^(Input|String|List|Tuple|Set|Dictionary|Value) should ", "should ", text)
    found = re.fullmatch("([a-z]+)_(type|parsing|from_float|attributes_type)", kind)
    if found and found[1] in PLAIN:
        text = f"should be {PLAIN[found[1]]}"
    if kind == "literal_error" and isinstance(value, str):
        words = difflib.get_close_matches(value.lower(), _quoted(context["expected"]), n=1)
        text += f" (did you mean {words[0]!r}?)" if words else ""
    said = kind == "value_error" and (
        isinstance(value, Mapping | list | tuple) or repr(value) in text
    )
    return text if said else f"{text}; got {_shown(value)}"


def _unknown(option: str, models: list[Any]) -> str:
    """What to say of an option that no model has. A model that knows it all the same says so
    itself: `about_unknown(option)`, a sentence or None."""
    asked = (each.about_unknown for each in models if hasattr(each, "about_unknown"))
    for said in (about(option) for about in asked):
        if said is not None:
            return str(said)
    return unknown_option(option, [name for each in models for name in _names(each)])


def _shown(value: Any) -> str:
    """A value for an error: short, and never the inside of a mapping, which may hold
    credentials."""
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _joined(messages: list[str]) -> str:
    """`should be an integer, or should be 'auto'; got 'x'` from the messages of a union's
    branches."""
    if len(messages) == 1:
        return messages[0]
    parts = [message.rsplit("; got ", 1) for message in messages]
    got = next((part[1] for part in parts if len(part) == 2), None)
    return ", or ".join(part[0] for part in parts) + (f"; got {got}" if got else "")


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _without_branches(error: ErrorDetails, values: Any) -> tuple[str | int, ...]:
    """The error's path as the values have it: a part that leads nowhere named the branch of a
    union."""
    *parts, last = error["loc"] or ("",)
    path: list[str | int] = []
    for part in parts:
        inside = _step(values, part, _NOWHERE)
        if inside is not _NOWHERE:
            path.append(part)
            values = inside
    if error["type"] == "missing" or _step(values, last, _NOWHERE) is not _NOWHERE:
        path.append(last)
    return tuple(path)


_NOWHERE = object()


def _step(values: Any, part: str | int, default: Any = None) -> Any:
    if isinstance(values, Mapping):
        return values.get(part, default)
    if isinstance(values, list | tuple) and isinstance(part, int) and part < len(values):
        return values[part]
    return default


# ------------------------------------------------------------------ what a model knows


def _models_in(annotation: Any) -> Iterator[Any]:
    """The pydantic models inside an annotation."""
    if hasattr(annotation, "model_fields"):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _annotation(model: Any, option: str) -> Any:
    fields = model.model_fields.items()
    return next((info.annotation for name, info in fields if option in (name, info.alias)), None)


def _names(model: Any) -> Iterator[str]:
    yield from (info.alias or name for name, info in model.model_fields.items())


def _has_tag(model: Any, tag: Any) -> bool:
    """Whether the model is the branch `tag` of a union: by its `type`, or by its class's name."""
    if tag is None:
        return False
    info = model.model_fields.get("type")
    return model.__name__ == tag or (info is not None and tag in get_args(info.annotation))
