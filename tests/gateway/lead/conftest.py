"""An event loop whose time is made up: it passes only while everybody waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
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


class _Inline(Executor):
    """No thread: the call is over when it is submitted."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments, **more))
        except Exception as error:  # noqa: BLE001 - the future carries it
            future.set_exception(error)
        return future


@pytest.fixture
def inline() -> Executor:
    """Where blocking calls run in made-up time."""
    return _Inline()


@pytest.fixture
def virtual() -> Callable[[Coroutine[Any, Any, T]], T]:
    """`virtual(coroutine)`: run it in made-up time."""

    def run(scenario: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            return runner.run(scenario)

    return run
