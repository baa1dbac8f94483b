"""`distcore-horovod build` makes a Horovod that works with the torch that is here; `check` says
what there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from distcore_core.errors import DistcoreError
from distcore_data.threads import processors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        return build(parsed) if parsed.command == "build" else check()
    except DistcoreError as error:
        print(f"distcore-horovod: {error}", file=sys.stderr)
        return error.exit_code


def build(parsed: argparse.Namespace) -> int:
    """Find the wheel in the cache or build it; install it if asked."""
    from distcore_horovod import build as builder
    from distcore_horovod.installed import found, problem

    tools = builder.find_tools({"yes": True, "no": False, "auto": None}[parsed.mpi])
    cache = parsed.cache_dir or builder.default_cache()
    wheel = None if parsed.force else builder.cached_wheel(tools, cache)
    if wheel is None:
        what = "Gloo and MPI" if tools.mpi else "Gloo, without MPI"
        print(
            f"Building Horovod {builder.VERSION} for torch {tools.torch} with {what}; this takes "
            "minutes.",
            flush=True,
        )
        wheel = builder.build(tools, cache, parsed.jobs, parsed.sdist)
    print(wheel)
    marker = _marker(wheel)
    if parsed.install and (parsed.force or problem() is not None or marker != _installed_marker()):
        builder.install(wheel)
        _write_marker(marker)
        horovod = found()
        print(
            f"Installed Horovod {horovod.version if horovod else ''}, built for torch "
            f"{tools.torch}."
        )
    return 0


def check() -> int:
    """Say what the installed Horovod can do; 1 if something is wrong."""
    from distcore_horovod.diagnose import checks

    rows = checks()
    for what, well, said in rows:
        print(f"{'ok ' if well else 'BAD'} {what}: {said}")
    return 0 if all(well for _, well, _ in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distcore-horovod", description=__doc__, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = commands.add_parser(
        "build", help="build a wheel of Horovod, or find the one that was built"
    )
    made.add_argument("--install", action="store_true", help="also install it in this environment")
    made.add_argument(
        "--mpi", choices=("auto", "yes", "no"), default="auto", help="with MPI; auto: if mpicxx is"
    )
    made.add_argument(
        "--cache-dir", type=Path, metavar="DIR", help="default: ~/.cache/distcore-horovod"
    )
    made.add_argument(
        "--jobs",
        type=int,
        default=processors(),
        metavar="N",
        help="compilers at a time; default: one a CPU",
    )
    made.add_argument(
        "--sdist", type=Path, metavar="FILE", help="the release's sdist, if there is no registry"
    )
    made.add_argument("--force", action="store_true", help="build again, whatever is in the cache")
    commands.add_parser("check", help="say what the installed Horovod can do")
    return parser


def _marker(wheel: Path) -> str:
    """The key that the wheel was built under."""
    return wheel.parent.name


def _marker_file() -> Path | None:
    from distcore_horovod.installed import folder

    found = folder()
    return None if found is None else found / "distcore-key"


def _installed_marker() -> str | None:
    path = _marker_file()
    return path.read_text() if path is not None and path.exists() else None


def _write_marker(marker: str) -> None:
    path = _marker_file()
    if path is not None:
        path.write_text(marker)


if __name__ == "__main__":
    sys.exit(main())
