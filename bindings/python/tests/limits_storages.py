"""Storages of the plugin of `limits`, for tests of threads and of event loops alike."""

import asyncio
import inspect
import time

import limits.aio.strategies
import limits.strategies
from limits.storage import storage_from_string

import tidegate.limits  # noqa: F401

STRATEGIES = ["fixed-window", "moving-window", "sliding-window-counter", "token-bucket", "sliding-window-log"]


def ready(storage):
    """Waits until a storage has reached Redis."""
    end = time.monotonic() + 20
    while not storage.check():
        assert time.monotonic() < end, "Redis does not answer"
        time.sleep(0.01)
    return storage


class Waiting:
    """An object whose coroutines are run to their end, in one event loop."""

    def __init__(self, target, loop):
        self.target, self.loop = target, loop

    def __getattr__(self, name):
        found = getattr(self.target, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *arguments, **options: self.loop.run_until_complete(found(*arguments, **options))


class Opened:
    """Makes storages and limiters of one URI, for threads or for an event loop."""

    def __init__(self, uri):
        self.uri, self.loop = uri, None
        if uri.startswith("async+"):
            self.loop = asyncio.new_event_loop()

    def storage(self, **options):
        storage = storage_from_string(self.uri, **options)
        return Waiting(storage, self.loop) if self.loop else storage

    def ready_storage(self):
        """A storage that has reached Redis, however busy the machine is."""
        return ready(self.storage())

    def limiter(self, strategy, storage=None):
        storage = storage or self.ready_storage()
        if self.loop:
            return Waiting(limits.aio.strategies.STRATEGIES[strategy](storage.target), self.loop)
        return limits.strategies.STRATEGIES[strategy](storage)

    def close(self):
        if self.loop:
            self.loop.close()
