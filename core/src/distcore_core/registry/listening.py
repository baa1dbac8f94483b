"""Let extensions listen to a run: made once in the process that the user started, and once in rank
0 of a worker group.

A listener that raises is told in a warning and the run goes on: a full disk under a log file must
not cost a day of training.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from distcore_core.contracts import EXTENSION
from distcore_core.errors import PluginBroken
from distcore_core.events import EVENTS
from distcore_core.registry.manager import Plugins, run_plugins

log = logging.getLogger("distcore")
_listening: ContextVar[tuple[list[Any], tuple[object, ...]]] = ContextVar(
    "distcore_listening", default=([], ())
)


@contextmanager
def listening(extensions: Sequence[Mapping[str, Any]], plugins: Plugins) -> Iterator[None]:
    """Register the run's extensions with these plugins, which are the run's until the block ends.

    extensions: `{"type": name, option: value, …}` of each. If the run under way in this thread made
    them already (training in the process that the user started), those same objects listen here
    too.
    """
    wanted = [dict(each) for each in extensions]
    here, known = _listening.get()
    made = known if here == wanted else tuple(_made(each, plugins) for each in wanted)
    for number, (extension, each) in enumerate(zip(made, wanted, strict=True)):
        _register(plugins, f"{each['type']} {number}", extension)
    token = _listening.set((wanted, made))
    try:
        with run_plugins(plugins):
            yield
    finally:
        _listening.reset(token)


class _Listener:
    """Holds an extension's hook implementations for pluggy."""


def _made(reference: Mapping[str, Any], plugins: Plugins) -> object:
    options = {name: value for name, value in reference.items() if name != "type"}
    made: object = plugins.make(EXTENSION, reference["type"], options)
    return made


def _register(plugins: Plugins, name: str, extension: object) -> None:
    """Raises PluginBroken if the extension listens to what is no event, or takes arguments that
    no event has."""
    import pluggy

    listener = _Listener()
    vars(listener).update(_hooks(extension, name, plugins.manager))
    try:
        plugins.listen(listener, name)
    except pluggy.PluginValidationError as error:
        raise PluginBroken(
            f"Extension {name.rpartition(' ')[0]!r} implements a hook wrongly: {error}. "
            "Compare it with distcore_core.events, or report this to its authors."
        ) from error


def _hooks(extension: object, name: str, manager: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The extension's hook implementations; those of events never raise."""
    for attribute in dir(extension):
        options = manager.parse_hookimpl_opts(extension, attribute)
        if options is not None:
            method = getattr(extension, attribute)
            event = (options.get("specname") or attribute) in EVENTS
            yield attribute, _guarded(method, name) if event else method


def _guarded(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def tell(*values: Any) -> str | None:
        who, event = name.rpartition(" ")[0], method.__name__
        try:
            answer = method(*values)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it does, the run goes on
            told = f"{type(error).__name__}: {error}"
            log.warning("Extension %r failed at %s and was passed over: %s", who, event, told)
            return None
        if event == "epoch_finished" and answer and not isinstance(answer, str):
            log.warning("Extension %r answered %r: only a sentence ends training", who, answer)
        return f"Extension {who!r} asked to stop: {answer}" if isinstance(answer, str) else None

    return tell
