"""The static manifest of a distribution, made of its code, and the suite that compares both.

python -m distcore_testing.manifest distcore-lines      # writes src/distcore_lines/distcore.json
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from distcore_core.contracts import SECTION, UPGRADE
from distcore_core.registry.lock import GROUPS
from distcore_core.registry.manager import Plugins
from distcore_core.registry.manifest import NAME

JSON = dict[str, Any]


class ManifestSuite:
    """Subclass with `distribution`: what its `distcore.json` says is what its code says."""

    distribution: str

    def test_the_manifest_is_what_the_code_says(self) -> None:
        """Else `distcore plugins` and `distcore schema` tell of another plugin than the one that
        runs."""
        path = place_of(self.distribution)
        assert path.is_file(), f"{path} is missing; write it: {_command(self.distribution)}"
        now, then = manifest_of(self.distribution), json.loads(path.read_text("utf-8"))
        then.pop("quality", None)  # what the suites themselves say (`distcore_testing.quality`)
        assert then == now, f"{path} is not what the code says; {_command(self.distribution)}"

    def test_the_manifest_is_installed(self) -> None:
        """It lies in the wheel: as package data, beside py.typed."""
        path = place_of(self.distribution)
        listed = metadata.distribution(self.distribution).files or ()
        editable = any("__editable__" in str(each) or str(each).endswith(".pth") for each in listed)
        assert editable or any(str(each).endswith(f"{path.parent.name}/{NAME}") for each in listed)


def manifest_of(distribution: str) -> JSON:
    """The manifest of an installed distribution, by importing it.

    Raises:
        PluginError: One of its plugins cannot be loaded.
        ValueError: Its plugins state several API versions.
    """
    plugins, versions = Plugins(), set()
    offers: JSON = {}
    for entry in metadata.distribution(distribution).entry_points:
        if entry.group.startswith(GROUPS):
            kind = entry.group.removeprefix(GROUPS)
            module = plugins.load(kind, entry.name)
            versions.add(tuple(module.DISTCORE_API))
            stated = getattr(module, "DATA_VERSION", None)
            encoder = plugins.encoder(kind, entry.name)
            offers.setdefault(kind, {})[entry.name] = {
                "data_version": None if stated is None else encoder.data,
                "options": _options(plugins, kind, entry.name),
            }
    if len(versions) != 1:
        raise ValueError(
            f"{distribution} states {sorted(versions)} as DISTCORE_API; one is needed."
        )
    return {"api": list(versions.pop()), "offers": offers}


def _options(plugins: Plugins, kind: str, name: str) -> JSON:
    if kind in (SECTION.kind, UPGRADE.kind):
        return {"": None}
    found: JSON = {}
    for role in ("input", "output") if kind == "features" else ("",):
        model: Any = plugins.options_model(kind, name, role)
        if model is None:
            found[role] = None
        elif model.model_fields or _takes_nothing(model):
            found[role] = model.model_json_schema()
    return found


def _takes_nothing(model: Any) -> bool:
    """A model without options that accepts none; one that refuses even that says that the plugin
    does not play the role."""
    try:
        model.model_validate({})
    except ValueError:
        return False
    return True


def place_of(distribution: str) -> Path:
    """Where the manifest of an installed distribution belongs: in the package of its first entry
    point."""
    entries = metadata.distribution(distribution).entry_points
    modules = [each.module for each in entries if each.group.startswith(GROUPS)]
    spec = importlib.util.find_spec(modules[0].partition(".")[0])
    assert spec is not None
    assert spec.submodule_search_locations, f"{spec.name} is no package; a manifest lies in one"
    return Path(next(iter(spec.submodule_search_locations)), NAME)


def _command(distribution: str) -> str:
    return f"python -m distcore_testing.manifest {distribution}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        target = place_of(each)
        target.write_text(json.dumps(manifest_of(each), indent=2) + "\n", "utf-8")
        print(f"Wrote {target}")
