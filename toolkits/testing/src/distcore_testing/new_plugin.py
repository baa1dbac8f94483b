"""`distcore new-plugin NAME --role ROLE`: a package for a plugin, whole and installable, whose
suite passes before its author has written a line."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from distcore_core.errors import PluginBroken, UserError
from distcore_core.registry.manager import Plugins
from distcore_testing import templates
from distcore_testing.installed import lay_metadata

DISTRIBUTION = re.compile(r"[a-z0-9]|[a-z0-9][a-z0-9._-]*[a-z0-9]")
"""What pip takes (PEP 508), in lower case: the package has the name, too."""


class NewPluginCommand:
    """`distcore new-plugin NAME --role ROLE [--directory DIR]`."""

    help = "make the package of a plugin: code, tests, CI, README"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The distribution, the role and the folder."""
        parser.add_argument(
            "name",
            metavar="NAME",
            help="the distribution; without distcore- before it, the name in configs",
        )
        parser.add_argument(
            "--role", default="", help=f"what it is: {', '.join(templates.roles())}"
        )
        parser.add_argument(
            "--directory", metavar="DIR", help="the folder to make (default: NAME, here)"
        )

    def run(self, arguments: Namespace) -> int:
        """Write the folder, and say what comes next. Raises UserError, and then writes nothing."""
        template = templates.of_role(arguments.role)
        names = templates.Names(checked_name(arguments.name), template)
        refuse_taken(names)
        folder = Path(arguments.directory or arguments.name)
        make(folder, names)
        print(f"Wrote {folder}, {names.told}. Its suite passes as it is; make it yours:")
        print(f"  cd {folder}")
        print('  python -m pip install --editable ".[test]"')
        print("  python -m pytest")
        return 0


def checked_name(name: str) -> str:
    """The name of a distribution. Raises UserError if it can be none, or no package of Python's."""
    package = re.sub(r"[-_.]+", "_", name)
    words = (package, templates.class_of(templates.short(package)))
    own = [package] if package in sys.stdlib_module_names else filter(keyword.iskeyword, words)
    known = next(iter(own), None)
    if DISTRIBUTION.fullmatch(name) and all(map(str.isidentifier, words)) and known is None:
        return re.sub(r"[-_.]+", "-", name)
    why = (
        f"{known} is Python's own"
        if known
        else "it should be of lower-case letters, digits and hyphens, with a letter first, also "
        "after distcore-"
    )
    raise UserError(f"{name!r} is no name for a distribution: {why}. Try distcore-wind.")


def refuse_taken(names: templates.Names) -> None:
    """Raise UserError if something here has the name already: a run would refuse both."""
    offers = Plugins().offers(names.template.kind)
    other = next((each.who for each in offers if each.name == names.entry), None)
    if other is None and find_spec(names.package) is not None:
        other = f"the installed package {names.package}"
    if other is not None:
        raise UserError(
            f"{names.told.capitalize()} is there already: {other}. Choose another name, or "
            "uninstall it."
        )


def make(folder: Path, names: templates.Names) -> None:
    """Write the package into a new folder, whole or not at all.

    Raises:
        UserError: The folder is there, or cannot be made.
    """
    if os.path.lexists(folder):
        raise UserError(f"{folder} is there already. Name a folder that is not: --directory DIR.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-plugin-", dir=folder.parent) as temporary:
            made = Path(temporary, "made")
            for place, text in templates.files(names).items():
                path = made / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            write_manifest(made / "src", names)
            made.rename(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error}.") from error


def write_manifest(source: Path, names: templates.Names) -> None:
    """Let the code say what it offers, as its author will: it is not installed yet, so its
    metadata lie beside it for that long."""
    offers = {names.template.kind: {names.entry: f"{names.package}.plugin"}}
    info = lay_metadata(source, names.distribution, offers, templates.VERSION)
    left_out = ("DISTCORE_LOCK", "DISTCORE_BLOCK")
    environment = {name: each for name, each in os.environ.items() if name not in left_out}
    environment["PYTHONPATH"] = os.pathsep.join(each for each in [str(source), *sys.path] if each)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "distcore_testing.manifest", names.distribution],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(info)
    if done.returncode:
        raise PluginBroken(f"The new package cannot be imported:\n{done.stderr}")
