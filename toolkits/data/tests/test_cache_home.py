"""The user's own folders."""

import pytest

from distcore_data.home import cache_home


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("/caches", "/caches"),
        ("", "/home/ada/.cache"),
        ("caches", "/home/ada/.cache"),
        ("./caches", "/home/ada/.cache"),
    ],
)
def test_a_relative_folder_of_caches_is_ignored(monkeypatch, named, expected):
    """As the XDG rule says; it was another folder in every folder that a command ran in."""
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_home() == expected
