"""Options of a config by names and by numbers."""

from distcore_data.flat_config import ORDER, apart, flattened

CONFIG = {
    "input_features": [
        {"name": "age", "type": "number"},
        {"name": "net.price", "encoder": {"fc_layers": [{"size": 8}, {"size": 9}]}},
    ],
    "trainer": {"betas": [0.9, 0.99], "optimizer": {}},
}


def test_a_config_is_told_by_names_and_placed_by_numbers():
    layers, place = "input_features[net.price].encoder.fc_layers", "input_features[1].encoder"
    assert [*flattened(CONFIG)] == [
        ("input_features (their order)", "", ["age", "net.price"]),
        ("input_features.age.type", "input_features[0].type", "number"),
        (f"{layers}[0].size", f"{place}.fc_layers[0].size", 8),
        (f"{layers}[1].size", f"{place}.fc_layers[1].size", 9),
        ("trainer.betas", "trainer.betas", [0.9, 0.99]),
        ("trainer.optimizer", "trainer.optimizer", {}),
    ]
    assert [*flattened({})] == []


def test_members_of_one_name_are_told_by_numbers():
    steps = [{"name": "scale", "by": 2}, {"name": "scale", "by": 3}]
    assert [*flattened({"steps": steps})] == [
        ("steps[0].name", "steps[0].name", "scale"),
        ("steps[0].by", "steps[0].by", 2),
        ("steps[1].name", "steps[1].name", "scale"),
        ("steps[1].by", "steps[1].by", 3),
    ]


def test_names_in_another_order_are_told_from_the_first_on_that_differs():
    one, other = [*"abcdef"], [*"abcdfe"]
    assert apart(f"x{ORDER}", (one, other)) == [["…", "e", "f"], ["…", "f", "e"]]
    assert apart(f"x{ORDER}", (one, one[:5], None)) == [["…", "f"], ["…"], None]
    assert apart(f"x{ORDER}", (one[:3], one[:2])) == [one[:3], one[:2]]
    assert apart(f"x{ORDER}", (one, None)) == [one, None]
    assert apart("trainer.betas", ([0.9, 0.99], [0.9, 0.9])) == [[0.9, 0.99], [0.9, 0.9]]
