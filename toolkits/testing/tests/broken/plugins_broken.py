"""Plugins for test_testing.py: of each role a sound one, and others that break one promise each."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import uuid
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import ranks_broken
from pydantic import BaseModel, ConfigDict

from distcore_core.contracts import (
    LOADER,
    PROCESSOR,
    TRAINER,
    BackendBase,
    Column,
    FeatureBase,
    ModelBase,
    Resources,
)
from distcore_core.errors import TrainingError
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins

DISTCORE_API = (1, 0)


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


# ------------------------------------------------------------------ backends


class SoundBackend(BackendBase):
    defaults = {"processor": "local", "loader": "packed", "trainer": "local"}  # noqa: RUF012
    retries, reverse, names_rank = True, False, True

    def __init__(self, name):
        self.name = name

    def resources(self):
        return Resources(cpus=1)

    def map(self, function, items):
        return map(function, items)

    def run_group(self, group):
        for _ in range(1 + (group.max_retries if self.retries else 0)):
            results = self._attempt(group)
            failed = [(rank, found) for rank, found in enumerate(results) if isinstance(found, str)]
            if not failed:
                return results[::-1] if self.reverse else results
        rank, found = failed[0]
        raise TrainingError(f"rank {rank} failed: {found}" if self.names_rank else found)

    def _attempt(self, group):
        context = multiprocessing.get_context("spawn")
        pipes, processes = [], []
        for rank in range(group.ranks):
            mine, theirs = context.Pipe()
            processes.append(
                context.Process(
                    target=ranks_broken.run,
                    args=(theirs, group.function, rank, group.ranks, group.arguments),
                )
            )
            processes[-1].start()
            theirs.close()
            pipes.append(mine)
        results = []
        for pipe, process in zip(pipes, processes, strict=True):
            try:
                results.append(pipe.recv())
            except EOFError:
                results.append("it was killed")
            process.join()
        return results

    def close(self):
        pass


class BackwardBackend(SoundBackend):
    """Results in any order."""

    reverse = True


class TimidBackend(SoundBackend):
    """Never tries again."""

    retries = False


class SilentBackend(SoundBackend):
    """Does not say which rank failed."""

    names_rank = False


class UnorderedBackend(SoundBackend):
    """Tasks come back as they please."""

    def map(self, function, items):
        return map(function, reversed(list(items)))


# --------------------------------------------- processors, loaders, trainers: around the local ones


class Around:
    """Everything as the inner one does it."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class DisorderedProcessor(Around):
    """A shard's blocks in another order."""

    def write_shards(self, plans, write):
        return self.inner.write_shards(plans, partial(_backwards, write))


def _backwards(write, plan, blocks):
    return write(plan, blocks[::-1])


class RereadingProcessor(Around):
    """Reads every partition twice."""

    def scan(self, source, scratch=None):
        for part in source.partitions(1 << 20):
            part.read()
        return self.inner.scan(source, scratch)


class OwnBytesProcessor(Around):
    """Merges its statistics by halves that it rounds."""

    def fold(self, partial, merge):
        merged, rows = self.inner.fold(partial, merge)
        return merge(merged, merged), rows


class ShortLoader(Around):
    """Leaves the last batch out."""

    def batches(self, epoch, start=0):
        kept = list(self.inner.batches(epoch, start))
        yield from kept[:-1]


class ForgetfulLoader(Around):
    """Starts from the beginning wherever it is told to start."""

    def batches(self, epoch, start=0):
        yield from self.inner.batches(epoch)


class StubbornLoader(Around):
    """The same order in every epoch."""

    def batches(self, epoch, start=0):
        yield from self.inner.batches(0, start)


class PicklingTrainer(Around):
    def fit(self, job, backend, progress):
        import pickle

        result = self.inner.fit(job, backend, progress)
        (result.model / "extra.bin").write_bytes(pickle.dumps({"weights": [1.0]}))
        return result


class RestlessTrainer(Around):
    """Another seed each time."""

    def fit(self, job, backend, progress):
        from dataclasses import replace

        return self.inner.fit(replace(job, seed=random.randrange(1 << 30)), backend, progress)


class AmnesicTrainer(Around):
    """Loads weights that are not the ones it trained."""

    def load(self, directory, features, *, trust=False):
        import torch

        predictor = self.inner.load(directory, features, trust=trust)
        for weight in predictor.module.parameters():
            torch.nn.init.normal_(weight)
        return predictor


