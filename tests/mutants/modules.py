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
MUTANTS.module(
    f"{MODULES}.shallow_module",
    "A section of its options takes unknown names.",
    "test_unknown_options_are_refused_however_deep_they_lie",
)
MUTANTS.module(
    f"{MODULES}.acting_module",
    "It sets a variable of the environment while it is imported.",
    "test_loading_only_defines",
)
MUTANTS.module(
    f"{MODULES}.writing_module",
    "It makes a folder of its own while it is imported.",
    "test_loading_only_defines",
)
MUTANTS.module(
    f"{MODULES}.asking_module",
    "It runs a program to learn its version while it is imported.",
    "test_loading_and_detecting_imports_nothing_heavy",
)
MUTANTS.module(
    f"{MODULES}.slow_module",
    "It waits for seconds while it is imported.",
    "test_loading_takes_no_longer_than_core_itself",
)
MUTANTS.module(
    f"{MODULES}.failing_module",
    "Its factory raises an error of Python's.",
    "test_its_factory_makes_all_that_its_role_asks_for",
)
MUTANTS.module(
    f"{MODULES}.forgetful_module",
    "Its factory forgets to give what it has made.",
    "test_its_factory_makes_all_that_its_role_asks_for",
)
MUTANTS.module(
    f"{MODULES}.seeding_module",
    "It sets the seed of numpy's random numbers, which are everybody's.",
    "test_its_factory_makes_all_that_its_role_asks_for",
)
MUTANTS.module(
    f"{MODULES}.unstated_module",
    "Its data version is a number with a fraction.",
    "test_its_data_version_is_one",
)
