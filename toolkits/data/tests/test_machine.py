"""What this process may use of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distcore_data.gpus import gpus
from distcore_data.threads import processors


def test_processors_know_the_quota_of_a_container(tmp_path: Path) -> None:
    mine = len(os.sched_getaffinity(0))
    assert processors(tmp_path) == mine
    (tmp_path / "cpu.max").write_text("max 100000")
    assert processors(tmp_path) == mine
    (tmp_path / "cpu.max").write_text("50000 100000")
    assert processors(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("900000000 100000")
    assert processors(tmp_path) == mine


def test_gpus_are_device_files_within_what_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus(tmp_path) == 3
    for visible, count in (
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("1,0", 2),
        ("0,-1,1", 1),
        ("0,1,2,3", 3),
        ("99", 0),
        ("1,7", 1),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpus(tmp_path) == count, visible
