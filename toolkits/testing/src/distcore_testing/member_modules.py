"""What every encoder, decoder and combiner of the tabular model must hold: rows by themselves,
every weight trained, weights by the seed, a state that is saved and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from distcore_testing.feature_networks import NetworkChecks, batch_of
from distcore_testing.feature_rows import as_json, encoded_or_refused
from distcore_testing.member_values import OfFeature, member, process_stays

if TYPE_CHECKING:
    import torch

Take = Callable[[int, int], Any]


class EncoderSuite(OfFeature):
    """Subclass with `name` (`number.waves`), and `options` if needed; `values()` as in
    `OfFeature`."""

    section = "encoder"

    def test_it_reads_the_column_row_by_row(self) -> None:
        """[B, output_size], finite, for any rows beside one; different codes are told apart."""
        feature, metadata, batch = self.fitted()
        before = as_json(metadata)
        NetworkChecks().check_encoder(feature, metadata, batch)
        assert as_json(metadata) == before, "it changes the metadata"

    def test_it_reads_what_no_row_had(self) -> None:
        """Missing values, and one that was not there when the feature was fitted."""
        import torch

        feature, metadata, _ = self.fitted()
        encoder, values = feature.network().encoder(metadata).eval(), self.values()
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        word = pa.array(["no such value"], kind) if pa.types.is_string(kind) else values[:0]
        for each in (pa.nulls(2, kind), word):
            each = each.dictionary_encode() if kind != values.type else each
            if encoded_or_refused(feature, each, metadata) is not None:
                batch = batch_of(feature, each, metadata)
                hidden = encoder(batch["column"])
                assert hidden.shape == (batch.rows, encoder.output_size)
                assert torch.isfinite(hidden).all()

    def test_its_weights_are_trained_and_kept(self) -> None:
        feature, metadata, batch = self.fitted()
        check_module(
            lambda: feature.network().encoder(metadata),
            lambda start, stop: batch.part(start, stop)["column"],
            batch.rows,
        )


class CombinerSuite:
    """Subclass with `name`, and `options` if needed. sizes: columns of each input."""

    name: str
    options: Mapping[str, Any] = {}
    sizes: Mapping[str, int] = {"a": 1, "b": 4, "c": 2}

    def made(self) -> Any:
        """For these inputs."""
        width = sum(self.sizes.values())
        context = {"input_size": width, "sizes": dict(self.sizes)}
        return member("tabular.combiners", self.name, self.options, **context)

    def test_it_combines_row_by_row(self) -> None:
        """[B, input_size] to finite [B, output_size], for any rows beside one."""
        import torch

        combiner, rows = self.made().eval(), _random(40, sum(self.sizes.values()))
        with torch.no_grad():
            whole = combiner(rows)
            assert whole.shape == (40, combiner.output_size)
            assert whole.dtype == torch.float32
            assert torch.isfinite(whole).all()
            check_rows(combiner, lambda start, stop: rows[start:stop], whole)

    def test_it_looks_at_every_input(self) -> None:
        combiner, rows = self.made().eval(), _random(40, sum(self.sizes.values()))
        rows.requires_grad_()
        (combiner(rows) * _random(1, combiner.output_size)).sum().backward()
        assert rows.grad is not None
        seen = rows.grad.abs().sum(0) > 0
        start = 0
        for name, size in self.sizes.items():
            assert seen[start : start + size].any(), f"nothing depends on input {name}"
            start += size

    def test_its_weights_are_trained_and_kept(self) -> None:
        rows = _random(40, sum(self.sizes.values()))
        check_module(self.made, lambda start, stop: rows[start:stop], 40)


class DecoderSuite(OfFeature):
    """Subclass with `name` (`number.regressor`), and `options` if needed; `values()` as in
    `OfFeature`."""

    section, role = "decoder", "output"
    input_size = 6

    def test_it_gives_logits_row_by_row(self) -> None:
        """Those that the feature's loss and output take, for any rows beside one."""
        import torch

        feature, metadata, batch = self.fitted()
        network, hidden = feature.network(), _random(batch.rows, self.input_size)
        decoder = network.decoder(metadata, self.input_size).eval()
        with torch.no_grad():
            logits = decoder(hidden)
            assert torch.isfinite(logits).all()
            assert network.loss(logits, batch["column"], metadata).shape == (batch.rows,)
            shape = (batch.rows, *feature.output_shape(metadata))
            assert network.output(logits, metadata).shape == shape
            check_rows(decoder, lambda start, stop: hidden[start:stop], logits)

    def test_it_learns_what_its_input_tells(self) -> None:
        """A loss of a quarter at most, if the input holds the code of each row."""
        import torch

        feature, metadata, batch = self.fitted()
        network, target = feature.network(), batch["column"]
        torch.manual_seed(1)
        decoder = network.decoder(metadata, self.input_size)
        codes = target.long() if feature.labels(metadata) else target
        hidden = torch.zeros(batch.rows, self.input_size)
        if feature.labels(metadata):
            hidden[torch.arange(batch.rows), codes % self.input_size] = 1.0
        else:
            hidden[:, 0] = target
        optimizer = torch.optim.Adam(decoder.parameters(), lr=0.05)
        losses = []
        for _ in range(300):
            optimizer.zero_grad()
            loss = network.loss(decoder(hidden), target, metadata).mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.25 * losses[0]

    def test_its_weights_are_trained_and_kept(self) -> None:
        feature, metadata, _ = self.fitted()
        hidden = _random(40, self.input_size)
        check_module(
            lambda: feature.network().decoder(metadata, self.input_size),
            lambda start, stop: hidden[start:stop],
            40,
        )


