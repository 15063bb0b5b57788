"""Load of checks, or of reservations that are settled: `reserve_load.py ADDRESS check|reserve MILLISECONDS CONNECTIONS`.

One thread asks on all connections, then reads all answers, and so on. A reservation and its settlement are one decision.
"""

import json
import socket
import sys
import time

KEYS = 10_000
ATTRIBUTES = '{"ip":"203.0.113.7","user_id":"u%d","method":"POST","path":"/v1/users"}'


class Connection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def send(self, path, body):
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.socket.sendall((head + body).encode())

    def answer(self):
        status, length = int(self.stream.readline().split()[1]), 0
        while (line := self.stream.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = self.stream.read(length)
        if status not in (200, 429):
            sys.exit(f"{status}: {body.decode()}")
        return body


def checks(connections, first):
    for number, connection in enumerate(connections):
        connection.send("/v1/check", '{"attributes":%s,"cost":60}' % (ATTRIBUTES % ((first + number) % KEYS)))
    return [json.loads(connection.answer())["allowed"] for connection in connections]


def reservations(connections, first):
    for number, connection in enumerate(connections):
        connection.send("/v1/reserve", '{"attributes":%s,"cost":60}' % (ATTRIBUTES % ((first + number) % KEYS)))
    made = [json.loads(connection.answer())["reservation"] for connection in connections]
    for connection, id in zip(connections, made):
        if id:
            connection.send(f"/v1/reservations/{id}/settle", '{"cost":25}')
    for connection, id in zip(connections, made):
        if id:
            connection.answer()
    return [id is not None for id in made]


def main():
    address, kind, milliseconds, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    connections = [Connection(address) for _ in range(count)]
    ask = {"check": checks, "reserve": reservations}[kind]
    asked, allowed, began = 0, 0, time.perf_counter()
    while time.perf_counter() - began < milliseconds / 1000:
        allowed += sum(ask(connections, asked))
        asked += count
    print(json.dumps({"decisions": asked, "denied": asked - allowed, "seconds": time.perf_counter() - began}))


main()
