"""Names in a line of text."""

import pytest

from distcore_data.printable import printable


@pytest.mark.parametrize(
    "text", ["", "age", "Größe (m)", "東京", "a b", "a|b", "it's", "\\n", "👍"]
)
def test_what_can_be_seen_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("a\u2028b\u202ec\ufeff", r"a\u2028b\u202ec\ufeff"),
        ("'\n\"", "'\\n\""),
        ("ä\ud800", r"ä\ud800"),
    ],
)
def test_what_breaks_a_line_or_hides_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
