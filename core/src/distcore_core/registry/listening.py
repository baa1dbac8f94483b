"""Let extensions listen to a run: made once in the process that the user started, and once in rank
0 of a worker group.

A listener that raises is told in a warning and the run goes on: a full disk under a log file must
not cost a day of training.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from distcore_core.contracts import EXTENSION
from distcore_core.errors import PluginBroken
from distcore_core.events import EVENTS
from distcore_core.registry.manager import Plugins, run_plugins

Keep = Callable[[str], AbstractContextManager[object]]
log = logging.getLogger("distcore")
_listening: ContextVar[tuple[list[Any], tuple[object, ...]]] = ContextVar(
    "distcore_listening", default=([], ())
)


@contextmanager
def listening(
    extensions: Sequence[Mapping[str, Any]], plugins: Plugins, keep: Keep = nullcontext
) -> Iterator[None]:
    """Register the run's extensions with these plugins, which are the run's until the block ends.

    extensions: `{"type": name, option: value, …}` of each; those that this thread's run has made
    listen here too. keep(`Extension … at epoch_finished`): the block around each making and call.
    """
    wanted = [dict(each) for each in extensions]
    here, known = _listening.get()
    made = known if here == wanted else tuple(_made(each, plugins, keep) for each in wanted)
    for number, (extension, each) in enumerate(zip(made, wanted, strict=True)):
        _register(plugins, f"{each['type']} {number}", extension, keep)
    token = _listening.set((wanted, made))
    try:
        with run_plugins(plugins):
            yield
    finally:
        _listening.reset(token)


class _Listener:
    """Holds an extension's hook implementations for pluggy; those of events never raise."""

    def __init__(self, extension: object, who: str, manager: Any, keep: Keep) -> None:
        for attribute in dir(extension):
            if (options := manager.parse_hookimpl_opts(extension, attribute)) is not None:
                method = getattr(extension, attribute)
                event = (options.get("specname") or attribute) in EVENTS
                setattr(self, attribute, _guarded(method, who, keep) if event else method)


def _made(reference: Mapping[str, Any], plugins: Plugins, keep: Keep) -> object:
    options = {name: value for name, value in reference.items() if name != "type"}
    with keep(f"Extension {reference['type']!r} as it was made"):
        return plugins.make(EXTENSION, reference["type"], options)


def _register(plugins: Plugins, name: str, extension: object, keep: Keep) -> None:
    """Raises PluginBroken if the extension listens to what is no event, or takes arguments that
    no event has."""
    import pluggy

    who = f"Extension {name.rpartition(' ')[0]!r}"
    listener = _Listener(extension, who, plugins.manager, keep)
    try:
        if not vars(listener):
            raise pluggy.PluginValidationError(extension, "no method is marked with @hookimpl")
        plugins.listen(listener, name)
    except pluggy.PluginValidationError as error:
        raise PluginBroken(
            f"{who} implements a hook wrongly: {error}. "
            "Compare it with distcore_core.events, or report this to its authors."
        ) from error


def _guarded(method: Callable[..., Any], who: str, keep: Keep) -> Callable[..., Any]:
    @functools.wraps(method)
    def tell(*values: Any) -> str | None:
        try:
            with keep(f"{who} at {method.__name__}"):
                answer = method(*values)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it does, the run goes on
            told = f"{type(error).__name__}: {error}"
            log.warning("%s failed at %s and was passed over: %s", who, method.__name__, told)
            return None
        if method.__name__ == "epoch_finished" and answer and not isinstance(answer, str):
            log.warning("%s answered %r: only a sentence ends training", who, answer)
        return f"{who} asked to stop: {answer}" if isinstance(answer, str) else None

    return tell
