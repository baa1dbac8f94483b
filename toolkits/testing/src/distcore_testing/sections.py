"""What every section of the report must hold: HTML that is whole and loads nothing, with whatever
the file holds escaped."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import JSON
from distcore_core.registry.manager import Plugins
from distcore_data.seals import sealed

EVIL = '<script>alert(\'&amp;"1")</script>" onfocus="1" x=\' onclick=1'
"""A text that would act if it stood in the page as it is."""

VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
    ]
)
ACTING = frozenset(
    ["applet", "base", "embed", "frame", "iframe", "link", "meta", "object", "script"]
)
"""Tags that run or load something, or lead the page elsewhere."""

ADDRESSES = frozenset(
    [
        *("src", "srcset", "imagesrcset", "href", "xlink:href", "data", "poster", "background"),
        *("action", "formaction", "ping", "from", "to", "values"),
    ]
)
"""Attributes that hold addresses, or lists of them; the last three set others in an animation."""

ELSEWHERE = re.compile(r"(^|[\s,;])(https?:|ftp:|//|javascript:)", re.IGNORECASE)
"""In an address: what a browser would load from elsewhere, or run."""

FETCHED = re.compile(r"""@import|url\(\s*["']?\s*(https?:|//)""", re.IGNORECASE)
"""What a style would load from elsewhere."""


class ReportSectionSuite:
    """Subclass with `name` and `content()`: what the section's file holds after a run, as JSON.

    keeps: texts of the content that must stand in the page.
    """

    name: str
    keeps: tuple[str, ...] = ()

    def content(self) -> JSON:
        raise AssertionError("the subclass gives content()")

    def place(self, folder: Path) -> None:
        """Write the file as whoever makes it does: with a digest of itself."""
        (folder / self.make().file).write_bytes(sealed(self.content()))

    def make(self) -> Any:
        return Plugins().make(of_report("roles").REPORT_SECTION, self.name)

    def drawn(self, content: JSON | None = None) -> str:
        return "\n".join(self.make().draw(self.content() if content is None else content))

    def test_it_says_which_file_and_where(self) -> None:
        made = self.make()
        assert isinstance(made.file, str)
        assert made.file.endswith(".json")
        assert Path(made.file).name == made.file, "a file of the run's own folder"
        assert isinstance(made.order, int)

    def test_it_draws_pieces_of_html_that_are_whole(self) -> None:
        """Every tag is closed in its turn, so that the sections after it look as they should."""
        pieces = list(self.make().draw(self.content()))
        assert pieces, "it draws nothing"
        assert all(isinstance(each, str) for each in pieces)
        assert unclosed("".join(pieces)) == []
        for text in self.keeps:
            assert text in "".join(pieces)

    def test_the_page_holds_no_script_and_loads_nothing(self) -> None:
        """It is opened from a disk, by people who do not know who wrote it."""
        text = self.drawn()
        assert acting(text) == []
        assert not FETCHED.search(text)

    def test_what_the_file_holds_is_escaped(self) -> None:
        """Every text of it in turn, of those that differ in a list's position alone the first:
        names of columns and classes are a dataset's."""
        content = self.content()
        ways: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for path, _ in texts_of(content):
            ways.setdefault(tuple("*" if isinstance(at, int) else at for at in path), path)
        for path in ways.values():
            changed = with_text(content, path, EVIL)
            try:
                text = self.drawn(changed)
            except (KeyError, ValueError, TypeError):
                continue  # a text that means something is refused, which the page tells
            assert unclosed(text) == [], f"{path} is not escaped"
            assert acting(text) == [], f"{path} is not escaped in an attribute"
            assert "<script" not in text.lower(), f"{path} is not escaped"

    def test_drawing_changes_nothing_and_is_the_same_again(self) -> None:
        content = self.content()
        before = copy.deepcopy(content)
        made = self.make()
        first = "".join(made.draw(content))
        assert content == before
        assert "".join(made.draw(content)) == first
        assert self.drawn(json.loads(json.dumps(content))) == "\n".join(self.make().draw(before))

    def test_it_stands_in_the_report_if_its_file_is_there(self, tmp_path: Path) -> None:
        self.place(tmp_path)
        page = of_report("page").render(tmp_path)
        for piece in self.make().draw(self.content()):
            assert piece in page


def of_report(module: str) -> Any:
    """A module of the plugin that draws the sections, which the kit does without."""
    reason = "a section needs `pip install distcore-report`"
    return pytest.importorskip(f"distcore_report.{module}", reason=reason)


class _Tags(HTMLParser):
    """Which tags are open, which were closed that were not, and what runs or loads something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.acting: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._look(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        elif tag not in VOID:
            self.wrong.append(f"/{tag}")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Closed at once, as in SVG."""
        self._look(tag, attrs)

    def _look(self, tag: str, attrs: Any) -> None:
        self.acting += [tag] if tag in ACTING else []
        for name, value in attrs:
            address = re.sub(r"[\t\n\r]", "", value or "") if name in ADDRESSES else ""
            if name.startswith("on") or ELSEWHERE.search(address):
                self.acting.append(f"{name} of {tag}")


def unclosed(text: str) -> list[str]:
    """Tags that are not closed, or closed out of turn."""
    parser = _parsed(text)
    return [*parser.open, *parser.wrong]


def acting(text: str) -> list[str]:
    """Tags and attributes that a browser would run, load or follow."""
    return _parsed(text).acting


def _parsed(text: str) -> _Tags:
    parser = _Tags()
    parser.feed(text)
    parser.close()
    return parser


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text of JSON, keys too, with the way to it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*path, ("key", key)), key
            yield from texts_of(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from texts_of(each, (*path, at))
    elif isinstance(value, str):
        yield path, value


def with_text(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """The JSON with another text at a place."""
    if not path:
        return text
    first, *rest = path
    if isinstance(first, tuple):
        return {(text if key == first[1] else key): each for key, each in value.items()}
    if isinstance(value, dict):
        return {
            key: with_text(each, tuple(rest), text) if key == first else each
            for key, each in value.items()
        }
    return [
        with_text(each, tuple(rest), text) if at == first else each for at, each in enumerate(value)
    ]
