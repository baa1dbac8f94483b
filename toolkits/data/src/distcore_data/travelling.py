"""Errors on their way to another process: whatever a plugin raises, one comes out there, and with
its words."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distcore_core import errors
from distcore_core.errors import DistcoreError


def portable(error: BaseException, dumps: Callable[[Any], bytes] = pickle.dumps) -> BaseException:
    """The error to send in the place of this one: itself, if it comes out of a pickle as it went
    in, else one with its words, which is one of ours if it is.

    Args:
        dumps: What pickles it on the way.
    """
    with suppress(Exception):  # whatever its own __init__ does
        copy = pickle.loads(dumps(error))  # noqa: S301 - what was pickled here
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    if isinstance(error, DistcoreError):
        made = plain_class(error)(str(error))
        made.exit_code, made.recurs = error.exit_code, error.recurs
        return made
    from distcore_data.blame import one_line

    return RuntimeError(one_line(error))


@contextmanager
def travelling(dumps: Callable[[Any], bytes] = pickle.dumps) -> Iterator[None]:
    """What the block raises is what `portable` makes of it: an engine that cannot read an error
    there takes it for the process's death."""
    try:
        yield
    except Exception as error:
        sent = portable(error, dumps)
        if sent is error:
            raise
        raise sent from error


def plain_class(error: DistcoreError) -> type[DistcoreError]:
    """Its nearest class in `distcore_core.errors` that is made of a text alone."""
    return next(
        each
        for each in type(error).__mro__
        if each.__module__ == errors.__name__ and "__init__" not in vars(each)
    )
