"""Which errors of a store may pass, how often a request is made again, and what is a secret; no
store is asked."""

import errno
from types import SimpleNamespace

import pytest

from distcore_core.errors import StoreError
from distcore_data.stores import Credentials, retries
from distcore_data.stores.addresses import without_password
from distcore_data.stores.filesystems import secrets_of, without
from distcore_data.stores.retries import code_of, may_pass, persistently, status_of


class AnswerError(Exception):
    """As of botocore, with S3's word for it, if it has one."""

    def __init__(self, status, code=""):
        super().__init__(f"{status} {code}")
        self.response = {
            "ResponseMetadata": {"HTTPStatusCode": status},
            "Error": {"Code": code} if code else {},
        }


class HttpError(Exception):
    """As of gcsfs and aiohttp."""

    def __init__(self, **status):
        super().__init__(str(status))
        self.__dict__.update(status)


class ClientPayloadError(HttpError):
    """As of aiohttp, whose status is of the answer that broke off."""


def caused(error, cause):
    error.__cause__ = cause
    return error


PASSES = [
    ConnectionResetError(),
    TimeoutError(),
    EOFError(),
    OSError(errno.EIO, "a body that broke off"),
    ClientPayloadError(status=400),
    *(AnswerError(status) for status in (408, 409, 425, 429, 500, 503)),
    AnswerError(400, "BadDigest"),
    HttpError(code=503),
    HttpError(status_code=429),
    caused(OSError(errno.EINVAL, "of s3fs"), AnswerError(503)),
    caused(ConnectionResetError(), HttpError(code=8)),  # no status of HTTP's
]
STAYS = [
    *(FileNotFoundError(), FileExistsError(), PermissionError(), ImportError(), ValueError()),
    *(OSError(number, "") for number in (errno.ENOSPC, errno.EDQUOT, errno.EINVAL)),
    *(AnswerError(status) for status in (400, 401, 403, 404, 412, 501)),
    AnswerError(400, "ExpiredToken"),
    caused(OSError(errno.EIO, "of s3fs"), AnswerError(403)),
]


@pytest.mark.parametrize("error", PASSES, ids=repr)
def test_what_may_pass(error):
    assert may_pass(error)


@pytest.mark.parametrize("error", STAYS, ids=repr)
def test_what_does_not_pass(error):
    assert not may_pass(error)


def test_status_and_code_are_of_the_cause_that_was_answered():
    error = caused(OSError("of s3fs"), caused(ValueError(), AnswerError(400, "ExpiredToken")))
    assert (status_of(error), code_of(error)) == (400, "ExpiredToken")
    assert status_of(caused(StoreError("of another request"), AnswerError(503))) is None


# ------------------------------------------------------------------ again


@pytest.fixture
def waits(monkeypatch):
    """The seconds before each attempt but the first, by a clock that runs with them alone."""
    found = []
    clock = SimpleNamespace(sleep=found.append, monotonic=lambda: 1e6 + sum(found))
    monkeypatch.setattr(retries, "time", clock)
    monkeypatch.setattr(retries, "random", SimpleNamespace(uniform=lambda low, high: high))
    return found


def failing(error, times=10**6):
    left = [error] * times

    def work():
        if left:
            raise left.pop()
        return "done"

    return work


def test_where_nobody_answers_attempts_are_counted(waits):
    said = r"a/b could not be read in 6 attempts within 6 seconds \(ConnectionResetError: \)"
    with pytest.raises(StoreError, match=said):
        persistently(failing(ConnectionResetError()), "a/b", "read")
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2]


def test_a_store_that_answers_is_asked_for_minutes_which_is_told_once(waits, caplog):
    with pytest.raises(StoreError, match="in 24 attempts within 183 seconds"):
        persistently(failing(AnswerError(503)), "a/b", "read")
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, *[10.0] * 17]
    (said,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert "a/b could not be read in 6 attempts (HTTP status 503)" in said.getMessage()
    assert "180 seconds" in said.getMessage()


def test_what_succeeds_in_time_is_given(waits):
    assert persistently(failing(ConnectionResetError(), 5), "a/b", "read") == "done"
    assert len(waits) == 5


def test_what_does_not_pass_is_told_at_once(waits):
    with pytest.raises(StoreError, match=r"a/b could not be read \(ExpiredToken, HTTP status 400"):
        persistently(failing(AnswerError(400, "ExpiredToken")), "a/b", "read")
    with pytest.raises(FileNotFoundError):
        persistently(failing(FileNotFoundError()), "a/b", "read")
    with pytest.raises(StoreError, match="a/b could not be written"):
        persistently(failing(FileNotFoundError()), "a/b", "written", absence=False)
    gone = caused(FileNotFoundError(), AnswerError(404, "NoSuchBucket"))
    with pytest.raises(StoreError, match="NoSuchBucket"):
        persistently(failing(gone), "a/b", "read")
    with pytest.raises(StoreError, match=r"^of another request$"):
        persistently(failing(StoreError("of another request"), 1), "a/b", "read")
    assert not waits


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (AnswerError(401), "Check the credentials"),
        (
            caused(PermissionError(), AnswerError(403, "RequestTimeTooSkewed")),
            "this machine's clock",
        ),
        (AnswerError(403), "Check the credentials"),
        (PermissionError(), "Check the credentials"),
        (type("NoCredentialsError", (Exception,), {})(), "Check the credentials"),
        (AnswerError(404), "Check the address"),
        (AnswerError(500), "Check the network and the store"),
        (AnswerError(501), "Check the network and the store"),
        (ValueError(), "Check the network and the store"),
    ],
)
@pytest.mark.usefixtures("waits")
def test_what_to_look_at(error, advice):
    with pytest.raises(StoreError, match=advice):
        persistently(failing(error), "a/b", "read")


# ------------------------------------------------------------------ secrets


def test_each_secret_is_hidden_whole():
    options = {
        "key": "abcd",
        "client_kwargs": {"tokens": ["1234abcd"], "endpoint_url": "http://me:pa:ss@host/x"},
        "proxy": "http://a:b@host",  # too short: it may stand anywhere
    }
    secrets = secrets_of(Credentials(options))
    assert sorted(secrets) == ["1234abcd", "abcd", "me:pa:ss", "pa:ss"]
    assert without("1234abcd, abcd, pa:ss@host", secrets) == "***, ***, ***@host"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://user:pa/ss@bucket/a", "s3://bucket/a"),
        ("s3://arn:aws:s3:eu:1:accesspoint/x@y", "s3://arn:aws:s3:eu:1:accesspoint/x@y"),
        ("abfs://container@account/a:b", "abfs://container@account/a:b"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
    ],
)
def test_a_password_is_what_stands_before_the_host(url, shown):
    assert without_password(url) == shown
