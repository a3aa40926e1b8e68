# SPDX-License-Identifier: BSD-3-Clause
"""What bench/rendezvous and bench/etcd share: programs that stay, series of figures side by side, tables."""
import contextlib
import ctypes
import json
import os
import platform
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1
START_S = 120  # for a program to start; PyTorch takes a while on a busy machine
OURS_LIMIT_S = 60
BUSY = 0.1  # the share of the machine that others may use
libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    pass


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# --- the programs ---


class Program:
    """A process that prints a line when it is ready and stays; ends with this one in every way out, even by SIGKILL."""

    def __init__(self, name, argv, folder):
        self.name, self.log, self.text = name, folder / f"{name.replace(' ', '-')}.log", b""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            preexec_fn=child_setup)

    def last_words(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def line(self, seconds):
        until = time.monotonic() + seconds
        while b"\n" not in self.text:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                raise Failure(f"{self.name} printed nothing within {seconds} s: {self.last_words()}")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failure(f"{self.name} ended: {self.last_words()}")
            self.text += more
        line, _, self.text = self.text.partition(b"\n")
        return line.decode()

    def ask(self, line, seconds):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"{self.name} ended: {self.last_words()}") from None
        return self.line(seconds)

    def finish(self, seconds):
        """Lets it end by itself, now that its stdin does, and gives its code."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(seconds)

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def child_setup():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def start(bench, stack, name, argv):
    program = Program(name, argv, bench.folder)
    stack.callback(program.end)
    return program


def torch_python(version):
    """The command line of a Python with that PyTorch, or why there is none."""
    if version == "1.13":
        test = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if subprocess.run(["/usr/bin/python3", "-c", test], timeout=START_S).returncode == 0:
            return ["/usr/bin/python3"], None
        return None, "/usr/bin/python3 has no torch (Debian's python3-torch)"
    folder = Path(os.environ.get("RDZV_CACHE") or "/var/cache/rdzv") / "debian13"
    if (folder / ".ready").exists():
        return ["scripts/torch26", "run", "python3"], None
    return None, f"there is no {folder} (scripts/torch26 setup makes it)"


def need_programs(*programs):
    for program in programs:
        if not os.access(program, os.X_OK):
            raise Failure(f"there is no {program}: build it first (-DRDZV_BENCH=ON), or name another build directory")


# --- measuring ---


class Series:
    """What is measured beside others, up to some number of nodes; `cells` has a list of results for each number."""

    def __init__(self, name, most):
        self.name, self.most, self.cells = name, most, {}

    def time(self, count):
        """The median; None: not measured, or not within the limit."""
        results = self.cells.get(count, [])
        return median(r["seconds"] for r in results) if results and all("seconds" in r for r in results) else None

    def figure(self, count, key):
        results = [r[key] for r in self.cells.get(count, []) if key in r]
        return median(results) if results else None


def others():
    """The share of the machine that is used while this benchmark does nothing."""
    def ticks():
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]
    before = ticks()
    time.sleep(0.3)
    total, idle = (b - a for a, b in zip(before, ticks()))
    return 1 - idle / total if total else 0


def await_quiet(seconds):
    """Waits a bounded time until others leave the machine alone, and gives their share of it."""
    until = time.monotonic() + seconds
    while (share := others()) > BUSY and time.monotonic() < until:
        pass
    return share


def measure_count(bench, series, count, measure):
    """Some rounds, in which the series take turns; `measure(bench, series, count)` gives one result."""
    for turn in range(bench.rounds):
        bench.busy[count] = max(bench.busy.get(count, 0), await_quiet(bench.quiet_s))
        for one in series:
            if count > one.most:
                continue
            progress(f"{count} nodes, round {turn + 1} of {bench.rounds}: {one.name}")
            result = measure(bench, one, count)
            one.cells.setdefault(count, []).append(result)
            if "seconds" not in result:
                one.most = count - 1  # no more of it


def run_joiners(bench, count, *options, look=lambda result: None):
    """Our nodes; `look` is called while they are all there."""
    with contextlib.ExitStack() as stack:
        argv = [bench.joiners, "--nodes", str(count), "--limit", str(OURS_LIMIT_S), "--hold", *options]
        program = start(bench, stack, "joiners", argv)
        result = json.loads(program.line(OURS_LIMIT_S + START_S))
        if result["joined"] < count:
            raise Failure(f"{count} nodes: only {result['joined']} joined within {OURS_LIMIT_S} s")
        look(result)
        if program.finish(START_S) != 0:
            raise Failure(f"{count} nodes did not leave in order: {program.last_words()}")
    return result


def ask_torch(program, limit, **what):
    """One line of bench/peers/torch_joiners.py; see there."""
    result = json.loads(program.ask(json.dumps({**what, "limit": limit}), limit + START_S + 60))
    if "error" in result:
        raise Failure(f"{what['nodes']} {program.name}: {result['error']}")
    return result


# --- the report ---


def seconds_text(seconds):
    return f"{seconds:.3g} s" if seconds >= 0.0995 else f"{1000 * seconds:.2g} ms"


def cell_text(series, count, limit):
    seconds = series.time(count)
    if seconds is not None:
        return seconds_text(seconds)
    return f"> {limit:g} s" if count in series.cells else ""


def table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths)) + " |" for row in [head, *rows]]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines) + "\n"


def targets_table(targets):
    """Of (what, whether it was reached or None for not measured, the figure)."""
    words = {True: "reached", False: "NOT reached", None: "not measured"}
    return table(["target", "", "measured"], [[what, words[reached], text] for what, reached, text in targets])


def time_targets(series, limits):
    """Of one series: {number of nodes: seconds}."""
    for count, limit in limits.items():
        seconds = series.time(count)
        reached = None if seconds is None else seconds <= limit
        yield f"{count} nodes ≤ {limit:g} s", reached, "" if seconds is None else seconds_text(seconds)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return f"{model}, {len(os.sched_getaffinity(0))} processors, Linux {platform.release()}"


def print_circumstances(bench):
    disturbed = [count for count, share in bench.busy.items() if share > BUSY]
    if disturbed:
        print(f"DISTURBED: others used over {100 * BUSY:.0f} % of the machine when {disturbed} nodes were measured; "
              "measure again when it is quiet.")
    for reason in bench.left_out:
        print(f"LEFT OUT: {reason}")


def write_part(path, name, text):
    """Puts the text between the two comments of that name in a page."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    page = path.read_text()
    if begin not in page or end not in page:
        raise Failure(f"{path} has no part '{name}'")
    before, _, rest = page.partition(begin)
    path.write_text(f"{before}{begin}{text.strip()}\n{end}{rest.partition(end)[2]}")


def write_row(path, first, cells):
    """Puts the cells behind the first one of a row of a table."""
    lines = path.read_text().splitlines()
    places = [i for i, line in enumerate(lines) if line.startswith(f"| {first} |")]
    if len(places) != 1:
        raise Failure(f"{path} has no row '{first}'")
    lines[places[0]] = "| " + " | ".join([first, *cells]) + " |"
    path.write_text("\n".join(lines) + "\n")


# --- the run ---


def numbers(text):
    return sorted({int(part) for part in text.split(",")})


def main(bench, run):
    """Ends the process: with 0 if run(bench) is true, and whatever happens, with nothing left behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        sys.exit(0 if run(bench) else 1)
    except Failure as failure:
        progress("")
        say(failure)
        sys.exit(1)
    except subprocess.TimeoutExpired as timeout:
        progress("")
        say(f"{timeout.cmd[0]} did not end within {timeout.timeout:.0f} s")
        sys.exit(1)
    except BrokenPipeError:  # the reader of the report has exited
        os._exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
