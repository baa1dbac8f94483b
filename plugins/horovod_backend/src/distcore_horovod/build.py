"""Build a wheel of Horovod's last release that works with the torch that is here, check it, and
keep it.

The release's CMake files ask for C++14 and for no torch newer than they knew. Nothing in the source
is changed: the compiler is called through a small script that appends -std=c++17 (the last -std
counts) and -g0, CMake is told to accept old policies, and the sdist is the registry's, pinned by
its digest.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from distcore_core.errors import DistcoreError, UserError
from distcore_data.home import cache_home
from distcore_data.temporaries import temporary_folder
from distcore_horovod.diagnose import Unusable, ask
from distcore_horovod.installed import torch_version

VERSION = "0.28.1"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
"""The last release and the digest of its sdist."""

RECIPE = 1
"""Part of the cache's key: a changed recipe makes another wheel."""

CMAKE = (3, 17)

PIP = (
    sys.executable,
    "-m",
    "pip",
    "--disable-pip-version-check",
    "install",
    "--quiet",
    "--no-deps",
)


class BuildError(DistcoreError):
    """The wheel could not be built, or what was built does not work."""


@dataclass(frozen=True)
class Tools:
    """compiler, cmake: paths. mpi: version line of mpicxx, or None for a wheel without MPI.
    torch: version."""

    compiler: str
    cmake: str
    mpi: str | None
    torch: str


def find_tools(mpi: bool | None) -> Tools:
    """What a build needs. mpi: True: must be there; None: if mpicxx is.

    Raises UserError naming all that is missing."""
    missing = []
    path = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts")])
    compiler = (
        os.environ.get("CXX") or shutil.which("g++", path=path) or shutil.which("c++", path=path)
    )
    program, *_ = (compiler or "").split() or [""]  # of CXX="ccache g++"
    if not shutil.which(program, path=path):
        missing.append("a C++ compiler (Debian: apt-get install g++)")
    if not shutil.which("make", path=path):
        missing.append("make (Debian: apt-get install make)")
    cmake = shutil.which("cmake", path=path)
    if cmake is None or _cmake_version(cmake) < CMAKE:
        missing.append(f"cmake {'.'.join(map(str, CMAKE))} or newer (pip install cmake)")
    torch = torch_version()
    if torch is None:
        missing.append("torch (pip install torch)")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("Python's headers (Debian: apt-get install python3-dev)")
    for name in ("setuptools", "packaging"):
        if not _installed(name):
            missing.append(f"{name} (pip install {name})")
    wrapper = shutil.which("mpicxx", path=path)
    if mpi and wrapper is None:
        missing.append("mpicxx (Debian: apt-get install openmpi-bin libopenmpi-dev)")
    if missing:
        raise UserError("Horovod cannot be built here. Missing: " + "; ".join(missing) + ".")
    assert compiler is not None
    assert cmake is not None
    assert torch is not None
    return Tools(
        compiler, cmake, _mpi_version(wrapper) if wrapper and mpi is not False else None, torch
    )


