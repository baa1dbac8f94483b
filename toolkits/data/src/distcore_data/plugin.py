"""What distcore-data offers: formats of datasets, stores, splitters, and the section
`preprocessing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_member(kind: str, name: str, context: Mapping[str, Any]) -> Any:
    if kind == "sources":
        from distcore_data.sources.builtin import FORMATS

        return FORMATS.get(name)
    if kind == "stores":
        from distcore_data.stores import builtin

        return builtin(name, context["place"], context["credentials"])
    if kind == "splitters":
        from distcore_data.encoding.splits import builtin_splitter

        return builtin_splitter(name, context["seed"], context["probabilities"], context["column"])
    return None


@hookimpl
def distcore_config_section(name: str, given: Any, plugins: Any) -> type | None:
    if name != "preprocessing":
        return None
    from distcore_data.members import with_members
    from distcore_data.preprocess_options import SPLITS, Preprocessing, SplitShares
    from distcore_data.roles import SPLITTER

    return with_members(
        Preprocessing, "split", given, SPLITTER, plugins, builtin=SPLITS, shared=SplitShares
    )
