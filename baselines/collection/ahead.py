"""Plays the next batch of episodes while the present one is learned from (`async_level = 1`).

    rollout   0 |   1   |   2   |       3 is played by the weights before update 2, and so on:
    update      |   0   |   1   |       at most one update old

A batch is only played ahead where neither an evaluation nor a checkpoint lies between, so that no
rollout is in flight then. A checkpoint hence needs nothing of it, and a resumed run takes the same
steps.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

from baselines.collection.actor import Actor
from baselines.collection.collector import Collected, Collector
from baselines.networks.snapshot import Snapshot


class RolloutAhead:
    """One batch at a time, played in a thread with a copy of the weights or on servers."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="envsuite-rollout")
        self._snapshot: Snapshot | None = None
        self._actor: Actor | None = None
        self._batch: Future[Collected] | None = None

    @property
    def pending(self) -> bool:
        """True if a batch was begun and not taken."""
        return self._batch is not None

    def begin(self, update: int, stage: int) -> None:
        """Begins to play the episodes of an update with the present weights, which may change from
        here on."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self._collector.model)
        self._snapshot.take()
        self._actor = self._collector.actor(player=self._snapshot)
        self._batch = self._thread.submit(self._collector.collect_with, self._actor, update, stage)

    def take(self) -> Collected:
        """Returns the batch that was begun, as soon as it is played; raises what ended its rollout."""
        assert self._batch is not None
        batch, self._batch = self._batch, None
        return batch.result()

    def close(self) -> None:
        """Gives up a batch that was not taken, and ends the thread."""
        if self._actor is not None and self._batch is not None:
            self._actor.stop()
            wait([self._batch])
            self._actor.close()
        self._thread.shutdown()
