"""Ludwig configs for tables and text run as they are, on tiny data in the spirit of the sets
that Ludwig's users know."""

import csv
import datetime
import json
import logging
import math
import random
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

HERE = Path(__file__).parent
ROWS = 160

# ------------------------------------------------------------------ data


def words(dice, positive):
    kept = ["great", "lovely", "fine"] if positive else ["dull", "awful", "boring"]
    return " ".join(
        [
            *dice.choices(["the", "film", "was", "and", "plot,", "actors!"], k=dice.randint(2, 9)),
            dice.choice(kept),
        ]
    )


def maybe(dice, value, share=0.1):
    return "" if dice.random() < share else value


def titanic(dice, number):
    survived = dice.random() < 0.4
    return {
        "PassengerId": number + 1,
        "Survived": int(survived),
        "Pclass": dice.choice([1, 2, 3]),
        "Name": f'"Mr. {number}", Owen',
        "Sex": "female" if survived ^ (dice.random() < 0.2) else "male",
        "Age": maybe(dice, dice.randint(1, 80), 0.2),
        "SibSp": dice.randint(0, 4),
        "Parch": dice.randint(0, 3),
        "Fare": maybe(dice, round(dice.expovariate(0.03), 4)),
        "Cabin": maybe(dice, "C85", 0.8),
        "Embarked": maybe(dice, dice.choice("SCQ"), 0.02),
    }


def adult(dice, number):
    rich = dice.random() < 0.3
    return {
        "age": dice.randint(17, 90),
        "workclass": dice.choice([" Private", " ?", " State-gov", " Self-emp-not-inc"]),
        "fnlwgt": dice.randint(10_000, 900_000),
        "education": dice.choice([" Bachelors", " HS-grad", " Masters"]),
        "education-num": dice.randint(1, 16),
        "marital-status": dice.choice([" Never-married", " Divorced"]),
        "occupation": dice.choice([" Sales", " ?", " Tech-support"]),
        "capital-gain": dice.choice([0, 0, 0, 2174, 99999]) if rich else 0,
        "hours-per-week": dice.randint(1, 99),
        "native-country": dice.choice([" United-States", " ?", " Peru"]),
        "income": " >50K" if rich else " <=50K",
        "split": dice.choices([0, 1, 2], [6, 2, 2])[0],
    }


WINE = (
    "fixed acidity",
    "volatile acidity",
    "citric acid",
    "residual sugar",
    "chlorides",
    "density",
    "pH",
    "alcohol",
)


def wine(dice, number):
    values = {name: round(dice.gauss(5, 1), 3) for name in WINE}
    quality = round(min(8, max(3, values["alcohol"] + dice.gauss(0, 0.5))))
    return {
        **values,
        "quality": quality,
        "good": "good" if quality > 5 else "bad",
        "score": quality + dice.gauss(0, 0.1),
    }


def reviews(dice, number):
    positive = dice.random() < 0.5
    return {
        "review_id": f"r{number}",
        "genres": ",".join(
            dice.sample(["Comedy", "Drama", "Sci-Fi", "Western"], dice.randint(1, 3))
        ),
        "tags": maybe(dice, " ".join(dice.sample(["new", "long", "b&w", "3d"], 2))),
        "content_rating": dice.choice(["PG", "R", "NR"]),
        "top_critic": dice.choice(["TRUE", "FALSE"]),
        "runtime": maybe(dice, dice.randint(60, 200)),
        "review_content": maybe(dice, words(dice, positive), 0.03),
        "class": dice.choice(["sports", "world", "business"]),
        "sentiment": "positive" if positive else "negative",
        "stars": dice.randint(1, 5),
        "recommended": int(positive),
        "posted": (datetime.date(2024, 1, 1) + datetime.timedelta(days=number * 3)).isoformat(),
        "user": f"user{number % 23}",
    }


DATA = {"titanic": titanic, "adult": adult, "wine": wine, "reviews": reviews}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """{name: path}; the wine set has semicolons, as it is published."""
    folder, found = tmp_path_factory.mktemp("data"), {}
    for name, make in DATA.items():
        dice = random.Random(name)
        rows = [make(dice, number) for number in range(ROWS)]
        found[name] = folder / f"{name}.csv"
        with found[name].open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=";" if name == "wine" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return found


