"""Ask plugins something in a child process with a deadline for each, so that one that raises,
exits, crashes or hangs is an answer and nothing else."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from distcore_core.errors import DistcoreError
from distcore_core.registry.index import Offer
from distcore_core.registry.manager import Plugins

READY = b"ready\n"
START_SECONDS = 60.0
"""How long the child itself may take to start; it is no plugin's fault if a machine is busy."""


def ask(
    offers: Sequence[Offer], question: str, seconds: float, block: Iterable[str]
) -> list[dict[str, Any]]:
    """What each plugin answers to one of QUESTIONS, in order; {"error": why} if it does not answer.

    seconds: for one plugin. block: names of plugins that the child must not use."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(offers):
        answers += _answers_of_a_child(offers[len(answers) :], question, seconds, block)
    return answers


def _answers_of_a_child(
    offers: Sequence[Offer], question: str, seconds: float, block: Iterable[str]
) -> list[dict[str, Any]]:
    """Answers of the offers, in order, up to and including the first that ended the child."""
    # -S/-I would hide what a user installed; the child must see exactly the parent's path.
    environment = {**os.environ, "DISTCORE_BLOCK": ",".join(sorted(block))}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    child = subprocess.Popen(
        [sys.executable, "-m", "distcore.workflow.probe", question],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps([asdict(offer) for offer in offers]).encode() + b"\n")
    child.stdin.close()
    answers: list[dict[str, Any]] = []
    doing = QUESTIONS[question][0]
    try:
        _wait_for_ready(child)
        while len(answers) < len(offers):
            line = _line_before(child.stdout.fileno(), time.monotonic() + seconds)
            if line is None:
                answers.append({"error": f"did not finish {doing} within {seconds:g} s"})
                break
            if line == b"":
                answers.append(
                    {"error": f"ended the interpreter (exit status {child.wait()}) while {doing}"}
                )
                break
            answers.append(json.loads(line))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    return answers


def _wait_for_ready(child: subprocess.Popen[bytes]) -> None:
    """Read what the child, or what Python runs before it, prints up to its READY. Raises
    DistcoreError if it does not come to that: no plugin is to blame."""
    assert child.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while True:
        line = _line_before(child.stdout.fileno(), deadline)
        if line is None:
            raise DistcoreError(
                "The process that asks plugins for their answers did not start within "
                f"{START_SECONDS:g} s. If this machine is busy, try again when it is not."
            )
        if not line:
            raise DistcoreError(
                "The process that asks plugins for their answers could not start (exit status "
                f"{child.wait()}). To see why: {sys.executable} -c 'import {__name__}'"
            )
        if line.endswith(READY):  # perhaps behind what was printed without a line's end
            return


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


# ------------------------------------------------------------------ in the child


def _load(plugins: Plugins, offer: Offer) -> dict[str, Any]:
    plugins.load(offer.kind, offer.name)
    return {}


def _diagnose(plugins: Plugins, offer: Offer) -> dict[str, Any]:
    """{"checks": what its `distcore_diagnose` says}."""
    diagnose = getattr(plugins.load(offer.kind, offer.name), "distcore_diagnose", None)
    found = diagnose() or [] if diagnose is not None else []
    return {"checks": [[str(what), bool(well), str(said)] for what, well, said in found]}


QUESTIONS: Mapping[str, tuple[str, Callable[[Plugins, Offer], dict[str, Any]]]] = {
    "load": ("loading", _load),
    "diagnose": ("its own checks", _diagnose),
}
"""{question: (what the plugin is doing meanwhile, how it is asked)}."""


def _child(question: str) -> None:
    """Ask each offer named on stdin; one JSON line for each on the real stdout, whatever the
    plugins print."""
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    offers = [Offer(**each) for each in json.loads(sys.stdin.readline())]
    plugins = Plugins()
    with suppress(Exception):  # each question tells it
        import stevedore  # noqa: F401 - this, and to read what is installed, is no plugin's time

        plugins.offers("")
    answer.write(READY.decode())
    for offer in offers:
        try:
            said = QUESTIONS[question][1](plugins, offer)
        except BaseException as caught:  # noqa: BLE001 - whatever a plugin does becomes its row
            said = {"error": f"{type(caught).__name__}: {caught}".splitlines()[0]}
        answer.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    _child(sys.argv[1])
