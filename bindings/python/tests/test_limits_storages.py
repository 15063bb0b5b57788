"""The storages of the plugin of `limits`, through the API of `limits`: in memory and Redis, for threads and event loops."""

import inspect
import os
import pickle
import time

import pytest
from conftest import run_python
from limits import RateLimitItemPerMinute, parse
from limits.aio.storage import Storage as AsyncStorage
from limits.errors import ConfigurationError, StorageError
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage, storage_from_string
from limits_storages import STRATEGIES, Opened

from tidegate import StoreError
from tidegate.limits import AsyncTidegateStorage, TidegateStorage

DEADLINE = "deadline=2"


@pytest.fixture(params=["tidegate://", "async+tidegate://", "tidegate+redis", "async+tidegate+redis"])
def opened(request):
    uri = request.param
    if uri.endswith("redis"):
        uri += request.getfixturevalue("redis").url.removeprefix("redis") + f"?{DEADLINE}"
    opened = Opened(uri)
    yield opened
    opened.close()


def test_a_counter_counts_beyond_any_limit(opened):
    storage = opened.ready_storage()
    key = RateLimitItemPerMinute(1).key_for("user_42")
    assert [storage.incr(key, 60), storage.incr(key, 60, amount=10), storage.incr(key, 60)] == [1, 11, 12]
    assert storage.get(key) == 12
    assert storage.get_expiry(key) == pytest.approx(time.time() + 60, abs=2)


def test_a_key_that_was_not_counted_has_no_window(opened):
    storage = opened.ready_storage()
    for key in ("LIMITER/unknown/1/1/minute", "unknown"):
        assert storage.get(key) == 0
        assert storage.get_expiry(key) == pytest.approx(time.time(), abs=2)


def test_a_key_of_any_form_has_the_window_of_its_first_hit(opened):
    storage = opened.ready_storage()
    for key in ("user", "a/b", "a/1/1/fortnight", "LIMITER/10/1/second"):
        assert [storage.incr(key, 60), storage.incr(key, 600), storage.get(key)] == [1, 2, 2]
        assert storage.get_expiry(key) == pytest.approx(time.time() + 60, abs=2)
        storage.clear(key)
        assert storage.get(key) == 0


def test_windows_end(opened):
    storage = opened.ready_storage()
    storage.incr("LIMITER/1/1/second", 1)
    assert storage.acquire_entry("LIMITER/1/1/second", 1, 1)
    assert not storage.acquire_entry("LIMITER/1/1/second", 1, 1)
    time.sleep(1.05)
    assert storage.get("LIMITER/1/1/second") == 0
    assert storage.get_moving_window("LIMITER/1/1/second", 1, 1)[1] == 0
    assert storage.acquire_entry("LIMITER/1/1/second", 1, 1)


def test_the_moving_window_starts_at_its_oldest_entry(opened):
    storage = opened.ready_storage()
    key = "LIMITER/k/10/1/minute"
    start, count = storage.get_moving_window(key, 10, 60)
    assert (start, count) == (pytest.approx(time.time(), abs=2), 0)
    before = time.time() - 0.01
    assert storage.acquire_entry(key, 10, 60, amount=3)
    after = time.time() + 0.01
    time.sleep(0.3)
    assert storage.acquire_entry(key, 10, 60)
    start, count = storage.get_moving_window(key, 10, 60)
    assert before <= start <= after and count == 4
    assert not storage.acquire_entry(key, 10, 60, amount=7)
    assert storage.acquire_entry(key, 10, 60, amount=6)
    assert not storage.acquire_entry(key, 10, 60)
    start, count = storage.get_moving_window(key, 10, 60)
    assert before <= start <= after and count == 10


def test_sliding_windows_are_counted_and_cleared(opened):
    storage = opened.ready_storage()
    key, day = "LIMITER/k/10/1/day", 86_400
    assert storage.get_sliding_window(key, day)[2] == 0
    assert storage.acquire_sliding_window_entry(key, 10, day, amount=4)
    assert not storage.acquire_sliding_window_entry(key, 10, day, amount=7)
    assert not storage.acquire_sliding_window_entry(key, 10, day, amount=11)
    previous, _, current, lasts = storage.get_sliding_window(key, day)
    assert previous + current == 4
    assert day < lasts <= 2 * day
    storage.clear_sliding_window(key, day)
    assert storage.acquire_sliding_window_entry(key, 10, day, amount=10)


def test_a_reset_forgets_and_counts_all(opened):
    storage = opened.ready_storage()
    for index in range(10):
        storage.incr(RateLimitItemPerMinute(10).key_for(str(index)), 60)
        storage.incr(RateLimitItemPerMinute(10, namespace="OTHER").key_for(str(index)), 60)
        storage.incr(f"own key {index}", 60)
    assert storage.reset() == 30
    assert storage.get("own key 1") == 0
    assert storage.incr(RateLimitItemPerMinute(10).key_for("1"), 60) == 1
    for strategy in STRATEGIES:
        assert opened.limiter(strategy, storage).hit(parse("1/day"), "x")
    assert storage.reset() == 6
    assert all(opened.limiter(strategy, storage).hit(parse("1/day"), "x") for strategy in STRATEGIES)


def test_costs_are_whole_numbers_or_rounded_up(opened):
    storage = opened.ready_storage()
    key = "LIMITER/k/50/1/minute"
    assert storage.incr(key, 60, amount=7.5) == 8
    assert storage.incr(key, 60, amount=0) == 8
    with pytest.raises(ValueError, match="negative"):
        storage.incr(key, 60, amount=-1)
    with pytest.raises(TypeError):
        storage.incr(None, 60)
    assert storage.incr(key, 60, amount=10**30) > 10**9
    assert storage.get(key) >= 10**9


