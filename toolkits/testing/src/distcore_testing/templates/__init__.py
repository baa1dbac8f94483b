"""What `distcore new-plugin` writes: a folder of files for each role, and those of every role in
`common`.

A file `x.in` becomes `x`, with $-words of `Names` put in (`string.Template`). Tests go to `tests`,
other modules into the package, `tests.yml` to where GitHub looks for it, what is left beside
pyproject.toml; a file of the role stands in for the common one. `template.toml` says:

    kind: its entry-point group, without `distcore.`
    about: a sentence.              use: how a config names it, for the README.
    hook: with its arguments.       made: "module:expression" that the hook gives.
    needs: other distributions.     suites: extras of distcore-testing.
    entry: of the entry point, if it is not the name.  data: true if a data version is stated.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from string import Template as Text
from typing import Any

from distcore_core.contracts import API_VERSION, MEMBER_HOOK
from distcore_core.errors import UserError

HERE = Path(__file__).parent
COMMON = HERE / "common"
VERSION = "0.1.0"
"""Of a new distribution."""


@dataclass(frozen=True)
class Template:
    """What `template.toml` of a role says."""

    role: str
    kind: str
    about: str
    use: str
    hook: str = ""
    made: str = ""
    entry: str = "$name"
    needs: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    data: bool = False


@dataclass(frozen=True)
class Names:
    """What a new plugin is called: in pip, in Python, in configs."""

    distribution: str
    template: Template
    package: str = field(init=False)
    name: str = field(init=False)
    entry: str = field(init=False)

    def __post_init__(self) -> None:
        package = self.distribution.replace("-", "_")
        name = short(package)
        object.__setattr__(self, "package", package)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "entry", Text(self.template.entry).substitute(name=name))

    @property
    def told(self) -> str:
        """It, for people."""
        return f"the {self.template.role} {self.entry}"

    def words(self) -> dict[str, str]:
        """{$-word: what stands for it}."""
        found = {
            "distribution": self.distribution,
            "package": self.package,
            "name": self.name,
            "Name": class_of(self.name),
            "entry": self.entry,
            "kind": self.template.kind,
            "told": self.told,
            "api": str(API_VERSION),
            "version": VERSION,
        }
        found |= {
            name: Text(getattr(self.template, name)).substitute(found) for name in ("about", "use")
        }
        return found


def short(package: str) -> str:
    """A package's name in configs."""
    return package.removeprefix("distcore_")


def class_of(name: str) -> str:
    """How the names of its classes begin."""
    return "".join(each.capitalize() for each in name.split("_"))


@cache
def roles() -> tuple[str, ...]:
    """What `--role` takes."""
    return tuple(sorted(path.parent.name for path in HERE.glob("*/template.toml")))


def of_role(role: str) -> Template:
    """The template of a role, which its group names, too. Raises UserError."""
    found = {each: read(each) for each in roles()}
    kinds = {each.kind: name for name, each in found.items() if name != "strategy"}
    name = re.sub(r"[ _]", "-", role)
    if name in found:
        return found[name]
    if role in kinds:
        return found[kinds[role]]
    near = difflib.get_close_matches(name, [*found, *kinds], n=1)
    hint = (
        f"Did you mean {kinds.get(near[0], near[0])!r}?" if near else f"Roles: {', '.join(found)}."
    )
    wrong = f"there is no role {role!r}" if role else "say what it is"
    raise UserError(f"--role: {wrong}. {hint}")


def read(role: str) -> Template:
    """What its `template.toml` says."""
    given: dict[str, Any] = tomllib.loads((HERE / role / "template.toml").read_text("utf-8"))
    given |= {name: tuple(given.get(name, ())) for name in ("needs", "suites")}
    return Template(role=role.replace("-", " "), **given)


def files(names: Names) -> dict[str, str]:
    """{path in the new folder: text} of everything but the manifest."""
    role = HERE / names.template.role.replace(" ", "-")
    found = {path.name: path for folder in (COMMON, role) for path in sorted(folder.glob("*.in"))}
    options = found.pop("options_hook.py.in")
    words = names.words() | _pyproject_words(names) | _hook_words(names)
    made = {
        place_of(name.removesuffix(".in"), names.package): Text(path.read_text("utf-8")).substitute(
            words
        )
        for name, path in found.items()
    }
    if "options.py.in" in found:
        made[place_of("plugin.py", names.package)] += Text(options.read_text("utf-8")).substitute(
            words
        )
    return made | {place_of("py.typed", names.package): ""}


def place_of(name: str, package: str) -> str:
    """Where a file lies in the new folder."""
    if name == "tests.yml":
        return f".github/workflows/{name}"
    if name.startswith("test_"):
        return f"tests/{name}"
    return f"src/{package}/{name}" if name.endswith((".py", "py.typed")) else name


def _hook_words(names: Names) -> dict[str, str]:
    """Of the module that the entry point names, unless the role has one of its own."""
    template, words = names.template, names.words()
    if not template.hook:
        return {}
    module, _, made = Text(template.made).substitute(words).partition(":")
    member = template.hook.startswith(MEMBER_HOOK)
    asked = f'(kind, name) != ("{template.kind}", "{names.entry}")'
    return {
        "hook": template.hook,
        "module": module,
        "imported": re.split(r"\W", made)[0],
        "made": made,
        "other": asked if member else f'name != "{names.entry}"',
        "singular": template.role,
        "data_version": "DATA_VERSION = 1\n" if template.data else "",
    }


def _pyproject_words(names: Names) -> dict[str, str]:
    suites = f"[{','.join(names.template.suites)}]" if names.template.suites else ""
    needs = [within(each) for each in ("distcore-core", *names.template.needs)]
    tests = [within("distcore"), within("distcore-testing", suites), "mypy", "pytest>=8", "ruff"]
    return {"needs": _listed(needs), "tests": _listed(tests)}


def within(requirement: str, extras: str = "") -> str:
    """A distribution of ours with the versions that this one is good for: of 0.x the minor version,
    then the major one. Others as they are."""
    if not requirement.startswith("distcore"):
        return requirement
    major, minor = map(int, metadata.version("distcore-core").split(".")[:2])
    last = f"0.{minor + 1}" if major == 0 else f"{major + 1}"
    return f"{requirement}{extras}>={major}.{minor},<{last}"


def _listed(requirements: list[str]) -> str:
    return "".join(f'    "{each}",\n' for each in requirements)
