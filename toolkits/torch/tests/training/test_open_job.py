"""What `TrainJob.open` gives."""

from pathlib import Path

import pytest

from distcore_torch import tell_checkpoint


def test_what_was_opened_by_something_else_has_no_listeners_to_tell():
    with pytest.raises(TypeError, match=r"Give what TrainJob\.open gave"):
        tell_checkpoint(object(), 1, Path("checkpoints/round-1"))
