"""A module that is missing because what an installed distribution requires was removed."""

from __future__ import annotations

import re
from importlib import metadata

from distcore_core.registry.index import normalised

NAME = re.compile(r"[A-Za-z0-9._-]+")


def missing_requirement(error: BaseException) -> str | None:
    """Who requires the distribution that lacks, and how to install it; None for any other error.

    A distribution is taken to be called as its module is. Requirements of extras, or of some
    machines alone, may lack for good reason, so nothing is said of them."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    wanted = normalised(error.name.partition(".")[0])
    if _is_installed(wanted):
        return None
    found = {
        each.name: requirement
        for each in metadata.distributions()
        for requirement in each.requires or ()
        if ";" not in requirement
        and (name := NAME.match(requirement))
        and normalised(name[0]) == wanted
    }
    if not found:
        return None
    return (
        f"{wanted} is not installed, and is required by {', '.join(sorted(found))}. "
        f"pip install '{found[min(found)]}', and run the same command again."
    )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
