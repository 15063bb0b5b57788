"""What an ASGI application hears after its request has waited: a client that leaves meanwhile is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tidegate._event_loops import is_in_trio, sleep

Message = MutableMapping[str, Any]

# The messages by which a client has left.
LEFT = frozenset({"http.disconnect", "websocket.disconnect"})


class Heard:
    """The messages of a client, some of which were heard before the application is called."""

    def __init__(self, receive: Callable[[], Awaitable[Message]]) -> None:
        self._receive = receive
        self._messages: list[Message] = []
        self._hearing: asyncio.Future[Message] | None = None

    async def wait(self, seconds: float) -> bool:
        """Waits. False if the client has left meanwhile, which is noticed with asyncio."""
        if is_in_trio():
            await sleep(seconds)
            return True
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        self._hearing = asyncio.ensure_future(self._receive())
        try:
            while self._hearing is not None and (left := end - loop.time()) > 0:
                await asyncio.wait([self._hearing], timeout=left)
                if not self._hearing.done():
                    break
                message = self._hearing.result()
                if message["type"] in LEFT:
                    return False
                self._messages.append(message)
                # A long body stays where it is: what comes after its first part is not asked for.
                self._hearing = None if message.get("more_body") else asyncio.ensure_future(self._receive())
            await asyncio.sleep(max(end - loop.time(), 0))
        except BaseException:
            self.close()
            raise
        return True

    async def receive(self) -> Message:
        """The next message, for the application."""
        if self._messages:
            return self._messages.pop(0)
        if self._hearing is None:
            return await self._receive()
        # An application may stop listening, and listen again.
        message = await asyncio.shield(self._hearing)
        self._hearing = None
        return message

    def close(self) -> None:
        """The application has ended."""
        if self._hearing is not None:
            self._hearing.cancel()
