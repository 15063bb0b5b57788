"""Processes: fork copies memory and makes connections anew; an interpreter ends without a word, whatever is open."""

import concurrent.futures
import multiprocessing
import os
import threading


from conftest import IS_SHORT, run_python
from tidegate import Gate, Limit, Limiter, RedisStore


def in_child(work):
    """What `work` returns in a forked process: a small number, at most 250."""
    child = os.fork()
    if child == 0:
        code = 251
        try:
            code = int(work())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_memory_is_copied():
    limiter = Limiter("5/hour")
    assert limiter.allow("a", 2)
    assert in_child(lambda: limiter.check("a").remaining) == 2
    assert limiter.check("a").remaining == 2, "the child counts for itself"


def test_connections_are_made_anew_in_a_child(redis):
    store = RedisStore(redis.url, deadline=1)
    limiter, gate = Limiter("100/hour", store=store), Gate("rules: [{id: all, per: [], limit: 100/hour}]", store=store)
    assert limiter.check("a").remaining == 99 and gate.check({}).remaining == 99
    children = 3 if IS_SHORT else 20
    for number in range(children):
        assert in_child(lambda: limiter.check("a").remaining) == 98 - number
        assert in_child(lambda: gate.check({}).remaining) == 98 - number
    assert limiter.check("a").remaining == 98 - children, "the parent's connection is as it was"

    def nested():
        limiter.check("b")
        return in_child(lambda: limiter.check("b").remaining)

    assert in_child(nested) == 98


def test_a_fork_while_other_threads_ask(redis):
    limiter, memory = Limiter("1000000/second", store=RedisStore(redis.url, deadline=1)), Limiter("1000000/second")
    held = Limiter(Limit.concurrent(1000))
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            limiter.allow("a")
            memory.allow("a")
            with held.acquire("a"):
                pass

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5 if IS_SHORT else 50):
            assert in_child(lambda: limiter.allow("a") + memory.allow("a") + held.acquire("a").release()) == 3
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_multiprocessing_by_fork_and_spawn(redis):
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            allowed = pool.starmap(ask_in_pool, [(redis.url, method)] * 20)
        assert sum(allowed) == 10


def ask_in_pool(url, key):
    return Limiter("10/hour", store=RedisStore(url, deadline=1)).allow(key)


OPEN = """
import asyncio, sys, threading
from tidegate import *
url, dead = sys.argv[1:]
live = RedisStore(url, deadline=5)
"""

# Each ends with something that is open. None may print, hang, or end with another code than 0.
ENDINGS = {
    "an open store": "live.wait_ready(5); limiter = Limiter('1/second', store=live); limiter.allow('a')",
    "a store that was never used": "store = RedisStore(url)",
    "a dead Redis": """
limiter = Limiter("1/second", store=dead)
try:
    limiter.allow("a")
except StoreError:
    pass
""",
    "a permit that is held": "import os; permit = Limiter(Limit.concurrent(1), store=live).acquire(str(os.getpid()))",
    "a gate": "gate = Gate('rules: [{id: all, per: [], limit: 1/second}]', store=live); gate.check({})",
    "cancelled tasks": """
async def main():
    limiter = AsyncLimiter("1/minute", store=live, max_wait=100000)
    tasks = [asyncio.ensure_future(limiter.acquire("a")) for _ in range(5)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
asyncio.run(main())
""",
    "tasks that asyncio cancels": """
async def main():
    limiter = AsyncLimiter("1/minute", store=live, max_wait=100000)
    main.tasks = [asyncio.ensure_future(limiter.acquire("a")) for _ in range(5)]
    await asyncio.sleep(0.05)
asyncio.run(main())
""",
    "a dead Redis and asyncio": """
async def main():
    limiter = AsyncLimiter("1/minute", store=dead, on_store_failure="deny")
    await asyncio.gather(*(limiter.check("a") for _ in range(5)))
asyncio.run(main())
""",
    "a loop that was never closed": """
loop = asyncio.new_event_loop()
limiter = AsyncLimiter("1/second", store=live)
loop.run_until_complete(limiter.check("a"))
loop.close()
""",
    "a daemon thread that waits in memory": """
limiter = Limiter("1/hour", max_wait=1000000)
limiter.allow("a")
threading.Thread(target=lambda: limiter.acquire("a"), daemon=True).start()
""",
    "a daemon thread that waits for Redis": """
limiter = Limiter("1/hour", store=live, max_wait=1000000, name=str(id(url)))
limiter.allow("a")
threading.Thread(target=lambda: limiter.acquire("a"), daemon=True).start()
""",
    "daemon threads that ask": """
limiter, memory = Limiter("1000000/second", store=live, on_store_failure="allow"), Limiter("1000000/second")
def ask():
    while True:
        limiter.allow("a")
        memory.allow("a")
for _ in range(3):
    threading.Thread(target=ask, daemon=True).start()
""",
}


def test_an_interpreter_ends_without_a_word(redis):
    interpreters = 24 if IS_SHORT else 1000
    names = list(ENDINGS)

    def end(number):
        name = names[number % len(names)]
        ended = run_python(OPEN + ENDINGS[name], redis.url, "redis://127.0.0.1:1")
        return name, ended.returncode, ended.stdout, ended.stderr

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(end, range(interpreters)))
    assert [run for run in ended if run[1:] != (0, "", "")] == []
    assert {run[0] for run in ended} == set(names)


def test_an_interpreter_ends_by_an_error_of_its_own(redis):
    ended = run_python(OPEN + "Limiter('1/second', store=live).allow('a'); raise SystemExit(7)", redis.url, "-")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", "")
