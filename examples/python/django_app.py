from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path
from tidegate.wsgi import RateLimitMiddleware

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])
urlpatterns = [path("login", lambda request: HttpResponse("welcome\n"))]
application = RateLimitMiddleware(get_wsgi_application(), rules="rules.yaml")
