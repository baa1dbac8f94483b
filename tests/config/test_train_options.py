"""The trainer section and the preprocessing section: Ludwig's defaults, what is refused, and how
batches are shared."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore_core.config.issues import validate
from distcore_core.errors import ConfigError
from distcore_data.preprocess_options import Preprocessing
from distcore_torch.train_options import TrainerOptions
from distcore_torch.training.plan import TrainPlan


def told(model: type, **values: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(model, values, "section")
    return [str(issue) for issue in caught.value.issues]


def test_the_defaults_are_ludwigs() -> None:
    options = TrainerOptions.model_validate({})
    assert (options.epochs, options.train_steps, options.early_stop) == (100, None, 5)
    assert (
        options.batch_size,
        options.effective_batch_size,
        options.gradient_accumulation_steps,
    ) == ("auto",) * 3
    assert (options.learning_rate, options.learning_rate_scaling) == (0.001, "linear")
    assert options.optimizer.type == "adam"
    assert options.gradient_clipping is not None
    assert options.gradient_clipping.clipglobalnorm == 0.5
    assert (options.regularization_lambda, options.regularization_type) == (0, "l2")
    assert options.learning_rate_scheduler.decay is None


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "lbfgs"])
def test_an_optimizer_is_a_word_or_a_section_and_its_options_are_torchs(name: str) -> None:
    """Every option by the name of the argument of torch's class."""
    import inspect

    from distcore_torch.training.optim import CLASSES

    options = TrainerOptions.model_validate({"optimizer": name}).optimizer
    assert options == TrainerOptions.model_validate({"optimizer": {"type": name}}).optimizer
    arguments = set(inspect.signature(CLASSES[name]).parameters)
    assert set(options.model_dump(exclude={"type"})) <= arguments


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"batch_size": 0},
            "section.batch_size: should be greater than or equal to 1, or should be 'auto'; got 0",
        ),
        ({"learning_rate": -0.1}, "section.learning_rate: should be greater than or equal to 0"),
        ({"learning_rate": float("nan")}, "section.learning_rate: should be a finite number"),
        ({"learning_rate": "fast"}, "section.learning_rate: should be a number"),
        (
            {"batchsize": 3},
            "section.batchsize: unknown option 'batchsize'; did you mean 'batch_size'?",
        ),
        (
            {"optimizer": "admw"},
            "section.optimizer.type: unknown type 'admw'; did you mean 'adamw'?",
        ),
        (
            {"optimizer": {"type": "adam", "beta": [0, 0]}},
            "section.optimizer.beta: unknown option 'beta'; did you mean 'betas'?",
        ),
        (
            {"optimizer": {"betas": [0.9, 1.5]}},
            "section.optimizer.betas[1]: should be less than 1; got 1.5",
        ),
        (
            {"optimizer": {"type": "radam"}},
            "Ludwig's optimizer 'radam' is not carried out here; use sgd, adam",
        ),
        ({"optimizer": None}, "section.optimizer: should be a mapping"),
        ({"optimizer": {"type": "sgd", "nesterov": True}}, "nesterov needs a momentum above 0"),
        (
            {"learning_rate_scheduler": {"decay": "cosin"}},
            "should be 'linear', 'exponential' or 'cosine' (did you mean 'cosine'?)",
        ),
        (
            {"learning_rate_scheduler": {"decay_rate": 2}},
            "section.learning_rate_scheduler.decay_rate: should be less than",
        ),
        (
            {"learning_rate_scheduler": {"decay": "one_cycle", "max_lr": 1}},
            "decay: 'one_cycle' is known in Ludwig, but not",
        ),
        (
            {"gradient_clipping": {"clipvalue": -1}},
            "section.gradient_clipping.clipvalue: should be greater than",
        ),
        (
            {"loss_balancing": "famo"},
            "Ludwig's option 'loss_balancing' is not carried out here; leave it out, or at "
            "Ludwig's default, none",
        ),
        ({"early_stop": -2}, "section.early_stop: should be greater than or equal to -1"),
        (
            {"steps_per_checkpoint": 5, "checkpoints_per_epoch": 2},
            "steps_per_checkpoint and checkpoints_per_epoch are both set",
        ),
        (
            {"effective_batch_size": 100, "batch_size": 33},
            "effective_batch_size 100 must be a multiple of batch_size 33",
        ),
        (
            {"effective_batch_size": 8, "batch_size": 4, "gradient_accumulation_steps": 4},
            "batch_size × gradient_accumulation_steps",
        ),
        ({"effective_batch_size": 256, "max_batch_size": 128}, "is above max_batch_size 128"),
        ({"use_mixed_precision": "bf61"}, "did you mean 'bf16'?"),
        (
            {"optimizer": "lbfgs", "use_mixed_precision": "fp16"},
            "optimizer lbfgs and use_mixed_precision fp16 do not go together",
        ),
        (
            {"regularization_lambda": 2},
            "section.regularization_lambda: should be less than or equal to 1",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_path(values: dict[str, object], said: str) -> None:
    (only,) = told(TrainerOptions, **values)
    assert said in only


def test_all_mistakes_are_told_at_once() -> None:
    assert (
        len(
            told(
                TrainerOptions,
                batch_size=0,
                epochs=0,
                optimizer={"type": "adam", "x": 1},
                unknown=1,
            )
        )
        == 4
    )


def test_options_beside_a_wrong_type_are_not_judged() -> None:
    (only,) = told(TrainerOptions, optimizer={"type": "admw", "momentum": 1})
    assert "admw" in only


def test_ludwigs_own_defaults_of_what_is_not_carried_out_are_accepted() -> None:
    values = {
        **TrainerOptions.ludwig_only,
        "learning_rate_scheduler": {"max_lr": None, "pct_start": 0.3},
    }
    assert TrainerOptions.model_validate(values) == TrainerOptions.model_validate({})


def test_ludwigs_words_for_nothing() -> None:
    values = {
        "learning_rate_scheduler": None,
        "gradient_clipping": None,
        "eval_batch_size": 0,
        "regularization_type": None,
    }
    options = TrainerOptions.model_validate(values)
    assert (
        options.learning_rate_scheduler.decay,
        options.gradient_clipping,
        options.eval_batch_size,
    ) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, 8), (105, 8), (600, 16), (3839, 64), (3840, 128), (10**9, 128)],
)
def test_auto_goes_by_the_rows_and_nothing_else(rows: int, expected: int) -> None:
    def size(workers: int, **options: int) -> int:
        made = TrainerOptions.model_validate(options)
        return TrainPlan.of(made, workers, rows).micro_rows

    assert size(1) == size(4) == expected
    assert size(1, max_batch_size=20) == min(20, expected)
    assert size(1, batch_size=50) == 50
    assert size(2, effective_batch_size=256) == 128


