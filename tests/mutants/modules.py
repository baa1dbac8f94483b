"""Plugin modules with a fault each: of extensions."""

from __future__ import annotations

from tests.mutants.harness import Mutants

from distcore_testing import PluginSuite

MODULES = "tests.mutants.plugin_modules"
MUTANTS = Mutants("extensions", PluginSuite, {"kind": "extensions"})

MUTANTS.module(f"{MODULES}.sound_module")
MUTANTS.module(
    f"{MODULES}.loose_module",
    "Its options model takes whatever it is given.",
    "test_an_unknown_option_is_refused_by_its_name",
    quick=True,
)
MUTANTS.module(
    f"{MODULES}.heavy_module",
    "It imports numpy before anything is made.",
    "test_loading_and_detecting_imports_nothing_heavy",
)
MUTANTS.module(
    f"{MODULES}.stale_module",
    "It was written for another major version of the API.",
    "test_it_is_found_and_states_an_api_that_fits",
)
