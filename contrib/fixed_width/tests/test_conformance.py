"""distcore-fwf holds what every source must hold."""

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
