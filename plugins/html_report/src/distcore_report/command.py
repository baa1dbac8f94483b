"""The command `report`: writes report.html from what lies in an experiment's folder, here or in
a bucket."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distcore_core.errors import UserError
from distcore_data.run_files import REPORT


class ReportCommand:
    """`distcore report DIR`."""

    help = "write report.html from an experiment's folder"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Its options."""
        parser.add_argument(
            "directory", metavar="DIR", help="the experiment's folder, or its address in a bucket"
        )
        parser.add_argument(
            "--output", "-o", metavar="FILE", help="default: report.html in that folder"
        )
        parser.add_argument(
            "--credentials", metavar="FILE", help="JSON: what the bucket is opened with"
        )
        parser.epilog = "examples:\n  distcore report results/experiment_run"

    def run(self, arguments: Namespace) -> int:
        """Write it, and print where it lies."""
        from distcore_data.stores import given_credentials
        from distcore_data.stores.addresses import folder_or_address
        from distcore_data.stores.run_sync import Mirror, working_folder
        from distcore_report.page import write_report
        from distcore_search.vouched import DIGESTS

        place = folder_or_address(arguments.directory, "DIR")
        if isinstance(place, Path):
            with own_page(Path(arguments.output or place / REPORT)):
                print(write_report(place, arguments.output))
            return 0
        mirror = Mirror.at(place, given_credentials(arguments.credentials))
        with working_folder(mirror) as folder:
            mirror.get_files(folder, ".json", last=DIGESTS)
            with own_page(Path(arguments.output or folder / REPORT)):
                written = write_report(folder, arguments.output)
            if arguments.output is None:
                mirror.put_file(written.name, written)
            print(arguments.output or mirror.store.where(written.name))
        return 0


@contextmanager
def own_page(path: Path) -> Iterator[None]:
    """The block writes a page. Raises UserError if it cannot be written, or if a file is there that
    is no page of ours, such as a dataset."""
    from distcore_data.own_files import begins_with, writable
    from distcore_report.page import BEGINNING

    with writable(path):
        if path.is_file() and not begins_with(path, BEGINNING):
            raise UserError(
                f"{path} exists, is no page of distcore's, and was left as it is. Give another "
                "file with --output."
            )
        yield
