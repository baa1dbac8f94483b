"""The command line: flags in both spellings, exit codes, errors without a traceback."""

import argparse
import errno
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distcore.cli import main as cli
from distcore.cli.commands import BY_PLUGINS
from distcore_core.contracts import COMMAND
from distcore_core.errors import DistcoreError, UserError
from distcore_core.registry.manager import Plugins


def parse(*words: str):
    return cli.build_parser().parse_args(words)


def test_flags_with_underscores_and_dashes_are_one() -> None:
    for spelling in ("--output_directory", "--output-directory", "-od"):
        assert parse("train", "--dataset", "d.csv", spelling, "there").output_directory == "there"
    assert parse("experiment", "--skip-save-model").skip_save_model
    assert parse("experiment", "--skip_save_model").skip_save_model


def test_test_is_an_alias_of_evaluate() -> None:
    words = ("--model_path", "m", "--dataset", "d.csv")
    assert parse("test", *words).run == parse("evaluate", *words).run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("bad input"), 2),
        (DistcoreError("disk on fire"), 1),
        (ZeroDivisionError("oops"), 1),
    ],
)
def test_exit_codes_and_no_traceback(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> int:
        raise error

    assert cli._guard(run, parse("plugins")) == code
    said = capsys.readouterr().err
    assert str(error) in said
    assert "Traceback" not in said


def test_a_limit_of_memory_is_named_beside_what_it_may_have_caused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> int:
        raise ImportError("libtorch_cpu.so: failed to map segment from shared object")

    assert cli._guard(run, parse("plugins")) == 1
    assert "memory" not in capsys.readouterr().err
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (700_000_000, -1))
    assert cli._guard(run, parse("plugins")) == 1
    assert "limited to 700.0 MB (ulimit -v), which may be why" in capsys.readouterr().err


def test_a_system_without_a_thread_for_the_signals_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As under `ulimit -u`. It was a traceback."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert cli.main(["plugins"]) == 1
    said = capsys.readouterr().err
    assert "raise the limit of processes and threads" in said
    assert "not expected" not in said