# ------------------------------------------------------------------ parts


def check_rows(module: Any, take: Take, whole: torch.Tensor) -> None:
    """What comes of a row does not depend on those beside it; no row is none."""
    import torch

    assert torch.allclose(whole[5:9], module(take(5, 9)), atol=1e-5), "a row depends on its batch"
    assert module(take(7, 8)).shape == (1, *whole.shape[1:])
    assert module(take(0, 0)).shape == (0, *whole.shape[1:])


def check_module(make: Callable[[], Any], take: Take, rows: int) -> None:
    """Weights follow the seed, each gets a gradient, and a loaded state is all of it, after it was
    trained too; random numbers are torch's, and what it reads stays as it is."""
    import torch

    given = take(0, rows)
    values = given if isinstance(given, torch.Tensor) else given.values  # of a ragged column
    before = values.clone()
    torch.manual_seed(3)
    module = make().eval()
    torch.manual_seed(3)
    same = make().eval()
    assert list(module.state_dict()) == list(same.state_dict())
    assert all(each.equal(same.state_dict()[name]) for name, each in module.state_dict().items())
    found = module(given)
    trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    if trained:
        (found * _random(*found.shape)).sum().backward()
    for name, each in trained:
        assert each.grad is not None, f"{name} gets no gradient"
        assert each.grad.abs().sum() > 0, f"the gradient of {name} is 0"
    torch.manual_seed(4)
    other = make().eval()
    other.load_state_dict(module.state_dict())
    with torch.no_grad(), process_stays():
        assert other(given).equal(module(given)), "its state is not all of it"
    some, found = take(0, rows // 3), []
    for each in (module, other):
        torch.manual_seed(5)
        each.train()
        found.append(torch.stack([each(some) for _ in range(8)]))
    assert found[0].equal(found[1]), "in training it draws numbers that are not torch's"
    torch.manual_seed(6)
    third = make().eval()
    third.load_state_dict(module.state_dict())
    with torch.no_grad():
        assert third(given).equal(module.eval()(given)), "what training changes is not in its state"
    assert values.equal(before), "it changes what it reads"


def _random(*shape: int) -> torch.Tensor:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))
