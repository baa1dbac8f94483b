"""An optimizer from outside: trained, stopped, and resumed to the same bits."""

import json

import pytest

PLUGIN = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

@hookimpl
def distcore_options_model(kind, name):
    from distcore_signs_optimizer import SignsOptions

    return SignsOptions

@hookimpl
def distcore_make_member(kind, name, options, context):
    from distcore_signs_optimizer import make

    return make(options, **context)
"""

OPTIMIZER = '''
from pydantic import BaseModel, ConfigDict, Field

class SignsOptions(BaseModel):
    """Steps by the sign of an average of gradients."""
    model_config = ConfigDict(extra="forbid")
    memory: float = Field(0.9, ge=0, lt=1, description="Share of the average that stays.")

def make(options, parameters, learning_rate):
    import torch

    class Signs(torch.optim.Optimizer):
        def __init__(self):
            super().__init__(parameters, {"lr": learning_rate})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for each in group["params"]:
                    if each.grad is not None:
                        average = self.state[each].setdefault("average", torch.zeros_like(each))
                        average.mul_(options.memory).add_(each.grad, alpha=1 - options.memory)
                        each.sub_(average.sign(), alpha=group["lr"])

    return Signs()
'''


@pytest.fixture
def site(place, distribution, tmp_path):
    distribution(tmp_path / "site", "distcore-signs", PLUGIN, kind="optimizers", entry="signs")
    (tmp_path / "site" / "distcore_signs_optimizer.py").write_text(OPTIMIZER)
    config = (place.folder / place.config).read_text()
    trainer = (
        "trainer: {epochs: 40, batch_size: 32, early_stop: -1, optimizer: {type: signs, memory: "
        "0.8}}"
    )
    place.write(place.config, config.replace("trainer: {epochs: 1, batch_size: 32}", trainer))
    return str(tmp_path / "site")


@pytest.mark.system
def test_a_run_that_was_killed_resumes_with_the_same_bits(place, site, brake):
    place.beside(site, *place.words("train", "--experiment_name", "whole"))
    place.train_killed_and_resumed(site, brake)
    assert place.weights("killed") == place.weights("whole")


def test_its_options_are_checked_by_line(place, site):
    config = (place.folder / place.config).read_text()
    place.write(place.config, config.replace("memory: 0.8", "memery: 0.8"))
    said = place.process("train", PYTHONPATH=site)
    assert said.code == 2
    assert (
        "line 6: trainer.optimizer.memery: unknown option 'memery'; did you mean 'memory'?"
        in said.err
    )
    assert "Share of the average that stays." in place.beside(site, "schema")


@pytest.mark.system
def test_what_the_config_blocks_offers_none(place, site, distribution, tmp_path):
    distribution(
        tmp_path / "site", "odd-signs", "raise RuntimeError", kind="optimizers", entry="signs"
    )
    config = (place.folder / place.config).read_text().replace("epochs: 40", "epochs: 1")
    place.write(place.config, config)
    assert "Two distributions offer optimizer 'signs'" in place.beside(
        site, *place.words("train"), code=1
    )
    place.write(place.config, config + "plugins: {block: [odd-signs]}\n")
    place.beside(site, *place.words("train"))
    described = json.loads((place.results / "description.json").read_text())["plugins"]
    offers = [each["distribution"] for each in described if each["kind"] == "optimizers"]
    assert offers == ["distcore-signs"]
