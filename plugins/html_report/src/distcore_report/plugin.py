"""What distcore-report offers: the extension `report`, three commands, and the built-in sections
of a report."""

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
    if name == "report":
        from distcore_report.command import ReportCommand

        return ReportCommand()
    if name == "runs":
        from distcore_report.runs_command import RunsCommand

        return RunsCommand()
    if name == "compare":
        from distcore_report.compare import CompareCommand

        return CompareCommand()
    return None


@hookimpl
def distcore_make_member(kind: str, name: str) -> Any:
    if kind != "report_sections":
        return None
    from distcore_report.sections import SECTIONS

    return SECTIONS.get(name)