def wheel_key(tools: Tools) -> str:
    """What a wheel depends on, as the name of its folder in the cache."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    parts = [
        VERSION,
        RECIPE,
        tools.torch,
        sys.version_info[:2],
        platform.machine(),
        platform.libc_ver(),
        tools.mpi,
    ]
    digest = hashlib.sha256(repr([*parts, sorted(settings.items())]).encode()).hexdigest()[:12]
    return f"horovod-{VERSION}-torch-{tools.torch}-{'mpi' if tools.mpi else 'gloo'}-{digest}"


def default_cache() -> Path:
    """Where wheels are kept: ~/.cache/distcore-horovod (XDG_CACHE_HOME counts)."""
    return Path(cache_home(), "distcore-horovod")


def cached_wheel(tools: Tools, cache: Path) -> Path | None:
    """The wheel that was built before for the same versions."""
    return next(iter(sorted((cache / wheel_key(tools)).glob("horovod-*.whl"))), None)


def build(tools: Tools, cache: Path, jobs: int, sdist: Path | None = None) -> Path:
    """Build the wheel, try it in a process of its own, and put it into the cache; returns its path.

    jobs: compilers at a time. sdist: of the release, if there is no registry. Raises BuildError
        with the log."""
    folder = cache / wheel_key(tools)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    with temporary_folder("horovod") as scratch:
        compiler = _compiler(scratch, tools)
        asked = scratch / "requirements.txt"
        asked.write_text(
            f"{sdist.absolute() if sdist else f'horovod=={VERSION}'} --hash=sha256:{SHA256}\n"
        )
        words = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "wheel",
            "-v",
            "--no-cache-dir",
            "--no-deps",
        ]
        words += [
            "--no-build-isolation",
            "--no-binary",
            "horovod",
            "--wheel-dir",
            str(scratch),
            "-r",
            str(asked),
        ]
        with log.open("wb") as file:
            done = subprocess.run(
                words,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=_settings(tools, compiler, jobs),
                check=False,
            )
        made = next(iter(scratch.glob("horovod-*.whl")), None)
        if done.returncode or made is None:
            raise BuildError(
                f"Horovod {VERSION} could not be built: {_reason(log)} The whole log is {log}."
            )
        _try(made, scratch / "installed")
        target = folder / made.name
        partial = folder / f".{made.name}.{os.getpid()}"
        shutil.copyfile(made, partial)
        partial.replace(target)
    return target


def install(wheel: Path) -> None:
    """Install the wheel in this environment, over whatever Horovod is there. Raises BuildError."""
    _pip(wheel, "--force-reinstall")


# ------------------------------------------------------------------ inside


def _settings(tools: Tools, compiler: Path, jobs: int) -> dict[str, str]:
    """The environment of the build; HOROVOD_* variables of the user's come first
    (HOROVOD_GPU_OPERATIONS=NCCL, …)."""
    mpi = {"HOROVOD_WITH_MPI": "1"} if tools.mpi else {"HOROVOD_WITHOUT_MPI": "1"}
    asked = {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_CMAKE": tools.cmake,
        **mpi,
    }
    asked |= {"HOROVOD_WITHOUT_TENSORFLOW": "1", "HOROVOD_WITHOUT_MXNET": "1"}
    return {
        **asked,
        **os.environ,
        "CXX": str(compiler),
        "LDFLAGS": "-Wl,-s",
        "MAKEFLAGS": f"-j{jobs}",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    }


def _compiler(folder: Path, tools: Tools) -> Path:
    """A script that calls the compiler with -std=c++17 last, and without what debuggers ask for,
    which the linker would leave out again; a ccache that CMake puts before it changes nothing."""
    script = folder / "c++17"
    script.write_text(f'#!/bin/sh\nexec {tools.compiler} "$@" -std=c++17 -g0\n')
    script.chmod(0o755)
    return script


def _pip(wheel: Path, *options: str) -> None:
    """Raises BuildError with what pip said."""
    done = subprocess.run([*PIP, *options, str(wheel)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{wheel} could not be installed: {done.stderr.strip()}")


def _try(wheel: Path, folder: Path) -> None:
    """Install into a folder of its own, and let a child process add a tensor with it."""
    _pip(wheel, "--target", str(folder))
    try:
        ask(folder)
    except Unusable as error:
        raise BuildError(
            f"Horovod was built, but it does not work: {error}. Nothing was installed."
        ) from error


def _reason(log: Path) -> str:
    """The first line of the log that looks like an error."""
    lines = log.read_text(errors="replace").splitlines()
    wrong = [
        line.strip()
        for line in lines
        if " error:" in line or line.strip().startswith(("CMake Error", "ERROR:"))
    ]
    return (wrong or lines[-1:] or ["no output"])[0][:300].rstrip(".") + "."


def _cmake_version(cmake: str) -> tuple[int, ...]:
    done = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    number = words[2] if len(words) > 2 else "0"
    return tuple(int(part) for part in number.split("-")[0].split(".")[:2] if part.isdigit())


def _mpi_version(wrapper: str) -> str:
    """Something that changes with the MPI: what its compiler wrapper adds to a link."""
    done = subprocess.run([wrapper, "-show"], capture_output=True, text=True, check=False)
    run = shutil.which("mpirun")
    version = (
        subprocess.run([run, "--version"], capture_output=True, text=True, check=False).stdout
        if run
        else ""
    )
    return f"{done.stdout.strip()} {version.splitlines()[0] if version else ''}".strip()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
