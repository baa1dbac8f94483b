"""The working directory, which somebody may have removed."""

from __future__ import annotations

import os
import sys

from distcore_core.errors import UserError


def check_working_directory() -> None:
    """Raises UserError in a folder that was removed, where `import torch` ends the process in MKL's
    words. Once torch is there, what needs no working directory goes on."""
    if "torch" in sys.modules:
        return
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UserError(
            "The working directory is gone: change to a folder that is there, then try again."
        ) from error
