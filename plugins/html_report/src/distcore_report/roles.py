"""The role of a section of the report, for the built-in ones and for those of third parties
alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from distcore_core.contracts import JSON, MEMBER_HOOK, Role


class ReportSection(Protocol):
    """A part of report.html, made of one JSON file of the folder.

    Args:
        file: The name of the file; if the folder has none, the section is left out. One that is not
            of our own holds a digest of itself, as `distcore_data.sealed` makes it: a
            damaged file is told, not drawn.
        order: Sections with smaller numbers come first, then those whose names do. The built-in
            ones have 0 (search), 5 (headline), 10 (summary), 20 (splits, scores), 30 (curves), 40
            (diagnostics), 50 (importance), 55 (worst), 60 (columns), 70 (resources), 80 (yaml) and
            90 (description).
    """

    file: str
    order: int

    def draw(self, content: JSON) -> Iterator[str]:
        """HTML, in pieces. What stands in the file must be escaped: `html.escape`."""
        ...


REPORT_SECTION = Role("report_sections", MEMBER_HOOK, "report section", ReportSection)  # type: ignore[type-abstract]
