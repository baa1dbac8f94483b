"""A run's folder: which one a new run gets, what is left of one that failed, and what is said of
its end."""

import errno
import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from distcore.workflow import folders, receipt, results
from distcore.workflow.requests import TrainRequest
from distcore_core.errors import CheckpointError, OtherRank, TrainingError, UserError
from distcore_data.run_files import ENDED, RECEIPT
from distcore_data.seals import MOST_BYTES, read_sealed
from distcore_data.stores import open_store


def fresh(root):
    return folders.fresh_folder(root, "experiment", "run")


def test_two_runs_share_no_folder(tmp_path):
    with fresh(tmp_path) as first, fresh(tmp_path) as second:
        (first / "description.json").write_text("{}")
    with fresh(tmp_path) as third:  # the first was ended before it had saved anything
        pass
    names = [each.name for each in (first, second, third)]
    assert names == ["experiment_run", "experiment_run_1", "experiment_run"]
    assert list(third.iterdir()) == []


def test_the_folder_that_a_run_will_have_is_known(tmp_path):
    asked = TrainRequest(command="experiment", output_directory=tmp_path)
    for name in ("experiment_run", "experiment_run_1"):
        assert folders.place_of(asked) == tmp_path / name
        with fresh(tmp_path) as folder:
            assert folder.name == name
            (folder / "notes.txt").write_text("mine")
    assert folders.place_of(replace(asked, experiment_name="x" * 300)) is not None  # told later
    assert folders.place_of(replace(asked, model_resume_path=folder)) == folder
    assert folders.place_of(replace(asked, output_directory="s3://bucket/results")) is None


@pytest.mark.parametrize(
    "name", ["model/weights.safetensors", "checkpoints/step-00000001/state.json", "notes.txt"]
)
def test_a_folder_that_holds_anything_is_left_as_it_is(tmp_path, name):
    path = tmp_path / "experiment_run" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    (tmp_path / "experiment_run_1").write_text("a file")
    with fresh(tmp_path) as folder:
        assert folder.name == "experiment_run_2"
    assert path.read_text() == "mine"


def session_in(folder):
    return SimpleNamespace(directory=folder, mirror=None, home=folder, former=None, whole=False)


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("description.json", False),
        ("checkpoints/step-00000001.tmp/state.json", False),
        ("checkpoints/step-00000001/state.json", True),
        ("checkpoints/round-1.ubj", True),  # as another trainer names its own
        ("model/model.json", True),
    ],
)
@pytest.mark.parametrize("error", [TrainingError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_of_a_run_that_ends_early_what_is_of_use_stays(tmp_path, name, stays, error):
    folder = tmp_path / "run"
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(type(error)), folders.gone_if_refused(session_in(folder)):
        raise error
    assert (path.exists(), folder.exists()) == (stays, stays)
    folder.mkdir(exist_ok=True)
    with pytest.raises(ZeroDivisionError), folders.gone_if_refused(session_in(folder)):
        raise ZeroDivisionError  # what nobody expected leaves all there is
    assert folder.exists()


@pytest.mark.parametrize(
    ("error", "resuming", "state"),
    [
        (TrainingError("no"), True, "failed"),
        (KeyboardInterrupt(), False, "stopped"),
        (SystemExit(1), True, "stopped"),
        (UserError("no"), False, "failed"),
        (UserError("no"), True, None),  # refused to go on: the run ended as was said before
        (CheckpointError("no"), True, None),
        (ZeroDivisionError("no"), True, "failed"),
    ],
)
def test_how_a_run_ended_is_said_in_its_folder(tmp_path, error, resuming, state):
    path = tmp_path / ENDED
    with (
        pytest.raises(type(error)),
        folders.noting_the_end(session_in(tmp_path), resuming=resuming),
    ):
        raise error
    assert path.exists() == (state is not None)
    if state is not None:
        said = read_sealed(path, "")
        assert (said["state"], said["error"]) == (state, str(error))
        assert ("frames" in said) == isinstance(error, ZeroDivisionError)
        with folders.noting_the_end(session_in(tmp_path), resuming=True):
            pass
        assert not path.exists()


@pytest.mark.parametrize("going_on", [False, True])
@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_other_ranks_of_a_launcher_leave_the_run_as_it_is(tmp_path, monkeypatch, where, going_on):
    """They ask for no lease, which rank 0 has, and their end is not the run's."""
    monkeypatch.setattr(folders, "is_other_rank", lambda: True)
    place = f"memory://ranks-{going_on}" if where == "bucket" else tmp_path / "results"
    asked = TrainRequest(
        command="train",
        output_directory=place,
        model_resume_path=f"{place}/experiment_run" if going_on else None,
    )
    session = session_in(None)
    session.config = SimpleNamespace(backend=SimpleNamespace(credentials=None))

    def ended():
        with folders.run_folder(session, asked, None):
            assert session.mirror is None
            (session.directory / "description.json").touch()
            raise OtherRank(1)

    with pytest.raises(OtherRank):
        ended()
    assert not session.directory.exists()
    assert not (tmp_path / "results").exists()
    assert where == "folder" or not open_store(place).list()


@pytest.mark.parametrize("whose", ["another run's", "a larger disk"])
def test_checkpoints_that_are_a_link_may_lie_elsewhere_but_not_in_another_run(tmp_path, whose):
    """Its older ones were removed, as if they were this run's."""
    (there := tmp_path / "there" / "checkpoints").mkdir(parents=True)
    (run := tmp_path / "run").mkdir()
    (run / "checkpoints").symlink_to(there)
    (run / "description.json").touch()
    if whose == "another run's":
        (tmp_path / "there" / "description.json").touch()
    asked = TrainRequest(command="train", model_resume_path=run)
    session = session_in(None)
    session.config = SimpleNamespace(backend=SimpleNamespace(credentials=None))
    for place in (run, tmp_path / "moved"):  # the run's own folder may be reached by a link
        if place != run:
            run.rename(tmp_path / "disk")
            place.symlink_to(tmp_path / "disk")
            asked = TrainRequest(command="train", model_resume_path=place)
        with ExitStack() as stack:
            if whose == "another run's":
                stack.enter_context(pytest.raises(UserError, match="another run's folder"))
            with folders.run_folder(session, asked, None):
                assert session.directory == place


def test_checkpoints_that_are_a_link_in_a_circle_are_no_other_runs(tmp_path):
    (tmp_path / "checkpoints").symlink_to(tmp_path / "checkpoints")
    folders.refuse_anothers_checkpoints(tmp_path)


def test_checkpoints_of_a_run_that_is_closed_to_this_user_do_not_end_in_a_traceback(
    tmp_path, monkeypatch
):
    (tmp_path / "checkpoints").symlink_to(tmp_path / "theirs" / "checkpoints")
    real = os.stat

    def closed(path, *rest, **options):
        if "theirs" in os.fspath(path):
            raise PermissionError(errno.EACCES, "closed")
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "stat", closed)
    folders.refuse_anothers_checkpoints(tmp_path)


def test_a_model_of_many_categories_is_known_when_its_run_goes_on(tmp_path):
    """Its model.json has more than other documents may have."""
    path = tmp_path / "model" / "model.json"
    path.parent.mkdir()
    path.touch()
    os.truncate(path, MOST_BYTES + 1)
    assert len(results.model_told(session_in(tmp_path)) or b"") == MOST_BYTES + 1


def test_a_stop_without_a_checkpoint_says_none_and_keeps_what_was_said(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt, match=r"^$"),
        folders.saying_how_to_go_on(session_in(tmp_path)),
    ):
        raise KeyboardInterrupt
    (tmp_path / "checkpoints" / "step-00000007").mkdir(parents=True)
    with (
        pytest.raises(KeyboardInterrupt, match=r"^said$"),
        folders.saying_how_to_go_on(session_in(tmp_path)),
    ):
        raise KeyboardInterrupt("said")


