"""Checks of this plugin's parts for `distcore doctor`: nothing is started and nothing is joined."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from distcore_ray.address import HOMELESS, address_file, detect, greet, has_home, is_loopback

OLDEST = (2, 60)
"""The Ray this was written for."""


def checks() -> list[tuple[str, bool, str]]:
    """(what was checked, whether it is well, what was found)."""
    if not has_home():
        return [_version(), _cluster(), ("home", False, HOMELESS)]
    return [_version(), _cluster(), _token()]


def _version() -> tuple[str, bool, str]:
    version = metadata.version("ray")
    well = tuple(int(part) for part in version.split(".")[:2]) >= OLDEST
    return (
        "Ray",
        well,
        version if well else f"{version}; at least {'.'.join(map(str, OLDEST))} is needed",
    )


def _cluster() -> tuple[str, bool, str]:
    file = address_file()
    if file is not None and file.trouble:
        return (
            "cluster",
            False,
            f"{file.path} names {file.address}, but {file.trouble}: remove that file",
        )
    found = detect()
    if found is None:
        return "cluster", True, "none is found; --backend ray starts one on this machine"
    if ":" in found.address and "://" not in found.address:
        trouble, _ = greet(found.address, 1.0)
        return "cluster", not trouble, f"{found.reason}, but {trouble}" if trouble else found.reason
    return "cluster", True, found.reason


def _token() -> tuple[str, bool, str]:
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode.lower() == "token":
        return "token", True, "RAY_AUTH_MODE=token"
    found = detect()
    open_to_others = found is not None and ":" in found.address and not is_loopback(found.address)
    has_one = (
        bool(os.environ.get("RAY_AUTH_TOKEN"))
        or Path.home().joinpath(".ray", "auth_token").exists()
    )
    told = "there is one" if has_one else "there is none yet"
    return "token", not open_to_others, f"RAY_AUTH_MODE is not set; {told} (docs/ray.md, Security)"
