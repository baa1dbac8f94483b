"""A schedule of the learning rate from outside: named by `decay`, trained, killed, and resumed
to the same bits."""

import json

import pytest

PLUGIN = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

@hookimpl
def distcore_options_model(kind, name):
    from distcore_halves_schedule import HalvesOptions

    return HalvesOptions

@hookimpl
def distcore_make_member(kind, name, options, context):
    from distcore_halves_schedule import make

    return make(options, **context)
"""

SCHEDULE = '''
from pydantic import BaseModel, ConfigDict, Field

class HalvesOptions(BaseModel):
    """Halves, and from the start again in every round."""
    model_config = ConfigDict(extra="forbid")
    half_life: int = Field(10, ge=1, description="Steps in which the rate halves.")

def make(options, learning_rate, steps, steps_per_round):
    return lambda step: learning_rate * 0.5 ** (step % (3 * steps_per_round) / options.half_life) * (1 - step / steps / 2)
'''


@pytest.fixture
def site(place, distribution, tmp_path):
    distribution(tmp_path / "site", "distcore-halves", PLUGIN, kind="schedules", entry="halves")
    (tmp_path / "site" / "distcore_halves_schedule.py").write_text(SCHEDULE)
    config = (place.folder / place.config).read_text()
    scheduler = "learning_rate_scheduler: {decay: halves, half_life: 7, warmup_fraction: 0.1}"
    trainer = f"trainer: {{epochs: 40, batch_size: 32, early_stop: -1, {scheduler}}}"
    assert "trainer: {epochs: 1, batch_size: 32}" in config
    place.write(place.config, config.replace("trainer: {epochs: 1, batch_size: 32}", trainer))
    return str(tmp_path / "site")


@pytest.mark.system
def test_a_run_that_was_killed_resumes_with_the_same_bits(place, site, brake):
    place.beside(site, *place.words("train", "--experiment_name", "whole"))
    place.train_killed_and_resumed(site, brake)
    assert place.weights("killed") == place.weights("whole")
    config = (place.folder / place.config).read_text()
    place.write(place.config, config.replace("half_life: 7", "half_life: 70"))
    place.beside(site, *place.words("train", "--experiment_name", "other"))
    assert place.weights("killed") != place.weights("other")


def test_it_is_listed_and_its_options_are_in_the_schema(place, site):
    assert "Steps in which the rate halves." in place.beside(site, "schema")
    rows = json.loads(place.beside(site, "plugins", "--json"))
    listed = {row["name"]: row["state"] for row in rows if row["role"] == "schedules"}
    assert listed == dict.fromkeys(("linear", "exponential", "cosine", "halves"), "ok")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "half_life: 7",
            "half_live: 7",
            "half_live: unknown option 'half_live'; did you mean 'half_life'?",
        ),
        ("half_life: 7", "half_life: 0", "half_life: should be greater than or equal to 1"),
        (
            "warmup_fraction: 0.1",
            "warmup_fraction: 2",
            "warmup_fraction: should be less than or equal to 1",
        ),
        (
            "decay: halves, half_life: 7",
            "decay: linear, half_life: 7",
            "unknown option 'half_life'",
        ),
    ],
)
def test_its_options_are_checked_by_line(place, site, right, wrong, message):
    config = (place.folder / place.config).read_text()
    place.write(place.config, config.replace(right, wrong))
    told = place.process("train", PYTHONPATH=site)
    assert told.code == 2
    assert message in told.err
    assert "line 6: trainer.learning_rate_scheduler" in told.err
