"""The first byte of a streamed answer through the gateway, with and without reading of usage, in turns:
`first_byte.py PROGRAM CALLS [EVENTS [BEGINS_MS]]`.

A stream has 10,000 events by default. Exits with 1 if the median of the first byte is more than 10 % later where usage is read. No event may be delayed
until the next one: the model sends each only when the client has the one before, so that the run would stop there, and fails after ten seconds.

The model begins its answer after a millisecond, a hundredth of what real ones take. With 0 it answers at once: then all of the time is the gateway's, and of
loopback and of this program, and what reading adds is more than 10 % of it. The model and its clients are this process, so that the time of an event on its
way is measured by one clock.
"""

import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

EVENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
BEGINS = float(sys.argv[4] if len(sys.argv) > 4 else 1) / 1000
MOST = 1.10
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
            time.sleep(BEGINS)
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
        self.client.settimeout(10)

    def receive(self, end):
        received = b""
        while not received.endswith(end):
            received = received[-len(end) :] + self.client.recv(65536)

    def call(self):
        """Seconds to the first byte of the body, and of each further event on its way."""
        began, first, passed = time.perf_counter(), None, []
        self.client.sendall(REQUEST)
        for number in range(EVENTS):
            self.receive(chunk(event(number)))
            now = time.perf_counter()
            if number == 0:
                first = now - began
            else:
                passed.append(now - self.model.sent[number])
            self.model.arrived.release()
        self.receive(b"0\r\n\r\n")
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
    try:
        for turn in range(calls):
            # The one that comes first has no advantage.
            for usage in sorted(gateways, reverse=turn % 2 == 1):
                to_first, on_their_way = gateways[usage].call()
                if turn >= calls // 10:
                    first[usage].append(to_first)
                    passed[usage] += on_their_way
    finally:
        for gateway in gateways.values():
            gateway.stop()
    ratios = []
    for name, times in (("first byte", first), ("event on its way", passed)):
        off, on = (statistics.median(times[usage]) * 1e6 for usage in ("off", "openai"))
        ratios.append(on / off)
        print(f"{name}: median {off:.0f} us with usage: off, {on:.0f} us with usage: openai ({on / off:.3f} times), {len(times['off']):,} of each")
    is_late = ratios[0] > MOST
    print(f"first byte: {ratios[0]:.3f} times, at most {MOST:.2f} times" + (": NOT MET" if is_late else ""))
    return int(is_late)


sys.exit(main())
