"""Ask a store again when it stumbled, within bounds; and say at the end what it said, without a
secret."""

from __future__ import annotations

import errno
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from distcore_core.errors import DistcoreError, StoreError
from distcore_data.stores.filesystems import without

ATTEMPTS = 6
"""How often one request is made, the first time included, if nobody answers."""

PATIENCE_SECONDS = 180.0
"""How long one request is made again and again if the store answers that it is too busy, or has
trouble of its own."""

FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0
"""Seconds before the second attempt, and at most before any; each wait is twice the one before,
a random part less."""

AGAIN = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may well succeed."""

AGAIN_CODES = frozenset(
    {"BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"}
)
"""Refusals of S3 that blame what arrived, not what was asked."""

FINAL = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
)
FINAL_ERRNOS = frozenset(
    {errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG}
)
NETWORK = frozenset(
    {
        "HTTPClientError",
        "ConnectionError",
        "ClientPayloadError",
        "ClientConnectionError",
        "TransportError",
    }
    | {"ServiceRequestError", "ServiceResponseError", "IncompleteReadError"}
)
"""Names of the network's errors in the libraries of stores, which are not imported for them."""

T = TypeVar("T")
log = logging.getLogger("distcore")


def persistently(
    work: Callable[[], T],
    where: str,
    doing: str,
    secrets: Iterable[str] = (),
    *,
    absence: bool = True,
) -> T:
    """work(), again if it failed for a reason that may pass.

    absence: that there is no such object is an answer, and FileNotFoundError passes through; that
    there is no such bucket never is. Raises StoreError naming `where` (the object), `doing`
    ("read") and the cause."""
    wait, since = FIRST_WAIT, time.monotonic()
    for attempt in itertools.count(1):
        try:
            return work()
        except DistcoreError:
            raise
        except Exception as error:  # each store's library raises its own kinds
            if (
                isinstance(error, FileNotFoundError)
                and absence
                and code_of(error) != "NoSuchBucket"
            ):
                raise
            waited, patience = time.monotonic() - since, _patience(error)
            if not may_pass(error) or (attempt >= ATTEMPTS and waited >= patience):
                give_up(error, where, doing, attempt, waited, secrets)
            log.log(
                logging.WARNING if attempt == ATTEMPTS else logging.DEBUG,
                "%s could not be %s in %d attempts (HTTP status %s); it is tried for %d seconds.",
                *(where, doing, attempt, status_of(error), patience),
            )
        time.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(2 * wait, LONGEST_WAIT)
    raise AssertionError("unreachable")


def _patience(error: BaseException) -> float:
    """For how many seconds a request is made again: a store that answers comes back."""
    return 0.0 if status_of(error) is None else PATIENCE_SECONDS


def may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed later: the network's trouble and the server's, not a
    refusal."""
    status = status_of(error)
    if status is not None:
        return (status >= 500 and status != 501) or status in AGAIN or code_of(error) in AGAIN_CODES
    if isinstance(error, FINAL) or (isinstance(error, OSError) and error.errno in FINAL_ERRNOS):
        return False
    if isinstance(error, OSError | EOFError):
        return True
    return _of_network(error)


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error of whatever library, or None if no answer came."""
    each: BaseException | None = error
    while each is not None and not isinstance(each, DistcoreError):
        if _of_network(each):  # aiohttp says 400 of a body that broke off
            return None
        answer = getattr(each, "response", None)
        metadata = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
        for found in (
            metadata.get("HTTPStatusCode"),
            *(getattr(each, name, None) for name in STATUS),
        ):
            if isinstance(found, int) and 100 <= found < 600:
                return found
        each = each.__cause__
    return None


STATUS = ("status_code", "status", "code")


def code_of(error: BaseException) -> str | None:
    """S3's own word for a refusal, such as ExpiredToken."""
    each: BaseException | None = error
    while each is not None:
        answer: Any = getattr(each, "response", None)
        if isinstance(answer, dict):
            found = answer.get("Error", {}).get("Code")
            return found if isinstance(found, str) else None
        each = each.__cause__
    return None


def _of_network(error: BaseException) -> bool:
    return bool(NETWORK & {kind.__name__ for kind in type(error).__mro__})


def give_up(
    error: BaseException,
    where: str,
    doing: str,
    attempts: int,
    seconds: float,
    secrets: Iterable[str],
) -> NoReturn:
    """Raise the StoreError of a request that failed for good."""
    code, status = code_of(error), status_of(error)
    said = ", ".join(
        filter(
            None,
            [code, f"HTTP status {status}" if status else "", f"{type(error).__name__}: {error}"],
        )
    )
    times = "" if attempts == 1 else f" in {attempts} attempts"
    times += f" within {seconds:.0f} seconds" if seconds >= 1 else ""
    message = f"{where} could not be {doing}{times} ({said}). {_advice(error, status)}"
    shown = without(message, secrets)
    # A server may echo what it was sent: then nothing of the library's own error is shown either.
    raise StoreError(shown) from (error if shown == message else None)


def _advice(error: BaseException, status: int | None) -> str:
    if code_of(error) == "RequestTimeTooSkewed":
        return (
            "Set this machine's clock (`timedatectl` shows it, `date -u` its time): the store "
            "refuses whoever is a quarter of an hour off."
        )
    if (
        status in (401, 403)
        or isinstance(error, PermissionError)
        or "Credentials" in type(error).__name__
    ):
        return (
            "Check the credentials (backend.cache_credentials; --credentials of commands without a "
            "config; without these what the environment gives) and the bucket's permissions."
        )
    if status is not None and status < 500:
        return "Check the address and the bucket."
    return (
        "Check the network and the store, then run the same command again: nothing that is "
        "committed was changed."
    )
