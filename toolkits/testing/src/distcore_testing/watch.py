"""What the reading of a file runs."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any


class Watch:
    """Notes within a `with` block what runs texts or pickles, and where: in this thread and in
    those that it starts. Of who took a function of pickle's before this was made it notes the
    pickles alone that name a class or a function.

    found: a text each, such as "pickle.loads in /a/file.py, line 3". put: what sets an attribute,
    for a process that goes on.
    """

    def __init__(self, put: Callable[[Any, str, Any], None] = setattr) -> None:
        self.found: set[str] = set()
        self._others: set[int] | None = None
        sys.addaudithook(self._heard)
        for name in ("load", "loads"):
            put(pickle, name, self._function(f"pickle.{name}", getattr(pickle, name)))
        for name in ("Unpickler", "_Unpickler"):
            put(pickle, name, self._class(f"pickle.{name}", getattr(pickle, name)))

    def __enter__(self) -> None:
        me = threading.get_ident()
        self._others = {each.ident or 0 for each in threading.enumerate()} - {me}

    def __exit__(self, *_: object) -> None:
        self._others = None

    def _heard(self, event: str, arguments: object) -> None:
        if event in ("exec", "pickle.find_class", "os.system", "subprocess.Popen"):
            self._note("eval or exec" if event == "exec" else event)

    def _note(self, what: str) -> None:
        if self._others is None or threading.get_ident() in self._others:
            return
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        self.found.add(f"{what} in {frame.f_code.co_filename}, line {frame.f_lineno}")

    def _function(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self._note(name)
            return inner(*arguments, **named)

        return called

    def _class(self, name: str, inner: Any) -> type:
        note = self._note

        class Noted(inner):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                note(name)
                super().__init__(*arguments, **named)

        return Noted
