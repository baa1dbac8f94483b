"""report.html: one self-contained file made from the JSON files of an experiment's folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path

from distcore_core.contracts import JSON
from distcore_core.errors import PluginError, UserError
from distcore_core.registry.manager import Plugins, environment_plugins
from distcore_data.run_files import REPORT, SUMMARY
from distcore_data.seals import read_sealed
from distcore_data.temporaries import sweep
from distcore_report.roles import REPORT_SECTION, ReportSection
from distcore_search.vouched import SCORES, read_vouched

BEGINNING = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>'
"""Of every page, by which a later one knows it as its own to replace."""

LEFT_OUT = (
    "The report is made without it; take it from a backup, or run the command that wrote it again."
)

INSTEAD_OF = {"scores": SUMMARY}
"""A section that is drawn only if a file, of which others draw the same and more, is not there."""

log = logging.getLogger("distcore")


def write_report(
    directory: Path, output: str | Path | None = None, plugins: Plugins | None = None
) -> Path:
    """Write the report of an experiment's folder; returns its path. Arguments: see `render`.

    Raises UserError if the folder holds no experiment."""
    from distcore_core.io.atomic import write_file

    path = Path(output) if output else directory / REPORT
    sweep(path.parent, path.name)
    write_file(path, render(directory, plugins).encode())
    return path


def render(directory: Path, plugins: Plugins | None = None) -> str:
    """The report as HTML. Parts whose file is absent (skipped on purpose) are left out.

    So is, with a warning and a line in the report, what is damaged or was changed by hand, and a
    section whose plugin is broken. plugins: those whose sections are drawn; by default all that
    are installed."""
    page = _Page(directory)
    parts = page.parts(plugins or environment_plugins())
    if not parts:
        if page.troubles:
            raise UserError("\n".join(page.troubles))
        raise UserError(
            f"{directory} holds no experiment: there is no description.json. "
            "Give the folder that `distcore train` wrote."
        )
    for each in page.troubles:
        log.warning("%s", each)
    name = directory.resolve().name
    troubles = [f'<p class="soft">{escape(each)}</p>' for each in page.troubles]
    return document(name, [f"<h1>{escape(name)}</h1>", *troubles, *parts])


def document(title: str, parts: Iterable[str]) -> str:
    """A page of its own. parts: HTML."""
    body = "\n".join(parts)
    return (
        f'{BEGINNING}{escape(title)}</title><meta name="viewport" content="width=device-width">'
        f"<style>{style()}</style></head><body>\n"
        f"{body}\n"
        "</body></html>\n"
    )


class _Page:
    """A report under way. troubles: what is said of the files and the sections that are left
    out, each once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.troubles: list[str] = []

    def parts(self, plugins: Plugins) -> list[str]:
        """What every section draws, in the order of the page."""
        return [
            part for name, section in self._sections(plugins) for part in self._drawn(name, section)
        ]

    def _sections(self, plugins: Plugins) -> Iterable[tuple[str, ReportSection]]:
        found: dict[str, ReportSection] = {}
        for name in plugins.names(REPORT_SECTION.kind):
            try:
                found[name] = plugins.make(REPORT_SECTION, name)
            except PluginError as error:
                self._trouble(f"The report is made without its section {name!r}: {error}")
        return sorted(found.items(), key=lambda each: (each[1].order, each[0]))

    def _drawn(self, name: str, section: ReportSection) -> list[str]:
        """Nothing if the section's file is absent, or cannot be used."""
        path, instead = self.directory / section.file, INSTEAD_OF.get(name, "")
        if not path.exists() or (instead and (self.directory / instead).exists()):
            return []
        try:
            return list(section.draw(_read(path)))
        except UserError as error:
            self._trouble(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a section does, the others are drawn
            self._trouble(
                f"The report is made without its section {name!r}, which cannot draw {path} "
                f"({error!r}). Another version of distcore wrote that file, and the command that "
                "did is to be run again, or the section has a fault."
            )
        return []

    def _trouble(self, text: str) -> None:
        if text not in self.troubles:
            self.troubles.append(text)


def style() -> str:
    """The page's CSS; colours follow the reader's light or dark setting."""
    return resources.files("distcore_report").joinpath("style.css").read_text()


def _read(path: Path) -> JSON:
    """A file of the folder. Raises UserError if it was changed after it was written, or is
    damaged."""
    found: JSON = (
        read_vouched(path, LEFT_OUT) if path.name in SCORES else read_sealed(path, LEFT_OUT)
    )
    return found
