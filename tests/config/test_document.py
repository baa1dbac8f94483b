"""YAML and JSON text to plain values with lines; everything that is refused, and that nothing is
ever executed."""

import pickle
import resource
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from distcore.config.yaml_document import from_mapping, parse, read_document
from distcore.config.yaml_nodes import MAX_ALIASED, MAX_DEPTH, PLAIN, Loader, root_of
from distcore_core.errors import ConfigError


def issue(text: str) -> str:
    """What is said about a text that is refused; exactly one thing."""
    with pytest.raises(ConfigError) as caught:
        parse(textwrap.dedent(text), "a.yaml")
    assert len(caught.value.issues) == 1
    return str(caught.value).splitlines()[1].strip()


def test_values_have_the_line_they_were_written_in() -> None:
    document = parse("a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n")
    assert document.values == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    lines = {path: place.line for path, place in document.source_map.items()}
    assert lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
        ("b", 1, "d"): 5,
    }


def test_a_path_without_a_line_gets_that_of_the_value_around_it() -> None:
    document = parse("a:\n  b: {c: 1}\n")
    found = document.source_map.issue(("a", "b", "type"), "is required")
    assert (found.line, found.path) == (2, "a.b.type")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5e1", 5.0),
        ("1.e3", 1000.0),
        ("1_000e-3", 1.0),
        ("1.5", 1.5),
        ("3", 3),
        ("yes", True),
        ("off", False),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1e-3'", "1e-3"),
        ("e5", "e5"),
        ("1e", "1e"),
        ("0x10", 16),
        ("2020-01-31", "2020-01-31"),
        ("2020-01-31 10:00:00", "2020-01-31 10:00:00"),
        (".inf", float("inf")),
    ],
)
def test_scalars_mean_what_yaml_1_1_says_but_for_exponents_and_dates(
    text: str, value: object
) -> None:
    got = parse(f"a: {text}\n").values["a"]
    assert got == value
    assert type(got) is type(value)


def test_keys_are_the_text_that_was_written() -> None:
    """A class named `no`, `0` or `1.0` in class_weights stays that."""
    assert parse("w: {no: 1, 0: 2, 1.0: 3, null: 4}").values["w"] == {
        "no": 1,
        "0": 2,
        "1.0": 3,
        "null": 4,
    }


def test_the_text_of_a_number_or_boolean_is_kept_for_names() -> None:
    document = parse("name: yes\ncolumn: 007\n")
    assert document.raw[("name",)] == "yes"
    assert document.raw[("column",)] == "007"


def test_anchors_aliases_and_merge_keys() -> None:
    text = (
        "base: &base {a: 1, b: {c: 2}}\n"
        "one: *base\n"
        "two:\n"
        "  <<: *base\n"
        "  a: 9\n"
        "three:\n"
        "  <<: [{a: 5}, *base]\n"
    )
    values = parse(text).values
    assert values == {**yaml.safe_load(text)}
    assert values["two"] == {"a": 9, "b": {"c": 2}}
    values["one"]["b"]["c"] = 3
    assert values["base"]["b"]["c"] == 2


def test_a_merged_number_is_written_as_the_key_that_wins() -> None:
    """A feature of the column "2" was read from the column of the mapping that it merges."""
    document = parse(
        "a: &a {column: 01}\n"
        "b: &b {column: 02, type: 03}\n"
        "own: {column: 07, <<: *b}\n"
        "text: {column: x, <<: *b}\n"
        "first: {<<: [*a, *b]}\n"
    )
    assert document.raw["own", "column"] == "07"
    assert ("text", "column") not in document.raw
    assert document.raw["first", "column"] == "01"
    assert document.raw["first", "type"] == "03"
    assert document.source_map["first", "column"].line == 1


def test_json_is_read_also_when_it_is_indented_with_tabs() -> None:
    assert parse('{\n\t"a": [1, 2.5e-3, "x\\ty"],\n\t"b": null}').values == {
        "a": [1, 0.0025, "x\ty"],
        "b": None,
    }


# ------------------------------------------------------------------ refused


