"""What is installed, found in the metadata of distributions."""

from importlib import metadata

from distcore_core.registry.index import HELD, Installed, all_offers


def test_a_distributions_metadata_are_read_once_whatever_it_offers(tmp_path, monkeypatch):
    info = tmp_path / "many-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: many\nVersion: 1.0\n")
    lines = "".join(f"number{each} = many\n" for each in range(20))
    (info / "entry_points.txt").write_text(f"[distcore.extensions]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    read, text_of = [], metadata.PathDistribution.read_text

    def counted(self, name):
        if name == "METADATA" and self._path == info:
            read.append(name)
        return text_of(self, name)

    monkeypatch.setattr(metadata.PathDistribution, "read_text", counted)
    offers = [each for each in all_offers()["extensions"] if each.distribution == "many"]
    assert len(offers) == 20
    assert len(read) == 1  # its name and its version


def test_what_is_held_is_given_instead_of_what_is_installed(tmp_path, monkeypatch):
    first = all_offers()
    token = HELD.set(first)
    try:
        info = tmp_path / "late-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[distcore.extensions]\nlate = late\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert all_offers() is first
        assert Installed().names("extensions") == sorted(
            {e.name for e in first.get("extensions", ())}
        )
    finally:
        HELD.reset(token)
    assert "late" in Installed().names("extensions")
