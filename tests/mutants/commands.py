"""Commands with a fault each: how many lines a file has."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.mutants.harness import Mutants

from distcore_core.errors import UserError
from distcore_core.hooks import hookimpl
from distcore_testing import CommandSuite


def words(self, folder):
    (folder / "text").write_text("one\ntwo\n")
    return ["text"]


def mistake(self, folder):
    return ["nowhere"]


DISTCORE_API = (1, 0)
MUTANTS = Mutants("commands", CommandSuite, {"words": words, "mistake": mistake})


@MUTANTS.sound
class Count:
    """Lines of a file."""

    help = "say how many lines a file has"

    def add_arguments(self, parser):
        parser.add_argument("path", help="of the file")
        parser.add_argument("--least", type=int, default=0, help="lines that it should have")

    def run(self, arguments):
        print(self.lines(Path(arguments.path)))
        return 0

    def lines(self, path):
        if not path.exists():
            raise UserError(f"{path} is not there. Name a file.")
        return len(path.read_text().splitlines())


@MUTANTS.fault("test_a_mistake_is_told_in_a_line_and_changes_nothing", quick=True)
class Raw(Count):
    """A mistake ends in an error of Python's."""

    def lines(self, path):
        return len(path.read_text().splitlines())


@MUTANTS.fault("test_a_mistake_is_told_in_a_line_and_changes_nothing")
class Hiding(Count):
    """A mistake is told where results stand, and counts as done."""

    def run(self, arguments):
        try:
            return super().run(arguments)
        except UserError as error:
            print(error)
            return 0


@MUTANTS.fault("test_a_mistake_is_told_in_a_line_and_changes_nothing")
class Littering(Count):
    """Begins its output before it looks at what it was given."""

    def lines(self, path):
        Path("count.txt").write_text("")
        return super().lines(path)


@MUTANTS.fault("test_it_gives_the_exit_code_and_leaves_the_process_as_it_is")
class Nothing(Count):
    """Gives no exit code."""

    def run(self, arguments):
        super().run(arguments)


@MUTANTS.fault("test_it_gives_the_exit_code_and_leaves_the_process_as_it_is")
class Moving(Count):
    """Works in the file's folder, and stays there."""

    def lines(self, path):
        found = super().lines(path)
        os.chdir(path.resolve().parent.parent)
        return found


@MUTANTS.fault("test_a_good_call_ends_with_0")
class Leaving(Count):
    """Ends the process with the number of lines."""

    def run(self, arguments):
        sys.exit(self.lines(Path(arguments.path)))


@MUTANTS.fault("test_a_good_call_ends_with_0")
class Outdated(Count):
    """Warns of what it calls itself."""

    def lines(self, path):
        super().lines(path)
        import warnings

        warnings.warn("this way of counting is deprecated", DeprecationWarning, stacklevel=1)
        return 2


@MUTANTS.fault("test_every_argument_is_explained")
class Percent(Count):
    """A percent sign of a help text is taken for a format."""

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--share", type=float, help="in % of the lines")


@MUTANTS.fault("test_its_arguments_take_nothing_of_the_command_lines_own")
class Taking(Count):
    """An option of its own is called as the command line's function is."""

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--run", help="which run")


@MUTANTS.fault("test_its_help_imports_nothing_heavy")
class Heavy(Count):
    """Imports numpy to name a default."""

    def add_arguments(self, parser):
        import numpy as np

        super().add_arguments(parser)
        parser.set_defaults(kind=np.dtype("int64").name)


@MUTANTS.fault("test_it_may_be_asked_for_arguments_time_and_again")
class Growing(Count):
    """Each parser is told the defaults of those before it."""

    asked: list = []  # noqa: RUF012

    def add_arguments(self, parser: argparse.ArgumentParser):
        super().add_arguments(parser)
        self.asked.append("again")
        parser.set_defaults(tries=len(self.asked))


@MUTANTS.fault("test_its_help_is_a_line")
class Verbose(Count):
    """Its help is a paragraph."""

    help = "say how many lines a file has;\nempty ones count, too"


@hookimpl
def distcore_make_command(name):
    made = MUTANTS.named(name)
    return made and made()