# ------------------------------------------------------------------ configs

NUMBERS = "".join(f"\n  - {{name: {name}, type: number}}" for name in WINE)

CONFIGS = {
    "titanic": (
        "titanic",
        """
input_features:
    - name: Pclass
      type: category
    - name: Sex
      type: category
    - name: Age
      type: number
      preprocessing:
          missing_value_strategy: fill_with_mean
    - name: SibSp
      type: number
    - name: Parch
      type: number
    - name: Fare
      type: number
      preprocessing:
          missing_value_strategy: fill_with_mean
    - name: Embarked
      type: category
output_features:
    - name: Survived
      type: binary
""",
    ),
    "titanic with layers behind the output": (
        "titanic",
        """
input_features:
  - {name: Sex, type: binary, preprocessing: {fallback_true_label: female}}
  - name: Age
    type: number
    preprocessing: {missing_value_strategy: fill_with_mode, normalization: minmax, outlier_strategy: fill_with_mean}
  - {name: Fare, type: number, preprocessing: {normalization: log1p, missing_value_strategy: bfill}}
  - {name: Embarked, type: category, preprocessing: {missing_value_strategy: fill_with_mode, lowercase: true}}
  - {name: Cabin, type: category, preprocessing: {missing_value_strategy: fill_with_const, fill_value: none}}
output_features:
  - name: Survived
    type: binary
    fc_layers: [{ output_size: 50 }]
    threshold: 0.4
    loss: {type: binary_weighted_cross_entropy, positive_class_weight: 1.5, robust_lambda: 0.02, confidence_penalty: 0.1}
preprocessing:
  split: {type: stratify, column: Survived, probabilities: [0.7, 0.15, 0.15]}
trainer: {epochs: 1, validation_metric: accuracy, use_mixed_precision: false}
""",
    ),
    "titanic, older spellings": (
        "titanic",
        """
input_features:
    -
        name: Age
        type: numerical
        preprocessing: {missing_value_strategy: backfill}
    -
        name: Pclass
        type: category
        encoder: sparse
    -
        name: Sex
        type: category
        embedding_size: 3
output_features:
    -
        name: Survived
        type: binary
        fc_size: 8
        num_fc_layers: 1
        loss: {type: binary_weighted_cross_entropy}
preprocessing:
    force_split: true
    split_probabilities: [0.7, 0.1, 0.2]
    numerical: {missing_value_strategy: fill_with_mean, normalization: zscore}
training:
    epochs: 1
    batch_size: 32
    learning_rate: 0.01
    reduce_learning_rate_on_plateau: 2
    reduce_learning_rate_on_plateau_patience: 3
    reduce_learning_rate_on_plateau_rate: 0.5
    learning_rate_warmup_epochs: 1
    decay: true
    decay_rate: 0.9
    validation_field: Survived
    validation_metric: accuracy
    eval_batch_size: 0
combiner: {type: concat, fc_size: 16, num_fc_layers: 1}
""",
    ),
    "adult with a fixed split": (
        "adult",
        """
model_type: ecd
input_features:
  - {name: age, type: number, preprocessing: {normalization: zscore}}
  - {name: workclass, type: category}
  - {name: fnlwgt, type: number, preprocessing: {normalization: iq}}
  - {name: education, type: category, encoder: {type: sparse}}
  - {name: education-num, type: number}
  - {name: marital-status, type: category, encoder: {type: dense, embedding_size: 4, dropout: 0.1}}
  - {name: occupation, type: category, preprocessing: {most_common: 2}}
  - {name: capital-gain, type: number, encoder: {type: dense, num_layers: 2, output_size: 8}}
  - {name: hours-per-week, type: number}
  - {name: native-country, type: category}
output_features:
  - {name: income, type: binary, preprocessing: {fallback_true_label: " >50K"}}
preprocessing: {split: {type: fixed}}
combiner: {type: concat, num_fc_layers: 2, output_size: 32, dropout: 0.2, norm: batch, activation: gelu}
trainer: {epochs: 1, batch_size: 64, early_stop: 10, learning_rate: 0.0001, optimizer: {type: adamw}}
hyperopt:
  goal: maximize
  metric: roc_auc
  split: validation
  output_feature: income
  parameters:
    trainer.learning_rate: {space: loguniform, lower: 0.00001, upper: 0.1}
    combiner.num_fc_layers: {space: randint, lower: 1, upper: 4}
  search_alg: {type: variant_generator}
  executor: {type: ray, num_samples: 4}
""",
    ),
    "adult as a category with class weights": (
        "adult",
        """
input_features:
  - {name: age, type: number}
  - {name: workclass, type: category, column: occupation}
output_features:
  - name: income
    type: category
    loss: {type: softmax_cross_entropy, class_weights: {">50K": 3.0, "<=50K": 1.0}}
    top_k: 2
    decoder: {type: classifier, num_fc_layers: 1, fc_output_size: 16, fc_activation: tanh, fc_dropout: 0.1}
defaults:
  number: {preprocessing: {missing_value_strategy: fill_with_mean, normalization: minmax}, encoder: {type: dense}}
  category: {encoder: {type: sparse}, preprocessing: {most_common: 100}, decoder: {fc_use_bias: false}}
preprocessing: {split: {type: random, probabilities: [0.6, 0.2, 0.2]}, sample_ratio: 0.9}
trainer: {train_steps: 5, steps_per_checkpoint: 2, batch_size: 16, regularization_lambda: 0.001, regularization_type: l1}
""",
    ),
    "adult with a classification by the older names": (
        "adult",
        """
input_features:
  - {name: age, type: numerical, preprocessing: {normalization: zscore, missing_value_strategy: pad}}
  - {name: education, type: category, encoder: dense, embedding_size: 4}
output_features:
  - {name: income, type: category, loss: {type: softmax_cross_entropy, class_weights: [1.0, 2.5], weight: 1}}
training: {epochs: 1, optimizer: {type: adam, lr: 0.002}}
preprocessing: {stratify: income, category: {most_common: 50}}
""",
    ),
    "wine, a regression": (
        "wine",
        f"""
input_features:{NUMBERS}
output_features:
  - {{name: quality, type: number, clip: [0, 10], loss: {{type: huber, delta: 2}}, preprocessing: {{normalization: zscore}}}}
combiner:
  type: concat
  fc_layers:
    - {{output_size: 16, activation: leakyRelu, dropout: 0.1}}
    - {{output_size: 8, norm: layer, use_bias: false}}
  residual: true
trainer:
  epochs: 2
  batch_size: 32
  learning_rate: auto
  learning_rate_scheduler: {{decay: cosine, t_0: 5, warmup_fraction: 0.1}}
  gradient_clipping: {{clipglobalnorm: 1.0, clipvalue: 0.5}}
  checkpoints_per_epoch: 2
  validation_metric: r2
""",
    ),
    "wine, several outputs": (
        "wine",
        f"""
model_type: ecd
input_features:{NUMBERS}
output_features:
  - {{name: score, type: number, loss: {{type: mean_absolute_error, weight: 0.5}}}}
  - {{name: good, type: binary, loss: {{weight: 2.0}}}}
  - {{name: quality, type: category, loss: {{weight: 0.1}}, reduce_input: sum, dependencies: []}}
combiner: {{type: concat, num_fc_layers: 2, output_size: 128, dropout: 0.1}}
trainer: {{epochs: 1, learning_rate: 0.001, batch_size: 128, loss_balancing: none, validation_field: combined}}
backend: {{type: local}}
""",
    ),
    "wine, a schedule": (
        "wine",
        f"""
input_features:{NUMBERS}
output_features:
  - {{name: good, type: category}}
trainer:
  epochs: 3
  batch_size: 64
  early_stop: 1
  evaluate_training_set: true
  learning_rate_scheduler:
    decay: exponential
    decay_rate: 0.9
    decay_steps: 10
    staircase: true
    reduce_on_plateau: 1
    reduce_on_plateau_patience: 1
    reduce_on_plateau_rate: 0.5
    reduce_eval_metric: loss
    reduce_eval_split: validation
    warmup_evaluations: 1
  learning_rate_scaling: sqrt
  gradient_accumulation_steps: 2
  eval_batch_size: 100
""",
    ),
    "wine on bf16 with an effective batch": (
        "wine",
        f"""
input_features:{NUMBERS}
output_features: [{{name: score, type: number, loss: {{type: root_mean_squared_error}}}}]
combiner: {{type: concat, num_fc_layers: 1}}
trainer: {{epochs: 1, effective_batch_size: 64, batch_size: auto, gradient_accumulation_steps: 2, use_mixed_precision: true}}
""",
    ),
    "rotten tomatoes": (
        "reviews",
        """
input_features:
  - name: genres
    type: set
    preprocessing:
      tokenizer: comma
  - name: content_rating
    type: category
  - name: top_critic
    type: binary
  - name: runtime
    type: number
  - name: review_content
    type: text
    encoder:
      type: embed
output_features:
  - name: recommended
    type: binary
trainer:
  epochs: 1
""",
    ),
    "text classification": (
        "reviews",
        """
input_features:
  - name: review_content
    type: text
    preprocessing: {tokenizer: space, lowercase: true, most_common: 50, max_sequence_length: 8, padding: left}
    encoder: {type: embed, embedding_size: 16, reduce_output: mean, dropout: 0.1}
output_features:
  - name: class
    type: category
preprocessing:
  split: {type: random, probabilities: [0.8, 0.1, 0.1]}
trainer: {epochs: 1, batch_size: 16, learning_rate: 0.003}
backend: local
""",
    ),
    "text classification with Ludwig's default encoder": (
        "reviews",
        """
input_features:
  - {name: review_content, type: text, preprocessing: {missing_value_strategy: fill_with_const, fill_value: ""}}
output_features:
  - {name: sentiment, type: category}
trainer: {train_steps: 2}
""",
    ),
    "text by the older words": (
        "reviews",
        """
input_features:
  - name: review_content
    type: text
    encoder: parallel_cnn
    embedding_size: 8
    num_filters: 4
    fc_layers: [{fc_size: 6}]
    preprocessing: {word_tokenizer: space_punct, word_most_common: 30, word_sequence_length_limit: 12}
output_features:
  - {name: stars, type: numerical}
preprocessing:
  text: {lowercase: true}
training: {epochs: 1, batch_size: 32}
""",
    ),
    "split by date": (
        "reviews",
        """
input_features:
  - {name: tags, type: set, encoder: {type: embed, embedding_size: 6, num_fc_layers: 1, output_size: 4}}
  - {name: runtime, type: number, preprocessing: {missing_value_strategy: ffill}}
output_features:
  - {name: stars, type: category, top_k: 3}
preprocessing: {split: {type: datetime, column: posted, probabilities: [0.7, 0.1, 0.2]}}
trainer: {epochs: 1}
""",
    ),
    "split by hash": (
        "reviews",
        """
input_features:
  - {name: user, type: category, preprocessing: {most_common: 10}}
  - {name: genres, type: set, preprocessing: {tokenizer: comma, most_common: 3}}
output_features:
  - {name: recommended, type: binary}
preprocessing: {split: {type: hash, column: user}}
trainer: {epochs: 1, should_shuffle: false}
""",
    ),
    "rows that miss a value are dropped": (
        "reviews",
        """
input_features:
  - {name: runtime, type: number, preprocessing: {missing_value_strategy: drop_row}}
  - {name: review_content, type: text, encoder: embed, preprocessing: {tokenizer: characters, missing_value_strategy: drop_row}}
output_features:
  - {name: sentiment, type: binary, preprocessing: {fallback_true_label: positive}}
trainer: {epochs: 1, gradient_clipping: null, compile: false}
""",
    ),
    "a backend by the older words": (
        "titanic",
        """
input_features: [{name: Fare, type: number}, {name: Pclass, type: number}]
output_features: [{name: Survived, type: binary}]
trainer: {epochs: 1, train_steps: null}
backend:
  type: local
  data_format: parquet
  engine: {type: local, parallelism: 2}
  trainer: {strategy: local}
  loader: {fully_executed: false, window_size_bytes: 500000}
""",
    ),
    "a regression with layers behind the output, by the names of Ludwig's tutorials": (
        "wine",
        f"""
trainer: {{epochs: 1, batch_size: 32, early_stop: 50, learning_rate: 0.001, optimizer: {{type: rmsprop}}}}
input_features:{NUMBERS}
  - {{name: quality, type: category}}
output_features:
  - name: score
    type: number
    decoder: {{num_fc_layers: 2, output_size: 64, activation: tanh, dropout: 0.1}}
defaults:
  number: {{decoder: {{norm: layer}}}}
""",
    ),
    "what Ludwig found from the data is found again": (
        "reviews",
        """
input_features:
  - {name: runtime, type: number, encoder: {type: dense, input_size: 1, num_layers: 2, output_size: 4}, proc_column: runtime_a1}
  - {name: content_rating, type: category, encoder: {type: dense, vocab: [<UNK>, PG, R, NR], embedding_size: 3}}
  - {name: review_content, type: text, encoder: {type: embed, vocab: [<UNK>, the], max_sequence_length: 256, embedding_size: 4}}
output_features:
  - {name: class, type: category, num_classes: 4, input_size: 256, decoder: {type: classifier, input_size: 256, num_classes: 4}}
trainer: {epochs: 1}
""",
    ),
    "losses for classes that are rare": (
        "adult",
        """
input_features: [{name: age, type: number}, {name: education, type: category}]
output_features:
  - {name: income, type: binary, preprocessing: {fallback_true_label: " >50K"}, loss: {type: focal, alpha: 0.4, gamma: 1.0}}
  - {name: workclass, type: category, loss: {type: focal}}
  - {name: occupation, type: category, loss: {type: poly, epsilon: 2.0, weight: 0.5}}
trainer: {epochs: 1, batch_size: 32}
""",
    ),
    "options beside a switch that is off": (
        "titanic",
        """
input_features: [{name: Fare, type: number}]
output_features: [{name: Survived, type: binary}]
trainer:
  epochs: 1
  increase_batch_size_on_plateau: 0
  increase_batch_size_on_plateau_patience: 10
  increase_batch_size_on_plateau_rate: 1.5
  increase_batch_size_on_plateau_max: 512
  loss_balancing_alpha: 2.0
  learning_rate_scheduler: {decay: cosine, polynomial_power: 2.0, max_lr: 0.1}
""",
    ),
    "the whole training set in one step": (
        "titanic",
        """
input_features:
  - {name: Pclass, type: category}
  - {name: Sex, type: category}
output_features: [{name: Survived, type: binary}]
defaults: {category: {encoder: {type: sparse}}}
trainer:
  batch_size: 32769 # entire training set
  train_steps: 1
  steps_per_checkpoint: 1
  learning_rate: 1
  regularization_lambda: 0.0000057
  optimizer: {type: lbfgs, max_iter: 100, tolerance_grad: 0.0001, history_size: 10}
""",
    ),
}

