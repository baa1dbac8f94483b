"""The loop: exact resume after any death, the gradient of the global batch, early stopping,
interrupts, plans."""

import itertools
import json
import logging
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from distcore_core.contracts import Rank
from distcore_core.errors import (
    CheckpointError,
    ConfigError,
    DifferentRun,
    StoreError,
    TrainingError,
    UserError,
)
from distcore_core.progress import Progress
from distcore_data.base_options import Options
from distcore_data.stores.run_sync import Mirror
from distcore_testing.loops import (
    TinyFeature,
    TinyFeatures,
    TinyNet,
    TinyRun,
    tiny_batch,
    tiny_loop,
    train_tiny,
)
from distcore_torch.train_options import TrainerOptions
from distcore_torch.training import checkpoint
from distcore_torch.training.determinism import weights_digest
from distcore_torch.training.gradients import slices
from distcore_torch.training.monitor import Monitor
from distcore_torch.training.plan import TrainPlan, ludwigs_otherwise
from distcore_torch.training.random_numbers import random_key
from distcore_torch.training.rank_process import last_checkpoint
from distcore_torch.training.round import round_of
from distcore_torch.training.state import TrainState
from distcore_torch.training.step import Stepper
from distcore_torch.training.strategy import SingleProcess

OPTIONS = {
    "epochs": 4,
    "learning_rate_scheduler": {"decay": "cosine", "warmup_fraction": 0.1, "reduce_on_plateau": 2,
                                "reduce_on_plateau_patience": 0},
    "steps_per_checkpoint": 7,
    "early_stop": 6,
    "regularization_lambda": 0.001,
}  # fmt: skip


def in_process(run):
    return train_tiny(Rank(), run)


def in_a_process_of_its_own(run):
    """Train in a child; returns what ended it: a signal as a negative number, or 0."""
    torch.set_num_threads(1)  # a forked child has no other threads of OpenMP's
    child = os.fork()
    if not child:
        try:
            in_process(run)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def same(one, two):
    for part in ("digest", "best", "state"):
        assert json.loads(json.dumps(one[part])) == json.loads(json.dumps(two[part]))


# ------------------------------------------------------------------ exact resume


@pytest.mark.parametrize(
    "step", [1, 12, 20, 30], ids=["before any checkpoint", "mid-epoch", "epoch's end", "late"]
)
def test_a_killed_run_that_is_resumed_ends_with_the_same_bits(tmp_path, step):
    whole = in_process(TinyRun(OPTIONS))
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path), kill={0: step})
    assert in_a_process_of_its_own(run) == -signal.SIGKILL
    saved = checkpoint.list_checkpoints(tmp_path)
    assert bool(saved) == (step > 7)
    same(in_process(run), whole)


@pytest.mark.parametrize(
    "optimizer",
    [
        {"type": "sgd", "momentum": 0.9},
        "adamw",
        "rmsprop",
        "adagrad",
        {"type": "lbfgs", "max_iter": 3},
    ],
)
def test_every_optimizer_resumes_exactly(tmp_path, optimizer):
    options = {**OPTIONS, "epochs": 2, "optimizer": optimizer}
    whole = in_process(TinyRun(options, norm=True))
    interrupted = TinyRun(
        options, norm=True, checkpoints=str(tmp_path), kill={0: 12}, signal=int(signal.SIGINT)
    )
    with pytest.raises(KeyboardInterrupt):
        in_process(interrupted)
    assert checkpoint.load_newest(tmp_path).step == 13
    same(in_process(interrupted), whole)


def test_a_plateau_goes_on_where_it_was(tmp_path):
    """With its best value, its rounds without a better one and its reductions."""
    scheduler = {"reduce_on_plateau": 3, "reduce_on_plateau_patience": 1}
    options = {"epochs": 12, "learning_rate": 1.0, "early_stop": -1}
    options["learning_rate_scheduler"] = {**scheduler, "reduce_on_plateau_rate": 0.5}
    run = TinyRun(options, checkpoints=str(tmp_path), kill={0: 84}, signal=int(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        in_process(run)
    assert checkpoint.load_newest(tmp_path).state["plateau"]["reductions"] > 0
    same(in_process(run), in_process(TinyRun(options)))


def test_the_best_round_may_be_the_one_that_is_resumed_from(tmp_path):
    """Its weights are then in the checkpoint once, as those to go on with."""
    options = {"epochs": 12, "learning_rate": 1.0}
    whole = in_process(TinyRun(options))
    best = whole["state"]["best"]["step"]
    assert best < 120
    in_a_process_of_its_own(TinyRun(options, checkpoints=str(tmp_path), kill={0: best + 2}))
    assert checkpoint.load_newest(tmp_path).state["best_is_last"]
    same(in_process(TinyRun(options, checkpoints=str(tmp_path))), whole)


def test_ctrl_c_right_before_a_round_leaves_the_round_to_the_resumed_run(tmp_path):
    whole = in_process(TinyRun(OPTIONS))
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path), kill={0: 13}, signal=int(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        in_process(run)
    assert checkpoint.load_newest(tmp_path).step == 14
    same(in_process(run), whole)


def test_ctrl_c_says_how_to_go_on(tmp_path, caplog):
    run = TinyRun(
        OPTIONS,
        checkpoints=str(tmp_path / "run" / "checkpoints"),
        kill={0: 9},
        signal=int(signal.SIGINT),
    )
    with caplog.at_level(logging.WARNING, "distcore"), pytest.raises(KeyboardInterrupt):
        in_process(run)
    assert (
        f"Stopped after step 10. Go on from there with --model_resume_path {tmp_path / 'run'}"
        in caplog.text
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_asks_to_stop_may_give_the_reason(tmp_path, caplog):
    """If it goes on by itself, nobody is told how to; the checkpoint is of the step that was
    under way."""
    whole = in_process(TinyRun(OPTIONS))
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path))
    loop = tiny_loop(run, SingleProcess())[0]
    loop.progress.stop = "More rows have come."
    with caplog.at_level(logging.INFO, "distcore"), pytest.raises(KeyboardInterrupt):
        loop.run()
    assert "Stopped after step 1. More rows have come." in caplog.text
    assert "--model_resume_path" not in caplog.text
    same(in_process(run), whole)


def test_a_damaged_newest_checkpoint_costs_steps_but_no_bits(tmp_path, caplog):
    whole = in_process(TinyRun(OPTIONS))
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path), kill={0: 30})
    in_a_process_of_its_own(run)
    newest = checkpoint.list_checkpoints(tmp_path)[0]
    (newest / "tensors.safetensors").write_bytes(b"not a checkpoint")
    same(in_process(run), whole)
    assert str(newest) in caplog.text


