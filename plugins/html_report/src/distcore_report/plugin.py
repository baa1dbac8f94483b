"""What distcore-report offers: the extension and the command `report`, and the built-in sections of a report."""

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


@hookimpl
def distcore_make_member(kind: str, name: str) -> Any:
    if kind != "report_sections":
        return None
    from distcore_report.sections import SECTIONS

    return SECTIONS.get(name)
