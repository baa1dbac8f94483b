"""Commands that look and change nothing: plan, plugins, doctor; and those that write one file:
init, schema, `plugins lock`, `doctor --calibrate`."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_data.table import table

if TYPE_CHECKING:
    from distcore.cost.scale import Scale

MOST_ROWS = 50_000
"""Of each dataset that `init` looks at."""


def plan(arguments: Namespace) -> int:
    """Say what would run, where, through which plugins and why."""
    from distcore import interface
    from distcore.cli.arguments import config_of, data_of, set_up_logging
    from distcore.cli.plan_text import render

    set_up_logging(arguments.logging_level)
    described = interface.plan(
        config_of(arguments),
        **data_of(arguments),
        backend=arguments.backend,
        random_seed=arguments.random_seed,
        gpus=arguments.gpus,
        scale=scale_of(arguments),
    )
    print(json.dumps(described, indent=2) if arguments.json else render(described))
    return 0


def scale_of(arguments: Namespace) -> Scale | None:
    """How many workers, and what network, the cost of a step is asked for. Raises UserError."""
    from distcore.cost.scale import MOST_WORKERS, Scale
    from distcore_core.errors import UserError

    workers, gbit, microseconds = arguments.workers, arguments.bandwidth, arguments.latency
    if workers is None:
        if gbit is not None or microseconds is not None:
            raise UserError(
                "--bandwidth and --latency are of a network between workers: say how many there "
                "are with --workers."
            )
        return None
    if not 1 <= workers <= MOST_WORKERS:
        raise UserError(f"--workers {workers}: give a number from 1 to {MOST_WORKERS}.")
    if gbit is not None and not 0 < gbit < float("inf"):
        raise UserError(f"--bandwidth {gbit:g}: give Gbit/s above 0.")
    if microseconds is not None and not 0 <= microseconds < float("inf"):
        raise UserError(f"--latency {microseconds:g}: give microseconds, 0 or more.")
    return Scale(
        workers,
        None if gbit is None else gbit * 1e9 / 8,
        None if microseconds is None else microseconds / 1e6,
    )


def init(arguments: Namespace) -> int:
    """Write a commented config by looking at the data."""
    from distcore.cli.arguments import data_of
    from distcore.config.initialise import look, suggest
    from distcore_core.errors import UserError
    from distcore_data.dataset import called
    from distcore_data.sources.registry import rows_about, sample

    given = {
        name: path for name, path in data_of(arguments).items() if path and name != "data_format"
    }
    if not given:
        raise UserError(
            "No data was given. Give --dataset, or --training_set and what lies beside it."
        )
    if arguments.output is not None:  # not only after large data were looked at
        refuse_taken(Path(arguments.output))
    tables, decimal = look(
        lambda options: {
            name: sample(
                path, MOST_ROWS, spread=True, format=arguments.data_format, options=options
            )
            for name, path in given.items()
        }
    )
    first, target = next(iter(given.values())), arguments.target[0]
    rows = rows_about(first, target, format=arguments.data_format)
    text = suggest(tables, arguments.target, arguments.model, decimal, rows)
    if arguments.output is None:
        _refuse_spelled(text)
        print(text, end="")
    else:
        refuse_taken(Path(arguments.output))
        write(Path(arguments.output), text)
        data = " ".join(f"--{name} {called(getattr(arguments, name))}" for name in given)
        command = f"distcore experiment --config {arguments.output} {data}"
        print(f"Wrote {arguments.output}. Train with: {command}")
    return 0


def _refuse_spelled(text: str) -> None:
    """Raises UserError for a config whose names standard output has no bytes for: spelled out they
    are others."""
    from distcore_core.errors import UserError

    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        raise UserError(
            f"The config has {text[error.start : error.end]!r}, for which the standard output's "
            f"encoding ({encoding}) has no bytes. Write it to a file with --output config.yaml, or "
            "set PYTHONIOENCODING=utf-8."
        ) from error


def refuse_taken(path: Path) -> None:
    """Raise UserError if the file exists, or a link that leads nowhere: a config that somebody
    edited is never overwritten."""
    from distcore_core.errors import UserError
    from distcore_data.own_files import writable

    with writable(path):
        taken = path.exists() or path.is_symlink()
    if taken:
        what = "exists" if path.exists() else "is a link that leads nowhere"
        raise UserError(
            f"{path} {what} and was left as it is. Give another name with --output, or remove it."
        )


def write_again(path: Path, text: str, beginning: str) -> None:
    """Write a file, also in place of one that an earlier call wrote, which begins so. Raises
    UserError if it is any other, such as a config or a dataset."""
    from distcore_core.errors import UserError
    from distcore_data.own_files import begins_with, writable

    with writable(path):
        if path.is_file() and path.stat().st_size and not begins_with(path, beginning):
            raise UserError(
                f"{path} exists, is nothing that this command wrote, and was left as it is. Give "
                "another file with --output."
            )
    write(path, text)


def write(path: Path, text: str) -> None:
    """Write a file whole. Raises UserError if it cannot be written."""
    from distcore_core.io.atomic import write_file
    from distcore_data.own_files import writable
    from distcore_data.temporaries import sweep

    with writable(path):
        sweep(path.parent, path.name)
        write_file(path, text.encode())


def plugins(arguments: Namespace) -> int:
    """A row for each plugin: role, name, distribution, version, state, error, and the tiers of the
    quality scale if there are any; or their lock."""
    from dataclasses import asdict

    from distcore.workflow.listing import rows, together
    from distcore_core.registry.manager import Plugins

    if arguments.action == "lock":
        return lock(Path(arguments.output or "distcore.lock"))
    found = rows(Plugins(), seconds=arguments.timeout)
    if arguments.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    else:
        header = ("ROLE", "NAME", "DISTRIBUTION", "VERSION", "STATE", "ERROR", "QUALITY")
        shown = len(header) if any(row.quality for row in found) else -1
        lines = [header, *(tuple(asdict(row).values()) for row in together(found))]
        print(table([line[:shown] for line in lines]))
    return 0


def lock(path: Path) -> int:
    """Write the lock of every installed distribution that offers a plugin and is not blocked, and
    import none."""
    from distcore_core.registry.index import all_offers, blocked_by_environment, normalised
    from distcore_core.registry.lock import VARIABLE, files_of

    blocked, found = set(map(normalised, blocked_by_environment())), {}
    for offer in (offer for of_kind in all_offers().values() for offer in of_kind):
        if normalised(offer.distribution) not in blocked:
            files = files_of(offer.distribution)
            found[offer.distribution] = {"version": offer.version, "files": files}
    text = json.dumps({"distributions": found}, indent=2, sort_keys=True) + "\n"
    write_again(path, text, '{\n  "distributions": {')
    number = sum(len(each["files"]) for each in found.values())
    print(f"Wrote {path}: {len(found)} distributions, {number} files.")
    print(f"It holds for whatever has it in the environment: export {VARIABLE}={path.absolute()}")
    return 0


def doctor(arguments: Namespace) -> int:
    """Check the machine and each plugin's parts; exit code 1 if something is not well. Or measure
    the machine."""
    if arguments.calibrate:
        return calibrate(arguments.json)
    from distcore.workflow.doctor import checks

    found = checks()
    if arguments.json:
        print(json.dumps([check._asdict() for check in found], indent=2))
    else:
        rows = [
            (check.part, "ok" if check.well else "NOT WELL", check.what, check.found)
            for check in found
        ]
        print(table([("PART", "STATE", "CHECK", "FOUND"), *rows]))
        ill = [f"{check.part} ({check.what})" for check in found if not check.well]
        print(f"\nNot well: {', '.join(ill)}." if ill else f"\nAll {len(found)} checks are ok.")
    return 0 if all(check.well for check in found) else 1


BUSY = 2
"""Times as long as its processor seconds that measuring takes only if others run meanwhile."""


def calibrate(as_json: bool) -> int:
    """Measure this machine and keep its constants."""
    from dataclasses import asdict

    from distcore.cost.calibrate import measure
    from distcore.cost.constants import check_place, save

    check_place()
    before = os.times()
    found = measure(lambda text: print(f"Measuring {text} …", file=sys.stderr))
    where = save(found)
    took, *spent = (now - then for now, then in zip(os.times()[::-1], before[::-1], strict=True))
    if took > BUSY * sum(spent):
        print(
            f"Others use this machine: of {took:.0f} s these measurements had a processor for "
            f"{sum(spent):.0f}, so `plan` will say too much of training. Measure again when less "
            "else runs.",
            file=sys.stderr,
        )
    print(json.dumps(asdict(found), indent=2) if as_json else f"This machine's constants: {where}")
    return 0


def schema(arguments: Namespace) -> int:
    """Print the JSON Schema of the config, for what is installed."""
    from distcore.config.schema import json_schema
    from distcore_core.registry.manager import Plugins

    text = json.dumps(json_schema(Plugins()), indent=2) + "\n"
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        to_its_title = text.partition('"type"')[0]
        write_again(Path(arguments.output), text, to_its_title)
    return 0