def test_no_whole_checkpoint_is_an_error_never_a_fresh_start(tmp_path):
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path), kill={0: 30})
    in_a_process_of_its_own(run)
    for path in checkpoint.list_checkpoints(tmp_path):
        (path / "state.json").unlink()
    with pytest.raises(CheckpointError, match="None of the 2"):
        in_process(run)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    in_process(TinyRun({"epochs": 1}, checkpoints=str(tmp_path)))
    with pytest.raises(CheckpointError, match="a step had 16 rows over all workers and has 8"):
        in_process(TinyRun({"epochs": 1, "batch_size": 8}, checkpoints=str(tmp_path)))


def test_a_finished_run_is_not_trained_again(tmp_path):
    run = TinyRun({"epochs": 2}, checkpoints=str(tmp_path))
    first, second = in_process(run), in_process(run)
    same(first, second)
    assert second["seen"] == []


def test_the_users_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    in_process(TinyRun({"epochs": 1}))
    assert torch.equal(torch.rand(3), expected)


# ------------------------------------------------------------------ one step


def stepper(net, options=None, micro_rows=1000, strategy=None):
    made = TrainerOptions.model_validate(
        {"optimizer": "sgd", "gradient_clipping": None, **(options or {})}
    )
    strategy = strategy or SingleProcess()
    return Stepper(
        net, TinyFeatures(), made, strategy, learning_rate=1.0, micro_rows=micro_rows, seed=0
    )


def net(**options):
    torch.manual_seed(0)
    return TinyNet(**{"dropout": 0.0, **options})


def mean_loss(module, batch):
    logits = module(batch)
    return sum(
        each.loss_weight * each.loss(logits[each.name], batch[each.name], {}).mean()
        for each in TinyFeatures().outputs
    )


def mean_gradient(module, batch):
    mean_loss(module, batch).backward()
    return {name: each.grad for name, each in module.named_parameters()}


@pytest.fixture
def weighted(monkeypatch):
    """The output z counts six times as much as y."""
    weight = property(lambda feature: 3.0 if feature.name == "z" else 0.5)
    monkeypatch.setattr(TinyFeature, "loss_weight", weight)


@pytest.mark.parametrize("micro_rows", [1000, 7, 1])
def test_a_step_follows_the_gradient_of_the_mean_however_it_is_accumulated(micro_rows, weighted):
    batch, ours, reference = tiny_batch(30), net(), net()
    stepper(ours, micro_rows=micro_rows).step(batch, 30, 0, False)
    for name, gradient in mean_gradient(reference, batch).items():
        before, after = (
            dict(reference.named_parameters())[name],
            dict(ours.named_parameters())[name],
        )
        assert torch.allclose(before - after, gradient, atol=1e-6)