class MuddledTrainer(Around):
    """Predicts rows from the batch's other end."""

    def load(self, directory, features, *, trust=False):
        predictor = self.inner.load(directory, features, trust=trust)
        predict = predictor.predict
        predictor.predict = lambda batch: {
            name: each[::-1].copy() for name, each in predict(batch).items()
        }
        return predictor


# ------------------------------------------------------------------ cache formats: Arrow files


class SoundCache:
    suffix = ".arrow"

    metadata = staticmethod(dict)

    def write(self, target, table):
        schema = pa.schema([(field.name, field.type) for field in table.schema])
        table = (
            table.combine_chunks().take(np.arange(table.num_rows)).combine_chunks()
        )  # no offset of a slice is left
        table = table.cast(schema).replace_schema_metadata(self.metadata())
        with pa.ipc.new_file(target, table.schema) as writer:
            writer.write_table(table)

    def open(self, source):
        return Shard(pa.ipc.open_file(source).read_all(), source)


class Shard:
    def __init__(self, table, source=None):
        self.table, self.rows, self.source = table, table.num_rows, source

    def read(self, start=0, stop=None, columns=None):
        stop = self.rows if stop is None else stop
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(start, stop)
        part = self.table.slice(start, stop - start)
        part = (part if columns is None else part.select(columns)).combine_chunks()
        batches = part.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=part.schema)

    def close(self):
        if self.source is not None:
            self.source.close()


class StampedCache(SoundCache):
    """Equal tables, other bytes."""

    def metadata(self):
        return {"written": uuid.uuid4().hex}


class LossyCache(SoundCache):
    """What is no number becomes nought."""

    def write(self, target, table):
        values = np.nan_to_num(table.column("x").to_numpy()) if "x" in table.column_names else None
        at = table.schema.get_field_index("x")
        super().write(
            target, table if values is None else table.set_column(at, "x", pa.array(values))
        )


class LenientCache(SoundCache):
    """Reads what is left of a file that was cut."""

    def open(self, source):
        content = source.read()
        try:
            return super().open(io.BytesIO(content))
        except (pa.ArrowInvalid, OSError):
            return Shard(pa.table({"x": pa.array([], pa.float32())}))


class WholeCache(SoundCache):
    """All columns, whichever are asked for."""

    def open(self, source):
        shard = super().open(source)
        read = shard.read
        shard.read = lambda start=0, stop=None, columns=None: read(start, stop)
        return shard


class KeepingCache(SoundCache):
    """A read from where one began before gives that one's rows."""

    def open(self, source):
        shard, kept = super().open(source), {}
        read = shard.read

        def first(start=0, stop=None, columns=None):
            found = kept.setdefault(start // 1000, read(start, stop))
            return found if columns is None else found.select(columns)

        shard.read = first
        return shard


class ClampingCache(SoundCache):
    """Rows that are not there are left out."""

    def open(self, source):
        shard = super().open(source)
        read = shard.read

        def clamped(start=0, stop=None, columns=None):
            stop = min(shard.rows if stop is None else stop, shard.rows)
            return read(min(max(start, 0), stop), stop, columns)

        shard.read = clamped
        return shard


class HoldingCache(SoundCache):
    """The source stays open."""

    def open(self, source):
        shard = super().open(source)
        shard.source = None
        return shard


class VagueCache(SoundCache):
    """An error of the disk loses its number."""

    def write(self, target, table):
        try:
            super().write(target, table)
        except OSError as error:
            raise OSError(f"it cannot be written: {error}") from error


# ------------------------------------------------------------------ features


class SoundFeature(FeatureBase):
    """A number less the middle of its column's range."""

    raw, missing, options = "number", "fill_with_const", None

    def __init__(self, name):
        self.name = name

    def partial(self, values):
        plain = values.drop_null().to_numpy()
        return (float(plain.min()), float(plain.max())) if len(plain) else (np.inf, -np.inf)

    def merge(self, left, right):
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, state):
        return {"middle": (state[0] + state[1]) / 2}

    def column(self, metadata):
        return Column(name=self.name, dtype="float32")

    def encode(self, values, metadata):
        plain = np.nan_to_num(
            values.to_numpy(zero_copy_only=False).astype(float), nan=metadata["middle"]
        )
        return pa.array((plain - metadata["middle"]).astype(np.float32))

    def network(self):
        return self

    def encoder(self, metadata):
        import torch

        class Encoder(torch.nn.Module):
            output_size = 1

            def forward(self, values):
                return values[:, None]

        return Encoder()


