"""The base of the bases of options."""

import threading
import time

from pydantic import BaseModel

from distcore_data.base_options import Options


def test_a_validator_is_built_when_it_is_first_used():
    class Late(Options):
        option: int = 1

    assert not Late.__pydantic_complete__
    assert Late.model_construct() == Late.model_validate({})
    assert Late.__pydantic_complete__


def test_no_two_threads_build_a_validator_at_once(monkeypatch):
    within, most = [], []

    def rebuild(cls):
        within.append(1)
        most.append(len(within))
        time.sleep(0.01)
        within.pop()

    class Late(Options):
        option: int = 1

    monkeypatch.setattr(BaseModel, "model_rebuild", classmethod(rebuild))
    threads = [threading.Thread(target=Late.model_rebuild) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1] * 5


def test_a_schema_builds_the_models_of_its_defaults():
    """Before 2.14 pydantic cannot write a default whose class is not built yet."""

    class Inner(Options):
        option: int = 1

    class Outer(Options):
        inner: Inner = Inner.model_construct()

    assert not Inner.__pydantic_complete__
    Outer.__get_pydantic_json_schema__({}, lambda schema: {})
    assert Inner.__pydantic_complete__