def test_a_line_search_sees_the_loss_and_its_penalty_at_each_weights(weighted):
    batch, ours, reference = tiny_batch(30), net(), net()
    options = {"type": "lbfgs", "max_iter": 12, "line_search_fn": "strong_wolfe"}
    made = stepper(
        ours, {"optimizer": options, "regularization_lambda": 1.0, "regularization_type": "l2"}
    )
    theirs = torch.optim.LBFGS(reference.parameters(), **made.optimizer.defaults)
    seen = []
    made.before_update = lambda: seen.append(weights_digest(ours) == weights_digest(reference))

    def closure():
        theirs.zero_grad()
        loss = mean_loss(reference, batch)
        loss += sum(each.square().sum() for each in reference.parameters())
        loss.backward()
        return loss

    logits = reference(batch)
    first = [each.loss(logits[each.name], batch[each.name], {}) for each in TinyFeatures().outputs]
    assert made.step(batch, 30, 0, True)
    theirs.step(closure)
    assert seen == [True]
    for one, other in zip(ours.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert made.sums[0].tolist() == pytest.approx([each.sum().item() for each in first])
    assert not made.step(batch, 30, 1, False)


def test_a_gradient_is_clipped_with_its_penalty():
    """As in Ludwig: no update is larger than the limit."""
    batch, ours = tiny_batch(30), net()
    options = {"regularization_lambda": 1.0, "gradient_clipping": {"clipglobalnorm": 0.5}}
    stepper(ours, options).step(batch, 30, 0, False)
    moved = [
        one - other.detach()
        for one, other in zip(net().parameters(), ours.parameters(), strict=True)
    ]
    assert torch.cat([each.flatten() for each in moved]).norm().item() == pytest.approx(0.5)


def test_a_rank_with_few_or_no_rows_weighs_by_its_rows():
    """Two ranks by hand: their updates add up to that of the whole batch."""
    whole, batch = net(), tiny_batch(30)
    gradient = mean_gradient(whole, batch)
    parts = list(slices(batch, 23))
    moved = []
    for part in (*parts, next(slices(batch, 30)).__class__(batch.packed[:0], batch.layout)):
        ours = net()
        stepper(ours).step(part, 30, 0, False)
        moved.append(
            {
                name: dict(net().named_parameters())[name] - each
                for name, each in ours.named_parameters()
            }
        )
    for name, each in gradient.items():
        assert torch.allclose(sum(part[name] for part in moved), each, atol=1e-6)


def test_random_numbers_depend_on_seed_step_and_lane_alone():
    keys = {
        random_key(seed, step, lane) for seed in range(8) for step in range(64) for lane in range(8)
    }
    assert len(keys) == 8 * 64 * 8
    assert random_key(1, 2, 3) == random_key(1, 2, 3) < 2**32
    assert random_key(-1, 0, 0) != random_key(1, 0, 0)


def test_mixed_precision_trains_close_to_full_precision():
    full = in_process(TinyRun({"epochs": 2}, dropout=0))["state"]["statistics"]
    mixed = in_process(TinyRun({"epochs": 2, "use_mixed_precision": True}, dropout=0))["state"][
        "statistics"
    ]
    a, b = (each["validation"]["combined"]["loss"][-1] for each in (full, mixed))
    assert a != b
    assert a == pytest.approx(b, rel=0.02)


def test_slices_cut_ragged_columns_too():
    from distcore_torch.batch import Batch, Layout, Ragged

    ragged = Ragged(torch.arange(10, dtype=torch.int32), torch.tensor([0, 3, 3, 7, 10]))
    batch = Batch(torch.zeros(4, 0, dtype=torch.int32), Layout({}, ("w",)), {"w": ragged})
    found = [(each["w"].values.tolist(), each["w"].offsets.tolist()) for each in slices(batch, 3)]
    assert found == [([0, 1, 2, 3, 4, 5, 6], [0, 3, 3, 7]), ([7, 8, 9], [0, 3])]


# ------------------------------------------------------------------ rounds


def test_statistics_best_and_events_of_a_run(weighted):
    found = in_process(TinyRun({"epochs": 3, "checkpoints_per_epoch": 2}))
    state, statistics = found["state"], found["state"]["statistics"]
    assert state["step"] == 30  # 150 rows, 16 a batch
    assert len(statistics["validation"]["y"]["mean_absolute_error"]) == 6
    assert (
        statistics["training"]["combined"]["loss"][-1]
        < statistics["training"]["combined"]["loss"][0]
    )
    losses = statistics["validation"]["y"]["loss"]
    assert state["best"]["value"] == min(losses)
    assert state["best"]["feature"] == "y"
    assert [each[2] for each in found["events"]] == [5, 10, 15, 20, 25, 30]
    for found in (statistics["training"], statistics["validation"]):
        both = zip(*(found[name]["loss"] for name in ("y", "z")), strict=True)
        assert found["combined"]["loss"] == pytest.approx([0.5 * y + 3 * z for y, z in both])


def test_the_best_rounds_weights_are_kept_and_early_stop_stops():
    # A learning rate this high makes the loss worse from some round on.
    found = in_process(
        TinyRun({"epochs": 50, "learning_rate": 1.0, "early_stop": 3, "optimizer": "adam"})
    )
    losses = found["state"]["statistics"]["validation"]["y"]["loss"]
    best = losses.index(min(losses))
    assert len(losses) == best + 1 + 3 < 50
    assert found["state"]["best"]["step"] == 10 * (best + 1)


@pytest.mark.parametrize("patience", [-1, 0])
def test_early_stop_is_off(patience):
    found = in_process(TinyRun({"epochs": 12, "learning_rate": 1.0, "early_stop": patience}))
    assert found["state"]["step"] == 120


def test_more_of_a_metric_can_be_better():
    options = {"epochs": 4, "validation_field": "z", "validation_metric": "accuracy"}
    state = in_process(TinyRun(options))["state"]
    assert state["best"]["value"] == max(state["statistics"]["validation"]["z"]["accuracy"])


@pytest.mark.parametrize("evaluated", [False, True])
def test_without_validation_rows_every_epoch_is_trained_and_the_last_weights_kept(evaluated):
    """The noise of the training loss stopped the run, and picked the weights."""
    options = {"epochs": 12, "learning_rate": 1.0, "optimizer": "adam", "early_stop": 1}
    options["evaluate_training_set"] = evaluated
    loop = tiny_loop(TinyRun(options, validation_rows=0), SingleProcess())[0]
    finished = loop.run()
    losses = finished.state.statistics["training"]["combined"]["loss"]
    assert finished.state.step == 120
    assert losses != sorted(losses, reverse=True)
    assert finished.best_weights is finished.last_weights
    best = finished.state.best
    assert (best["step"], best["metric"]) == (120, "loss")
    assert "validation" not in finished.state.statistics
    for told in loop.progress.rounds:
        assert (told.best, told.best_evaluation, told.patience_left) == (None, None, None)


@pytest.mark.parametrize("killed", [15, 19])
def test_a_run_without_validation_rows_that_was_judged_before_goes_on(
    killed, tmp_path, monkeypatch
):
    """As an older version began it: with a best round by the training loss, and patience."""
    options = {"epochs": 6, "learning_rate": 1.0, "optimizer": "adam", "early_stop": 2}
    whole = in_process(TinyRun(options, validation_rows=0))
    run = TinyRun(options, validation_rows=0, checkpoints=str(tmp_path), kill={0: killed})
    loop = tiny_loop(replace(run, signal=int(signal.SIGINT)), SingleProcess())[0]
    save = loop.save

    def as_before(**how):
        loop.state.best["step"], loop.state.rounds_without_improvement = 3, 1
        loop.best_weights = {name: each + 1 for name, each in loop._weights().items()}
        save(**how)

    loop.save = as_before
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert checkpoint.load_newest(tmp_path).state["train"]["rounds_without_improvement"] == 1
    same(in_process(run), whole)


def test_without_validation_rows_the_goal_is_one_of_the_training_set():
    options = {"epochs": 1, "validation_field": "z"}
    best = in_process(TinyRun(options, validation_rows=0))["state"]["best"]
    assert (best["feature"], best["metric"]) == ("z", "loss")
    options |= {"evaluate_training_set": True, "validation_metric": "accuracy"}
    best = in_process(TinyRun(options, validation_rows=0))["state"]["best"]
    assert (best["feature"], best["metric"]) == ("z", "accuracy")


@pytest.mark.parametrize(("metric", "direction"), [("loss", "min"), ("accuracy", "max")])
def test_a_plateau_is_where_the_metric_that_is_watched_gets_no_better(metric, direction):
    scheduler = {"reduce_on_plateau": 1, "reduce_eval_metric": metric}
    scheduler["reduce_eval_split"] = "validation"
    run = TinyRun({"learning_rate_scheduler": scheduler, "validation_field": "z"})
    assert tiny_loop(run, SingleProcess())[0].plateau.direction == direction


def test_the_training_set_can_be_evaluated_in_a_pass_of_its_own():
    statistics = in_process(TinyRun({"epochs": 2, "evaluate_training_set": True}))["state"][
        "statistics"
    ]
    assert len(statistics["training"]["z"]["accuracy"]) == 2


def test_a_plateau_lowers_a_rate_that_is_constant_otherwise():
    scheduler = {"reduce_on_plateau": 2, "reduce_on_plateau_patience": 0}
    loop = tiny_loop(
        TinyRun(
            {
                "epochs": 12,
                "learning_rate": 1.0,
                "learning_rate_scheduler": {**scheduler, "reduce_on_plateau_rate": 0.5},
            }
        ),
        SingleProcess(),
    )[0]
    loop.run()
    assert loop.schedule.constant
    assert loop.plateau.reductions == 2
    assert loop.stepper.optimizer.param_groups[0]["lr"] == 0.25


def test_a_module_that_comes_in_evaluation_mode_is_trained_as_any():
    loop = tiny_loop(TinyRun({"epochs": 1}), SingleProcess())[0]
    loop.work.module.eval()
    loop.run()
    assert weights_digest(loop.work.module) == in_process(TinyRun({"epochs": 1}))["digest"]


class LookedAt(Progress):
    """(first, done) after each change: another thread may look between any two."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in ("first", "done"):
            self.__dict__.setdefault("seen", []).append((getattr(self, "first", 0), self.done))


def test_progress_counts_the_steps_and_those_before_this_process(tmp_path):
    run = TinyRun({"epochs": 2}, checkpoints=str(tmp_path), kill={0: 12}, signal=signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        in_process(run)
    loop = tiny_loop(run, SingleProcess())[0]
    progress = loop.progress = LookedAt()
    loop.resume(tmp_path)
    loop.run()
    assert all(first == 13 for first, done in progress.seen if done)
    assert (progress.first, progress.done, progress.total) == (13, 20, 20)
    assert progress.rows_per_unit == 15  # 150 rows in 10 steps


@pytest.mark.parametrize("scheduler", [{}, {"decay": "exponential", "warmup_fraction": 0.3}])
def test_a_run_keeps_the_learning_rate_that_it_was_begun_with(scheduler, tmp_path):
    """With twice as many workers it had twice the rate from then on."""

    def run(rate, **more):
        options = {"epochs": 3, "learning_rate": rate, "learning_rate_scheduler": scheduler}
        return TinyRun(options, checkpoints=str(tmp_path), **more)

    for rate, step in ((0.01, 12), (0.02, 15)):
        loop, loader, _ = tiny_loop(run(rate), SingleProcess())
        if step > 12:
            loop.resume(tmp_path)
        loader.actions[step] = lambda: signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            loop.run()
    loop = tiny_loop(run(0.04), SingleProcess())[0]
    loop.resume(tmp_path)
    loop.run()
    whole = in_process(TinyRun(run(0.01).options))
    assert weights_digest(loop.work.module) == whole["digest"]


def test_train_steps_override_epochs():
    state = in_process(TinyRun({"epochs": 100, "train_steps": 13}))["state"]
    assert (state["step"], state["epoch"], state["step_in_epoch"]) == (13, 1, 3)
    assert len(state["statistics"]["validation"]["y"]["loss"]) == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"validation_field": "nobody"},
            "'nobody' is no output feature; there are y, z and combined",
        ),
        (
            {"validation_field": "y", "validation_metric": "accuracy"},
            "'y' has no metric 'accuracy'",
        ),
        ({"validation_metric": "bleu"}, "no output feature has a metric 'bleu'"),
        (
            {"learning_rate_scheduler": {"reduce_on_plateau": 1, "reduce_eval_split": "test"}},
            "the test split",
        ),
    ],
)
def test_a_goal_that_is_not_there_is_a_config_error(options, what):
    with pytest.raises(ConfigError, match=what):
        in_process(TinyRun(options))


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, ("y", "usual")),
        ({"validation_metric": "loss"}, ("combined", "loss")),
        ({"validation_field": "combined"}, ("combined", "loss")),
        ({"validation_field": "z"}, ("z", "usual")),
        ({"validation_metric": "usual"}, ("y", "usual")),
        ({"validation_metric": "usual", "validation_field": "z"}, ("z", "usual")),
        ({"validation_metric": "of z"}, ("z", "of z")),
    ],
)
def test_the_goal_is_chosen_as_in_ludwig(asked, chosen, monkeypatch):
    metrics = {"y": ["usual"], "z": ["usual", "of z"]}
    monkeypatch.setattr(TinyFeature, "metrics", lambda self, _: dict.fromkeys(metrics[self.name]))
    monkeypatch.setattr(TinyFeature, "default_metric", "usual")
    found = Monitor(TinyFeatures(), TrainerOptions.model_validate(asked), validates=True)
    assert (found.split, found.field, found.metric) == ("validation", *chosen)


def test_a_goal_is_checked_where_nothing_is_validated(monkeypatch):
    """What is asked for is a mistake, or told, though nothing decides."""
    monkeypatch.setattr(TinyFeature, "metrics", lambda self, _: {"usual": None})

    def made(**asked):
        return Monitor(TinyFeatures(), TrainerOptions.model_validate(asked), validates=False)

    for asked in ({"validation_metric": "nonsense"}, {"validation_field": "nobody"}):
        with pytest.raises(ConfigError, match=r"nonsense|nobody"):
            made(**asked)
    found = made(validation_metric="usual")
    assert (str(found), found.passed_over) == ("training loss of combined", "usual")
    for asked in ({}, {"validation_field": "y"}, {"validation_metric": "loss"}):
        assert (made(**asked).metric, made(**asked).passed_over) == ("loss", "")
    found = made(validation_metric="usual", evaluate_training_set=True)
    assert (found.metric, found.passed_over) == ("usual", "usual")


@pytest.mark.parametrize("split", ["train", "training", "validation"])
def test_a_plateau_may_be_of_either_split(split):
    scheduler = {"reduce_on_plateau": 1, "reduce_eval_split": split}
    options = TrainerOptions.model_validate({"learning_rate_scheduler": scheduler})
    monitor = Monitor(TinyFeatures(), options, validates=True)
    scores = {"training": {"y": {"loss": 1}}, "validation": {"y": {"loss": 2}}}
    assert monitor.plateau_value(scores) == (2 if split == "validation" else 1)


@pytest.mark.parametrize(
    ("asked", "metric", "watched"),
    [
        ({}, "usual", "y"),
        ({"validation_field": "combined"}, "usual", "y"),
        ({"validation_field": "combined"}, "of z", "z"),
        ({"validation_metric": "loss"}, "of z", "z"),
        ({"validation_field": "combined"}, "loss", "combined"),
        ({"validation_field": "z"}, "usual", "z"),
        ({"validation_field": "y"}, "of z", "z"),
        ({"validation_field": "z"}, "of y", "y"),
        ({"validation_field": "combined"}, "nonsense", None),
        ({"validation_field": "z"}, "nonsense", None),
    ],
)
def test_a_plateau_of_a_metric_is_that_of_an_output(asked, metric, watched, monkeypatch):
    """Each trial of a search for the combined loss, or a metric of z, failed where `train` works:
    the field is what the search is after."""
    metrics = {"y": ["usual", "of y"], "z": ["usual", "of z"]}
    higher = SimpleNamespace(higher_is_better=True)
    monkeypatch.setattr(
        TinyFeature, "metrics", lambda self, _: dict.fromkeys(metrics[self.name], higher)
    )
    scheduler = {"reduce_on_plateau": 1, "reduce_eval_metric": metric}
    scheduler["reduce_eval_split"] = "validation"
    options = TrainerOptions.model_validate({"learning_rate_scheduler": scheduler, **asked})
    if watched is None:
        with pytest.raises(ConfigError, match=f"'y' has no metric '{metric}'; it has loss, of y"):
            Monitor(TinyFeatures(), options, validates=True)
        return
    monitor = Monitor(TinyFeatures(), options, validates=True)
    scores = {name: {metric: at} for at, name in enumerate(("y", "z", "combined"))}
    assert monitor.plateau_value({"validation": scores}) == list(scores).index(watched)
    assert monitor.plateau_direction == ("min" if metric == "loss" else "max")


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(tmp_path):
    loop, loader, _ = tiny_loop(TinyRun({"epochs": 5}, checkpoints=str(tmp_path)), SingleProcess())
    loader.actions[14] = lambda: loop.work.module.last.weight.data.fill_(float("nan"))
    with pytest.raises(
        TrainingError, match=r"loss of y became nan between steps 10 and 20\. .* Lower"
    ):
        loop.run()
    assert checkpoint.load_newest(tmp_path).step == 10


def test_plan_counts_a_short_last_batch():
    options = TrainerOptions(
        epochs=3, batch_size=10, gradient_accumulation_steps=2, learning_rate_scaling="linear"
    )
    plan = TrainPlan.of(options, workers=2, rows=90)
    assert (plan.batch_rows, plan.micro_rows, plan.steps_per_epoch, plan.total_steps) == (
        40,
        10,
        3,
        9,
    )
    assert [plan.rows_of(step) for step in range(4)] == [40, 40, 10, 0]
    assert plan.learning_rate == pytest.approx(0.002)
    assert plan.evaluation_rows == 2 * plan.micro_rows


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({"epochs": 2}, [10, 20]),
        ({"epochs": 1, "checkpoints_per_epoch": 3}, [3, 6, 9, 10]),
        ({"epochs": 1, "checkpoints_per_epoch": 99}, [*range(1, 11)]),
        ({"epochs": 2, "steps_per_checkpoint": 8}, [8, 16, 20]),
        ({"train_steps": 7, "steps_per_checkpoint": 9}, [7]),
    ],
)
def test_rounds_of_a_plan(options, due):
    plan = TrainPlan.of(TrainerOptions(batch_size=10, **options), workers=1, rows=95)
    assert [step for step in range(1, plan.total_steps + 1) if plan.round_due(step)] == due
    assert plan.steps_per_round == due[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps_per_checkpoint": 10}, ""),
        ({"steps_per_checkpoint": 15}, r"15 is more .* an epoch \(10\): .* every 1.5 epochs"),
        ({"steps_per_checkpoint": 2000, "epochs": 900}, "every 200.0 epochs"),
        (
            {"batch_size": 200, "steps_per_checkpoint": 2000, "epochs": 9000},
            r"an epoch \(1\): .* every 2,000.0 epochs",
        ),
        ({"steps_per_checkpoint": 99, "epochs": 1}, ""),
        ({"gradient_accumulation_steps": 2}, ""),
        (
            {"gradient_accumulation_steps": 2, "train_steps": 9, "steps_per_checkpoint": 3},
            "trainer.train_steps and trainer.steps_per_checkpoint count updates .* of 2 batches "
            r"\(gradient_acc",
        ),
        ({"effective_batch_size": 32, "train_steps": 9}, r"batches \(effective_batch_size\)"),
        (
            {
                "gradient_accumulation_steps": 2,
                "learning_rate_scheduler": {"decay": "cosine", "t_0": 5},
            },
            "learning_rate_scheduler.t_0 counts updates",
        ),
    ],
)
def test_where_steps_mean_something_else_in_ludwig_it_is_told(options, said):
    """A checkpoint every 1,000 steps of a short epoch had early_stop wait for 200 epochs."""
    passes = options.get("gradient_accumulation_steps", 1)
    options = TrainerOptions.model_validate({"batch_size": 16 // passes, **options})
    told = " ".join(ludwigs_otherwise(TrainPlan.of(options, workers=1, rows=160), options))
    assert re.search(said, told)
    assert bool(said) == bool(told)


def test_what_plan_notes_no_run_warns_of(caplog):
    """Each resume, trial and replay did, also of train_steps that the search had set."""
    accumulated = {"batch_size": 8, "gradient_accumulation_steps": 2, "train_steps": 9}
    tiny_loop(TinyRun({**accumulated, "steps_per_checkpoint": 15}), SingleProcess())
    assert not caplog.text


@pytest.mark.parametrize(
    ("best", "since", "patience", "told"),
    [
        ({"value": 0.5}, 1, 3, (0.5, 2, 2)),
        ({"value": 0.5}, 2, 1, (0.5, 1, 0)),
        ({"value": 0.5}, 0, 0, (0.5, 3, None)),
        ({}, 3, -1, (None, None, None)),
    ],
)
def test_a_round_tells_where_the_run_stands(best, since, patience, told):
    plan = TrainPlan.of(TrainerOptions(batch_size=10, epochs=4), workers=1, rows=95)
    losses = {"validation": {"y": {"loss": [0.9, 0.5, 0.7]}}, "training": {"y": {"loss": []}}}
    state = TrainState(step=25, best=best, rounds_without_improvement=since, statistics=losses)
    monitor = SimpleNamespace(split="validation", field="y", metric="loss", value=lambda _: 0.7)
    found = round_of(plan, patience, monitor, state, {"validation": {}}, Progress())
    assert (found.evaluation, found.epoch, found.epochs, found.step) == (3, 2.5, 4.0, 25)
    assert (found.split, found.feature, found.metric) == ("validation", "y", "loss")
    assert found.value == 0.7
    assert (found.best, found.best_evaluation, found.patience_left) == told
    monitor.split = "training"
    found = round_of(plan, patience, monitor, state, {"training": {}}, Progress())
    assert (found.best, found.best_evaluation, found.patience_left) == (None, None, None)


def test_batch_sizes_that_workers_cannot_share_are_a_config_error():
    with pytest.raises(ConfigError, match="cannot be shared evenly by 3 workers"):
        TrainPlan.of(TrainerOptions(effective_batch_size=32), workers=3, rows=90)


def test_weights_digest_sees_one_bit():
    first, second = net(norm=True), net(norm=True)
    assert weights_digest(first) == weights_digest(second)
    second.norm.running_mean[0] += 1e-7
    assert weights_digest(first) != weights_digest(second)


def test_nothing_is_written_where_no_checkpoints_are_kept(tmp_path):
    before = set(Path(tmp_path).iterdir())
    in_process(TinyRun({"epochs": 1}))
    assert set(Path(tmp_path).iterdir()) == before


def test_float16_scales_its_loss_and_resumes_exactly(tmp_path):
    options = {**OPTIONS, "epochs": 2, "use_mixed_precision": "fp16"}
    whole = in_process(TinyRun(options))
    run = TinyRun(options, checkpoints=str(tmp_path), kill={0: 12}, signal=int(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        in_process(run)
    same(in_process(run), whole)


def test_around_gradients_are_those_of_the_loss_in_float16_too():
    seen = {}

    def stepped(precision, watched):
        torch.manual_seed(0)
        module, batch = TinyNet(dropout=0.0), tiny_batch(64)

        def around(compute):
            compute()
            seen.setdefault(precision, module.last.weight.grad.clone())

        options = TrainerOptions.model_validate({"use_mixed_precision": precision})
        stepper = Stepper(
            module,
            TinyFeatures(),
            options,
            SingleProcess(),
            learning_rate=0.1,
            micro_rows=64,
            seed=0,
            around=around if watched else None,
        )
        for step in range(3):
            stepper.step(batch, 64, step, False)
        return weights_digest(module)

    stepped(False, watched=True)
    assert stepped("fp16", watched=True) == stepped("fp16", watched=False)
    found, expected = seen["fp16"], seen[False]
    finite = found.isfinite()  # the others overflow in the first step, which is left out
    assert finite.sum() > 8
    assert torch.allclose(found[finite], expected[finite], rtol=0.1, atol=1e-2)


@pytest.mark.parametrize("batches", [0, 2])
def test_a_loader_that_ends_too_early_is_told(batches):
    loop, loader, _ = tiny_loop(TinyRun({"epochs": 1}), SingleProcess())
    whole = loader.batches
    loader.batches = lambda epoch, start=0: itertools.islice(whole(epoch, start), batches)
    with pytest.raises(TrainingError, match=f"The loader ended after {batches} of "):
        loop.run()


TRAINER = {"learning_rate": 0.1}


def test_what_may_change_on_resume_and_what_may_not():
    from distcore_core.contracts import PluginRef, TrainJob
    from distcore_data.cache import Cache
    from distcore_torch.training.state import check_identity, identity

    def ours(trainer=None, seed=1, key="k", features="ab", loader=None, options=None, **sections):
        config = {
            "input_features": [{"name": name, "type": "number"} for name in features],
            "combiner": {"type": "concat"},
            "trainer": {"epochs": 3, **TRAINER, **(trainer or {})},
        }
        loader = PluginRef(kind="loaders", name="packed", options=loader or {})
        job = TrainJob(
            config={**config, **sections},
            cache=Cache(directory="d", key=key),
            loader=loader,
            trainer=PluginRef(kind="trainers", name="local", options={}),
            directory=None,
            seed=seed,
            opener="",
        )
        return identity(job, 64, options or {})

    check_identity(
        ours(),
        ours({"epochs": 9, "early_stop": -1}, extensions=[{"type": "x"}], backend={"a": 1}),
        "here",
    )
    check_identity(ours(), ours({"brought_later": [], "and_this": None}), "here")
    speed = ours({"replay": True, "hang_seconds": 60})
    check_identity(ours(), speed, "here")
    before = {**ours(), "config": {**ours()["config"], "trainer": {"replay": False, **TRAINER}}}
    check_identity(before, speed, "here")  # of a version that did not let go of it
    shared = {"batch_size": 16, "effective_batch_size": 64, "max_batch_size": 32}
    check_identity(ours(), ours({**shared, "gradient_accumulation_steps": 2}), "here")
    place = {"fully_executed": False, "prefetch": 0, "lanes": 16}
    check_identity(ours(), ours(loader=place), "here")
    check_identity(ours(loader=place), ours(), "here")
    exact = {**shared, "exact": True}
    check_identity(ours(exact), ours(exact), "here")
    with pytest.raises(CheckpointError, match=r"run: trainer\.batch_size was 16 and is 32\. Res"):
        check_identity(ours(exact), ours({**exact, "batch_size": 32}), "here")
    with pytest.raises(CheckpointError, match=r"run: trainer\.exact was not there and is true\. R"):
        check_identity(ours(shared), ours({**shared, "exact": True}), "here")
    older = {name: value for name, value in ours().items() if name != "options"}
    check_identity(older, ours(options={"op": "sum"}), "here")
    for other, what in (
        (ours(options={"op": "sum"}), r'backend\.trainer\.op was not there and is "sum"\. Resume'),
        (
            ours({"learning_rate": 0.2}),
            r"another run: trainer\.learning_rate was 0\.1 and is 0\.2\. Resume",
        ),
        (
            ours({"learning_rate": 0.2, "optimizer": {"type": "sgd"}}),
            r"trainer\.learning_rate .*; trainer\.optimizer\.type was",
        ),
        (ours({"learning_rate": None}), r"trainer\.learning_rate was 0\.1 and is null"),
        (
            # Not given, it is a rectifier.
            ours(combiner={"type": "concat", "activation": None}),
            r"combiner\.activation was not there and is null\. Resume",
        ),
        (ours(combiner={"type": "other"}), r'combiner\.type was "concat" and is "other"'),
        (ours(combiner={f"option_{number}": 1 for number in range(9)}), "; 6 more options differ"),
        (
            ours(features="ba"),
            r'run: input_features \(their order\) was \["a", "b"\] and is \["b", "a"\]\. Resume',
        ),
        (
            ours(features="a"),
            r'is \["a"\]; input_features\.b\.type was "number" and is not there',
        ),
        (
            ours(loader={"lanes": 8, "prefetch": 0}),
            r"backend\.loader\.lanes was 16 and is 8, so rows would come in another order",
        ),
        (
            ours(combiner={"type": "concat", "layers": [{"size": 8}]}),
            r"combiner\.layers\[0\]\.size was not there and is 8",
        ),
        ({**ours(), "global_batch_rows": 32}, r"and has 32 \(set .*_size to 64, "),
        (ours(key="other"), "another cache"),
        (ours(seed=2), "random_seed was 1 and is 2"),
    ):
        with pytest.raises(CheckpointError, match=what):
            check_identity(ours(), other, "here")


def test_a_run_of_other_versions_is_refused_by_these():
    from distcore_torch.training.state import check_identity

    same = {"config": {}, "seed": 1, "global_batch_rows": 8, "loader": {"type": "packed"}}
    saved = {**same, "cache": "a" * 28 + "b" * 12, "versions": {"x": "1.0", "y": "1"}}
    ours = {**same, "cache": "a" * 28 + "c" * 12, "versions": {"x": "1.1", "y": "1"}}
    check_identity({**ours, "versions": {"x": "1.0"}}, ours, "here")  # it encodes alike
    differ = r'otherwise \(releases that differ: x was "1\.0" and is "1\.1"\)\. Res'
    with pytest.raises(CheckpointError, match=differ):
        check_identity(saved, ours, "here")
    del saved["versions"]  # of a release that noted none
    with pytest.raises(CheckpointError, match=r"other versions encode the same data otherwise\."):
        check_identity(saved, ours, "here")


def test_of_any_loader_the_options_that_change_no_batch_may_change(monkeypatch):
    """Whatever others are called; and the checkpoint is named where this release lacks one."""
    from distcore_core.registry.manager import Plugins
    from distcore_torch.training import state

    class Loader(Options):
        beside_data = ("threads",)
        lanes: int = 4
        order: str = "random"
        threads: int = 1

    monkeypatch.setattr(Plugins, "options_model", lambda *given: Loader)
    same = {"config": {}, "cache": "k", "seed": 1, "global_batch_rows": 8}

    def compared(saved, **options):
        loaders = ({"type": "theirs", **each} for each in (saved, options))
        state.check_identity(*({**same, "loader": each} for each in loaders), "here")

    compared({"threads": 8}, order="random")
    with pytest.raises(CheckpointError, match=r'loader\.order was "random" and is "sorted", so'):
        compared({}, order="sorted", threads=2)
    with pytest.raises(
        CheckpointError, match=r"point here is .*loader\.gone was 1 and is not there"
    ):
        compared({"gone": 1})


def test_the_last_words_of_a_run_in_a_bucket_name_the_checkpoint_there(tmp_path):
    """They are said without waiting for a checkpoint, and the folder that is worked in is gone
    then."""
    folder = tmp_path / "working" / "checkpoints"
    strategy = SingleProcess()
    strategy.setup(Rank())
    loop, _, _ = tiny_loop(TinyRun(checkpoints=str(folder), options={"epochs": 1}), strategy)
    assert loop._last_words() == "No checkpoint was saved."
    loop.run()
    last = checkpoint.list_checkpoints(folder)[0]
    assert str(last) in loop._last_words()
    loop.work.mirror = Mirror.at("memory://results/experiment_run", None)
    where = "memory://results/experiment_run"
    assert loop._last_words() == (
        f"The last checkpoint is {where}/checkpoints/{last.name}; go on from it with "
        f"--model_resume_path {where}"
    )
    loop.work.checkpoints = None
    assert loop._last_words() == "No checkpoint was saved."


@pytest.mark.parametrize("url", [None, "memory://results/experiment_run"])
def test_another_run_is_the_users_mistake_in_a_bucket_as_in_a_folder(tmp_path, url):
    """From a bucket it ended with the exit code of a damaged checkpoint."""
    folder = tmp_path / "working" / "checkpoints"
    strategy = SingleProcess()
    strategy.setup(Rank())
    loop, _, _ = tiny_loop(TinyRun(checkpoints=str(folder), options={"epochs": 1}), strategy)
    loop.run()
    loop.work.mirror = url and Mirror.at(url, None)
    where = f"{url or folder.parent}/checkpoints/step-"
    loop.work.identity["seed"] += 1
    with pytest.raises(DifferentRun, match=f"{where}.*random_seed was") as caught:
        loop.resume(folder)
    assert caught.value.exit_code == UserError.exit_code
    for each in checkpoint.list_checkpoints(folder):
        (each / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match=url or str(folder)) as caught:
        loop.resume(folder)
    assert not isinstance(caught.value, DifferentRun)


def test_a_bucket_that_does_not_answer_does_not_hide_what_stopped_a_run():
    """The error of training gave way to the store's."""

    def refuse(name, last):
        raise StoreError("The bucket does not answer.")

    job = SimpleNamespace(directory=None, mirror=SimpleNamespace(folders=refuse), home="s3://b/run")
    said = last_checkpoint(job)
    assert said == "Which checkpoint is the last cannot be told: The bucket does not answer."


@pytest.mark.parametrize("begins", [True, False])
def test_weights_that_are_frozen_or_unfrozen_on_the_way_are_told(begins):
    module = TinyNet()
    module.first.requires_grad_(begins)
    stepper = Stepper(
        module,
        TinyFeatures(),
        TrainerOptions(),
        SingleProcess(),
        learning_rate=0.1,
        micro_rows=99,
        seed=0,
    )
    stepper.check_parameters()
    module.first.requires_grad_(not begins)
    told = "frozen" if begins else "unfrozen"
    with pytest.raises(UserError, match=rf"first\.weight was {told} during training"):
        stepper.check_parameters()


def test_a_buffer_that_training_changes_and_nothing_keeps_is_told_once(caplog):
    loop = tiny_loop(TinyRun({"epochs": 2}, norm=True), SingleProcess())[0]
    loop.work.module.norm.register_buffer("idle", torch.zeros(1), persistent=False)
    with caplog.at_level(logging.WARNING, "distcore"):
        loop.run()
    assert "persistent=False" not in caplog.text
    loop = tiny_loop(TinyRun({"epochs": 2}, norm=True), SingleProcess())[0]
    norm = loop.work.module.norm
    norm.register_buffer("running_mean", norm.running_mean, persistent=False)
    with caplog.at_level(logging.WARNING, "distcore"):
        loop.run()
    assert caplog.text.count("Training changes the buffer norm.running_mean of TinyNet") == 1