def test_a_duplicate_key_names_both_lines() -> None:
    assert issue("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n") == (
        "line 5: b.c: the key is here a second time (first in line 3). Keep one."
    )


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system",
        "!!python/name:os.system",
        "!mine",
        "!!binary",
        "!!set",
        "!!omap",
    ],
)
def test_no_tag_is_ever_constructed(tag: str, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    body = (
        f"[touch {flag}]"
        if "apply" in tag
        else "{}"
        if tag in ("!!set",)
        else "[]"
        if tag == "!!omap"
        else "''"
    )
    said = issue(f"a: 1\nb: {tag} {body}\n")
    assert said.startswith("line 2: b: the YAML tag ")
    assert said.endswith("is not allowed. Remove it; write a plain value.")
    assert not flag.exists()


def test_an_alias_bomb_is_refused_in_bounded_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert f"aliases expand to more than {MAX_ALIASED:,} values" in issue("\n".join(lines))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("number", ["0x" + "F" * 5000, "1" * 5000, "1" + ":59" * 5000])
def test_a_number_without_end_is_refused(number: str) -> None:
    """Python raised ValueError wherever such a number was to be shown."""
    said = f"line 2: b: has {len(number):,} characters and is no text"
    assert said in issue(f"a: 1\nb: {number}\n")


def test_keys_beside_a_merge_cost_what_others_do() -> None:
    """Each looked through the places of all that was read before: 20,000 took minutes."""
    lines = ["a: &a", "  x: 1", "  k7:", "    y: 1", "b:", "  <<: *a"]
    lines += [f"  k{number}: 1" for number in range(10_000)]
    begin = time.process_time()
    document = parse("\n".join(lines))
    assert time.process_time() - begin < 7
    assert document.values["b"]["k7"] == 1
    assert ("b", "k7", "y") not in document.source_map


def test_an_alias_bomb_of_merges_is_refused() -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: x" for n in range(100)) + "}"]
    lines += [
        f"a{n}: &a{n} {{p: {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}, q: *a{n - 1}}}"
        for n in range(1, 30)
    ]
    assert "aliases expand to more than" in issue("\n".join(lines))


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "a: &a\n  <<: *a\n"])
def test_an_alias_that_contains_itself_is_refused(text: str) -> None:
    assert "the alias contains itself" in issue(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5000,
        "a: " + "[" * 5000 + "]" * 5000,
        "{" * 3000,
        '{"a":' * 3000 + "1" + "}" * 3000,
    ],
)
def test_deep_nesting_is_refused_without_a_crash(text: str) -> None:
    assert "nested deeper than 64 levels" in issue(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n\tb: 2\n", "line 2: YAML syntax error, column 1"),
        (
            "a: b: c\n",
            "line 1: YAML syntax error, column 5: mapping values are not allowed here. Check the "
            "indentation",
        ),
        ("a: [1, 2\nb: 3\n", "line 2: YAML syntax error"),
        ("a: 'x\n", "line 2: YAML syntax error"),
        (
            "a: 1\nb: {c: ${ENV:HOME}}\n",
            "line 2: YAML syntax error, column 9: expected ',' or '}', but got '{'. Within { } and "
            '[ ] quote the value, "${ENV:NAME}", or',
        ),
        (
            "# é\u2028# é\r\na: [${ENV:HOME}]\n",
            'Within { } and [ ] quote the value, "${ENV:NAME}", or',
        ),
        ("a: {b: c {d: e}}\n", "but got '{'. Correct the YAML there"),
        ("a: *nowhere\n", "line 1: YAML syntax error, column 4: found undefined alias 'nowhere'"),
        ("a: 1\n---\nb: 2\n", "remove the second `---`"),
        ("- a\n- b\n", "line 1: is not a mapping at its top level"),
        ("just text", "line 1: is not a mapping at its top level"),
        ("", "is empty. Write input_features and output_features"),
        ("# only a comment\n", "is empty"),
        ("? [a, b]\n: 1\n", "a key is a list or a mapping"),
        ("a: !!int x\n", "line 1: a: 'x' is no int"),
        ("a: 1\nb: \x01\n", "line 2: the character '\\x01' is not allowed"),
    ],
)
def test_syntax_errors_say_where_and_what_to_do(text: str, said: str) -> None:
    assert said in issue(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps({"a": 1}), "is a binary file (a pickle, an archive or data), not text."),
        (b"PAR1\x00\x01", "is a binary file"),
        ("a: ü".encode("utf-16"), "is UTF-16 text. Save it as UTF-8."),
        ("a: ü".encode("utf-16-be"), "is UTF-16 text. Save it as UTF-8."),
        ("a: ü".encode("utf-32"), "is UTF-32 text. Save it as UTF-8."),
        ("\ufeffa: ü".encode("utf-32-be"), "is UTF-32 text. Save it as UTF-8."),
        ("a: ü".encode("utf-32-le"), "is UTF-32 text. Save it as UTF-8."),
        (
            "a: 1\nb: ü\n".encode("latin-1"),
            "line 2: byte 0xfc is not UTF-8. Save the file as UTF-8.",
        ),
        (b"a: 1\nb: \x00\n", "line 2: holds zero bytes"),
        (b'\x10\0\0\0\0\0\0\0{"weight": 1}', "line 1: holds zero bytes"),
    ],
)
def test_files_that_are_no_text_are_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.yaml: 1 mistake") as caught:
        read_document(path)
    assert said in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="this is a folder"):
        read_document(tmp_path)