OPTIMIZERS = {
    "sgd": "momentum: 0.9, nesterov: true, weight_decay: 0.001",
    "adam": "betas: [0.8, 0.99], eps: 0.000001, amsgrad: true",
    "adamw": "weight_decay: 0.01",
    "rmsprop": "momentum: 0.1, alpha: 0.9, centered: true",
    "adagrad": "initial_accumulator_value: 0.1, lr_decay: 0.01",
    "lbfgs": "max_iter: 4, line_search_fn: strong_wolfe",
}
REPORTED = ("wine, several outputs", "rotten tomatoes")
"""Every type of output and of input: whose reports are made, which take as long as the rest."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_ludwig_config_runs_as_it_is(place, datasets, name, monkeypatch):
    dataset, text = CONFIGS[name]
    said = []
    listen = [lambda each: said.append(each) or True]
    monkeypatch.setattr(logging.getLogger("distcore"), "filters", listen)
    place.write(place.config, text)
    skip = () if name in REPORTED else ("--skip_save_report",)
    place.good("experiment", "--dataset", datasets[dataset], *skip)
    if name in REPORTED:
        assert (place.results / "report.html").exists()
        warned = [each for each in said if each.levelno >= logging.WARNING]
        assert not [each for each in warned if "distcore_report" in each.pathname]
    outputs = [each["name"] for each in yaml.safe_load(text)["output_features"]]
    scores = json.loads((place.results / "test_statistics.json").read_text())
    assert set(scores) == {*outputs, "combined"}
    assert all(math.isfinite(each["loss"]) for each in scores.values())
    rows = json.loads((place.results / "description.json").read_text())["data"]["rows"]
    found = pq.read_table(place.results / "predictions.parquet")
    assert found.num_rows == rows["test"] > 0
    assert {f"{each}_predictions" for each in outputs} <= set(found.schema.names)
    curves = json.loads((place.results / "training_statistics.json").read_text())
    assert set(curves) == {"training", "validation"}
    assert set(curves["validation"]) == {*outputs, "combined"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_by_ludwigs_options(place, datasets, name):
    text = f"""
