# SPDX-License-Identifier: BSD-3-Clause
"""What bench/rendezvous measures of native nodes beside the time of N that come at once. Each part gives its targets:
(what, whether it was reached, the figure as a text), and notes its figures in bench.figures."""
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import benchlib
import protected
from benchlib import START_S, Failure, progress, seconds_text, start

TICKS = os.sysconf("SC_CLK_TCK")
NATIVE = "is_host=false,mode=native"
SWARM_PROCESSES = 4
HANDLER_PROCESSES = 4
MANY, HANDLERS = 10000, 1000  # nodes of the parts below
JOINS, JOINS_S = 256, 0.6
LOOPS, BUSY_S = 12, 1.5
KNOWN_S, NEXT_ROUND_S = 0.5, 1.0
BEATS_SHARE, BEATS_WATCH_S = 0.05, 8
NODE_BYTES = 3 * 1024
TLS_TIMES = 3
SPARE_S = 30  # for the spare to be one


# --- the server and the nodes ---


class Server:
    def __init__(self, bench, stack, name, *flags):
        port_file = bench.folder / f"{name}.port"
        argv = [bench.rdzv, "serve", "--port", "0", "--port-file", port_file, "--log-level", "off", *flags]
        self.program = start(bench, stack, name, argv)
        self.program.line(START_S)  # that it serves: the port is in the file by then
        self.port = int(port_file.read_text())
        self.endpoint = f"127.0.0.1:{self.port}"

    def processor_s(self):
        fields = Path(f"/proc/{self.program.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident(self):
        text = Path(f"/proc/{self.program.process.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Rss:"))


@contextlib.contextmanager
def held(bench, program, count, endpoint, *options):
    """Nodes that are in one round; gives the program and its figures, and ends it."""
    with contextlib.ExitStack() as stack:
        argv = [bench.build / "bench" / program, "--nodes", str(count), "--limit", str(benchlib.OURS_LIMIT_S), "--hold",
                "--endpoint", endpoint, "--run-id", f"bench-{next(bench.numbers)}", *options]
        nodes = start(bench, stack, program, argv)
        result = json.loads(nodes.line(benchlib.OURS_LIMIT_S + START_S))
        if result["joined"] < count:
            raise Failure(f"{count} nodes: only {result['joined']} joined within {benchlib.OURS_LIMIT_S} s")
        result["run_id"] = argv[argv.index("--run-id") + 1]
        yield nodes, result
        if nodes.finish(START_S) != 0:
            raise Failure(f"{count} nodes did not leave in order: {nodes.last_words()}")


def handlers(bench, count, endpoint, *options, conf=NATIVE):
    processes = str(min(HANDLER_PROCESSES, count))
    return held(bench, "joiners", count, endpoint, "--conf", conf, "--processes", processes, *options)


def swarm(bench, count, endpoint, *options):
    return held(bench, "swarm", count, endpoint, "--processes", str(SWARM_PROCESSES), *options)


def median_part(bench, measure):
    """The round whose seconds are the median of all."""
    results = sorted((measure(bench) for _ in range(bench.rounds)), key=lambda r: r["seconds"])
    return results[len(results) // 2]


# --- the parts ---


def join_processes_once(bench):
    with contextlib.ExitStack() as stack:
        server = Server(bench, stack, "join server")
        run_id = f"bench-{next(bench.numbers)}"
        argv = [bench.build / "bench" / "crowd", str(JOINS), bench.rdzv, "join", "--rdzv-endpoint", server.endpoint,
                "--rdzv-id", run_id, "--nnodes", str(JOINS), "--rdzv-conf", NATIVE, "--local-addr", "127.0.0.1"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S,
                              preexec_fn=benchlib.child_setup)
        lines = done.stderr.splitlines()
        if done.returncode != 0:
            raise Failure(f"{JOINS} rdzv join: {lines[-1] if lines else f'code {done.returncode}'}")
    ranks = sorted(json.loads(line)["rank"] for line in lines if line.startswith("{"))
    if ranks != list(range(JOINS)):
        raise Failure(f"{JOINS} rdzv join: not each rank once")
    return json.loads(done.stdout)


def join_processes(bench):
    result = bench.figures["join_processes"] = median_part(bench, join_processes_once)
    yield (f"{JOINS} `rdzv join` processes, their start included ≤ {JOINS_S:g} s", result["seconds"] <= JOINS_S,
           f"{seconds_text(result['seconds'])} (all started after {seconds_text(result['started_s'])})")


def busy_once(bench):
    with contextlib.ExitStack() as stack:
        server = Server(bench, stack, "busy server")
        for _ in range(LOOPS):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=benchlib.child_setup)
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        time.sleep(0.5)  # until all of them are loops
        with handlers(bench, HANDLERS, server.endpoint) as (_, result):
            return result


