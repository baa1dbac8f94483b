"""Where caches and results lie: a folder of this machine or a bucket, behind seven verbs. Whatever
a cache does to storage goes through a `Store`, but for the build of a local one, whose folder is
renamed as a whole (`cache/local.py`). Results are made in a local folder, which a `run_sync.Mirror`
copies into a bucket.

    store = open_store("s3://bucket/cache", credentials)
    store.list("<key>/")                 every object below: {name: Stat}
    store.read("<key>/manifest.json")    a small object, whole
    store.open("<key>/<version>/train/00000.parquet", size)
                                         a large one, as a local file that can be mapped
    store.put(name, path)                an object from a file; replaces what was there
    store.write(name, content)           the same from bytes
    store.create(name, content)          True for exactly one of all who ask for one name: what
                                         decides
    store.delete(names)                  names that are gone already are fine

A name is a relative path of plain parts with slashes between. A store keeps no state between calls:
what it said may be out of date when the next call is made, and only `create` decides anything
between processes. For what must be seen to be alive (a builder, a reader), write a small object
beside the data, change it now and then, and let others watch whether it changes by their own clock:
no two machines need agree on the time, and what a dead process left still shows.

Stores pickle, credentials included, into the job of a worker, and show no credentials in their
repr.
"""

from __future__ import annotations

import os

from distcore_core.registry.manager import environment_plugins
from distcore_data.stores.addresses import SCHEMES, is_url, local_folder, store_kind
from distcore_data.stores.store import (
    NAME,
    SMALL,
    Credentials,
    Seen,
    Stat,
    Store,
    checked,
    given_credentials,
    read_credentials,
)

__all__ = [
    "NAME",
    "SMALL",
    "Credentials",
    "Seen",
    "Stat",
    "Store",
    "checked",
    "given_credentials",
    "open_store",
    "read_credentials",
]


def open_store(place: str | os.PathLike[str], credentials: Credentials | None = None) -> Store:
    """The store at a path or an address. Contacts nothing yet.

    A scheme's store is a member of the role `stores`. Raises UserError for an address that is no
    store's, or whose package is not installed, PluginError if two offer it."""
    if not is_url(place):  # what every rank does needs no look at what is installed
        store = builtin("file", place, credentials)
        assert store is not None
        return store
    from distcore_data.roles import STORE

    store_kind(place)
    scheme = os.fspath(place).partition("://")[0].lower()
    return environment_plugins().make(STORE, scheme, place=place, credentials=credentials)


def builtin(
    scheme: str, place: str | os.PathLike[str], credentials: Credentials | None
) -> Store | None:
    """The toolkit's own store of a scheme, or None."""
    if scheme not in SCHEMES:
        return None
    folder = local_folder(place)
    if folder is not None:
        from distcore_data.stores.local import LocalStore

        return LocalStore(folder)
    from distcore_data.stores.bucket import Bucket

    return Bucket(os.fspath(place), credentials)
