"""Virtual time: async tests run on an event loop whose clock jumps instead of waiting."""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the clock where other selectors would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("every task waits for something that never happens")
        self.now_s += timeout
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class _Inline(Executor):
    """Runs each call at once, without a thread."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments, **more))
        except Exception as error:  # noqa: BLE001 - the future carries it
            future.set_exception(error)
        return future


@pytest.fixture
def inline() -> Executor:
    """Where blocking calls run in virtual time."""
    return _Inline()


def run_virtually(scenario: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(scenario)


@pytest.fixture
def virtual() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine in virtual time, for tests that are not async themselves."""
    return run_virtually


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in virtual time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run_virtually(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