@pytest.mark.parametrize(
    ("command", "takes", "unbuffered"),
    [("schema", 100, ""), ("schema", 100, "1"), ("plugins", 2, "1")],
)
def test_output_that_is_not_all_written_is_an_error(
    tmp_path: Path, command: str, takes: int, unbuffered: str
) -> None:
    """Python itself ends with 0 under PYTHONUNBUFFERED, as in many containers."""
    script = f'ulimit -f {takes}; exec "$@" > "$0"'  # a disk that takes so many kB more
    words = [sys.executable, "-m", "distcore.cli.main", command]
    done = subprocess.run(
        ["bash", "-c", script, str(tmp_path / "out"), *words],
        # Of a module that it compiled the limit would leave a part.
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "the system refused (file too large)" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-m", "distcore.cli.main", "runs", "/"], 2),
        (["-c", "import distcore; distcore.load('/nothing')"], 1),
    ],
    ids=["command", "function"],
)
def test_a_folder_that_is_gone_is_told_before_anything_runs(
    tmp_path: Path, words: list[str], code: int
) -> None:
    """MKL ends a process there, with exit code 2 and "Cannot load libtorch_cpu.so"."""
    folder = tmp_path / "gone"
    folder.mkdir()
    words = [sys.executable, *words]
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = subprocess.run(["sh", "-c", script, str(folder), *words], capture_output=True, text=True)
    assert done.returncode == code
    assert "The working directory is gone: change to a folder" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "name", "shown"),
    [
        ("ascii", "ü", rb"\xfc"),
        ("latin-1", "☃", rb"\u2603"),
        ("ascii:replace", "ü", b"?"),
        ("utf-8", os.fsdecode(b"b\xff"), b"b\xff"),
    ],
)
def test_what_standard_output_cannot_write_is_spelled_out(
    tmp_path: Path, encoding: str, name: str, shown: bytes
) -> None:
    """An experiment ended with UnicodeEncodeError and exit code 1 at its last table."""
    done = init(tmp_path, encoding, "--output", f"{name}.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"Wrote " + shown + b".yaml. "), done.stdout
    assert "größe" in Path(tmp_path, f"{name}.yaml").read_text("utf-8")


def test_init_prints_no_config_of_other_names(tmp_path: Path) -> None:
    done = init(tmp_path, "ascii")
    assert (done.returncode, done.stdout) == (2, b"")
    assert rb"The config has '\xf6\xdf', for which the standard output's encoding" in done.stderr
    done = init(tmp_path, "utf-8")
    assert "größe" in done.stdout.decode(), done.stderr


def init(folder: Path, encoding: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """`distcore init` of a small dataset, its standard output in an encoding."""
    lines = [f"{n / 7},{'ab'[n % 2]}" for n in range(40)]
    Path(folder, "d.csv").write_text("\n".join(["größe,y", *lines, ""]), "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "distcore.cli.main", "init", "d.csv", "-t", "y", *words],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": encoding},
        capture_output=True,
    )


def test_debug_shows_the_traceback() -> None:
    def run(_: object) -> int:
        raise UserError("bad input")

    with pytest.raises(UserError):
        cli._guard(run, parse("plugins", "--debug"))


def distcore(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distcore.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["cache", "list", "--cachedir=x"],
            "distcore cache list has no option --cachedir. Did you mean --cache_dir?",
        ),
        (["--datset"], "distcore has no option --datset."),
        (["cache", "lst"], "invalid choice: 'lst'"),
        (
            ["experiment", "-gml", "0.5"],
            "-gml of Ludwig is not carried out here: torch takes what it needs",
        ),
        (
            ["experiment", "--k_fold=5"],
            "--k_fold of Ludwig is not carried out here: cross validation is not supported",
        ),
        (
            ["evaluate", "-s", "full"],
            "-s of Ludwig is not carried out here: the whole dataset is read",
        ),
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
        "experiment",
        "-ssuo",
        "-skfsi",
        "-sstp",
        "-sstes",
        "-ssp",
        "-sspi",
        "-ssl",
        "-sstd",
        "-ssts",
        "-b",
        "ray",
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
    assert any(
        line.split()[:5] == ["trainers", "data_parallel", "distcore-local", "0.1.0", "ok"]
        for line in lines
    )


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
    assert (
        "No config was given. Give one with --config or --config_str; `distcore init` writes one."
        in done.stderr
    )


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    done = distcore("train", "--config", str(tmp_path / "none.yaml"), "--dataset", "d.csv")
    assert done.returncode == 2
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ commands of plugins


@pytest.mark.parametrize("name", BY_PLUGINS)
def test_what_help_says_of_a_plugins_command_is_what_the_plugin_says(name: str) -> None:
    assert Plugins().make(COMMAND, name).help == BY_PLUGINS[name]


def test_a_command_whose_plugin_is_not_installed_says_what_to_install(
    absent: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    absent("distcore-report")
    assert cli.main(["report", "results/experiment_run"]) == 2
    assert "To get it: pip install distcore-report" in capsys.readouterr().err


def broken_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


def broken_socket() -> int:
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours.detach()


@pytest.mark.parametrize("broken", [broken_pipe, broken_socket])
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_nothing_is_said_to_who_reads_no_more(closed: str, broken: Callable[[], int]) -> None:
    code = (
        "import sys\n"
        "from argparse import Namespace\n"
        "from distcore.cli import main\n"
        f"run = lambda _: [sys.{closed}.write('x' * 100_000), sys.{closed}.flush()]\n"
        "sys.exit(main._guard(run, Namespace(debug=False), True))\n"
    )
    write = broken()
    other = {"stdout": "stderr", "stderr": "stdout"}[closed]
    streams: Any = {closed: write, other: subprocess.PIPE}
    done = subprocess.run([sys.executable, "-c", code], **streams, timeout=300, check=False)
    os.close(write)
    assert (done.returncode, getattr(done, other)) == (1, b"")


def test_a_pipe_to_another_process_that_breaks_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was taken for the end of who reads our output, and ended the command without a word."""

    def run(_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    assert cli._guard(run, argparse.Namespace(debug=False)) == 1
    assert "distcore: BrokenPipeError: [Errno 32] Broken pipe" in capsys.readouterr().err


def test_a_word_of_an_option_is_meant_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    """--seed was taken for --set, which is spelled more like it."""
    for words, said in (
        (["train", "--seed", "1"], "has no option --seed. Did you mean --random_seed?"),
        (["train", "--name", "x"], "Did you mean --experiment_name or --model_name?"),
    ):
        with pytest.raises(SystemExit):
            cli.main(words)
        assert said in capsys.readouterr().err


def test_a_plugins_command_is_parsed_as_our_own_are(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["hyperopt", "--confg", "c.yaml"], "has no option --confg. Did you mean --config?"),
        (["hyperopt", "--k_fold", "3"], "cross validation is not supported"),
        (["hyperopt", "-mlp", "m"], "train and experiment start from a model's weights"),
        (["report", "here", "there"], "'there' is one word too many. See"),
        (["cache"], "the following arguments are required: ACTION"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train", "-c", "x", "--dataset", "y", "--gpus", "0", "1"],
            "several GPUs are one word, --gpus 0,1",
        ),
        (["train", "-c", "x", "--dataset", "y", "here"], "'here' is one word too many. See"),
        (["predict", "--model-load-path", "m"], "predict and evaluate read a model with"),
    ],
)
def test_words_that_ludwig_takes_otherwise_are_told(words, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_command_of_ludwigs_is_told_by_what_does_its_work() -> None:
    done = distcore("init_config", "--dataset", "x")
    assert done.returncode == 2
    assert "It is Ludwig's; here `distcore init` writes a config." in done.stderr
    assert parse("train", "--model-load-path", "m").model_load_path == "m"


def test_an_option_of_a_plugins_command_may_have_the_name_of_one_that_ludwig_has(
    tmp_path: Path,
    distribution: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = """
        from distcore_core.hooks import hookimpl
        DISTCORE_API = (1, 0)
        class Halve:
            help = "halve a number"
            def add_arguments(self, parser):
                parser.add_argument("--split", type=int)
            def run(self, arguments):
                print(arguments.split // 2)
                return 0
        @hookimpl
        def distcore_make_command(name):
            return Halve() if name == "halve" else None
    """
    distribution(tmp_path, "halve-it", source, kind="commands", entry="halve")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.main(["halve", "--split", "8"]) == 0
    assert capsys.readouterr().out == "4\n"


def test_help_names_the_commands_of_others_and_imports_none_of_them(
    tmp_path: Path,
    distribution: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    distribution(tmp_path, "halve-it", "raise RuntimeError", kind="commands", entry="halve")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert re.search(r"\bhalve +\(a command of halve-it 1\.0\)", told)
    assert told.count("    report  ") == 1
    monkeypatch.setenv("DISTCORE_BLOCK", "halve-it")
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "halve" not in capsys.readouterr().out
