import sys
from urllib.request import urlopen

from tidegate import Limiter

limiter = Limiter("10/second burst 1")
for number in range(1, 4):
    with limiter.acquire("api.example.com", timeout=5):
        with urlopen(f"{sys.argv[1]}/orders/{number}") as answer:
            print(number, answer.status)
