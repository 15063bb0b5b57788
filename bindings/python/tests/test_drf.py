"""Throttles of Django REST framework with Django's settings, and the middleware in front of Django."""

import doctest
import threading

import pytest

django = pytest.importorskip("django")
pytest.importorskip("rest_framework")

from django.conf import settings  # noqa: E402

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="test",
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"],
        DATABASES={},
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "UNAUTHENTICATED_USER": None,
            "DEFAULT_THROTTLE_RATES": {"anon": "3/min", "user": "50/hour", "uploads": "2/day", "none": None, "nothing": "0/min"},
        },
    )
    django.setup()

from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.test import RequestFactory, override_settings  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.throttling import AnonRateThrottle as OwnAnonRateThrottle  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

import tidegate.drf  # noqa: E402
from tidegate import MemoryStore, RedisStore  # noqa: E402
from tidegate.drf import AnonRateThrottle, ScopedRateThrottle, UserRateThrottle, forget  # noqa: E402
from tidegate.wsgi import RateLimitMiddleware  # noqa: E402

urlpatterns = []


class User:
    is_authenticated = True

    def __init__(self, pk):
        self.pk = pk


@pytest.fixture(autouse=True)
def _nothing_used():
    forget(setting="TIDEGATE")


def view_with(*throttles, scope=None):
    class View(APIView):
        throttle_classes = throttles
        throttle_scope = scope

        def get(self, request):
            return Response("ok")

    return View.as_view()


def answer(view, **environ):
    return view(RequestFactory().get("/", **environ))


def test_anonymous_clients_are_limited_by_address():
    view = view_with(AnonRateThrottle)
    assert [answer(view).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert answer(view, REMOTE_ADDR="203.0.113.8").status_code == 200
    assert answer(view, HTTP_X_FORWARDED_FOR="203.0.113.9").status_code == 200


def throttled(throttle, user=None, view=None):
    """Whether a throttle lets a request pass, and for how long it says to wait."""
    request = RequestFactory().get("/")
    request.user = user
    return throttle.allow_request(request, view), throttle.wait()


def test_users_are_limited_by_their_key_and_denied_ones_learn_when_to_return():
    found = [throttled(UserRateThrottle(), User(1))[0] for _ in range(51)]
    assert found == [True] * 50 + [False]
    allowed, wait = throttled(UserRateThrottle(), User(1))
    assert not allowed and 3590 < wait <= 3600
    assert throttled(UserRateThrottle(), User(2))[0]


def test_a_denied_request_gets_retry_after():
    view = view_with(AnonRateThrottle)
    denied = [answer(view) for _ in range(4)][-1]
    assert 50 <= int(denied["Retry-After"]) <= 60


def test_views_with_a_scope_have_its_rate():
    view = view_with(ScopedRateThrottle, scope="uploads")
    assert [answer(view).status_code for _ in range(3)] == [200, 200, 429]
    assert answer(view_with(ScopedRateThrottle)).status_code == 200
    assert answer(view_with(ScopedRateThrottle, scope="none")).status_code == 200
    assert answer(view_with(ScopedRateThrottle, scope="nothing")).status_code == 429


def test_classes_of_projects_keep_their_rates_and_keys():
    class Burst(UserRateThrottle):
        scope, rate = "burst", "2/s"

        def get_cache_key(self, request, view):
            return "everyone"

    assert [throttled(Burst(), User(number))[0] for number in range(3)] == [True, True, False]


def test_decisions_are_those_of_the_framework(monkeypatch):
    """The same requests at the same times: the same answers and the same waits."""
    import random
    import time

    from django.core.cache import cache

    cache.clear()
    source, now = random.Random(7), 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(OwnAnonRateThrottle, "timer", lambda self: now)
    for step in range(500):
        now += source.choice([0, 0.25, 1, 7, 30, 61])
        ours, own = AnonRateThrottle(), OwnAnonRateThrottle()
        (allowed, wait), (expected, expected_wait) = throttled(ours), throttled(own)
        assert allowed == expected, step
        if not allowed:
            assert wait == pytest.approx(expected_wait, abs=1e-3), step


def test_threads_are_admitted_exactly():
    begin, found = threading.Barrier(16), []

    def ask():
        begin.wait()
        found.extend(throttled(UserRateThrottle(), User("threads"))[0] for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(True) == 50


def test_the_setting_names_a_store_and_an_algorithm():
    with override_settings(TIDEGATE={"store": MemoryStore(), "algorithm": "token_bucket"}):
        assert [throttled(AnonRateThrottle())[0] for _ in range(4)] == [True] * 3 + [False]
        # Of a bucket a third comes back in a third of the time.
        assert 19 < throttled(AnonRateThrottle())[1] <= 20
    for wrong in ({"stores": None}, {"algorithm": "guess"}, {"store": 7}):
        with override_settings(TIDEGATE=wrong), pytest.raises((ImproperlyConfigured, ValueError, TypeError)):
            throttled(AnonRateThrottle())


def test_throttles_share_a_redis(redis):
    store = RedisStore(redis.url, deadline=5)
    for _ in range(2):
        # As another process would.
        forget(setting="TIDEGATE")
        with override_settings(TIDEGATE={"store": store}):
            found = [throttled(AnonRateThrottle())[0] for _ in range(2)]
    assert found == [True, False]
    with override_settings(TIDEGATE={"store": redis.url}):
        assert throttled(UserRateThrottle(), User(1))[0]


def test_the_examples_of_the_module_run():
    assert doctest.testmod(tidegate.drf).attempted == 5
    assert doctest.testmod(tidegate.drf).failed == 0


def test_the_middleware_in_front_of_django():
    from test_wsgi import call, environ

    app = RateLimitMiddleware(get_wsgi_application(), limit="2/minute")
    assert [call(app, environ("/none"))[0] for _ in range(3)] == [404, 404, 429]
