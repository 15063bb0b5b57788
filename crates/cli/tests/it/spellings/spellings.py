"""Random spellings of one client's identity, against real servers behind the gateway and forward-auth.

The client's limit is used up in the plain spelling. After that, no spelling may reach a server that takes the sender for
that client: it would be counted as another client, or as none.

usage: spellings.py PROGRAM COUNT [SEED]
"""

import base64
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(HERE, "../../../../../target/tools/identity")
PHP = os.path.join(TOOLS, "php")

RULES = """rules:
- {id: keys, match: {path: ["/*/key.php", /key.php]}, per: [api_key], limit: 1/hour}
- {id: sessions, match: {path: ["/*/session.php", /session.php]}, per: [session], limit: 1/hour}
- {id: auth, match: {path: ["/*/auth.php", /auth.php]}, per: [header.authorization], limit: 1/hour}
- {id: users, match: {path: ["/*/user.php", /user.php]}, per: [user_id], limit: 1/hour}
- {id: paths, match: {path: /v1/**}, per: [], limit: 1/hour}
"""

SETTINGS = """http: 127.0.0.1:0
grpc: off
gateway: 127.0.0.1:0
trusted_proxies: [127.0.0.1]
identify:
  api_key: [{header: x-api-key}, {query: api_key}]
  session: {cookie: session}
  user_id: {jwt: sub}
"""


