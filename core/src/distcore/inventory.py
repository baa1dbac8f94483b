"""List every plugin with its state. Each is loaded in a child process, so that one that raises, exits, crashes or hangs
is a row marked broken and nothing else."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from distcore.plugins import KINDS, Offer, Plugins, all_offers

IMPORT_SECONDS = 10.0
"""How long one plugin may take to load while listing."""


@dataclass(frozen=True)
class Row:
    """One line of `distcore plugins`. state: ok, broken or blocked; error: why it is broken."""

    role: str
    name: str
    distribution: str
    version: str
    state: str
    error: str = ""


def rows(plugins: Plugins, seconds: float = IMPORT_SECONDS, kinds: Sequence[str] = KINDS) -> list[Row]:
    """A row for every entry point of every kind. seconds: the deadline for one plugin's import."""
    offers = [offer for kind in kinds for offer in all_offers(kind)]
    wanted = [offer for offer in offers if not plugins.is_blocked(offer)]
    found = {_key(offer): _row(offer, "blocked") for offer in offers if plugins.is_blocked(offer)}
    for offer in _duplicates(wanted):
        others = [each for each in wanted if (each.kind, each.name) == (offer.kind, offer.name) and each != offer]
        who = ", ".join(f"{each.distribution} {each.version}" for each in others)
        found[_key(offer)] = _row(offer, "broken", f"also offered by {who}; uninstall or block one")
    todo = [offer for offer in wanted if _key(offer) not in found]
    while todo:
        answers = _probe(todo, seconds, plugins.block)
        for offer, error in zip(todo, answers, strict=False):
            found[_key(offer)] = _row(offer, "broken" if error else "ok", error)
        todo = todo[len(answers) :]
    return [found[_key(offer)] for offer in offers]


def _key(offer: Offer) -> tuple[str, ...]:
    return (offer.kind, offer.name, offer.distribution, offer.value)


def _row(offer: Offer, state: str, error: str = "") -> Row:
    return Row(offer.kind, offer.name, offer.distribution, offer.version, state, error)


def _duplicates(offers: list[Offer]) -> list[Offer]:
    names = [(offer.kind, offer.name) for offer in offers]
    return [offer for offer in offers if names.count((offer.kind, offer.name)) > 1]


def _probe(offers: list[Offer], seconds: float, block: Iterable[str]) -> list[str]:
    """Errors ("" for none) of the offers, in order, up to and including the first that ended the child."""
    # -S/-I would hide what a user installed; the child must see exactly the parent's path.
    environment = {**os.environ, "DISTCORE_BLOCK": ",".join(sorted(block))}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    child = subprocess.Popen(
        [sys.executable, "-m", "distcore.inventory"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps([asdict(offer) for offer in offers]).encode() + b"\n")
    child.stdin.close()
    answers: list[str] = []
    try:
        while len(answers) < len(offers):
            line = _line_before(child.stdout.fileno(), time.monotonic() + seconds)
            if line is None:
                answers.append(f"did not finish loading within {seconds:g} s")
                break
            if line == b"":
                answers.append(f"ended the interpreter (exit status {child.wait()}) while loading")
                break
            answers.append(json.loads(line)["error"])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    return answers


def _line_before(descriptor: int, deadline: float) -> bytes | None:
    """The next line of a pipe; b"" at its end; None when the deadline passes first."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        byte = os.read(descriptor, 1)
        if not byte:
            return b""
        line += byte
    return line


def _child() -> None:
    """Load each offer named on stdin; one JSON line for each on the real stdout, whatever the plugins print."""
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    offers = [Offer(**each) for each in json.loads(sys.stdin.readline())]
    plugins = Plugins()
    for offer in offers:
        error = ""
        try:
            plugins.load(offer.kind, offer.name)
        except BaseException as caught:  # noqa: BLE001 - whatever a plugin does becomes its row
            error = f"{type(caught).__name__}: {caught}".splitlines()[0]
        answer.write(json.dumps({"error": error}) + "\n")


if __name__ == "__main__":
    _child()
