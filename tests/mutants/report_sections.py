"""Sections of the report with a fault each: a table of names and numbers."""

from __future__ import annotations

import time
from html import escape

from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import ReportSectionSuite


def content(self):
    return {"title": "Rows", "rows": [["red", 1.5], ["green", None]], "of": {"class": "red"}}


DISTCORE_API = (1, 0)
MUTANTS = Mutants("report_sections", ReportSectionSuite, {"content": content, "keeps": ("Rows",)})


@MUTANTS.sound
class Rows:
    """A table of names and numbers."""

    file, order = "rows.json", 45

    def draw(self, content):
        yield f"<h2>{escape(content['title'])}</h2><table>"
        for name, value in content["rows"]:
            yield f"<tr><th>{escape(name)}</th><td>{self.number(value)}</td></tr>"
        yield "</table>"
        for name, value in content["of"].items():
            yield f'<p title="{escape(name)}">{escape(value)}</p>'

    def number(self, value):
        return "-" if value is None else f"{value:.2f}"


@MUTANTS.fault("test_what_the_file_holds_is_escaped", quick=True)
class Trusting(Rows):
    """Names stand in the page as they are."""

    def draw(self, content):
        yield from super().draw({**content, "rows": []})
        yield from (f"<p>{name}</p>" for name, _ in content["rows"])


@MUTANTS.fault("test_what_the_file_holds_is_escaped")
class Keyed(Rows):
    """Escapes values, and not their names."""

    def draw(self, content):
        yield from super().draw({**content, "of": {}})
        yield from (f"<p>{name}: {escape(value)}</p>" for name, value in content["of"].items())


@MUTANTS.fault("test_it_draws_pieces_of_html_that_are_whole")
class Open(Rows):
    """Forgets to close its table."""

    def draw(self, content):
        yield from (each for each in super().draw(content) if each != "</table>")


@MUTANTS.fault("test_it_draws_pieces_of_html_that_are_whole")
class Silent(Rows):
    """Leaves out the heading."""

    def draw(self, content):
        yield from list(super().draw(content))[1:-2]


@MUTANTS.fault("test_the_page_holds_no_script_and_loads_nothing")
class Fetching(Rows):
    """Draws with a library from the network."""

    def draw(self, content):
        yield '<script src="https://cdn.example.org/plot.js"></script>'
        yield from super().draw(content)


@MUTANTS.fault("test_the_page_holds_no_script_and_loads_nothing")
class Pictured(Rows):
    """Shows a picture from the network."""

    def draw(self, content):
        yield from super().draw(content)
        yield '<img alt="" src="//example.org/pixel.png">'


@MUTANTS.fault("test_drawing_changes_nothing_and_is_the_same_again")
class Taking(Rows):
    """Sorts the rows of the file in place."""

    def draw(self, content):
        content["rows"].sort(key=lambda row: row[0])
        yield from super().draw(content)


@MUTANTS.fault("test_drawing_changes_nothing_and_is_the_same_again")
class Dated(Rows):
    """Says when it was drawn."""

    def draw(self, content):
        yield from super().draw(content)
        yield f"<p>{time.perf_counter_ns()}</p>"


@MUTANTS.fault("test_it_says_which_file_and_where")
class Elsewhere(Rows):
    """Its file lies in another folder."""

    file = "../rows.json"


@MUTANTS.fault("test_what_the_file_holds_is_escaped")
class Attributed(Rows):
    """A name in an attribute may end it."""

    def draw(self, content):
        yield from super().draw({**content, "of": {}})
        for name in content["of"]:
            yield f'<p title="{escape(name, quote=False)}"></p>'


@hookimpl
def distcore_make_member(kind, name):
    made = MUTANTS.named(name)
    return made and made()
