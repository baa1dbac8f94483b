"""What every command must hold: it describes itself, is light until it runs, ends with an exit
code, and tells a mistake in a line."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import COMMAND, Command
from distcore_core.registry.manager import Plugins
from distcore_testing.app import app
from distcore_testing.imports import check_light, in_a_child

LOAD = """
import argparse
from distcore_core.contracts import COMMAND
from distcore_core.registry.manager import Plugins
plugins = Plugins()
plugins.load("commands", {name!r})
"""

ASK = """
command = plugins.make(COMMAND, {name!r})
command.add_arguments(argparse.ArgumentParser())
"""


class CommandSuite:
    """Subclass with `name`, `words(folder)` and `mistake(folder)`.

    words: of a call that ends well, without `distcore <name>`; what it needs is written into the
    folder, which is the working one. mistake: of one that a user got wrong, `None` if there is
    none. repeats: False if the same call may not be made twice.
    """

    name: str
    repeats = True

    def words(self, folder: Path) -> Sequence[str]:
        raise AssertionError("the subclass gives words()")

    def mistake(self, folder: Path) -> Sequence[str] | None:
        """Words that ask for what is not there."""
        return ["--no-such-option-anywhere"]

    def make(self) -> Command:
        return Plugins().make(COMMAND, self.name)

    def parser(self) -> argparse.ArgumentParser:
        """A parser as the command line makes it."""
        made = self.make()
        parser = argparse.ArgumentParser(prog=f"distcore {self.name}", description=made.help)
        parser.add_argument("--debug", action="store_true", help="show tracebacks")
        made.add_arguments(parser)
        return parser

    def test_its_help_is_a_line(self) -> None:
        told = self.make().help
        assert isinstance(told, str)
        assert told.strip() == told != ""
        assert "\n" not in told
        assert len(told) <= 100, "`distcore --help` has a line for it"

    def test_every_argument_is_explained(self) -> None:
        """`distcore <name> --help` is made of it, percent signs and all."""
        parser = self.parser()
        assert parser.format_help()
        for action in every_action(parser):
            known = isinstance(action, argparse._SubParsersAction)
            assert known or action.help, f"{action.dest} has no help"

    def test_its_arguments_take_nothing_of_the_command_lines_own(self) -> None:
        """`run` and `debug` are set by the command line."""
        parser = self.parser()
        assert all(action.dest not in ("run",) for action in every_action(parser))
        assert "run" not in parser._defaults
        assert len([each for each in parser._actions if each.dest == "debug"]) == 1

    def test_it_may_be_asked_for_arguments_time_and_again(self, tmp_path: Path) -> None:
        """Completion and the reference do; what one call was told, the next one is not."""
        made, found = self.make(), []
        for _ in range(2):
            parser = argparse.ArgumentParser()
            made.add_arguments(parser)
            found.append(parser)
        words = list(self.words(tmp_path))
        before = json.dumps(vars(found[0].parse_args(words)), default=str)
        assert json.dumps(vars(found[1].parse_args(words)), default=str) == before
        assert json.dumps(vars(self.parser().parse_args(words)), default=str) != ""

    def test_its_help_imports_nothing_heavy(self) -> None:
        """Beside what its module does, which `PluginSuite` looks at."""
        check_light(in_a_child(ASK.format(name=self.name), first=LOAD.format(name=self.name)))

    # -------------------------------------------------------------- calls

    def call(self, folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """`distcore <name> words` in a process of its own, with warnings as errors."""
        app()
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "distcore", self.name, *map(str, words)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        )

    def test_a_good_call_ends_with_0(self, tmp_path: Path) -> None:
        words = list(self.words(tmp_path))
        done = self.call(tmp_path, words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert "Warning" not in done.stderr
        if self.repeats:
            again = self.call(tmp_path, words)
            assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr

    def test_it_gives_the_exit_code_and_leaves_the_process_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        """`run` gives a whole number; it is called from Python, too."""
        monkeypatch.chdir(tmp_path)
        made, parsed = self.make(), self.parser().parse_args([*map(str, self.words(tmp_path))])
        before = (dict(os.environ), os.getcwd(), sys.stdout, sys.stderr, list(sys.path))
        found = made.run(parsed)
        assert type(found) is int
        assert found == 0
        assert (dict(os.environ), os.getcwd(), sys.stdout, sys.stderr, list(sys.path)) == before

    def test_help_ends_with_0_and_an_unknown_option_with_2(self, tmp_path: Path) -> None:
        done = self.call(tmp_path, ["--help"])
        assert done.returncode == 0, done.stderr
        assert self.make().help.split()[0] in done.stdout
        done = self.call(tmp_path, ["--no-such-option-anywhere"])
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert done.stdout == ""

    def test_a_mistake_is_told_in_a_line_and_changes_nothing(self, tmp_path: Path) -> None:
        """On the standard error, with exit code 2: a script sees it, and no half of a result."""
        words = self.mistake(tmp_path)
        if words is None:
            pytest.skip("nothing can be wrong in a call")
        before = files_below(tmp_path)
        done = self.call(tmp_path, words)
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stderr.startswith("distcore: ")
        assert "Traceback" not in done.stderr
        assert "was not expected" not in done.stderr
        assert done.stdout == ""
        assert files_below(tmp_path) == before, "it leaves something behind"


def every_action(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The actions of a parser, and of those of its commands."""
    found = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found += every_action(inner)
    return found


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