def busy(bench):
    result = bench.figures["busy"] = median_part(bench, busy_once)
    yield (f"{HANDLERS} nodes with {LOOPS} busy loops beside ≤ {BUSY_S:g} s", result["seconds"] <= BUSY_S,
           seconds_text(result["seconds"]))


def await_spare(bench, server, run_id):
    argv = [bench.rdzv, "status", "--json", "--rdzv-endpoint", server.endpoint, "--rdzv-id", run_id, "--rdzv-conf",
            "is_host=false"]
    until = time.monotonic() + SPARE_S
    while time.monotonic() < until:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S)
        if done.returncode == 0 and json.loads(done.stdout)["spares"] == 1:
            return
        time.sleep(0.05)
    raise Failure(f"there is no spare after {SPARE_S} s")


def death_once(bench):
    with contextlib.ExitStack() as stack:
        server = Server(bench, stack, "death server")
        with handlers(bench, HANDLERS, server.endpoint, "--victim") as (nodes, result):
            nodes.ask("spare", START_S)
            await_spare(bench, server, result["run_id"])
            return json.loads(nodes.ask("kill", START_S))


def death(bench):
    """Minimum and maximum are N: a spare takes the place of the node that is killed."""
    result = bench.figures["death"] = median_part(bench, death_once)
    what = f"one of {HANDLERS} killed -9, default settings"
    yield (f"{what}: known to the last of the others ≤ {KNOWN_S:g} s", result["known_s"] <= KNOWN_S,
           seconds_text(result["known_s"]))
    yield (f"{what}: the next round complete, with a spare in its place ≤ {NEXT_ROUND_S:g} s",
           result["seconds"] <= NEXT_ROUND_S, seconds_text(result["seconds"]))


def held_many(bench):
    """Memory and keep-alives of a fresh server's nodes. What only the first nodes cost is not theirs."""
    with contextlib.ExitStack() as stack:
        server = Server(bench, stack, "many server")
        with swarm(bench, 16, server.endpoint):
            pass
        before = server.resident()
        with swarm(bench, MANY, server.endpoint):
            time.sleep(1)  # the turmoil of the round is over
            memory = (server.resident() - before) / MANY
            used, at = server.processor_s(), time.monotonic()
            time.sleep(BEATS_WATCH_S)
            share = (server.processor_s() - used) / (time.monotonic() - at)
    bench.figures["many"] = {"bytes_per_node": memory, "beats_share": share}
    yield (f"keep-alives of {MANY} nodes ≤ {100 * BEATS_SHARE:g} % of a core in the server", share <= BEATS_SHARE,
           f"{100 * share:.1f} %")
    yield (f"server memory for a native node, its connection included ≤ {NODE_BYTES // 1024} KiB", memory <= NODE_BYTES,
           f"{memory / 1024:.2f} KiB")


def tls_once(bench):
    """The seconds of both, one after the other."""
    secret = str(protected.secret_file(bench.folder))
    seconds = []
    for flags, conf in (((), NATIVE), (("--secret-file", secret), f"{NATIVE},secret_file={secret}")):
        with contextlib.ExitStack() as stack:
            server = Server(bench, stack, "TLS server" if flags else "plain server", *flags)
            with handlers(bench, HANDLERS, server.endpoint, conf=conf) as (_, result):
                seconds.append(result["seconds"])
    return {"plain": seconds[0], "tls": seconds[1], "seconds": seconds[1] / seconds[0]}


def tls(bench):
    result = bench.figures["tls"] = median_part(bench, tls_once)
    yield (f"{HANDLERS} nodes over TLS ≤ {TLS_TIMES:g} × plain", result["seconds"] <= TLS_TIMES,
           f"{result['seconds']:.2f} × ({seconds_text(result['plain'])}, {seconds_text(result['tls'])})")


PARTS = {"join": join_processes, "busy": busy, "death": death, "many": held_many, "tls": tls}


def measure_parts(bench):
    targets = []
    for name in bench.parts:
        progress(f"part {name}")
        targets += PARTS[name](bench)
    progress("")
    return targets
