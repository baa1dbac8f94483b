"""distcore-fwf holds what every source must hold."""

import pytest

from distcore_core.plugin import DataError
from distcore_testing import SourceSuite


class TestFormat(SourceSuite):
    """A text that was cut at the end of a line is a shorter one."""

    name, damaged = "fwf", False

    def write(self, folder, table):
        rows = [
            ["" if each is None else str(each) for each in row.values()]
            for row in table.to_pylist()
        ]
        wide = [max(map(len, [name, *each])) for name, each in self.columns(table, rows)]
        lines = [
            " ".join(each.ljust(width) for each, width in zip(row, wide, strict=True))
            for row in [table.column_names, *rows]
        ]
        (folder / "data.fwf").write_text("\n".join(lines) + "\n")
        return folder / "data.fwf"

    def columns(self, table, rows):
        return [(name, [row[at] for row in rows]) for at, name in enumerate(table.column_names)]


def test_a_value_that_reaches_into_the_column_before_is_refused(tmp_path):
    """Its first digits were read as that column's."""
    from distcore_fwf.format import FixedWidth

    path = tmp_path / "data.fwf"
    path.write_text("name  price\na         7\nb    123456\n")
    with pytest.raises(DataError, match=r"^d, line 3: .*the column 'price' begins"):
        FixedWidth().table(path, "d")
    path.write_text("name  price\na         7\nb     23456\n")
    table = FixedWidth().table(path, "d")
    assert table.to_pydict() == {"name": ["a", "b"], "price": ["7", "23456"]}
