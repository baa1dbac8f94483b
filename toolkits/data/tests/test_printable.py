"""Text of others in a line: nothing of it is obeyed, everything can be read."""

import pytest

from distcore_data.printable import listed, printable


@pytest.mark.parametrize(
    "text",
    ["", "age", "Größe (m)", "東京\u3000都", "naïve 日本 🙂 a\u00a0b", "a|b", "it's", "\\n", "👍"],
)
def test_what_can_be_seen_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2Jgone", r"\x9b2Jgone"),
        ("over\rwritten\b\x7f", r"over\rwritten\x08\x7f"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("a\u2028b\u202ec\ufeff", r"a\u2028b\u202ec\ufeff"),
        ("'\n\"", "'\\n\""),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_breaks_a_line_or_commands_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    shown.encode()


def test_line_ends_may_stay() -> None:
    assert printable("one\n\x1btwo\t", keep="\n") == "one\n\\x1btwo\\t"


def test_the_first_of_many_names_are_listed_each_printable():
    assert listed([], 2) == ""
    assert listed(["a", "b\n"], 2) == "a, b\\n"
    assert listed([*"abc"], 2) == "a, b and 1 more"
    assert listed(["a"] * 2000, 1) == "a and 1,999 more"
