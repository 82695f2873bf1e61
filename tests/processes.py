"""Processes that tests start."""

import signal


def obey_interrupts() -> None:
    """Restores SIGINT; for `preexec_fn`, because the background jobs of a shell, and so their children, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