class SummingFeature(SoundFeature):
    """A mean whose sum depends on the order of the rows."""

    def partial(self, values):
        plain = values.drop_null().to_numpy()
        return float(np.float32(plain.sum())), len(plain)

    def merge(self, left, right):
        return float(np.float32(left[0] + right[0])), left[1] + right[1]

    def finish(self, state):
        return {"middle": state[0] / state[1]}


class SlicedFeature(SoundFeature):
    """A row's code depends on the rows beside it."""

    def encode(self, values, metadata):
        plain = np.nan_to_num(values.to_numpy(zero_copy_only=False).astype(float))
        return pa.array((plain - (plain.mean() if len(plain) else 0.0)).astype(np.float32))


class HoledFeature(SoundFeature):
    """Leaves missing values missing."""

    def encode(self, values, metadata):
        return values.cast(pa.float32())


class WideFeature(SoundFeature):
    """Declares another type than it encodes."""

    def encode(self, values, metadata):
        return super().encode(values, metadata).cast(pa.float64())


class ObjectFeature(SoundFeature):
    """Metadata that JSON does not give back."""

    def finish(self, state):
        return {"middle": (state[0] + state[1]) / 2, "range": state}


# ------------------------------------------------------------------ models


class SoundModel(ModelBase):
    def build(self, features):
        return _net(features)


class UnseededModel(ModelBase):
    """Weights from a generator of its own."""

    def build(self, features):
        import torch

        net = _net(features)
        for weight in net.parameters():
            weight.data = torch.randn(
                weight.shape, generator=torch.Generator().manual_seed(random.randrange(1 << 30))
            )
        return net


class UnusedModel(ModelBase):
    """A weight that no output depends on."""

    def build(self, features):
        import torch

        net = _net(features)
        net.unused = torch.nn.Parameter(torch.zeros(3))
        return net


class CrowdedModel(ModelBase):
    """Normalises by whatever rows are in the batch."""

    def build(self, features):
        return _net(features, crowded=True)


class NarrowModel(ModelBase):
    """One logit where there are classes."""

    def build(self, features):
        return _net(features, classes=1)


def _net(features, crowded=False, classes=None):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.classes = classes or features.metadata["k"]["vocab_size"]
            self.layer = torch.nn.Linear(2, 2 + self.classes)

        def forward(self, batch):
            values = batch.block(["x0", "x1"])
            if crowded:
                values = values - values.mean(0)
            out = self.layer(values)
            return {"y": out[:, 0], "z": out[:, 1], "k": out[:, 2:]}

    return Net()


# ------------------------------------------------------------------ extensions


class SoundExtension:
    def __init__(self):
        self.seen = 0

    @hookimpl
    def epoch_finished(self, epoch, metrics):
        self.seen += json.dumps(metrics) != ""

    @hookimpl
    def run_finished(self, error):
        self.seen += 1


class MisspeltExtension(SoundExtension):
    @hookimpl
    def epoch_finnished(self, epoch):
        self.seen += 1


class NeedyExtension(SoundExtension):
    """Cannot be told of an epoch before a start."""

    @hookimpl
    def run_started(self, directory):
        self.directory = directory

    @hookimpl
    def epoch_finished(self, epoch):
        assert self.directory is not None


class PresumptuousExtension(SoundExtension):
    """Takes it for granted that there is a folder when the run ends."""

    @hookimpl
    def run_finished(self, directory):
        os.listdir(directory / ".")


class MeddlingExtension(SoundExtension):
    """Leaves a batch out of each epoch."""

    @hookimpl(wrapper=True)
    def distcore_make_loader(self, request):
        made = yield
        return ShortLoader(made) if request.shuffle else made


# ------------------------------------------------------------------ executors


class SoundExecutor:
    """One trial after another, each in a process of its own."""

    repeats, fragile, mixes = False, False, False

    def __init__(self, name):
        self.name = name

    def plan(self, job, backend):
        return {"at_once": 1, "algorithm": "as given", "notes": []}

    def run(self, job, backend, told):
        from distcore_search.records import ENDED, end_record, read_record

        for number, raw in enumerate(job.variants):
            name = f"{number:04d}"
            folder = job.work.folder(name)
            if read_record(folder).get("state") in ENDED and not self.repeats:
                continue
            given = dict(job.variants[0]) if self.mixes else dict(raw)
            process = multiprocessing.get_context("spawn").Process(
                target=job.function, args=(job.work, name, given)
            )
            process.start()
            process.join()
            if process.exitcode and self.fragile:
                raise TrainingError("a trial died")
            end_record(folder, "failed", job.work.objective, "its process died")
            told(name)


