"""Parts of large objects as blocks of bytes, for whoever writes them to a file as they come.

From S3 they come by botocore's own client, in the calling thread, with the options that s3fs was
given: asyncio's costs more than twice the processor time a byte (docs/log.md)."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from distcore_data.stores.retries import status_of

BLOCK = 1 << 20
"""Bytes of a block; as many requests as are under way hold one each in memory."""

NOT_SHARED = ("s3_additional_kwargs", "version_aware", "cache_regions", "session")
"""Options of s3fs that its own client alone understands."""

Blocks = Callable[[str, int, int], Iterator[bytes]]
"""blocks(path, start, stop): bytes [start, stop) of an object, or those of them that there are."""


def blocks_of(files: Any, kind: str, connections: int) -> Blocks:
    """How to read from this filesystem, by as many threads as `connections`."""
    making = threading.Lock()

    def from_s3(path: str, start: int, stop: int) -> Iterator[bytes]:
        # By the first request, so that what is wrong with the credentials is an answer to it.
        with making:
            client = _blocking_client(files, connections, os.getpid())
        if client is None:
            return _by_fsspec(files, path, start, stop)
        return _by_botocore(files, client, path, start, stop)

    return from_s3 if kind == "s3" else functools.partial(_by_fsspec, files)


def _by_fsspec(files: Any, path: str, start: int, stop: int) -> Iterator[bytes]:
    try:
        yield files.cat_file(path, start=start, end=stop)
    except Exception as error:
        if status_of(error) != 416:  # nothing lies there: the object is shorter
            raise


def _by_botocore(files: Any, client: Any, path: str, start: int, stop: int) -> Iterator[bytes]:
    from s3fs.errors import translate_boto_error

    bucket, key, _ = files.split_path(path)
    asked = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{stop - 1}", **files.req_kw}
    try:
        # The body's own __enter__ gives what checks no length.
        with closing(client.get_object(**asked)["Body"]) as body:
            while start < stop and (block := body.read(min(BLOCK, stop - start))):
                start += len(block)
                yield block
    except Exception as error:
        if status_of(error) == 416:
            return
        found = translate_boto_error(error)
        if found is error:
            raise
        raise found from error


# Making one takes tenths of a second; fsspec keeps its filesystems likewise.
@functools.lru_cache(maxsize=8)
def _blocking_client(files: Any, connections: int, process: int) -> Any:
    """A client of botocore with s3fs's options; None if these are for asyncio's client, or go with
    each request.

    process: whose connections they are; a fork must not use its parent's."""
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    if any(files.storage_options.get(name) for name in NOT_SHARED):
        return None
    given = {
        "aws_access_key_id": files.key,
        "aws_secret_access_key": files.secret,
        "aws_session_token": files.token,
        "endpoint_url": files.endpoint_url,
        "use_ssl": files.use_ssl,
    }
    own = {
        "max_pool_connections": connections,
        "connect_timeout": files.connect_timeout,
        "read_timeout": files.read_timeout,
        # S3's own checksums take as long as all else together. Caches, models and checkpoints have
        # hashes of ours.
        "response_checksum_validation": "when_required",
    }
    settings = {**own, **files.config_kwargs}
    if files.anon:
        settings["signature_version"] = UNSIGNED
    options = {
        **{name: value for name, value in given.items() if value is not None},
        **files.client_kwargs,
    }
    if files.anon:
        options = {name: value for name, value in options.items() if not name.startswith("aws_")}
    try:
        session = botocore.session.Session(**files.kwargs)
        return session.create_client("s3", config=Config(**settings), **options)
    except TypeError:  # an option that only asyncio's has, or that a botocore before 1.36 has not
        return None
