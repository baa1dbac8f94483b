"""`tf.train.Example` for protobuf without TensorFlow: its schema in a pool of its own, so that
both fit one process."""

from __future__ import annotations

from typing import Any


def example_class() -> Any:
    """The message class, made from what example.proto and feature.proto say."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="bench_example.proto", package="bench", syntax="proto3"
    )

    def message(parent: Any, name: str, *fields: tuple[str, int, int, str | None]) -> Any:
        made = parent.add(name=name)
        for number, (called, kind, label, message_type) in enumerate(fields, 1):
            made.field.add(
                name=called, number=number, type=kind, label=label, type_name=message_type
            )
        return made

    one, many, inner = field.LABEL_OPTIONAL, field.LABEL_REPEATED, field.TYPE_MESSAGE
    lists = {
        "BytesList": field.TYPE_BYTES,
        "FloatList": field.TYPE_FLOAT,
        "Int64List": field.TYPE_INT64,
    }
    for name, kind in lists.items():
        message(file.message_type, name, ("value", kind, many, None))
    names = ("bytes_list", "float_list", "int64_list")
    feature = message(
        file.message_type,
        "Feature",
        *((n, inner, one, f".bench.{kind}") for n, kind in zip(names, lists, strict=True)),
    )
    feature.oneof_decl.add(name="kind")
    for each in feature.field:
        each.oneof_index = 0
    features = message(
        file.message_type, "Features", ("feature", inner, many, ".bench.Features.FeatureEntry")
    )
    entry = message(
        features.nested_type,
        "FeatureEntry",
        ("key", field.TYPE_STRING, one, None),
        ("value", inner, one, ".bench.Feature"),
    )
    entry.options.map_entry = True
    message(file.message_type, "Example", ("features", inner, one, ".bench.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Example"))