@pytest.mark.parametrize(
    ("values", "workers", "expected"),
    [
        ({}, 1, (128, 1, 128)),
        ({}, 4, (128, 1, 128)),
        ({"batch_size": 32, "eval_batch_size": 64}, 2, (32, 1, 64)),
        ({"batch_size": 32, "gradient_accumulation_steps": 4}, 2, (32, 4, 32)),
        ({"effective_batch_size": 256}, 2, (128, 1, 128)),
        ({"effective_batch_size": 256, "gradient_accumulation_steps": 4}, 2, (32, 4, 32)),
        ({"effective_batch_size": 256, "batch_size": 16}, 2, (16, 8, 16)),
        (
            {"effective_batch_size": 64, "batch_size": 16, "gradient_accumulation_steps": 2},
            2,
            (16, 2, 16),
        ),
        ({"max_batch_size": 50}, 1, (50, 1, 50)),
        ({"eval_batch_size": "auto", "batch_size": 7}, 1, (7, 1, 7)),
    ],
)
def test_batch_sizes_follow_ludwigs_rules(
    values: dict[str, object], workers: int, expected: tuple[int, ...]
) -> None:
    assert tuple(TrainerOptions.model_validate(values).batch_sizes(workers)) == expected


@given(
    per_worker=st.integers(1, 64),
    passes=st.integers(1, 8),
    workers=st.integers(1, 8),
    give=st.sampled_from(["rows", "passes", "none"]),
)
def test_a_step_sees_exactly_the_effective_batch(
    per_worker: int, passes: int, workers: int, give: str
) -> None:
    values = {"effective_batch_size": per_worker * passes * workers}
    values |= {
        "rows": {"batch_size": per_worker},
        "passes": {"gradient_accumulation_steps": passes},
        "none": {},
    }[give]
    sizes = TrainerOptions.model_validate(values).batch_sizes(workers)
    assert sizes.per_worker * sizes.accumulation * workers == values["effective_batch_size"]


@pytest.mark.parametrize(
    "values",
    [
        {"effective_batch_size": 9},
        {"effective_batch_size": 12, "batch_size": 4},
        {"effective_batch_size": 128, "batch_size": 16, "gradient_accumulation_steps": 2},
    ],
)
def test_an_effective_batch_that_workers_cannot_share_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="workers"):
        TrainerOptions.model_validate(values).batch_sizes(2)


