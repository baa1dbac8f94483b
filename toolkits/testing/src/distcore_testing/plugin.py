"""What every plugin module must hold, whatever it offers: found, light, its options checked, its
checks well formed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from distcore_core.plugin import API_VERSION, ConfigError
from distcore_core.registry.manager import Plugins

HEAVY = (
    *(
        "torch",
        "numpy",
        "pandas",
        "pyarrow",
        "ray",
        "dask",
        "distributed",
        "modin",
        "horovod",
        "tensorflow",
    ),
    *("pydantic", "lightgbm", "xgboost", "sklearn", "scipy"),
)
"""What a plugin module may not import: it is imported while listing and detecting."""

CHILD = """
import json, sys
from distcore_core.registry.manager import Plugins
module = Plugins().load({kind!r}, {name!r})
found = getattr(module, "distcore_detect", lambda: None)()
packages = sorted({{name.partition(".")[0] for name in sys.modules}})
print("FOUND" + json.dumps([packages, found and vars(found)]))
"""


class PluginSuite:
    """Subclass with `kind` (the entry-point group without `distcore.`) and `name`. role: of a
    feature's options."""

    kind: str
    name: str
    role: str = "input"

    def test_it_is_found_and_states_an_api_that_fits(self) -> None:
        module: Any = Plugins().load(self.kind, self.name)
        assert module.DISTCORE_API[0] == API_VERSION[0]
        assert module.DISTCORE_API <= API_VERSION

    def test_loading_and_detecting_imports_nothing_heavy(self) -> None:
        """Engines wait for the factory; a detection only looks at the environment and at files."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        words = [sys.executable, "-c", CHILD.format(kind=self.kind, name=self.name)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stderr
        modules, detection = json.loads(done.stdout.partition("FOUND")[2])
        assert not set(modules) & set(HEAVY)
        if detection is not None:
            assert detection["backend"] == self.name
            assert detection["reason"]

    def test_an_unknown_option_is_refused_by_its_name(self) -> None:
        """Options come from a model with extra="forbid", or there are none."""
        with pytest.raises(ConfigError, match="no_such_option_anywhere"):
            Plugins().validate(
                self.kind, self.name, {"no_such_option_anywhere": 1}, role=self._role()
            )

    def test_its_options_have_a_json_schema(self) -> None:
        """`distcore schema` and the config reference are made of it."""
        model: Any = Plugins().options_model(self.kind, self.name, self._role())
        if model is not None:
            schema = json.loads(json.dumps(model.model_json_schema()))
            assert schema.get("additionalProperties") is False

    def test_its_checks_are_well_formed(self) -> None:
        module: Any = Plugins().load(self.kind, self.name)
        for what, well, found in getattr(module, "distcore_diagnose", list)() or []:
            assert isinstance(what, str)
            assert isinstance(well, bool)
            assert isinstance(found, str)

    def _role(self) -> str:
        return self.role if self.kind == "features" else ""
