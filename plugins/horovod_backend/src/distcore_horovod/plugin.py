"""What distcore-horovod offers: the backend of a launcher's processes, their processor, and the
trainer `horovod`."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import Detection, hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_backend(name: str, options: Any) -> Any:
    """The launcher's processes as one, or, without a launcher, worker groups on this machine."""
    if name != "horovod":
        return None
    from distcore_horovod.launcher import launched

    found = launched()
    if found is None:
        from distcore_horovod.backend import Alone

        return Alone(options)
    from distcore_horovod.backend import Joined
    from distcore_horovod.elastic import ElasticProcessGroup
    from distcore_horovod.elastic_backend import Elastic
    from distcore_horovod.make_process_group import join

    process_group = join(found)
    return (
        Elastic(process_group)
        if isinstance(process_group, ElasticProcessGroup)
        else Joined(process_group)
    )


@hookimpl
def distcore_make_processor(name: str, options: Any) -> Any:
    """Every rank reads and encodes its share."""
    if name != "horovod":
        return None
    from distcore_horovod.processor import HorovodProcessor

    return HorovodProcessor(options)


@hookimpl
def distcore_make_trainer(name: str, options: Any) -> Any:
    """Ranks that sum their gradients through Horovod."""
    if name != "horovod":
        return None
    from distcore_horovod.trainer import make

    return make(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The options of each."""
    from distcore_horovod import options

    return options.MODELS.get((kind, name))


@hookimpl
def distcore_check(kind: str, name: str, options: Any) -> None:
    """Horovod must be there, with torch support, built for the torch that is there; and fit the
    launcher."""
    if kind == "trainers" and name == "horovod":
        from distcore_horovod.installed import require

        require()
    if kind in ("trainers", "processors") and name == "horovod":
        from distcore_horovod.elastic_backend import refuse

        refuse(kind, options)


@hookimpl
def distcore_detect() -> Detection | None:
    """A launcher's environment: horovodrun's, or an MPI's."""
    from distcore_horovod.launcher import launched

    found = launched()
    if found is None or (found.size == 1 and not found.elastic):
        return None
    number = f"{found.size} process{'es' if found.size > 1 else ''}"
    return Detection(
        backend="horovod",
        priority=80,
        reason=f"{found.by} started {number}; this is rank {found.rank}",
    )


@hookimpl
def distcore_diagnose() -> list[tuple[str, bool, str]]:
    """What the installed Horovod can do."""
    from distcore_horovod.diagnose import checks

    return checks()
