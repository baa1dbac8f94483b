"""What travels to another process and back."""

import os
import subprocess
import sys
import sysconfig

from distcore_core.contracts import WorkerGroup
from distcore_ray.shipping import Place, packed, unpacked
from distcore_ray.worker_group import _trainer

RANK = """
import sys
from pathlib import PurePosixPath
from distcore_ray.shipping import packed_result, unpacked

assert unpacked(packed_result({"model": PurePosixPath("model"), "loss": [0.5]})) == {"model": PurePosixPath("model"), "loss": [0.5]}
assert "ray" not in sys.modules
assert unpacked(packed_result(lambda: 3))() == 3  # it has no name elsewhere
assert "ray" in sys.modules
"""


def test_a_rank_imports_ray_only_for_results_that_need_it():
    done = subprocess.run([sys.executable, "-c", RANK], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_what_ray_keeps_of_a_groups_config_has_no_credentials():
    """Ray Train's state tracking, where it is on, shows the text of each entry in the dashboard."""
    group = WorkerGroup(function=print, arguments=({"secret": "MYSECRETKEY"},))
    config = _trainer(group, None, "/nowhere").train_loop_config
    assert not any("MYSECRETKEY" in f"{each}{each!r}" for each in config.values())
    payload = unpacked(packed(config["payload"])).content
    assert unpacked(payload) == (print, ({"secret": "MYSECRETKEY"},))


def test_the_users_modules_are_the_drivers_and_what_is_installed_is_ones_own(tmp_path, monkeypatch):
    folders = [tmp_path / name for name in ("project", "lib/site-packages", "here", "gone")]
    for each in folders[:3]:
        each.mkdir(parents=True)
    project, packages, here, gone = map(str, folders)
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", ["", gone, packages])
    place = unpacked(packed(Place.here()))
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [here])
    for _ in range(2):  # a worker of Ray's has many tasks
        place.enter()
        assert sys.path == [project, here, packages]
        assert os.getcwd() == project


def test_a_folder_behind_the_standard_library_stays_behind_it(tmp_path, monkeypatch):
    """An editable project's `colorsys.py` hid the standard library's on ranks alone."""
    folders = [tmp_path / name for name in ("project", "x/site-packages", "own", "editable")]
    for each in folders:
        each.mkdir(parents=True)
    project, packages, own, editable = map(str, folders)
    library = sysconfig.get_path("stdlib")
    monkeypatch.setattr(sys, "path", [project, packages, own, library, editable])
    place = Place.here()
    monkeypatch.setattr(sys, "path", [library])
    place.enter()
    assert sys.path == [project, own, library, packages, editable]