def test_an_effective_batch_of_an_exact_run_is_refused_without_the_workers() -> None:
    given = {"batch_size": 16, "gradient_accumulation_steps": 2, "exact": True}
    options = TrainerOptions.model_validate({"effective_batch_size": 64, **given})
    with pytest.raises(ValueError, match="an exact step has effective_batch_size 64 rows over"):
        options.batch_sizes(1)


def test_precision_and_learning_rate_in_plain_words() -> None:
    words = {
        value: TrainerOptions.model_validate({"use_mixed_precision": value}).precision
        for value in (False, True, "bf16", "fp16")
    }
    assert words == {False: "fp32", True: "bf16", "bf16": "bf16", "fp16": "fp16"}
    assert TrainerOptions.model_validate({"learning_rate": "auto"}).base_learning_rate == 0.001


def test_options_pickle_and_are_read_back_from_their_json() -> None:
    options = TrainerOptions.model_validate(
        {
            "optimizer": {"type": "sgd", "momentum": 0.9},
            "learning_rate_scheduler": {"decay": "cosine"},
        }
    )
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes
    assert TrainerOptions.model_validate(options.model_dump(mode="json")) == options


# ------------------------------------------------------------------ preprocessing


def test_preprocessing_defaults_are_ludwigs() -> None:
    options = Preprocessing.model_validate({})
    assert (options.split.type, options.split.probabilities, options.sample_ratio) == (
        "random",
        (0.7, 0.1, 0.2),
        1.0,
    )
    assert Preprocessing.model_validate({"split": {"type": "fixed"}}).split.column == "split"
    assert Preprocessing.model_validate({"split": "random"}) == options
    assert Preprocessing.model_validate(options.model_dump(mode="json")) == options


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"split": {"probabilities": [0.8, 0.1, 0.2]}},
            "section.split.probabilities: should sum to 1, not 1.1",
        ),
        (
            {"split": {"probabilities": [0.8, 0.4, -0.2]}},
            "section.split.probabilities[2]: should be greater than or equal to 0",
        ),
        (
            {"split": {"probabilities": [0, 0.5, 0.5]}},
            "the first share, of the training split, should be above 0",
        ),
        ({"split": {"probabilities": [0.8, 0.2]}}, "section.split.probabilities"),
        ({"split": {"type": "stratify"}}, "a stratify split needs `column`"),
        ({"split": {"type": "hash"}}, "a hash split needs `column`"),
        ({"split": {"type": "stratified"}}, "(did you mean 'stratify'?)"),
        (
            {"split": {"typ": "hash"}},
            "section.split.typ: unknown option 'typ'; did you mean 'type'?",
        ),
        ({"sample_ratio": 0}, "section.sample_ratio: should be greater than 0"),
        ({"sample_size": 10, "sample_ratio": 0.5}, "sample_ratio and sample_size are both set"),
        ({"sample_size": 0}, "section.sample_size: should be greater than or equal to 1"),
        (
            {"oversample_minority": 0.5},
            "Ludwig's option 'oversample_minority' is not carried out here",
        ),
        (
            {"undersample_majority": 0.5},
            "Ludwig's option 'undersample_majority' is not carried out here",
        ),
        ({"csv": {"delimiter": "||"}}, "section.csv.delimiter: should have at most 1 character"),
        ({"csv": {"encoding": "utf9"}}, "section.csv.encoding: is no encoding that Python knows"),
    ],
)
def test_what_is_wrong_in_preprocessing(values: dict[str, object], said: str) -> None:
    (only,) = told(Preprocessing, **values)
    assert said in only


def test_options_import_neither_torch_nor_arrow() -> None:
    code = """
import sys, distcore.config, distcore.config.read, distcore.config.resolver
print([name for name in ("torch", "pyarrow", "pandas", "numpy") if name in sys.modules])
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=600
        ).stdout
        == "[]\n"
    )


def test_what_ludwig_reads_with_another_option_alone_changes_nothing_while_that_one_is_off() -> (
    None
):
    beside = {
        "loss_balancing_alpha": 9.0,
        "increase_batch_size_on_plateau_patience": 1,
        "model_soup_top_k": 2,
    }
    plain = TrainerOptions.model_validate({})
    assert (
        TrainerOptions.model_validate({**beside, "learning_rate_scheduler": {"max_lr": 1}}) == plain
    )
    assert len(told(TrainerOptions, loss_balancing="famo", **beside)) == 2