def end_with_parent():
    """Nothing that was started outlives this program, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Process:
    """A program that says on its first line, or on a later one, where it listens."""

    def __init__(self, arguments, **options):
        self.child = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=end_with_parent, **options
        )

    def line(self):
        return self.child.stdout.readline().decode()

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()


class Client:
    """A connection on which any bytes can be sent, opened again when it was closed."""

    def __init__(self, port):
        self.port, self.file = port, None

    def ask(self, target, headers):
        lines = [b"GET " + target + b" HTTP/1.1", b"Host: localhost"]
        lines += [name + b": " + value for name, value in headers]
        text = b"\r\n".join(lines) + b"\r\n\r\n"
        for _ in range(2):
            try:
                if self.file is None:
                    self.file = socket.create_connection(("127.0.0.1", self.port), 10).makefile("rwb")
                self.file.write(text)
                self.file.flush()
                return self.answer()
            except (ConnectionError, EOFError):
                self.file = None
        return 0, b""

    def answer(self):
        status = self.file.readline()
        if not status:
            raise EOFError
        length, closes, chunked = 0, False, False
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip().lower()
            length = int(value) if name == b"content-length" else length
            chunked = chunked or (name == b"transfer-encoding" and value == b"chunked")
            closes = closes or (name == b"connection" and value == b"close")
        body = b""
        while chunked and (size := int(self.file.readline().split(b";")[0], 16)):
            body += self.file.read(size)
            self.file.readline()
        if chunked:
            self.file.readline()
        body = body or self.file.read(length)
        if closes:
            self.file = None
        return int(status.split()[1]), body


# Spellings. Each function returns the query and the headers of a request that may be of the client.

JUNK = b"junk"


def some(dice, text, share, change):
    return b"".join(change(bytes([byte])) if dice.random() < share else bytes([byte]) for byte in text)


def escaped(dice, text, share=0.2):
    letters = "%%%02x" if dice.random() < 0.5 else "%%%02X"
    return some(dice, text, share, lambda byte: (letters % byte[0]).encode())


def any_case(dice, text):
    return some(dice, text, dice.choice([0, 0, 0.5]), lambda byte: byte.swapcase())


def blank(dice):
    return b"".join(dice.choice([b" ", b"\t", b"\xa0", b"\x85", b""]) for _ in range(dice.randrange(3)))


def header_key(dice, real):
    def name():
        other = lambda byte: dice.choice([b"-", b"_", b".", b"~", b"!", b"'", b"+", b"*", b"#", b"$", b"^", b"|", b"`"]) if byte == b"-" else byte
        return any_case(dice, some(dice, b"x-api-key", dice.choice([0, 1]), other))

    pairs = [(name(), blank(dice) + real + blank(dice))]
    if dice.random() < 0.6:
        pairs.insert(dice.randrange(2), (dice.choice([b"X-Api-Key", name()]), dice.choice([JUNK, b"", real])))
    return b"", pairs


def query_key(dice, real):
    def name():
        change = {b"_": [b"_", b".", b"%20", b"+", b"[", b"%5b", b"_"]}
        text = some(dice, b"api_key", dice.choice([0, 1]), lambda byte: dice.choice(change.get(byte, [byte])))
        text = dice.choice([b"", b"", b"", b"%20", b"+", b"?", b"&"]) + any_case(dice, text)
        text += dice.choice([b"", b"", b"", b"[]", b"[0]", b"%5B%5D", b"%00", b"%00x", b"[", b"]", b"[0][1]", b"%00[]", b"[]%00", b"%0a"])
        if dice.random() < 0.1:
            text = b"[" + text + b"]"
        return escaped(dice, text, 0.15) if dice.random() < 0.3 and b"%" not in text else text

    pairs = [name() + b"=" + escaped(dice, real)]
    if dice.random() < 0.6:
        pairs.insert(dice.randrange(2), dice.choice([name(), b"api_key"]) + b"=" + dice.choice([JUNK, b"", real]))
    query = dice.choice([b"&", b"&", b"&", b";", b"&;", b"%26"]).join(pairs)
    headers = [(b"X-Api-Key", JUNK)] if dice.random() < 0.2 else []
    return b"?" + query, headers


def cookie(dice, real):
    def name():
        return blank(dice) + escaped(dice, any_case(dice, b"session"), dice.choice([0, 0, 0.2])) + dice.choice([b"", b"", b"", b"%00", b"[]", b"."]) + blank(dice)

    def value(text):
        text = escaped(dice, text, dice.choice([0, 0.3]))
        if dice.random() < 0.4:
            text = some(dice, text, dice.choice([0, 0.3]), lambda byte: dice.choice([b"\\" + byte, b"\\%03o" % byte[0]]))
            text = b'"' + text + dice.choice([b'"', b'"', b"!"])
        return blank(dice) + text + blank(dice)

    pairs = [name() + b"=" + value(real)]
    for _ in range(dice.randrange(3)):
        pairs.insert(dice.randrange(len(pairs) + 1), dice.choice([name() + b"=" + value(JUNK), b"a=1", b"a", b"session", b"Path=/", b"$Version=1"]))
    separator = dice.choice([b"; ", b";", b"; ", b" ", b",", b", "])
    if dice.random() < 0.2:
        return b"", [(b"Cookie", pair) for pair in pairs]
    return b"", [(b"Cookie", separator.join(pairs))]


def basic(dice, real):
    text = base64.b64encode(real)
    bare = text.rstrip(b"=")
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    if dice.random() < 0.5 and len(bare) % 4:
        unused = 15 if len(bare) % 4 == 2 else 3
        last = alphabet.index(bare[-1:]) | dice.randrange(unused + 1)
        bare = bare[:-1] + alphabet[last : last + 1]
    for _ in range(dice.choice([0, 0, 1, 1, 2])):
        at = dice.randrange(len(bare) + 1)
        bare = bare[:at] + dice.choice([b".", b"~", b"-", b"_", b" ", b"\t", b"!", b"=", b",", b"\xff", b"%"]) + bare[at:]
    text = bare + b"=" * dice.choice([0, 1, 2, 2, 3, 4]) + dice.choice([b"", b"", b"", b"A", b" x", b".", b"\xa0"])
    scheme = any_case(dice, b"Basic") + dice.choice([b" ", b" ", b"  ", b"\t", b" \t", b"\xa0"])
    pairs = [(b"Authorization", scheme + text)]
    if dice.random() < 0.15:
        pairs.insert(dice.randrange(2), (b"Authorization", dice.choice([b"Basic anVuazpqdW5r", b"x", scheme + text])))
    return b"", pairs


def bearer(dice, real):
    if dice.random() < 0.5 and real.count(b".") == 2:
        alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        last = alphabet.index(real[-1:])
        last = (last & ~15) | dice.randrange(16)
        real = real[:-1] + alphabet[last : last + 1]
    real += dice.choice([b"", b"", b"", b"=", b"==", b".", b"!", b"\xa0", b"\t"])
    # Other schemes with anything but a token are as they are.
    others = [b"Token", b"JWT", b"Bearer:"] if real.count(b".") >= 2 else []
    scheme = dice.choice([any_case(dice, b"Bearer")] * 6 + [b""] + others)
    value = scheme + dice.choice([b" ", b" ", b"  ", b"\t", b"\xa0"]) + real + dice.choice([b"", b"", b" x", b"\tx", b"\xa0x", b" ", b",x"])
    pairs = [(b"Authorization", value)]
    if dice.random() < 0.15:
        pairs.insert(dice.randrange(2), (b"Authorization", dice.choice([b"Bearer x", value])))
    return b"", pairs


def path(dice, _real):
    pieces = [b"/", b"//", b"///", b"/./", b"/x/../", b"/;a/", b"/%2e/", b"//x/", b"//x:80/", b"//x@y/", b"/?/", b"/#/", b"///x/"]
    start = b"".join(dice.choice(pieces) for _ in range(dice.choice([1, 1, 1, 2, 3])))
    return start + dice.choice([b"v1/search", b"v1//search", b"%761/search", b"v1/x/../search", b"./v1/search"])


PLACES = {
    "key": [header_key, query_key],
    "session": [cookie],
    "auth": [basic, bearer],
    "user": [bearer],
}


class Trial:
    def __init__(self, program, folder):
        self.processes, self.folder = [], folder
        self.tried = self.reached = 0
        self.found = []
        express = self.start(["node", os.path.join(HERE, "express.js")], env={**os.environ, "NODE_PATH": f"{TOOLS}/node_modules"})
        flask = self.start([f"{TOOLS}/python/bin/python", os.path.join(HERE, "flask_service.py")], stderr=subprocess.DEVNULL)
        php = self.start_php()
        said = json.loads(express.line())
        self.token = said["token"].encode()
        self.ports = {"express": said["port"], "flask": json.loads(flask.line())["port"], "php": php}
        self.write("key.pem", said["pem"])
        self.write("rules.yaml", RULES)
        routes = "".join(
            f"  - {{prefix: /{name}, strip_prefix: true, upstreams: ['http://127.0.0.1:{port}']}}\n" for name, port in self.ports.items()
        )
        self.write("tidegate.yaml", f"{SETTINGS}jwt: {{key_file: {folder}/key.pem}}\nroutes:\n{routes}")
        arguments = [program, "serve", "--config", f"{folder}/tidegate.yaml", "--rules", f"{folder}/rules.yaml", "--data-dir", f"{folder}/data"]
        with open(f"{folder}/log", "wb") as log:
            self.server = self.start(arguments, stderr=log)
        self.http, self.gateway = self.listening()

    def start(self, arguments, **options):
        process = Process(arguments, **options)
        self.processes.append(process)
        return process

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def start_php(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        pages = os.path.join(self.folder, "pages")
        os.mkdir(pages)
        with open(os.path.join(HERE, "service.php")) as service:
            text = service.read()
        for name in [*PLACES, "path"]:
            self.write(f"pages/{name}.php", text)
        self.write(
            "lighttpd.conf",
            f"""server.document-root = "{pages}"
