"""The program `distcore`, also as `python -m distcore`: signals wait until the command can be
stopped cleanly.

Python's own ctrl-C, in the middle of an import, is a traceback at best.
"""

import os
import signal
import sys

if sys.platform == "win32":
    sys.exit(
        "distcore: Windows is not supported: file locks and signals are those of POSIX. Use WSL 2, "
        "with Linux in it."
    )

# Whatever runs after this line is ours. `signals.Stoppable` lets them through again.
signal.pthread_sigmask(
    signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
)

from distcore.cli.main import main as command  # noqa: E402


def open_standard_streams() -> None:
    """Open those that this process was started without: whatever file is opened next would have
    their number, and a library's warning would be written into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode))


def main() -> None:
    """Run the command line, and end this process."""
    open_standard_streams()
    sys.exit(command(to_the_end=True))


if __name__ == "__main__":
    main()