class RepeatingExecutor(SoundExecutor):
    """Tells of trials that ended long ago."""

    repeats = True


class FragileExecutor(SoundExecutor):
    """Ends with the first trial that dies."""

    fragile = True


class MixingExecutor(SoundExecutor):
    """Gives every trial the parameters of the first."""

    mixes = True


# ------------------------------------------------------------------ hooks

EXECUTORS = {
    "sound": SoundExecutor,
    "repeating": RepeatingExecutor,
    "fragile": FragileExecutor,
    "mixing": MixingExecutor,
}
BACKENDS = {
    "sound": SoundBackend,
    "backward": BackwardBackend,
    "timid": TimidBackend,
    "silent": SilentBackend,
    "unordered": UnorderedBackend,
}
PROCESSORS = {
    "sound": Around,
    "disordered": DisorderedProcessor,
    "rereading": RereadingProcessor,
    "ownbytes": OwnBytesProcessor,
    "inside": Around,
}
LOADERS = {
    "sound": Around,
    "short": ShortLoader,
    "forgetful": ForgetfulLoader,
    "stubborn": StubbornLoader,
}
TRAINERS = {
    "sound": Around,
    "pickling": PicklingTrainer,
    "restless": RestlessTrainer,
    "amnesic": AmnesicTrainer,
    "muddled": MuddledTrainer,
}
CACHES = {
    "sound": SoundCache,
    "stamped": StampedCache,
    "lossy": LossyCache,
    "lenient": LenientCache,
    "whole": WholeCache,
    "keeping": KeepingCache,
    "clamping": ClampingCache,
    "holding": HoldingCache,
    "vague": VagueCache,
}
FEATURES = {
    "sound": SoundFeature,
    "summing": SummingFeature,
    "sliced": SlicedFeature,
    "holed": HoledFeature,
    "wide": WideFeature,
    "object": ObjectFeature,
}
MODELS = {
    "sound": SoundModel,
    "unseeded": UnseededModel,
    "unused": UnusedModel,
    "crowded": CrowdedModel,
    "narrow": NarrowModel,
}
EXTENSIONS = {
    "sound": SoundExtension,
    "misspelt": MisspeltExtension,
    "needy": NeedyExtension,
    "presumptuous": PresumptuousExtension,
    "meddling": MeddlingExtension,
}


@hookimpl
def distcore_make_backend(name):
    return BACKENDS[name](name) if name in BACKENDS else None


@hookimpl
def distcore_make_processor(name):
    return (
        PROCESSORS[name](Plugins().make(PROCESSOR, "local", {"parallelism": 2}))
        if name in PROCESSORS
        else None
    )


@hookimpl
def distcore_make_loader(name, request):
    if name == "greedy":  # every rank reads the whole batch
        from dataclasses import replace

        from distcore_core.contracts import Rank

        return Around(Plugins().make(LOADER, "packed", {}, request=replace(request, rank=Rank())))
    return (
        LOADERS[name](Plugins().make(LOADER, "packed", {}, request=request))
        if name in LOADERS
        else None
    )


@hookimpl
def distcore_make_trainer(name):
    return TRAINERS[name](Plugins().make(TRAINER, "local", {})) if name in TRAINERS else None


@hookimpl
def distcore_make_cache(name):
    return CACHES[name]() if name in CACHES else None


@hookimpl
def distcore_make_feature(name, column):
    return FEATURES[name](column) if name in FEATURES else None


@hookimpl
def distcore_make_model(name):
    return MODELS[name]() if name in MODELS else None


@hookimpl
def distcore_make_executor(name):
    return EXECUTORS[name](name) if name in EXECUTORS else None


@hookimpl
def distcore_make_extension(name):
    return EXTENSIONS[name]() if name in EXTENSIONS else None


@hookimpl
def distcore_options_model(kind: str, name: str) -> Any:
    return Loose if (kind, name) == ("extensions", "loose") or kind == "executors" else None
