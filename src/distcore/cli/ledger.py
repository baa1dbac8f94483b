"""Commands that hold a run against its records: diff and verify."""

from __future__ import annotations

import json
from argparse import Namespace

from distcore.cli.arguments import set_up_logging


def diff(arguments: Namespace) -> int:
    """Say why two runs differ; exit code 1 if they do."""
    from distcore.workflow.difference import diff as compare

    set_up_logging(arguments.logging_level)
    found = compare(arguments.one, arguments.other, credentials=arguments.credentials)
    print(json.dumps(found.as_json(), indent=2) if arguments.json else found)
    return 0 if found.equal else 1
