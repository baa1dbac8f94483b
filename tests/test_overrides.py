"""What eases the command line: --set, ${ENV:…}, words without options, standard input,
suggestions, completion."""

from __future__ import annotations

import codecs
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distcore.cli.main import main
from distcore.config import document_of, load_config
from distcore.config.overrides import override
from distcore.config.yaml_document import parse
from distcore_core.errors import ConfigError, UserError
from distcore_data.flat_config import flattened

PENGUINS = Path(__file__).parent.parent / "examples" / "penguins"
CONFIG = """
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
backend: local
random_seed: 7
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("config.yaml", "penguins.csv"):
        shutil.copy(PENGUINS / name, tmp_path / name)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    try:
        code = main(list(words))
    except SystemExit as ended:  # argparse's own way
        code = ended.code
    assert code == 2
    return " ".join(capsys.readouterr().err.split())


# ------------------------------------------------------------------ --set


def setting(*settings: str):
    return override(parse(CONFIG, "c.yaml"), settings).values


def test_values_are_yaml_and_sections_are_made() -> None:
    found = setting(
        "trainer.epochs=3",
        "trainer.learning_rate=1e-3",
        "trainer.decay=off",
        "combiner={type: concat}",
    )
    assert found["trainer"] == {"epochs": 3, "learning_rate": 1e-3, "decay": False}
    assert found["combiner"] == {"type": "concat"}
    assert setting("backend.trainer.num_workers=2")["backend"] == {
        "type": "local",
        "trainer": {"num_workers": 2},
    }
    assert setting("trainer.epochs=3", "trainer.epochs=4", "trainer=")["trainer"] is None


@pytest.mark.parametrize(("written", "set_"), [("trainer", "training"), ("training", "trainer")])
def test_a_setting_of_a_section_s_other_spelling_is_of_the_section_that_is_there(
    written: str, set_: str
) -> None:
    """The one of the two that was no longer spelled so had no effect: the setting, or the whole
    section beside it."""
    text = f"{CONFIG}{written}: {{epochs: 30, batch_size: 8}}"
    found = load_config(override(parse(text, "c.yaml"), [f"{set_}.epochs=3"])).trainer
    assert (found.epochs, found.batch_size) == (3, 8)


def test_features_by_name_and_by_number() -> None:
    assert setting("input_features.city.type=text")["input_features"][1]["type"] == "text"
    assert setting("input_features[0].type=text")["input_features"][0]["type"] == "text"


def test_a_feature_whose_name_is_a_number_is_found_by_it() -> None:
    """`input_features.1` was the second feature, whatever it was called."""
    text = "input_features: [{name: '1', type: number}, {name: 2, type: number}]"
    for path, at in (("input_features.1", 0), ("input_features.2", 1), ("input_features[1]", 1)):
        found = override(parse(text, "c.yaml"), [f"{path}.type=text"]).values["input_features"]
        assert [each["type"] == "text" for each in found] == [at == 0, at == 1]


def test_a_feature_is_found_by_its_name_with_points_and_blanks() -> None:
    text = "input_features: [{name: age}, {name: age.}, {name: .x}, {name: x}, {name: New York}]"
    for at, name in ((1, "age."), (2, ".x"), (4, "New York")):
        found = override(parse(text, "c.yaml"), [f"input_features[{name}].type=text"]).values
        assert [each.get("type") for each in found["input_features"]] == [
            "text" if each == at else None for each in range(5)
        ]


def test_what_diff_compare_and_resuming_call_an_option_sets_it() -> None:
    fc_layers = "[{name: fc.1, size: 8}, {name: 'fc', size: 9}]"
    settings = [f"input_features.city.encoder.layers={fc_layers}", "trainer.betas=[0.9, 0.99]"]
    settings += ["combiner.layers=[{size: 8}, {size: 9}]"]
    told = [path for path, place, _ in flattened(setting(*settings)) if place]
    assert "input_features.city.encoder.layers[fc.1].size" in told
    for path in told:
        changed = setting(*settings, f"{path}=77")
        assert [each for name, _, each in flattened(changed) if name == path] == [77]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "input_features.citty.type=text",
            "nothing in the list is called 'citty'; did you mean 'city'?",
        ),
        ("input_features[7].type=text", "there is no [7]: the list has 2, counted from 0"),
        ("random_seed.x=1", "random_seed is 7, which has no parts. Set random_seed itself."),
        ("input_features[0].name.x=1", None),
        ("trainer.epochs={", "YAML syntax error"),
    ],
)
def test_a_path_that_leads_nowhere(given: str, said: str | None) -> None:
    if said is None:
        assert setting(given)["input_features"][0]["name"] == {"type": "age", "x": 1}
        return
    with pytest.raises(ConfigError) as caught:
        setting(given)
    assert said in str(caught.value)
    assert f"--set {given.partition('=')[0]}" in str(caught.value)


def test_a_value_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        setting("backend.cache_credentials={secret: hush")
    assert str(caught.value).startswith("--set backend.cache_credentials: 1 mistake\n")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("given", ["trainer.epochs", "=3", "trainer..epochs=3", "a[=3"])
def test_what_is_no_setting(given: str) -> None:
    with pytest.raises(UserError, match="write a path and a value, such as --set "):
        setting(given)


def test_settings_are_checked_like_the_config(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--set",
        "trainer.epochz=3",
        "--set",
        "trainer.batch_size=many",
        "--set",
        "traner.epochs=3",
    )
    message = refused(capsys, "plan", "config.yaml", "penguins.csv", *words)
    assert "--set trainer.epochz: unknown option 'epochz'; did you mean 'epochs'?" in message
    assert "--set trainer.batch_size: " in message
    assert "--set traner.epochs: unknown option 'traner'; did you mean 'trainer'?" in message


@pytest.mark.system
def test_a_run_records_what_was_set(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (place / "penguins.csv").read_bytes()
    words = [
        sys.executable,
        "-m",
        "distcore",
        "train",
        "config.yaml",
        "-",
        "--set",
        "trainer.epochs=2",
    ]
    done = subprocess.run(words, input=data, capture_output=True, timeout=300, check=True)
    description = json.loads(
        (place / "results" / "experiment_run" / "description.json").read_text()
    )
    assert description["config"]["trainer"]["epochs"] == 2
    assert (
        description["data"]["rows"] == {"train": 206, "validation": 70, "test": 68}
        or sum(description["data"]["rows"].values()) == 344
    )
    assert b"trained 2 epochs" in done.stderr


def test_a_flag_that_is_an_option_of_the_config(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "write --set trainer.epochs=5." in refused(
        capsys, "train", "config.yaml", "penguins.csv", "--epochs", "5"
    )
    assert "--set trainer.learning_rate=0.1." in refused(capsys, "train", "--learning-rate=0.1")
    assert "Did you mean --dataset?" in refused(capsys, "train", "--datset", "x")


# ------------------------------------------------------------------ words, paths, standard input


def test_words_without_options(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "config.yaml", "penguins.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert "'more.csv' is one word too many" in refused(
        capsys, "plan", "config.yaml", "penguins.csv", "more.csv"
    )
    assert "is one word too many" in refused(
        capsys, "plan", "config.yaml", "a.csv", "--dataset", "penguins.csv"
    )


def test_a_model_and_its_rows_without_options(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `train` takes its config and rows; `init` its rows, and `verify` where they are now."""
    assert main(["train", "config.yaml", "penguins.csv", "--set", "trainer.epochs=1"]) == 0
    run = "results/experiment_run"
    assert main(["predict", run, "penguins.csv", "-od", "predicted"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "--dataset", "penguins.csv", run]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["OUTPUT", "METRIC", "SCORE"]
    assert main(["init", "penguins.csv", "--target", "species"]) == 0
    assert main(["verify", run, "penguins.csv"]) == 0
    assert "'more.csv' is one word too many" in refused(
        capsys, "predict", run, "penguins.csv", "more.csv"
    )
    assert main(["evaluate"]) == 2
    said = capsys.readouterr().err
    assert "No model (--model_path) and no dataset (--dataset) was given" in said
    assert "`distcore evaluate results/experiment_run new.csv`" in said


def test_a_mistyped_config_is_told_with_the_nearest(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Did you mean config.yaml?" in refused(capsys, "plan", "confg.yaml", "penguins.csv")
    assert "There is no folder nowhere either" in refused(
        capsys, "plan", "nowhere/config.yaml", "penguins.csv"
    )


def piped(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that gets the text through standard input."""
    command = [sys.executable, "-m", "distcore", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("given", ["</dev/null", "<&-"])
def test_nothing_on_standard_input(place: Path, given: str) -> None:
    command = f"exec {sys.executable} -m distcore plan config.yaml - {given}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "and nothing came" in done.stderr


def test_the_cache_of_standard_input_is_there_when_the_command_has_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lay beside the copy, which goes with the command."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "home"))
    rows, words = Path("penguins.csv").read_text(), ("preprocess", "config.yaml", "-")
    first, again = piped(rows, *words), piped(rows, *words, "--data_format", "csv")
    where = Path(first.stdout.strip())
    assert where.parent == place / "home" / "distcore", first.stderr
    assert (where / "manifest.json").is_file()
    assert (again.returncode, again.stdout) == (0, first.stdout)
    odd = piped(rows, *words, "--data_format", "../../x")
    assert "Unknown data format '../../x'" in odd.stderr
    bad = piped(rows.replace("39.1", "much", 1), *words)
    assert "standard input (csv), line 2, column 'bill_length_mm': 'much'" in bad.stderr
    assert "distcore-stdin" not in bad.stderr


RECORDS = [{"a": row, "t": "xy"[row % 2]} for row in range(4)]
LINES = "".join(f"{json.dumps(each)}\n" for each in RECORDS).encode()


@pytest.mark.parametrize(
    "content",
    [json.dumps(RECORDS).encode(), codecs.BOM_UTF8 + LINES, gzip.compress(LINES)],
    ids=["array", "mark", "gzip"],
)
def test_standard_input_is_known_by_its_content_as_a_file_without_an_ending_is(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "rows").write_bytes(content)
    command = [sys.executable, "-m", "distcore", "init", "--target", "t", "--dataset"]
    of_file, of_input = (
        subprocess.run([*command, given], input=content, capture_output=True, timeout=100)
        for given in (str(tmp_path / "rows"), "-")
    )
    assert b"{name: a, type: number}" in of_file.stdout, of_file.stderr
    assert of_input.stdout == of_file.stdout, of_input.stderr


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed(place: Path, closed: str) -> None:
    """As a daemon's are: nothing of ours may get its number, and nobody asks whether it is a
    terminal."""
    command = f"exec {sys.executable} -m distcore preprocess config.yaml penguins.csv {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert list(place.glob(".distcore_cache/*/manifest.json"))


# ------------------------------------------------------------------ the environment


def test_variables_are_read_as_yaml_reads_what_stands_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPOCHS", "7")
    monkeypatch.setenv("BUCKET", "my: bucket")
    text = (
        CONFIG
        + 'trainer:\n  epochs: ${ENV:EPOCHS}\nbatch: "${ENV:EPOCHS}"\ndir: s3://${ENV:BUCKET}/x\n'
    )
    found = document_of(text).values
    assert found["trainer"] == {"epochs": 7}
    assert found["batch"] == "7"
    assert found["dir"] == "s3://my: bucket/x"


def test_a_variable_that_is_not_set_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(ConfigError) as caught:
        load_config("a: 1\ntrainer:\n  epochs: ${ENV:NOT_THERE}\n")
    assert "line 3: trainer.epochs: the environment variable 'NOT_THERE' is not set." in str(
        caught.value
    )


# ------------------------------------------------------------------ help and completion


@pytest.mark.parametrize(
    "command", ["train", "predict", "plan", "init", "hyperopt", "completion", "cache", "report"]
)
def test_help_ends_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "examples:\n  " in capsys.readouterr().out


def script(shell: str) -> str:
    words = [sys.executable, "-m", "distcore", "completion", shell]
    return subprocess.run(words, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("distcore tr", ["train"]),
        ("distcore train --mod", ["--model_name", "--model_load_path", "--model_resume_path"]),
    ],
)
def test_bash_completes(line: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.bash").write_text(script("bash"))
    words = line.split()
    asked = (
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _distcore; printf '%s\\n' "
        "${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source {tmp_path}/s.bash; {asked}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert not done.stderr
    assert sorted(done.stdout.split()) == sorted(offered)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes(tmp_path: Path) -> None:
    (tmp_path / "s.fish").write_text(script("fish"))
    asked = f"source {tmp_path}/s.fish; complete -C 'distcore train --model_r'"
    done = subprocess.run(["fish", "-N", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "--model_resume_path"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_reads_the_script(tmp_path: Path) -> None:
    (tmp_path / "_distcore").write_text(script("zsh"))
    asked = (
        f"autoload -U compinit; compinit -u -d {tmp_path}/dump; source {tmp_path}/_distcore; print "
        "$_comps[distcore]"
    )
    done = subprocess.run(["zsh", "-f", "-c", asked], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("_distcore", "")
