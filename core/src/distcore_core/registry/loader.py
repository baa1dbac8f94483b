"""Import the module of one offer, with a deadline, and refuse one that was written for another API.

stevedore answers "which one?", here and nowhere else; only what is named is ever imported.
"""

from __future__ import annotations

import signal
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from distcore_core.contracts import API_VERSION
from distcore_core.contracts.roles import since, singular
from distcore_core.errors import PluginBroken, PluginIncompatible
from distcore_core.registry.index import Offer
from distcore_core.registry.lock import refuse_changed

IMPORT_SECONDS = 60.0
"""How long a plugin that the config asked for may take to import before the run stops."""


def load(offer: Offer) -> types.ModuleType:
    """The plugin's module. Raises PluginBroken for whatever goes wrong in it and for files that
    are not as they were locked, PluginIncompatible by its API."""
    refuse_changed(offer.distribution, offer.who)
    module = _imported(offer)
    check_api(offer, module)
    return module


def check_api(offer: Offer, module: object) -> None:
    """Refuse a plugin written for an older API than its role has (`Role.since`), or for a newer
    one than this core has."""
    stated = getattr(module, "DISTCORE_API", None)
    if not (
        isinstance(stated, tuple)
        and len(stated) == 2
        and all(isinstance(part, int) for part in stated)
    ):
        raise PluginIncompatible(
            f"{offer.who} does not state the API it was written for: {offer.value} needs "
            f"DISTCORE_API = {API_VERSION}."
        )
    oldest = since(offer.kind)
    if stated < oldest:
        raise PluginIncompatible(
            f"{offer.who} was written for distcore API {_dotted(stated)}; this core takes the "
            f"role {singular(offer.kind)} from {_dotted(oldest)} to {_dotted(API_VERSION)}. "
            f"Upgrade the plugin: pip install --upgrade {offer.distribution}"
        )
    if stated > API_VERSION:
        raise PluginIncompatible(
            f"{offer.who} was written for distcore API {_dotted(stated)}; this core has "
            f"{_dotted(API_VERSION)}. Upgrade the core: pip install --upgrade distcore"
        )


def _imported(offer: Offer) -> types.ModuleType:
    from stevedore import DriverManager

    class OneOffer(DriverManager):
        """Looks at this offer's entry point alone: a blocked namesake must not be imported, and
        stevedore's cache on disk can miss an edited entry point for two minutes."""

        def list_entry_points(self) -> list[metadata.EntryPoint]:
            return [metadata.EntryPoint(offer.name, offer.value, f"distcore.{offer.kind}")]

    try:
        with _deadline(offer):
            found: Any = OneOffer(
                f"distcore.{offer.kind}",
                offer.name,
                invoke_on_load=False,
                on_load_failure_callback=_reraise,
            ).driver
    except (Exception, SystemExit) as error:
        raise PluginBroken(
            f"{offer.who} offers {singular(offer.kind)} {offer.name!r}, but loading "
            f"{offer.value} failed: {type(error).__name__}: {error}. Reinstall it, or block it: "
            f"DISTCORE_BLOCK={offer.distribution}."
        ) from error
    module: types.ModuleType = found
    return module


def _reraise(manager: Any, entry_point: Any, error: BaseException) -> None:
    raise error


@contextmanager
def _deadline(offer: Offer) -> Iterator[None]:
    """Raise in the main thread when an import takes longer than IMPORT_SECONDS (only if signals
    work)."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise TimeoutError(f"importing {offer.value} took longer than {IMPORT_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    theirs = signal.setitimer(signal.ITIMER_REAL, IMPORT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *theirs)  # the program's own alarm goes on


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
