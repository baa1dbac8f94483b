"""Write docs/terminal.svg: a real session, run now, as a terminal would show it. Called by
`make picture`."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
COMMANDS = (
    "distcore plan --config config.yaml --dataset penguins.csv",
    "distcore experiment --config config.yaml --dataset penguins.csv --experiment_name penguins",
    "ls results/penguins_run",
)


def main() -> None:
    """Run the commands in a folder with the example's files, and draw what they print."""
    console = Console(record=True, width=120, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.yaml", "penguins.csv"):
            shutil.copy(ROOT / "examples" / "penguins" / name, folder)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            words = shlex.split(command)
            if words[0] == "distcore":
                words = [sys.executable, "-m", "distcore.cli.main", *words[1:]]
            pipe = subprocess.PIPE
            done = subprocess.run(
                words, cwd=folder, text=True, stdout=pipe, stderr=subprocess.STDOUT, check=True
            )
            console.print(Text(done.stdout.replace(folder, ".")))
    (ROOT / "docs" / "terminal.svg").write_text(console.export_svg(title="distcore"))


if __name__ == "__main__":
    main()
