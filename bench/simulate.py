#!/usr/bin/env python3
"""Measures `tidegate simulate`: simulate.py PROGRAM [LINES].

Makes a combined log of LINES lines of about 200 bytes (10,000,000 if not given) in a temporary folder, simulates a quarter of it
and all of it with 1,000 rules, and prints the time, the CPU time, the peak of the memory, and lines in a second. The log is of a
day and of 100,000 clients, of whom ten send a tenth of the requests. Three rules match a line: one by address, one of 998 by
service and address, of which each client uses eight, and for one in four lines one for the method. So there are some 900,000
pairs of rule and client.

Fails if all of it takes more than 60 seconds or 500 MB, or more time for each line than the quarter by more than half: time grows
linearly with lines. The figures of a whole run, which is one of 10,000,000 lines, are kept in bench/results/simulate.json, from
which `./scripts/bench report` writes docs/performance.md.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

from scoreboard import rehearsal

WHOLE = 10_000_000
CLIENTS, SERVICES, DAY, START = 100_000, 998, 86_400, 1_794_700_000
AGENT = '"-" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36 x/1"'


def write_rules(file):
    file.write("rules:\n  - {id: per-ip, per: [ip], missing: deny, limit: 100/hour}\n")
    file.write("  - {id: writes, match: {method: POST}, per: [], limit: 500/second}\n")
    for number in range(SERVICES):
        file.write(f"  - {{id: s{number}, match: {{path: /svc{number}/**}}, per: [ip], missing: deny, limit: 20/minute}}\n")


def write_log(file, lines):
    """Writes the log. Returns how long its first quarter is."""
    source = random.Random(1)
    bits = source.getrandbits
    names = [f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in range(CLIENTS)]
    stamps = [time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(START + second)) for second in range(DAY)]
    quarter = 0
    for number in range(lines):
        if number == lines // 4:
            file.flush()
            quarter = file.tell()
        chosen = bits(32)
        client = chosen % 10 if chosen % 97 < 10 else (chosen >> 7) % CLIENTS
        service = (client * 7 + (chosen >> 28) % 8) % SERVICES
        method = "POST" if chosen >> 26 & 3 == 0 else "GET"
        stamp = stamps[number * DAY // lines]
        file.write(f'{names[client]} - - [{stamp}] "{method} /svc{service}/items/{number % 1000}?q={number} HTTP/1.1" 200 1234 {AGENT}\n')
    return quarter


def simulate(program, folder, log, lines):
    """Simulates a log. Returns the figures."""
    command = [program, "simulate", "--rules", f"{folder}/rules.yaml", "--json", "--quiet", log]
    began = time.monotonic()
    with open(f"{folder}/report.json", "w") as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    with open(f"{folder}/report.json") as file:
        report = json.load(file)
    assert report["total"]["requests"] == lines, report["total"]
    pairs = sum(rule["clients"] for rule in report["rules"])
    rules = sum(rule["requests"] for rule in report["rules"]) / lines
    print(f"{lines:>12,} lines  {took:6.1f} s  {usage.ru_utime + usage.ru_stime:6.1f} s of CPU  {usage.ru_maxrss // 1024:5} MiB  "
          f"{lines / took:>11,.0f} lines/s  {rules:.2f} rules a line, {pairs:,} pairs, {report['total']['denied']:,} denied, "
          f"{len(report['scale'])} factors", flush=True)
    return {"lines": lines, "seconds": took, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024,
            "log_bytes": os.path.getsize(log), "pairs": pairs, "rules_a_line": rules, "denied": report["total"]["denied"],
            "factors": len(report["scale"])}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    program, lines = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else WHOLE
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rules.yaml", "w") as rules:
            write_rules(rules)
        log = f"{folder}/access.log"
        with open(log, "w", buffering=1 << 20) as file:
            quarter = write_log(file, lines)
        print(f"{os.path.getsize(log):,} bytes, {os.cpu_count()} cores", flush=True)
        runs = [simulate_quarter(program, folder, log, quarter, lines // 4), simulate(program, folder, log, lines)]
    if lines == WHOLE:
        rehearsal.save(runs)
    exceeded = rehearsal.exceeded(*runs)
    if exceeded:
        sys.exit("\n".join(exceeded))


def simulate_quarter(program, folder, log, length, lines):
    part = f"{folder}/quarter.log"
    with open(log, "rb") as whole, open(part, "wb") as file:
        while length > 0:
            length -= file.write(whole.read(min(length, 1 << 22)))
    figures = simulate(program, folder, part, lines)
    os.remove(part)
    return figures


if __name__ == "__main__":
    main()
