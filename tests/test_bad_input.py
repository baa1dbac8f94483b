"""Bad input through the command line: each mistake is told with its place and the way out;
nothing is left behind."""

import json
import pickle
import re
import shutil

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml

from distcore_data.seals import sealed, unsealed

HEAD = "age,city,bought\n"
GOOD = HEAD + "30,Rome,yes\n41,Oslo,no\n25,Lima,yes\n52,Rome,no\n" * 10
"""Lines 1 to 41; what a case appends stands in line 42."""

# ------------------------------------------------------------------ the dataset

DATASETS = {
    "no such file": (None, r"data\.csv: no such file\. Correct the dataset's path"),
    "empty file": ("", r"data\.csv: the file is empty\. Give a file"),
    "header only": (HEAD, r"data\.csv: .* no rows\. Give a file with rows"),
    "too few fields": (
        GOOD + "30,Rome\n" + "31,Oslo,no\n" * 5,
        r"data\.csv, line 42: 2 values .* Correct the row",
    ),
    "too many fields": (
        GOOD + "30,Rome,yes,more\n",
        r"data\.csv, line 42: 4 values .* Correct the row",
    ),
    "wrong encoding": (
        GOOD.encode() + "33,Zürich,no\n".encode("latin-1"),
        r"line 42: byte 0xfc .* Set .*csv\.encoding",
    ),
    "duplicate columns": (
        GOOD.replace("age,city,bought", "age,city,age,bought").replace(",Rome", ",Rome,1"),
        r"'age' more than once\. Give every column a name",
    ),
    "missing column": (
        GOOD.replace("city", "town", 1),
        r"no column 'city'; it has 'age', 'town', 'bought'\. Correct",
    ),
    "missing target": (
        GOOD.replace("bought", "brought", 1),
        r"no column 'bought' \(did you mean 'brought'\?\)",
    ),
    "one class": (
        HEAD + "30,Rome,yes\n" * 40,
        r"'bought' has one class only, 'yes'.* or predict another column",
    ),
    "target all missing": (
        HEAD + "30,Rome,\n" * 40,
        r"'bought' has no value in any row.* Fill the column",
    ),
    "number all missing": (
        HEAD + ",Rome,yes\n,Oslo,no\n" * 40,
        r"'age' has no value in any row.* Fill the column",
    ),
    "category all missing": (
        HEAD + "30,,yes\n40,,no\n" * 40,
        r"'city' has no value in any row.* Fill the column",
    ),
    "text in numbers": (
        GOOD + "thirty,Rome,yes\n",
        r"line 42, column 'age': 'thirty' is not a number\. Declare",
    ),
    "infinity": (
        GOOD + "inf,Rome,yes\n",
        r"line 42, column 'age': inf is infinite.* Correct the value",
    ),
    "minus infinity": (
        GOOD + "-Infinity,Rome,yes\n",
        r"line 42, column 'age': -Infinity is infinite",
    ),
    "pickle": (
        pickle.dumps({"age": [1, 2]}),
        r"data\.csv: this is a Python pickle.* Write the data as csv or parquet",
    ),
    "unclosed quote": (
        GOOD + '30,"Rome,yes\n' + "31,Oslo,no\n" * 3,
        r"line 42: a quote .* never closes\. Close it",
    ),
    "zero bytes": (GOOD.encode() + b"\0\0\0,Rome,yes\n", r"\(line 42\) is NUL"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_bad_dataset(place, name):
    content, expected = DATASETS[name]
    (place.folder / place.data).unlink()
    if content is not None:
        place.write(place.data, content)
    assert re.search(expected, place.refused("experiment"), re.DOTALL)


def table(**columns):
    given = {"age": [30.0, 41.0] * 20, "city": ["Rome", "Oslo"] * 20, "bought": ["yes", "no"] * 20}
    return pa.table({**given, **columns})


def parquet(path, found, **options):
    pq.write_table(found, path, **options)
    return path


def truncated(place):
    path = parquet(place.folder / "data.parquet", table())
    path.write_bytes(path.read_bytes()[:-20])
    return path


def damaged(place):
    """Bytes of the pages are changed, the footer is whole."""
    path = parquet(place.folder / "data.parquet", table(), compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[60:200] = b"\xff" * 140
    path.write_bytes(content)
    return path


def pickled(place):
    path = place.folder / "data.parquet"
    path.write_bytes(pickle.dumps([1]))
    return path


def folder_of_nothing(place):
    path = place.folder / "empty"
    path.mkdir()
    return path


def cut_feather(place):
    path = place.folder / "data.feather"
    feather.write_feather(table(), str(path), compression="uncompressed")
    path.write_bytes(path.read_bytes()[:-30])
    return path


FILES = {
    "truncated parquet": (truncated, r"data\.parquet: not a whole Parquet file"),
    "damaged parquet": (damaged, r"data\.parquet"),
    "pickle named parquet": (pickled, r"data\.parquet.*pickle"),
    "folder of nothing": (folder_of_nothing, r"empty"),
    "cut feather": (cut_feather, r"data\.feather"),
    "text in numbers in parquet": (
        lambda place: parquet(place.folder / "data.parquet", table(age=["30", "x"] * 20)),
        r"row 1, column 'age': 'x' is not a number|'age'.*'x'",
    ),
    "infinity in parquet": (
        lambda place: parquet(
            place.folder / "data.parquet", table(age=[30.0] * 39 + [float("inf")])
        ),
        r"row 39, column 'age': inf",
    ),
    "nested column": (
        lambda place: parquet(place.folder / "data.parquet", table(age=[{"a": 1}] * 40)),
        r"column 'age'",
    ),
    "bad json line": (
        lambda place: place.write(
            "data.jsonl", '{"age": 1, "city": "Rome", "bought": "yes"}\n{"age": 2,\n'
        ),
        r"data\.jsonl, line 2",
    ),
    "cut gz": (
        lambda place: place.write(
            "data.csv.gz", __import__("gzip").compress(GOOD.encode() * 50)[:-30]
        ),
        r"data\.csv\.gz",
    ),
    "unknown suffix": (lambda place: place.write("data.xlsx", b"PK\x03\x04"), r"data\.xlsx"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file(place, name):
    make, expected = FILES[name]
    message = place.refused("train", "--dataset", make(place))
    assert re.search(expected, message, re.DOTALL)
    assert ".." not in message
    assert "\n" not in message


def test_nan_is_a_missing_value_and_no_number(place):
    """NaN in numbers is what pandas makes of an empty cell; it is filled, never trained on."""
    place.write("data.csv", GOOD + "nan,Rome,yes\nNaN,Oslo,no\n,Lima,no\n" * 5)
    place.good("train")
    weights = json.loads((place.results / "training_statistics.json").read_text())
    assert all(value == value for value in weights["training"]["combined"]["loss"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--dataset", "a.csv", "--training_set", "b.csv"], r"Both .*dataset.* and .*training_set"),
        (["--training_set", "nothing.csv"], r"nothing\.csv: no such file"),
        (["--training_set", " "], r"name of a dataset is empty"),
        (["--logging_level", "loud"], r"no logging level 'loud'"),
        (["--gpus", "many"], r"--gpus 'many'"),
        (["--gpus", "99"], r"--gpus 99: no GPU can be used here"),
        (
            ["--random_seed", "abc"],
            r"--random_seed.*invalid int value: 'abc'\. See `distcore train --help`",
        ),
        (["--trainng_set=x"], r"no option --trainng_set\. Did you mean --training_set\?"),
        (["there"], r"'there' is one word too many"),
        (["--backend", "ray"], r"pip install distcore-ray"),  # absent below
        (["--config_str", "{}"], r"input_features"),
        (["--model_load_path", "nowhere"], r"nowhere: there is no such folder"),
        (["--model_load_path", __file__], r"test_bad_input\.py .* only \.safetensors are read"),
        (["--model_resume_path", "nowhere"], r"nowhere holds no run to go on with"),
        (["--data_format", "xls"], r"xls"),
    ],
)
def test_a_bad_command_line(place, words, expected, absent):
    absent("distcore-ray")
    message = place.refused("train", *words)
    assert re.search(expected, message)


def test_weights_to_start_from_are_looked_at_before_any_work(place, trained, monkeypatch):
    """The whole file was hashed and the cache built before its header was read. A name that is not
    UTF-8, which safetensors cannot open, is none the worse."""
    content = (trained / "model" / "weights.safetensors").read_bytes()
    for name, wrong in {"cut": content[:-8], "long": content + b"1", "empty": b""}.items():
        path = place.write(f"{name}.safetensors", wrong)
        with monkeypatch.context() as patch:
            patch.delattr("distcore.workflow.initial_weights.digest_file")
            message = place.refused("train", "--model_load_path", path)
        assert f"{name}.safetensors cannot be read as safetensors" in message
    place.good("train", "--model_load_path", place.write("\udcff.safetensors", content))


# ------------------------------------------------------------------ the config


def config_with(**changes):
    """The small config with other sections."""
    return yaml.safe_dump({**yaml.safe_load(CONFIG), **changes}, sort_keys=False)


CONFIG = """\
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
trainer: {epochs: 1, batch_size: 32}
backend: local
"""

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(f'*{before}' for _ in range(10))}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

TEXTS = {
    "no such config": (None, r"config\.yaml.*\n.*no such file"),
    "empty": ("", r"is empty"),
    "alias bomb": (BOMB, r"line \d+: .*alias bomb"),
    "duplicate keys": (
        CONFIG + "trainer: {epochs: 2}\n",
        r"line 8: trainer: .*second time \(first in line 6\)",
    ),
    "Python tag": (
        CONFIG + 'trainer2: !!python/object/apply:os.system ["true"]\n',
        r"line 8: .*tag .*not allowed",
    ),
    "syntax": (CONFIG + "trainer: [1, 2\n", r"line \d+: YAML syntax error"),
    "not utf-8": (CONFIG.encode() + b"# \xff\n", r"line 8: byte 0xff is not UTF-8"),
    "a pickle": (pickle.dumps({"input_features": []}), r"pickle"),
    "no outputs": (
        "input_features: [{name: age, type: number}]\n",
        r"output_features: is required",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_bad_config(place, name):
    content, expected = TEXTS[name]
    (place.folder / place.config).unlink()
    if content is not None:
        place.write(place.config, content)
    message = place.refused("experiment")
    assert re.search(expected, message)


OPTIONS = {
    "top": ("trainr: {epochs: 1}", r"line 8: trainr: .*trainer"),
    "feature": (
        "input_features: [{name: age, type: number, preprocesing: {}}]",
        r"line 8: input_features\[0\]\.preprocesing: .*preprocessing",
    ),
    "output feature": (
        "output_features: [{name: bought, type: binary, treshold: 0.3}]",
        r"output_features\[0\]\.treshold: .*threshold",
    ),
    "feature type": (
        "input_features: [{name: age, type: numbr}]",
        r"input_features\[0\]\.type: .*number",
    ),
    "feature preprocessing": (
        "input_features: [{name: age, type: number, preprocessing: {normalisation: zscore}}]",
        r"input_features\[0\]\.preprocessing\.normalisation: .*normalization",
    ),
    "encoder": (
        "input_features: [{name: city, type: category, encoder: {type: dense, embeding_size: 3}}]",
        r"input_features\[0\]\.encoder\.embeding_size: .*embedding_size",
    ),
    "encoder type": (
        "input_features: [{name: city, type: category, encoder: dens}]",
        r"input_features\[0\]\.encoder.*dense",
    ),
    "decoder": (
        "output_features: [{name: bought, type: binary, decoder: {fc_outputsize: 3}}]",
        r"output_features\[0\]\.decoder\.fc_outputsize: .*fc_output_size",
    ),
    "loss": (
        "output_features: [{name: bought, type: binary, loss: {wieght: 2}}]",
        r"output_features\[0\]\.loss\.wieght: .*weight",
    ),
    "preprocessing": ("preprocessing: {splt: random}", r"line 8: preprocessing\.splt: .*split"),
    "split": (
        "preprocessing: {split: {type: random, probabilites: [1, 0, 0]}}",
        r"preprocessing\.split\.probabilites: .*probabilities",
    ),
    "split type": ("preprocessing: {split: randm}", r"preprocessing\.split.*random"),
    "csv": (
        "preprocessing: {csv: {delimeter: ';'}}",
        r"preprocessing\.csv\.delimeter: .*delimiter",
    ),
    "combiner": (
        "combiner: {type: concat, output_sise: 3}",
        r"line 8: combiner\.output_sise: .*output_size",
    ),
    "combiner type": ("combiner: concatt", r"combiner.*concat"),
    "defaults": (
        "defaults: {number: {preprocessing: {normalisation: zscore}}}",
        r"defaults\.number\.preprocessing\.normalisation: .*normalization",
    ),
    "defaults type": ("defaults: {nmber: {}}", r"defaults\.nmber: .*number"),
    "trainer": (
        "trainer: {epochs: 1, learnig_rate: 0.1}",
        r"line 8: trainer\.learnig_rate: .*learning_rate",
    ),
    "optimizer": (
        "trainer: {optimizer: {type: adam, wheight_decay: 1}}",
        r"trainer\.optimizer\.wheight_decay: .*weight_decay",
    ),
    "optimizer type": ("trainer: {optimizer: adamm}", r"trainer\.optimizer.*adam"),
    "scheduler": (
        "trainer: {learning_rate_scheduler: {decy: linear}}",
        r"trainer\.learning_rate_scheduler\.decy: .*decay",
    ),
    "gradient clipping": (
        "trainer: {gradient_clipping: {clipnrm: 1}}",
        r"trainer\.gradient_clipping\.clipnrm: .*clipnorm",
    ),
    "backend": (
        "backend: {type: local, cache_dirr: x}",
        r"line 8: backend\.cache_dirr: .*cache_dir",
    ),
    "backend type": ("backend: {type: locl}", r"locl.*local"),
    "loader": (
        "backend: {type: local, loader: {window_size: 3}}",
        r"backend\.loader\.window_size: .*window_size_bytes",
    ),
    "processor": (
        "backend: {type: local, processor: {paralelism: 3}}",
        r"backend\.processor\.paralelism: .*parallelism",
    ),
    "processor type": ("backend: {type: local, processor: lcal}", r"lcal"),
    "trainer of the backend": (
        "backend: {type: local, trainer: {num_wokers: 3}}",
        r"backend\.trainer\.num_wokers: .*num_workers",
    ),
    "cache format": ("backend: {type: local, cache_format: parqet}", r"parqet.*parquet"),
    "cache format options": (
        "backend: {type: local, cache_format: {type: parquet, compresion: zstd}}",
        r"backend\.cache_format\.compresion: .*compression",
    ),
    "batch size 0": ("trainer: {batch_size: 0}", r"line 8: trainer\.batch_size: .*\b0\b"),
    "negative learning rate": (
        "trainer: {learning_rate: -0.1}",
        r"line 8: trainer\.learning_rate: .*-0\.1",
    ),
    "learning rate nan": ("trainer: {learning_rate: .nan}", r"trainer\.learning_rate: "),
    "epochs is text": ("trainer: {epochs: ten}", r"trainer\.epochs: "),
    "seed": ("random_seed: -3", r"line 8: random_seed: "),
    "known but not carried out": (
        "preprocessing: {oversample_minority: 0.3}",
        r"preprocessing\.oversample_minority: .*not carried out",
    ),
    "column names differ": (
        "input_features: [{name: age, type: number}, {name: age, type: category}]",
        r"input_features\[1\]\.name: .*'age'",
    ),
    "fewer threads than none": (
        "backend: {type: local, trainer: {type: data_parallel, resources_per_worker: {CPU: -1}}}",
        r"line 8: backend\.trainer\.resources_per_worker\.CPU: .*equal to 0",
    ),
    **{
        f"fewer workers at most than at least, {name}": (
            f"backend: {{type: local, trainer: {{type: {name}, num_workers: [3, 2]}}}}",
            r"line 8: backend\.trainer\.num_workers: \[3, 2\] must be \[fewest, most\]",
        )
        for name in ("data_parallel", "horovod")
    },
    "a resource by another name": (
        "backend: {type: local, trainer: {type: data_parallel, resources_per_worker: {cpu: 2}}}",
        r"line 8: backend\.trainer\.resources_per_worker: cpu: this resource is called CPU",
    ),
    "threads without end": (
        "backend: {type: local, trainer: {type: horovod, resources_per_worker: {CPU: .inf}}}",
        r"line 8: backend\.trainer\.resources_per_worker\.CPU: .*finite",
    ),
    "predivided by infinity": (
        "backend: {type: local, trainer: {type: horovod, gradient_predivide_factor: .inf}}",
        r"line 8: backend\.trainer\.gradient_predivide_factor: .*finite",
    ),
    "trees that learn without end": (
        "backend: {type: local, trainer: {type: lightgbm, learning_rate: .inf}}",
        r"line 8: backend\.trainer\.learning_rate: .*finite",
    ),
    "patience without end": (
        "backend: {type: ray, patience: .inf}",
        r"line 8: backend\.patience: .*finite",
    ),
    "password in a URL": (
        "backend: {type: local, cache_dir: 's3://me:secret@host/x'}",
        r"backend\.cache_dir: .*cache_credentials",
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_bad_option(place, name):
    """The bad section stands in line 8, in the place of a good one."""
    line, expected = OPTIONS[name]
    section = line.partition(":")[0]
    kept = yaml.safe_load(CONFIG)
    kept.pop(section, None)
    lines = [json.dumps({key: value})[1:-1] for key, value in kept.items()]
    place.write(place.config, "\n".join([*lines, *["#"] * (7 - len(lines)), line]) + "\n")
    message = place.refused("experiment")
    assert re.search(expected, message, re.DOTALL)
    assert "secret" not in message


def test_a_metric_that_no_output_has(place):
    """Metrics belong to fitted features, so this is told after preprocessing; the cache is good
    and stays."""
    place.write(place.config, CONFIG.replace("epochs: 1", "epochs: 1, validation_metric: roc_acu"))
    place.good("preprocess")
    message = place.refused("train")
    assert re.search(
        r"config\.yaml: 1 mistake\n"
        r"  line \d+: trainer\.validation_metric: .* did you mean 'roc_auc'",
        message,
    )


def test_what_only_the_data_show_is_told_with_the_line_of_the_config(place):
    place.write(
        place.config,
        CONFIG.replace(
            "type: binary", "type: binary, loss: {class_weights: {yes: 1.0, maybe: 2.0}}"
        ),
    )
    message = place.refused("train")
    assert re.search(
        r"config\.yaml: 1 mistake\n  line \d+: output_features\[0\]\.loss\.class_weights: ", message
    ), message


def test_more_workers_than_lanes_are_refused_before_one_is_started(place, monkeypatch):
    """A million processes were begun for a mistyped number, each to be told this."""
    monkeypatch.setattr("distcore_local.backend.LocalBackend.run_group", None)
    trainer = {"type": "data_parallel", "num_workers": 1_000_000}
    place.write(place.config, config_with(backend={"type": "local", "trainer": trainer}))
    place.good("preprocess")
    message = place.refused("train")
    assert re.search(r"backend\.loader\.lanes: \d+ lanes cannot be shared by 1000000", message)


def test_every_mistake_is_told_at_once(place):
    place.write(
        place.config,
        CONFIG.replace("epochs: 1, batch_size: 32", "epochs: 0, batch_size: -1, learnig_rate: 1")
        + "trainr: 1\n",
    )
    message = place.refused("train")
    assert "4 mistakes" in message
    assert re.findall(r"line (\d+): ([\w.]+):", message) == [
        ("6", "trainer.batch_size"),
        ("6", "trainer.epochs"),
        ("6", "trainer.learnig_rate"),
        ("8", "trainr"),
    ]


# ------------------------------------------------------------------ places of results


def test_a_name_of_a_folder_that_is_too_long_is_told(place):
    said = r"cannot be written to \S+: File name too long\. Give another "
    message = place.refused("train", "--output_directory", "a" * 300)
    assert re.search(said + "folder with --output_directory", message)


def test_a_path_that_holds_nul_is_told_with_its_line(place):
    config = (place.folder / place.config).read_text()
    nul = 'backend: {type: local, cache_dir: "a\\0b"}'
    place.write(place.config, config.replace("backend: local", nul))
    assert "backend.cache_dir: no path holds a NUL character" in place.refused("train")


def test_a_folder_in_place_of_the_ledger_is_told(place):
    place.good("train")
    ledger = place.results / "ledger.jsonl"
    ledger.unlink()
    ledger.mkdir()
    message = place.refused("train", "--model_resume_path", place.results, code=1)
    assert re.search(r"the ledger .* failed: .*Is a directory.*ledger\.jsonl", message)


# ------------------------------------------------------------------ predict and evaluate


def test_predicting_without_an_input_column(place, trained):
    place.write("new.csv", "age,bought\n30,yes\n")
    message = place.refused(
        "predict", "--model_path", trained, "--dataset", place.folder / "new.csv"
    )
    assert re.search(
        r"new\.csv: there is no column 'city'; it has 'age', 'bought'\. .*(column|dataset)", message
    )


def test_many_missing_columns_are_counted(place):
    features = ", ".join(f"{{name: absent{number}, type: number}}" for number in range(300))
    config = place.write(
        "many.yaml",
        f"input_features: [{features}]\noutput_features: [{{name: bought, type: binary}}]\n",
    )
    message = place.refused(*place.words("preprocess", "--config", config))
    assert "there are no columns 'absent0', " in message
    assert "'absent4' and 295 more; it has 'age', 'city', 'bought'." in message


def test_predicting_needs_no_target_and_evaluating_does(place, trained):
    place.write("new.csv", "age,city\n30,Rome\n")
    message = place.refused(
        "evaluate", "--model_path", trained, "--dataset", place.folder / "new.csv"
    )
    assert "there is no column 'bought'" in message
    assert "needs the targets; rows without them can be predicted (`distcore predict`)" in message
    place.write("less.csv", "age,bought\n30,yes\n")
    message = place.refused(
        "evaluate", "--model_path", trained, "--dataset", place.folder / "less.csv"
    )
    assert "there is no column 'city'" in message
    assert "predicted" not in message
    place.good("predict", "--model_path", trained, "--dataset", place.folder / "new.csv")


def test_evaluating_without_any_target_is_refused(place, trained):
    place.write("new.csv", "age,city,bought\n30,Rome,\n31,Oslo,\n")
    message = place.refused(
        "evaluate", "--model_path", trained, "--dataset", place.folder / "new.csv"
    )
    assert "There is nothing to evaluate" in message
    assert not (place.folder / "results" / "predictions.parquet").exists()


def test_a_category_never_seen_is_predicted_as_unknown(place, trained):
    """An input value that training never saw is one more unknown value: every row gets its
    prediction."""
    place.write("new.csv", "age,city\n30,Rome\n30,Atlantis\n30,Mu\n30,\n")
    place.good("predict", "--model_path", trained, "--dataset", place.folder / "new.csv")
    found = pq.read_table(place.folder / "results" / "predictions.parquet")
    assert found.num_rows == 4
    probabilities = found.column(found.schema.names.index("bought_probabilities_yes")).to_pylist()
    assert probabilities[1] == probabilities[2] == probabilities[3]


def test_a_class_never_seen_is_named_when_evaluating(place, trained):
    place.write("new.csv", "age,city,bought\n30,Rome,yes\n30,Rome,perhaps\n30,Rome,no\n")
    message = place.refused(
        "evaluate", "--model_path", trained, "--dataset", place.folder / "new.csv"
    )
    assert re.search(r"'bought'.*'perhaps'", message)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("age,city\nold,Rome\n", r"line 2, column 'age': 'old' is not a number"),
        ("age,city\ninf,Rome\n", r"line 2, column 'age': inf is infinite"),
        ("age,city\n30\n", r"line 2: 1 value where the header has 2"),
        ("sep=;\nage;city\n30;Rome\n", r"the first line, 'sep=;', is a note for Excel"),
        ("age,city\n", r"no rows"),
        ("", r"empty"),
    ],
)
def test_predicting_bad_rows_leaves_no_results(place, trained, content, expected):
    place.write("new.csv", content)
    message = place.refused(
        "predict", "--model_path", trained, "--dataset", place.folder / "new.csv"
    )
    assert re.search(expected, message)


def test_a_bad_row_after_many_good_ones_leaves_no_predictions(place, trained):
    place.write("new.csv", "age,city\n" + "30,Rome\n" * 800_000 + "old,Rome\n")
    message = place.refused(
        "predict", "--model_path", trained, "--dataset", place.folder / "new.csv"
    )
    assert "line 800002, column 'age': 'old' is not a number" in message


@pytest.mark.parametrize("size", ["0", "-3"])
def test_predicting_with_a_bad_batch_size(place, trained, size):
    message = place.refused("predict", "--model_path", trained, "--batch_size", size)
    assert "batch_size" in message


# ------------------------------------------------------------------ the model folder


def cut(model):
    (model / "weights.safetensors").write_bytes((model / "weights.safetensors").read_bytes()[:-8])


def emptied(model):
    (model / "weights.safetensors").write_bytes(b"")


def changed(model):
    content = bytearray((model / "weights.safetensors").read_bytes())
    content[-5] ^= 1
    (model / "weights.safetensors").write_bytes(content)


def removed(model):
    (model / "weights.safetensors").unlink()


def swapped(model):
    """Weights of another model, with a manifest that is otherwise whole."""
    from safetensors.numpy import load_file, save_file

    weights = load_file(model / "weights.safetensors")
    save_file({name: each * 2 for name, each in weights.items()}, model / "weights.safetensors")


def pickled_weights(model):
    (model / "weights.safetensors").write_bytes(pickle.dumps({"a": 1}))


def cut_manifest(model):
    (model / "model.json").write_text((model / "model.json").read_text()[:-40])


def newer(model):
    saved = unsealed((model / "model.json").read_bytes())
    (model / "model.json").write_bytes(sealed({**saved, "version": 99}))


def climbing(model):
    """A manifest that names a file outside the folder."""
    saved = unsealed((model / "model.json").read_bytes())
    saved["files"]["../../data.csv"] = {"bytes": 1, "sha256": "0"}
    (model / "model.json").write_bytes(sealed(saved))


def without_model(model):
    shutil.rmtree(model)


def resigned(model):
    """Weights of another shape whose digests were written into the manifest: whole, but not this
    model's."""
    import hashlib

    from safetensors.numpy import load_file, save_file

    weights = load_file(model / "weights.safetensors")
    save_file(
        {name: each[..., :1].copy() for name, each in weights.items()},
        model / "weights.safetensors",
    )
    content = (model / "weights.safetensors").read_bytes()
    saved = unsealed((model / "model.json").read_bytes())
    saved["files"]["weights.safetensors"] = {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (model / "model.json").write_bytes(sealed(saved))


def without_metadata(model):
    saved = unsealed((model / "model.json").read_bytes())
    del saved["metadata"]["city"]
    (model / "model.json").write_bytes(sealed(saved))


def strange_plugins(model):
    saved = unsealed((model / "model.json").read_bytes())
    saved["plugins"] = [{"kind": "distcore.models"}]
    (model / "model.json").write_bytes(sealed(saved))


DAMAGES = {
    cut: r"weights\.safetensors was changed .* bytes instead of \d+",
    emptied: r"weights\.safetensors was changed .* 0 bytes instead of",
    changed: r"weights\.safetensors was changed .* other content",
    removed: r"weights\.safetensors is missing",
    swapped: r"weights\.safetensors was changed",
    pickled_weights: r"weights\.safetensors was changed",
    cut_manifest: r"model\.json is damaged",
    newer: r"model\.json has version 99; .* install that version",
    climbing: r"names a file outside its folder: '\.\./\.\./data\.csv'\. Do not use",
    without_model: r"holds no model",
    resigned: r"The weights in .* are of another model",
    without_metadata: r"incomplete|metadata|'city'",
    strange_plugins: r"model\.json is none that distcore wrote: plugins is not what it should be",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_damaged_model(place, trained, damage, command):
    shutil.copytree(trained, place.folder / "mine")
    damage(place.folder / "mine" / "model")
    message = place.refused(command, "--model_path", place.folder / "mine")
    assert re.search(DAMAGES[damage], message)


@pytest.mark.parametrize(
    ("split", "bad", "said"),
    [("fixed", "9", "'9' is no split"), ("datetime", "soon", "'soon' is no date")],
)
def test_a_value_that_splits_nothing_is_told_by_file_and_line(place, split, bad, said):
    good = {"fixed": "0", "datetime": "2024-01-01"}[split]
    rows = "".join(f"{each},Rome,{'yes' if each % 2 else 'no'},{good}\n" for each in range(30))
    path = place.write("rows.csv", f"age,city,bought,s\n\n{rows}31,Rome,yes,{bad}\n")
    asked = f"preprocessing.split={{type: {split}, column: s}}"
    message = place.refused("preprocess", "--dataset", path, "--set", asked)
    assert f"{path}, line 33, column 's': {said}" in message


@pytest.mark.parametrize("given", ["sample_ratio=1e-9", "sample_ratio="])
def test_a_sample_of_no_row_is_no_empty_column(place, given):
    message = place.refused("preprocess", "--set", f"preprocessing.{given}")
    assert "preprocessing.sample_ratio" in message
    assert "Fill the column" not in message
    assert "None" not in message


@pytest.mark.parametrize("given", ["sample_size=4", "sample_ratio=0.017"])
def test_a_sample_that_is_too_small_is_told(place, given):
    """As a column of one class, or a split without rows to train on, it would be told of what is
    not to blame."""
    name, _, value = given.partition("=")
    message = place.refused("train", "--set", f"preprocessing.{given}")
    assert f"preprocessing.{name}: {value} takes 1 of the 240 rows" in message
    assert "raise it or leave it out" in message
    message = place.refused(
        "train",
        *("--set", f"preprocessing.{given}"),
        *("--set", "output_features=[{name: age, type: number}]"),
        *("--set", "input_features=[{name: city, type: category}]"),
        *("--set", "preprocessing.split={probabilities: [1e-9, 0.5, 0.499999999]}"),
    )
    assert "no row" in message
    assert f"preprocessing.{name}: {value} takes 1 of the 240 rows" in message


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("given", ["mine", "mine/model"])
def test_a_run_that_was_stopped_can_be_gone_on_with(place, trained, command, given):
    shutil.copytree(trained, place.folder / "mine")
    shutil.rmtree(place.folder / "mine" / "model")
    message = place.refused(command, "--model_path", place.folder / given)
    assert f"`distcore train --model_resume_path {place.folder / 'mine'} --dataset" in message
    assert "--skip_save_model" not in message
    shutil.rmtree(place.folder / "mine" / "checkpoints")
    assert "without --skip_save_model" in place.refused(
        command, "--model_path", place.folder / given
    )


@pytest.mark.parametrize("damage", [cut, removed, without_model], ids=lambda each: each.__name__)
def test_a_damaged_model_is_not_started_from(place, trained, damage):
    shutil.copytree(trained, place.folder / "mine")
    damage(place.folder / "mine" / "model")
    message = place.refused("train", "--model_load_path", place.folder / "mine")
    assert re.search(DAMAGES[damage], message)


OWN = """
from pathlib import Path
import torch

Path("imported").touch()

class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))

    def forward(self, batch):
        return self.layers(batch["age"][:, None])
"""


def test_a_model_of_the_users_own_class_is_run_only_when_trusted(place):
    place.write("own_net_of_this_test.py", OWN)
    place.write(
        "config.yaml",
        CONFIG + 'model: {type: module, class: "own_net_of_this_test:Net", options: {width: 3}}\n',
    )
    done = place.process("train", PYTHONPATH=str(place.folder))
    assert done.code == 0, done.err
    (place.folder / "imported").unlink()
    before = place.listing()
    words = ("predict", "--model_path", place.results)
    done = place.process(*words, PYTHONPATH=str(place.folder))
    assert done.code == 2
    assert re.search(r"distcore: .*own_net_of_this_test:Net.* say so with --trust", done.err)
    assert place.listing() == before
    done = place.process(*words, "--trust", PYTHONPATH=str(place.folder))
    assert done.code == 0, done.err
    assert (place.folder / "imported").exists()


def test_no_pickle_lies_in_what_is_written(place):
    """Neither in the cache, nor in checkpoints, nor in the model."""
    place.good("experiment")
    files = [path for path in place.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in files)
    for path in files:
        assert path.suffix in (
            ".csv",
            ".yaml",
            ".json",
            ".parquet",
            ".safetensors",
            ".html",
            ".jsonl",
        ), path
        assert path.read_bytes()[:2] not in (b"\x80\x04", b"\x80\x05", b"\x80\x02", b"PK"), path


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_results_that_cannot_be_written(place, trained, command):
    """The folder would lie inside a file."""
    more = [] if command == "train" else ["--model_path", trained]
    message = place.refused(
        command, *more, "--output_directory", place.folder / "data.csv" / "results"
    )
    assert re.search(r"data\.csv/results: .*data\.csv is a file.*--output_directory", message)
    link = place.folder.parent / "link"
    link.symlink_to(place.folder.parent / "disk")  # which is not mounted, say
    message = place.refused(command, *more, "--output_directory", link / "results")
    assert re.search(r"/link is a link to .*/disk, which is gone\. .*--output_directory", message)


def test_another_run_is_not_resumed_and_stays_as_it_was(place):
    """Not even description.json changes: a later resume reads the config from it."""
    place.good("train")
    place.write("config.yaml", CONFIG + "random_seed: 7\n")
    place.good("preprocess")
    message = place.refused("train", "--model_resume_path", place.results)
    assert re.search(r"is of another run: .*random_seed was 42 and is 7", message)
    place.write("config.yaml", CONFIG.replace("batch_size: 32", "batch_size: 16"))
    message = place.refused("train", "--model_resume_path", place.results)
    assert "a step had 32 rows over all workers and has 16" in message


def test_a_stopped_search_is_no_model_and_is_gone_on_with_by_its_own_command(place):
    place.write("search/search.json", "{}")
    (place.folder / "search" / "trials").mkdir()
    message = place.refused("predict", "--model_path", place.folder / "search")
    assert f"`distcore hyperopt --model_resume_path {place.folder}/search --dataset …`" in message
    assert "If it was stopped, `" in message
    assert "If it is over and was not to save models, train once with the values of" in message
    assert "if every trial failed, their trial.json say why" in message
