"""The first byte of a streamed answer through the gateway, with and without reading of usage, in turns: `first_byte.py PROGRAM CALLS`.

The model and its clients are this process, so that the time of an event on its way is measured by one clock.
"""

import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

EVENTS = 20
BODY = b'{"stream":true,"max_tokens":50,"messages":[{"role":"user","content":"' + b"tide " * 200 + b'"}]}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'
RULES = "rules:\n- {id: requests, per: [], limit: 1000000000/day}\n- {id: tokens, per: [], unit: tokens, limit: 1000000000/day}\n"


def chunk(data):
    return b"%X\r\n%s\r\n" % (len(data), data)


def event(number):
    return b'data: {"choices":[{"index":0,"delta":{"content":"word %d"}}],"usage":null}\n\n' % number


class Model:
    """Sends an event when the client has the one before, and notes when."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.arrived, self.sent = threading.Semaphore(0), [0.0] * EVENTS
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        stream = connection.makefile("rb")
        while stream.readline():
            length = 0
            while (line := stream.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            stream.read(length)
            for number in range(EVENTS):
                data = chunk(event(number))
                self.sent[number] = time.perf_counter()
                connection.sendall(HEAD + data if number == 0 else data)
                self.arrived.acquire()
            connection.sendall(chunk(USAGE) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


class Gateway:
    """A gateway in front of the model, and a client of it that keeps its connection."""

    def __init__(self, program, model, usage):
        self.model, self.folder = model, tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        (folder / "rules.yaml").write_text(RULES)
        (folder / "tidegate.yaml").write_text(f"gateway: 127.0.0.1:0\nupstream: http://127.0.0.1:{model.port}\nusage: {usage}\n")
        command = [program, "serve", "--config", "tidegate.yaml", "--rules", "rules.yaml", "--http", "127.0.0.1:0", "--grpc", "off", "--data-dir", "data"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        addresses = dict(self.process.stdout.readline().split()[1].split("=") for _ in range(2))
        host, port = addresses["gateway"].split(":")
        self.client = socket.create_connection((host, int(port)))
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self):
        """Seconds to the first byte of the body, and of each further event on its way."""
        began, received, first, passed = time.perf_counter(), b"", None, []
        self.client.sendall(REQUEST)
        for number in range(EVENTS):
            end = chunk(event(number))
            while not received.endswith(end):
                received += self.client.recv(65536)
            now = time.perf_counter()
            if number == 0:
                first = now - began
            else:
                passed.append(now - self.model.sent[number])
            self.model.arrived.release()
        while not received.endswith(b"0\r\n\r\n"):
            received += self.client.recv(65536)
        return first, passed

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def main():
    program, calls = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2])
    model = Model()
    gateways = {usage: Gateway(program, model, usage) for usage in ("off", "openai")}
    first, passed = {usage: [] for usage in gateways}, {usage: [] for usage in gateways}
    for turn in range(calls):
        # The one that comes first has no advantage.
        for usage in sorted(gateways, reverse=turn % 2 == 1):
            to_first, on_their_way = gateways[usage].call()
            if turn >= calls // 10:
                first[usage].append(to_first)
                passed[usage] += on_their_way
    for name, times in (("first byte", first), ("event on its way", passed)):
        off, on = (statistics.median(times[usage]) * 1e6 for usage in ("off", "openai"))
        print(f"{name}: median {off:.0f} us with usage: off, {on:.0f} us with usage: openai ({(on / off - 1) * 100:+.1f} %), {len(times['off']):,} of each")
    for gateway in gateways.values():
        gateway.stop()


main()
