"""An event loop whose time is made up: it passes only while everybody waits."""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: where others would sleep, the clock jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everybody waits for something that will never happen")
        self.now_s += timeout
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


async def _here(call: Callable[..., Any], *arguments: Any) -> Any:
    result = call(*arguments)
    return await result if inspect.isawaitable(result) else result


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Callable[[Coroutine[Any, Any, T]], T]:
    """`virtual(coroutine)`: run it in made-up time, what goes to threads included.

    Calls to threads run in place; where they return something to wait for, it is awaited.
    """
    monkeypatch.setattr(asyncio, "to_thread", _here)

    def run(scenario: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            return runner.run(scenario)

    return run
