"""Every conformance suite notices the faults of tests/mutants, and passes their sound twins.

A few for each role in the ordinary run; `make mutants` tries all, and each twin with its whole
suite.
"""

from __future__ import annotations

import pytest
from tests.mutants import harness

import distcore_testing

pytestmark = pytest.mark.system

EVERY = [(role, each) for role in harness.ROLES for each in harness.mutants(role).all]
FAULTY = [
    pytest.param(role, each, id=f"{role}-{each.name}", marks=() if each.quick else pytest.mark.slow)
    for role, each in EVERY
    if each.fault
]
SOUND = [
    pytest.param(role, each, id=f"{role}-{each.name}", marks=pytest.mark.slow)
    for role, each in EVERY
    if not each.fault
]


@pytest.fixture(scope="session")
def outcomes(request, tmp_path_factory):
    """What became of the tests of all mutants and twins of this session, in one child process."""
    tests = []
    for item in request.session.items:
        if item.nodeid.partition("::")[0].endswith("test_mutants.py") and "outcomes" in (
            item.fixturenames
        ):
            role, mutant = item.callspec.params["role"], item.callspec.params["mutant"]
            if mutant.fault:
                tests += harness.wanted(role, mutant)
            else:
                tests.append(harness.whole(role, mutant))
    return harness.run(tmp_path_factory.mktemp("mutants"), tests)


@pytest.mark.parametrize(("role", "mutant"), FAULTY)
def test_the_suite_catches(outcomes, role, mutant):
    """The mutant fails that very test, and its sound twin passes it."""
    caught, passed = harness.wanted(role, mutant)
    assert outcomes[caught] not in ("", "skipped"), f"not caught: {mutant.fault}"
    assert outcomes[passed] == "", outcomes[passed]


@pytest.mark.parametrize(("role", "mutant"), SOUND)
def test_the_sound_twin_passes_the_whole_suite(outcomes, role, mutant):
    prefix = f"{harness.whole(role, mutant)}::"
    found = {test: outcome for test, outcome in outcomes.items() if test.startswith(prefix)}
    failed = {test: outcome for test, outcome in found.items() if outcome not in ("", "skipped")}
    assert len(found) > 1
    assert not failed


def test_every_suite_has_a_mutant_that_the_ordinary_run_tries():
    tried = {each.suite.__name__ for _, each in EVERY if each.quick}
    # A manifest lies beside a module; test_manifest.py has faulty ones.
    assert tried == set(distcore_testing.__all__) - {"ManifestSuite"}