server.bind = "127.0.0.1"
server.port = {port}
server.modules = ("mod_fastcgi")
server.errorlog = "{self.folder}/lighttpd.log"
server.error-handler-404 = "/path.php"
fastcgi.server = (".php" => (("bin-path" => "{PHP}/php-cgi", "socket" => "{self.folder}/php.socket", "max-procs" => 1,
  "bin-environment" => ("PHP_FCGI_CHILDREN" => "2", "PHP_FCGI_MAX_REQUESTS" => "1000000"))))
""",
        )
        self.start([f"{PHP}/lighttpd", "-D", "-f", f"{self.folder}/lighttpd.conf", "-m", f"{PHP}/usr/lib/lighttpd"])
        self.wait(port)
        return port

    def wait(self, port):
        for _ in range(200):
            try:
                return socket.create_connection(("127.0.0.1", port), 1).close()
            except ConnectionError:
                time.sleep(0.05)
        raise SystemExit(f"nothing listens on port {port}")

    def listening(self):
        """The ports of the server, which it prints once it listens."""
        ports = {}
        while not {"http", "gateway"} <= ports.keys():
            line = self.server.line()
            if not line:
                with open(f"{self.folder}/log") as log:
                    raise SystemExit(f"the server does not start:\n{log.read()}")
            if line.startswith("listening "):
                name, _, address = line.split()[1].partition("=")
                ports[name] = int(address.rsplit(":", 1)[1])
        return Client(ports["http"]), Client(ports["gateway"])

    def stop(self):
        for process in reversed(self.processes):
            process.stop()

    def real(self, place, kind):
        """The identity of the client, and how servers show it."""
        if place == "user":
            return self.token, "real-user"
        if kind is bearer:
            return b"realtoken", "realtoken"
        text = f"real-{place}:1" if kind is basic else f"real{place}"
        return text.encode(), text

    def through_gateway(self, name, target, headers):
        return self.gateway.ask(b"/" + name.encode() + target, headers)

    def through_proxy(self, name, target, headers):
        """As a proxy does: it asks, and sends the request on unchanged if it may."""
        about = [(b"X-Forwarded-Method", b"GET"), (b"X-Forwarded-Uri", target), (b"X-Forwarded-Host", b"localhost")]
        status, body = self.http.ask(b"/v1/authorize", headers + about)
        return self.direct[name].ask(target, headers) if status == 200 else (status, body)

    def plain(self, place, kind, real):
        """The client in its plain spelling."""
        if kind is basic:
            return b"", [(b"Authorization", b"Basic " + base64.b64encode(real))]
        if kind is bearer:
            return b"", [(b"Authorization", b"Bearer " + real)]
        return {
            header_key: (b"", [(b"X-Api-Key", real)]),
            query_key: (b"?api_key=" + real, []),
            cookie: (b"", [(b"Cookie", b"session=" + real)]),
        }[kind]

    def run(self, count, dice):
        self.direct = {name: Client(port) for name, port in self.ports.items()}
        roads = [self.through_gateway, self.through_proxy]
        cases = [(name, place, kind, road) for name in self.ports for place, kinds in PLACES.items() for kind in kinds for road in roads]
        cases = [case for case in cases if case[0] == "express" or case[1] != "user"]
        for name, place, kind, road in cases:
            real, shown = self.real(place, kind)
            query, headers = self.plain(place, kind, real)
            target = f"/{place}.php".encode() + query
            answers = [road(name, target, headers) for _ in range(3)]
            if answers[-1][0] != 429 or not self.is_known(self.direct[name].ask(target, headers), place, shown):
                raise SystemExit(f"the plain spelling is not counted or not read: {name} {place} {answers}")
        for name in self.ports:
            self.through_proxy(name, b"/v1/search", [])
        while self.tried < count:
            name, place, kind, road = dice.choice(cases)
            real, shown = self.real(place, kind)
            query, headers = kind(dice, real)
            target = f"/{place}.php".encode() + query
            self.judge((name, place, road), target, headers, shown)
            if dice.random() < 0.2:
                self.judge((dice.choice(list(self.ports)), "path", self.through_proxy), path(dice, b""), [], "/v1/")

    def judge(self, case, target, headers, shown):
        name, place, road = case
        answer = road(name, target, headers)
        self.tried += 1
        self.reached += answer[0] == 200
        if self.is_known(answer, place, shown):
            self.found.append(f"{road.__name__} {name} {place}: {target!r} {headers!r} is read as {answer[1]!r}")

    def is_known(self, answer, place, shown):
        """Whether a server answered, and takes the sender for the client."""
        if answer[0] != 200 or not answer[1].startswith(b"{"):
            return False
        read = json.loads(answer[1])[place]
        if place == "path":
            return any(isinstance(one, str) and one.startswith(shown) for one in read)
        return shown in read


def main():
    program, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(program, folder)
        try:
            trial.run(count, random.Random(seed))
        finally:
            trial.stop()
    print(f"{trial.tried} spellings, {trial.reached} reached a server as another client or none, {len(trial.found)} escaped (seed {seed})")
    for line in trial.found[:20]:
        print(line)
    sys.exit(1 if trial.found else 0)


main()
