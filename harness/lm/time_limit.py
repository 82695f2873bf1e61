"""A time limit for Python code from outside, such as chat templates, in any thread."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimitReached(BaseException):
    """Raised inside the limited code; a BaseException, so that the code cannot catch it by accident."""


@contextmanager
def time_limit(seconds: float, noun: str) -> Iterator[None]:
    """Raises TimeoutError if the block runs longer than `seconds`.

    It interrupts Python code, not calls of C functions.
    """
    thread = threading.get_ident()
    lock = threading.Lock()
    finished = fired = False

    def interrupt() -> None:
        nonlocal fired
        with lock:
            if not finished:
                fired = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeLimitReached))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    try:
        timer.start()  # inside the block: Ctrl-C while it starts must also end it, or it strikes later code
        yield
    except TimeLimitReached:
        raise TimeoutError(f"the {noun} ran longer than {seconds:g} s") from None
    finally:
        finished = True
        with lock:
            timer.cancel()
            if fired:  # an exception that was not delivered yet must not reach later code
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
