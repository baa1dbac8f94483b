"""The command line: flags in both spellings, exit codes, errors without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from distcore.cli import main as cli
from distcore_core.errors import DistcoreError, UserError


def parse(*words: str):
    parser, unknown = cli.build_parser(words)
    assert unknown is None
    return parser.parse_args(words)


def test_flags_with_underscores_and_dashes_are_one() -> None:
    for spelling in ("--output_directory", "--output-directory", "-od"):
        assert parse("train", "--dataset", "d.csv", spelling, "there").output_directory == "there"
    assert parse("experiment", "--skip-save-model").skip_save_model
    assert parse("experiment", "--skip_save_model").skip_save_model


def test_test_is_an_alias_of_evaluate() -> None:
    words = ("--model_path", "m", "--dataset", "d.csv")
    assert parse("test", *words).run is parse("evaluate", *words).run


@pytest.mark.parametrize(
    ("error", "code"), [(UserError("bad input"), 2), (DistcoreError("disk on fire"), 1), (ZeroDivisionError("oops"), 1)]
)
def test_exit_codes_and_no_traceback(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: object) -> int:
        raise error

    assert cli._guard(run, parse("plugins")) == code
    said = capsys.readouterr().err
    assert str(error) in said
    assert "Traceback" not in said


def test_debug_shows_the_traceback() -> None:
    def run(_: object) -> int:
        raise UserError("bad input")

    with pytest.raises(UserError):
        cli._guard(run, parse("plugins", "--debug"))


def distcore(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distcore.cli.main", *words], capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cache", "list", "--cachedir=x"], "distcore cache list has no option --cachedir. Did you mean --cache_dir?"),
        (["--datset"], "distcore has no option --datset."),
        (["cache", "lst"], "invalid choice: 'lst'"),
        (["experiment", "-gml", "0.5"], "-gml of Ludwig is not carried out here: torch takes what it needs"),
        (["experiment", "--k_fold=5"], "--k_fold of Ludwig is not carried out here: cross validation is not supported"),
        (["evaluate", "-s", "full"], "-s of Ludwig is not carried out here: the whole dataset is read"),
        (["train", "-dpt"], "-dpt of Ludwig is not carried out here: set OMP_NUM_THREADS=1"),
    ],
)
def test_a_mistyped_option_gets_the_nearest_one_in_one_line(words, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    found = capsys.readouterr().err
    assert said in found
    assert found.count("\n") == 1


def test_ludwigs_short_flags() -> None:
    parsed = parse(
        "experiment", "-ssuo", "-skfsi", "-sstp", "-sstes", "-ssp", "-sspi", "-ssl", "-sstd", "-ssts", "-b", "ray"
    )
    skipped = {name for name, value in vars(parsed).items() if name.startswith("skip_") and value}
    assert skipped == {f"skip_save_{name}" for name in (
        "predictions", "eval_stats", "progress", "processed_input", "log", "training_description", "training_statistics"
    )}  # fmt: skip
    assert parsed.backend == "ray"
    assert parse("evaluate", "-m", "x", "--dataset", "y", "-sses", "-ssuo").skip_save_eval_stats


def test_an_unknown_command_gets_the_nearest_one() -> None:
    done = distcore("experimnt", "--config", "x")
    assert done.returncode == 2
    assert "Did you mean 'experiment'?" in done.stderr


def test_an_unknown_flag_is_exit_code_2() -> None:
    done = distcore("train", "--no_such_flag")
    assert done.returncode == 2
    assert "no_such_flag" in done.stderr


def test_no_command_prints_help() -> None:
    assert "COMMAND" in distcore().stdout


def test_version() -> None:
    assert distcore("--version").stdout.startswith("distcore ")


def test_plugins_lists_a_row_each() -> None:
    lines = distcore("plugins").stdout.splitlines()
    assert lines[0].split() == ["ROLE", "NAME", "DISTRIBUTION", "VERSION", "STATE", "ERROR"]
    assert any(line.split()[:5] == ["trainers", "ddp", "distcore-local", "0.1.0", "ok"] for line in lines)


def test_both_configs_are_refused() -> None:
    done = distcore("train", "--config", "a.yaml", "--config_str", "{}", "--dataset", "d.csv")
    assert done.returncode == 2
    assert "--config and --config_str" in done.stderr


def test_an_unknown_logging_level_is_refused() -> None:
    done = distcore("train", "--config", "a.yaml", "--dataset", "d.csv", "--logging_level", "loud")
    assert done.returncode == 2
    assert "loud" in done.stderr


@pytest.mark.parametrize("command", ["plan", "train", "experiment", "preprocess", "hyperopt"])
def test_no_config_is_told_how_to_get_one(command: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    done = distcore(command, "--dataset", str(tmp_path / "data.csv"))
    assert done.returncode == 2
    assert "No config was given. Give one with --config or --config_str; `distcore init` writes one." in done.stderr


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    done = distcore("train", "--config", str(tmp_path / "none.yaml"), "--dataset", "d.csv")
    assert done.returncode == 2
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr
