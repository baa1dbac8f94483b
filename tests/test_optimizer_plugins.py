"""An optimizer from outside: trained, stopped, and resumed to the same bits."""

import os
import subprocess
import sys
import time

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
    trainer = "trainer: {epochs: 40, batch_size: 32, early_stop: -1, optimizer: {type: signs, memory: 0.8}}"
    place.write(place.config, config.replace("trainer: {epochs: 1, batch_size: 32}", trainer))
    return str(tmp_path / "site")


def weights(folder):
    return (folder / "model" / "weights.safetensors").read_bytes()


def test_a_run_that_was_stopped_resumes_with_the_same_bits(place, site):
    whole = place.process("train", "--experiment_name", "whole", PYTHONPATH=site)
    assert whole.code == 0, whole.err
    stopped = place.start("train", "--experiment_name", "stopped", PYTHONPATH=site)
    folder, deadline = place.folder / "results" / "stopped_run", time.monotonic() + 300
    while len(list(folder.glob("checkpoints/step-*/manifest.json"))) < 2 and time.monotonic() < deadline:
        assert stopped.poll() is None, stopped.communicate()
        time.sleep(0.02)
    stopped.kill()
    place.finish(stopped)
    assert not (folder / "model").exists()
    resumed = place.process("train", "--model_resume_path", folder, PYTHONPATH=site)
    assert resumed.code == 0, resumed.err
    assert weights(folder) == weights(place.folder / "results" / "whole_run")


def test_its_options_are_checked_by_line(place, site):
    config = (place.folder / place.config).read_text()
    place.write(place.config, config.replace("memory: 0.8", "memery: 0.8"))
    said = place.process("train", PYTHONPATH=site)
    assert said.code == 2
    assert "line 6: trainer.optimizer.memery: unknown option 'memery'; did you mean 'memory'?" in said.err
    schema = subprocess.run(
        [sys.executable, "-m", "distcore", "schema"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": site},
        timeout=300,
    )
    assert "Share of the average that stays." in schema.stdout