def test_the_last_checkpoint_is_the_one_of_the_most_steps(tmp_path):
    for step in (99_999_999, 100_000_000, 7):
        (tmp_path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    with (
        pytest.raises(KeyboardInterrupt, match="step-100000000; go on from it"),
        folders.saying_how_to_go_on(session_in(tmp_path)),
    ):
        raise KeyboardInterrupt
    (tmp_path / "model").mkdir()
    with (
        pytest.raises(KeyboardInterrupt, match="model is trained; evaluate it"),
        folders.saying_how_to_go_on(session_in(tmp_path)),
    ):
        raise KeyboardInterrupt


def test_results_that_are_whole_stay_though_no_model_was_to_be_kept(tmp_path):
    """A full disk while the receipt was written took the scores away."""
    session = session_in(tmp_path / "run")
    session.directory.mkdir()
    session.whole = True
    with pytest.raises(TrainingError), folders.gone_if_refused(session):
        raise TrainingError("no room")
    assert session.directory.exists()


def test_a_stopped_run_that_had_a_model_of_before_names_its_checkpoint(tmp_path):
    """It said to evaluate the model, which was the former one."""
    for name in ("model/model.json", "checkpoints/step-00000007/state.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    session = session_in(tmp_path)
    session.former = results.model_told(session)
    going_on = partial(folders.saying_how_to_go_on, session)
    with pytest.raises(KeyboardInterrupt, match="step-00000007; go on from it"), going_on():
        raise KeyboardInterrupt

    def replaced():
        (tmp_path / "model" / "model.json").write_text('{"another": 1}')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="model is trained"), going_on():
        replaced()
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(KeyboardInterrupt, match="model is trained"), going_on():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ([], "no room"),
        (
            ["checkpoints/step-00000007/x"],
            "step-00000007; go on from it with --model_resume_path {}",
        ),
        (["model/model.json"], "no room The model is trained; evaluate it with: distcore evaluate"),
        (["model/model.json", "checkpoints/step-00000007/x"], "made with --model_resume_path {}"),
    ],
)
def test_what_a_full_disk_ended_after_training_says_how_to_have_the_rest(tmp_path, left, said):
    """The words said that what was begun was removed, and the same command trained once more."""
    for name in left:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    session = session_in(tmp_path)
    with pytest.raises(TrainingError) as caught, folders.saying_how_to_go_on(session):
        raise TrainingError("no room") from OSError(errno.ENOSPC, "full")
    assert said.format(tmp_path) in str(caught.value)
    copied = str(caught.value).endswith(
        f"{tmp_path} (or with a copy of it on a disk that has room)"
    )
    assert copied == any("checkpoints" in name for name in left)
    with pytest.raises(TrainingError) as limited, folders.saying_how_to_go_on(session):
        raise TrainingError("no process") from OSError(errno.EAGAIN, "limit")
    assert "copy" not in str(limited.value)
    with pytest.raises(TrainingError, match=r"^no$"), folders.saying_how_to_go_on(session):
        raise TrainingError("no")


def test_a_pipe_in_a_results_place_does_not_keep_the_receipt_from_its_end(tmp_path, monkeypatch):
    """To read it waited for somebody to write."""
    (tmp_path / "description.json").write_text("{}")
    os.mkfifo(tmp_path / "training_log.jsonl")
    (tmp_path / "training_statistics.json").symlink_to("/dev/zero")
    monkeypatch.setattr(receipt, "receipt_of", lambda *_: {})
    receipt.finish(session_in(tmp_path), {}, None, (), {})
    assert list(read_sealed(tmp_path / RECEIPT, "")["files"]) == ["description.json"]