def test_a_huge_file_is_refused_without_being_parsed(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        read_document(path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_document(path).values == {"a": 1, "b": 2}


def test_a_dict_with_something_that_is_no_plain_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a\.b\[1\]: is a object"):
        from_mapping({"a": {"b": [1, object()]}})


PIECES = [
    *(
        "a",
        "b1",
        "x_y",
        "0.5",
        "1e-3",
        "yes",
        "null",
        "~",
        "2020-01-01",
        "'",
        '"',
        "it's",
        ":",
        "-",
    ),
    *(
        ": ",
        "- ",
        " ",
        "  ",
        "\n",
        "\n  ",
        "\n- ",
        "\n  - ",
        "#",
        " # c",
        "---",
        "...",
        "<<: ",
        "$",
    ),
    *(
        "key: v\n",
        "  key: v\n",
        "- name: q\n  type: number\n",
        ": 'q'\n",
        ': "q"\n',
        "\t",
        "{",
        "&a ",
        "&b\n",
        "*a",
        "*b",
    ),
]


def nodes_of(node: yaml.Node | None, seen: dict[int, int] | None = None) -> object:
    """Tags, values and lines; of a node that an alias names again, where it was first."""
    seen = {} if seen is None else seen
    if id(node) in seen:
        return seen[id(node)]
    seen[id(node)] = len(seen)
    if node is None or isinstance(node, yaml.ScalarNode):
        return node and (node.tag, node.value, node.start_mark.line, node.style or None)
    parts = [each if isinstance(each, tuple) else (each,) for each in node.value]
    inside = [tuple(nodes_of(one, seen) for one in each) for each in parts]
    return node.tag, node.start_mark.line, inside


def read_by(read: Callable[[str], yaml.Node | None], text: str) -> object:
    try:
        return nodes_of(read(text))
    except yaml.YAMLError as error:
        return str(error)


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_texts_that_libyaml_reads_are_what_pyyaml_makes_of_them(text: str) -> None:
    expected = read_by(lambda text: Loader(text).get_single_node(), text)
    assert read_by(lambda text: root_of(text)[1], text) == expected


def test_libyaml_reads_keys_and_lists_of_bounded_depth_and_nothing_else() -> None:
    assert PLAIN.fullmatch(
        "# of\ninput_features:\n- name: a\n  type: number\n\ntrainer:\n  epochs: 2"
    )
    for text in (
        "a: {b: 1}",
        "a: [1]",
        "a: !b 1",
        "a: |\n  b",
        "a:\tb",
        "- - a",
        "%YAML 1.2",
        'a: "\\x"',
    ):
        assert not PLAIN.fullmatch(text)
    deep = "\n".join(" " * depth + "a:\n" + " " * depth + "- " for depth in range(29))
    assert PLAIN.fullmatch(deep)
    assert not PLAIN.fullmatch(deep + "\n" + " " * 29 + "a:")
    assert MAX_DEPTH > 2 * 29 + 1
