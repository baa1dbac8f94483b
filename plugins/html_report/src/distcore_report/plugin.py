"""What distcore-report offers: the extension `report`, which every run has, and the command `report`."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_extension(name: str) -> Any:
    if name != "report":
        return None
    from distcore_report.extension import Report

    return Report()


@hookimpl
def distcore_make_command(name: str) -> Any:
    if name != "report":
        return None
    from distcore_report.command import ReportCommand

    return ReportCommand()