input_features: [{{name: Fare, type: number}}, {{name: Sex, type: category}}]
output_features: [{{name: Survived, type: binary}}]
trainer: {{epochs: 1, optimizer: {{type: {name}, {OPTIMIZERS[name]}}}}}
"""
    place.write(place.config, text)
    skip = ("--skip_save_model", "--skip_save_report")
    place.good("train", "--dataset", datasets["titanic"], *skip)
    curves = json.loads((place.results / "training_statistics.json").read_text())
    assert math.isfinite(curves["validation"]["combined"]["loss"][-1])


def test_a_config_that_ludwig_wrote_out_runs_as_it_is(place, datasets):
    """`ludwig render_config` names every option; each that is not carried out stands at its
    default."""
    text = (HERE / "ludwig_written_out.yaml").read_text()
    for ours, theirs in {
        "age": "runtime",
        "member": "top_critic",
        "city": "content_rating",
        "review": "review_content",
        "size": "stars",
        "color": "class",
        "bought": "recommended",
        "rating": "sentiment",
        "price": "stars",
    }.items():
        text = text.replace(f"column: {ours},", f"column: {theirs},").replace(
            f"column: {ours}\n", f"column: {theirs}\n"
        )
    place.write(place.config, text)
    done = place.good("train", "--dataset", datasets["reviews"])
    assert "`trainer.profiler` was left out" in done.err


def test_older_spellings_and_what_is_left_out_are_said(place, datasets):
    """None is silent: each is named with its line."""
    place.write(place.config, CONFIGS["titanic, older spellings"][1])
    said = place.good("preprocess", "--dataset", datasets["titanic"]).err
    for line, words in (
        (5, "`numerical` is an older spelling of `number`"),
        (23, "`preprocessing.force_split` was left out"),
        (26, "`training` is an older spelling of `trainer`"),
    ):
        assert re.search(rf"line {line}: .*{re.escape(words)}", said), said


def test_hyperopt_is_said_to_be_left_out_by_train(place, datasets):
    place.write(place.config, CONFIGS["adult with a fixed split"][1])
    assert (
        "line 19: `hyperopt` is left out here"
        in place.good("preprocess", "--dataset", datasets["adult"]).err
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("combiner: {type: tabnet}", r"tabnet.*concat"),
        ("trainer: {optimizer: {type: radam}}", r"radam.*adamw"),
        ("preprocessing: {oversample_minority: 0.3}", r"oversample_minority"),
        ("base_model: meta-llama/Llama-2-7b", r"base_model"),
        ("model_type: gbm", r"gbm.*backend\.trainer"),
        ("trainer: {increase_batch_size_on_plateau: 2}", r"increase_batch_size_on_plateau"),
        (
            "trainer: {loss_balancing: famo, loss_balancing_alpha: 2.0}",
            r"`?loss_balancing'.*loss_balancing_alpha",
        ),
        (
            "trainer: {learning_rate_scheduler: {decay: one_cycle, max_lr: 0.1}}",
            r"one_cycle.*cosine",
        ),
        (
            "output_features: [{name: Survived, type: number, decoder: passthrough}]",
            r"passthrough.*regressor",
        ),
        (
            "input_features: [{name: Name, type: text, encoder: mamba2}]",
            r"mamba2.*parallel_cnn, embed",
        ),
    ],
)
def test_what_is_not_carried_out_is_said_by_name(place, datasets, change, expected):
    """Known to Ludwig, so never called a misspelling."""
    section = change.partition(":")[0]
    base = {
        key: value for key, value in yaml.safe_load(CONFIGS["titanic"][1]).items() if key != section
    }
    place.write(place.config, yaml.safe_dump(base) + change + "\n")
    message = place.refused("train", "--dataset", datasets["titanic"])
    assert re.search(expected, message, re.DOTALL)
    assert "did you mean" not in message
