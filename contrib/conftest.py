"""The packages here are no part of the workspace: `make contrib` installs them into build/contrib.

Only these tests, and the processes that they start, see that folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

INSTALLED = Path(__file__).parent.parent / "build" / "contrib"


@pytest.fixture(autouse=True, scope="module")
def _installed() -> Iterator[None]:
    """Entry points and modules of build/contrib, as if they were installed in this environment.

    Of each module: this folder is no package, and a fixture of a package would stay to the end,
    before the eyes of all tests after it."""
    if not INSTALLED.is_dir():
        pytest.fail(f"{INSTALLED} is missing: run `make contrib`", pytrace=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(INSTALLED))
        patch.setenv(
            "PYTHONPATH",
            os.pathsep.join(filter(None, [str(INSTALLED), os.environ.get("PYTHONPATH")])),
        )
        yield