def test_a_strategy_that_does_not_exist_here_is_refused():
    class OtherStorage(Storage):
        STORAGE_SCHEME = None
        base_exceptions = ValueError
        incr = get = get_expiry = check = reset = clear = lambda *_: 0

    with pytest.raises(NotImplementedError, match="token-bucket"):
        Opened("tidegate://").limiter("token-bucket", OtherStorage())


def test_storages_are_those_of_limits():
    storage, asynchronous = TidegateStorage(), AsyncTidegateStorage()
    assert isinstance(storage, (Storage, MovingWindowSupport, SlidingWindowCounterSupport))
    assert isinstance(asynchronous, AsyncStorage)
    assert storage.base_exceptions is StoreError
    assert asynchronous.base_exceptions is StoreError
    assert storage.check()
    assert (storage.storage, asynchronous.storage) == ("tidegate://", "async+tidegate://")
    assert inspect.iscoroutinefunction(asynchronous.incr)


@pytest.mark.parametrize("asynchronous", ["", "async+"])
@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("tidegate+redis://user:s3cret@127.0.0.1:1/2", "tidegate+redis://127.0.0.1:1/2"),
        ("tidegate+rediss://:s3cret@h:1?key_secret=s3cret", "tidegate+rediss://h:1"),
        ("tidegate+unix:///run/redis.sock?db=2&namespace=staging", "tidegate+unix:///run/redis.sock?db=2"),
        ("tidegate+redis+sentinel://:s3cret@a:1,b:2/mymaster", "tidegate+redis+sentinel://a:1,b:2/mymaster"),
        ("tidegate+redis+cluster://a:1,b:2", "tidegate+redis+cluster://a:1,b:2"),
    ],
)
def test_every_scheme_is_shown_without_secrets(asynchronous, uri, shown):
    storage = storage_from_string(asynchronous + uri, key_secret="s3cret")
    assert storage.storage == asynchronous + shown
    assert "s3cret" not in repr(vars(storage)).replace(uri, "")


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("tidegate://", {"namespac": "x"}, "`namespac` is not an option"),
        ("tidegate://localhost", {}, "counts in memory"),
        ("tidegate://?colour=red", {}, "counts in memory"),
        ("tidegate://?deadline=1", {}, "an option of Redis"),
        ("tidegate://?clock=sundial", {}, "clock"),
        ("tidegate+redis://", {}, "host"),
        ("tidegate+redis://:s3cret@h?deadline=soon", {}, "`soon`"),
        ("tidegate+redis://:s3cret@h?deadline=0", {}, "deadline"),
        ("tidegate+redis://:s3cret@h?namespace=a/b", {}, "namespace"),
        ("tidegate+redis://:s3cret@h?colour=red", {}, "colour=red"),
        ("tidegate+redis+sentinel://:s3cret@h", {}, "master"),
    ],
)
def test_mistakes_are_configuration_errors_without_secrets(uri, options, message):
    for scheme in (uri, "async+" + uri):
        with pytest.raises(ConfigurationError, match=message) as refused:
            storage_from_string(scheme, **options)
        assert "s3cret" not in str(refused.value)


def test_a_storage_in_memory_is_pickled_with_its_counters():
    for uri, kept in (("tidegate://?clock=python", TidegateStorage), ("async+tidegate://", AsyncTidegateStorage)):
        opened = Opened(uri)
        storage = opened.storage()
        assert storage.incr("test", 60) == 1
        assert storage.acquire_entry("moving", 2, 60)
        restored = opened.storage()
        inner = pickle.loads(pickle.dumps(getattr(storage, "target", storage)))
        assert isinstance(inner, kept)
        if opened.loop:
            restored.target = inner
        else:
            restored = inner
        assert (restored.incr("test", 60), restored.get("test")) == (2, 2)
        assert [restored.acquire_entry("moving", 2, 60) for _ in range(2)] == [True, False]
        assert storage.get("test") == 1
        opened.close()
    with pytest.raises(TypeError, match="its URI"):
        pickle.dumps(storage_from_string("tidegate+redis://127.0.0.1:1"))


@pytest.mark.parametrize("asynchronous", ["", "async+"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_dead_redis_is_a_store_error_which_can_be_wrapped(asynchronous, strategy):
    opened = Opened(f"{asynchronous}tidegate+redis://127.0.0.1:1")
    bare, wrapped = opened.storage(), opened.storage(wrap_exceptions=True)
    item = parse("10/minute")
    for call in ("hit", "test", "get_window_stats", "clear"):
        with pytest.raises(StoreError) as raised:
            getattr(opened.limiter(strategy, bare), call)(item, "key")
        assert raised.value.charged is False
        with pytest.raises(StorageError) as raised:
            getattr(opened.limiter(strategy, wrapped), call)(item, "key")
        assert isinstance(raised.value.storage_error, StoreError)
    assert not bare.check()
    opened.close()


def test_an_old_version_of_limits_is_refused(tmp_path):
    for version in ("5.1.9", "4.20", None):
        folder = tmp_path / f"with {version}"
        folder.mkdir()
        text = f"__version__ = {version!r}\n" if version else "raise ImportError('no limits')\n"
        (folder / "limits.py").write_text(text)
        paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        run = run_python("import tidegate.limits", PYTHONPATH=paths)
        assert run.returncode == 1
        assert "ImportError: tidegate.limits needs" in run.stderr
        assert "5.2" in run.stderr and (version or "not installed") in run.stderr
