"""distcore-weights holds what every plugin and every command must hold."""

import pytest

import distcore
from distcore_core.errors import UserError
from distcore_testing import CommandSuite, PluginSuite, data


class TestPlugin(PluginSuite):
    kind, name = "commands", "weights"


class TestCommand(CommandSuite):
    name = "weights"

    def words(self, folder):
        if not (folder / "results").exists():
            config = data.config(str(folder / "cache"))
            distcore.train(config, data.table(), output_directory=folder / "results")
        return ["results/experiment_run"]

    def mistake(self, folder):
        return ["nowhere"]


def test_it_lists_every_tensor_and_refuses_what_is_none(tmp_path, capsys):
    from distcore_weights.command import WeightsCommand

    words = TestCommand().words(tmp_path)
    parsed = TestCommand().parser().parse_args([str(tmp_path / each) for each in words])
    assert WeightsCommand().run(parsed) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    counts = [int(line.split()[0].replace(",", "")) for line in lines]
    assert len(lines) > 3
    assert last.split() == [f"{sum(counts):,}", "in", "all"]


@pytest.mark.parametrize(
    "head",
    [
        b"not JSON",
        b"[]",
        b"[" * 10**5,
        b'{"a": []}',
        b'{"a": {"dtype": "F32"}}',
        b'{"a": {"dtype": "F32", "shape": ["x"]}}',
    ],
)
def test_a_head_that_is_none_is_refused(head, tmp_path):
    from distcore_weights.command import tensors

    path = tmp_path / "weights.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(UserError, match="is no file of safetensors"):
        tensors(path)
