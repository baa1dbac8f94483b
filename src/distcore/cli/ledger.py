"""Commands that hold a run against its records: diff and verify."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from distcore.cli.arguments import set_up_logging, shown
from distcore_core.errors import UserError
from distcore_data.printable import printable

if TYPE_CHECKING:
    from distcore.workflow.difference import Difference
    from distcore.workflow.verify import Verified


def _print(found: Difference | Verified, as_json: bool) -> None:
    print(json.dumps(found.as_json(), indent=2) if as_json else printable(str(found), keep="\n"))


def diff(arguments: Namespace) -> int:
    """Say why two runs differ; exit code 1 if they do."""
    from distcore.workflow.difference import diff as compare

    set_up_logging(arguments.logging_level)
    found = compare(arguments.one, arguments.other, credentials=arguments.credentials)
    _print(found, arguments.json)
    return 0 if found.equal else 1


def verify(arguments: Namespace) -> int:
    """Check a run's files and replay it; exit code 1 if something is not equal."""
    from distcore.workflow.verify import verify as replay

    set_up_logging(arguments.logging_level)
    found = replay(
        arguments.run_folder,
        arguments.dataset,
        training_set=arguments.training_set,
        validation_set=arguments.validation_set,
        test_set=arguments.test_set,
        steps=_steps(arguments.steps),
        backend=arguments.backend,
        credentials=arguments.credentials,
        view=shown(arguments.logging_level),
    )
    _print(found, arguments.json)
    return 0 if found.equal else 1


def _steps(given: str | None) -> tuple[int, int | None] | None:
    """Of `200:300` or `200:`. Raises UserError."""
    if given is None:
        return None
    first, mark, last = given.partition(":")
    if not (mark and first.isdigit() and (last.isdigit() or not last)) or (
        last and int(last) <= int(first)
    ):
        raise UserError(
            f"--steps {given!r} is no range of steps. Give FROM:TO, such as 200:300, or FROM: for "
            "the end."
        )
    return int(first), int(last) if last else None
