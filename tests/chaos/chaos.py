# SPDX-License-Identifier: BSD-3-Clause
"""What the chaos tests share. A seed decides what they do: CHAOS_SEED replays a failure, which prints its seed.

`make test` runs each once, short and with the same seed always; `make chaos` (scripts/chaos) runs them over and over
with new ones, longer (CHAOS_LONG). CHAOS_LENGTH is the time of the faults in seconds.
"""
import os
import random
import signal
import subprocess
import sys
import time

import rdzvtest

LONG = bool(os.environ.get("CHAOS_LONG"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))


class Case(rdzvtest.Case):
    """Draws from the seed, and says at a failure how to replay it."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")
        self.said = []

    def run(self, result=None):
        before = len(result.failures) + len(result.errors) if result else 0
        ended = super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            self.say_how()
        return ended

    def say(self, line):
        """A line of the schedule, shown only when the test fails."""
        self.said.append(line)

    def say_how(self):
        name = self.id().split(".", 1)[1]
        script = os.path.relpath(sys.argv[0], rdzvtest.SOURCE)
        length = "CHAOS_LONG=1 " if LONG else ""
        print(f"\nchaos: replay with {length}CHAOS_SEED={SEED} PYTHONPATH=tests/lib/python {rdzvtest.PYTHON} {script} {name}",
              file=sys.stderr)
        for line in getattr(self, "said", []):
            print(f"  {line}", file=sys.stderr)

    def proxy(self, target, number=0, **options):
        return Proxy(self, target, SEED * 100 + number, **options)

    def harm_a_line(self, schedule, moment):
        """One of self.proxies cuts its connections, or is faulty or silent for a while."""
        number = self.random.randrange(len(self.proxies))
        proxy, what = self.proxies[number], self.random.choice(["cut", "faults", "silent"])
        if what == "cut":
            schedule.at(moment, f"cut {number}", lambda: proxy.tell("cut"))
        else:
            schedule.pair(moment, 2.0, f"{what} {number}", lambda: proxy.tell(f"{what} on"),
                           lambda: proxy.tell(f"{what} off"))

    def end_harm(self, *stopped):
        for proxy in self.proxies:
            proxy.tell("faults off")
            proxy.tell("silent off")
        for one in stopped:
            one.signal(signal.SIGCONT)


class Proxy:
    """chaos_proxy before a port of this machine; without faults until told so."""

    def __init__(self, case, target, seed, port=0, resets=False, mean=4000, late=200):
        command = [rdzvtest.built("tests/chaos_proxy"), "--target", str(target), "--seed", str(seed),
                   "--port", str(port), "--mean", str(mean), "--late", str(late)]
        self.process = case.start(command + ["--resets"] * resets, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        self.port = int(self.process.stdout.readline())
        self.endpoint = f"127.0.0.1:{self.port}"

    def tell(self, what):
        """faults on, faults off, cut, silent on, silent off, target PORT."""
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "done\n":
            raise RuntimeError(f"the proxy does not know '{what}'")


class Server:
    """`rdzv serve` that can be killed, and started again with the same port, and nothing in it unless flags say so."""

    def __init__(self, case, *flags):
        self.case, self.flags, self.port, self.process = case, flags, 0, None
        self.starts = 0
        self.start()

    def start(self):
        with open(self.case.path("serve.err"), "ab") as errors:
            self.process = self.case.serve("--port", str(self.port), *self.flags, stderr=errors)
        self.starts += 1
        self.port = self.process.port

    def kill(self):
        self.check()
        self.process.kill()
        self.process.wait()

    def check(self):
        """It must not have ended by itself."""
        code = self.process.poll()
        self.case.assertIsNone(code, f"rdzv serve ended: {lines_of(self.case.path('serve.err'))[-20:]}")

    def restart(self):
        self.kill()
        self.start()

    def delete(self, key):
        self.case.rdzv("store", "--endpoint", f"127.0.0.1:{self.port}", "delete", key)

    def signal(self, number):
        self.process.send_signal(number)


def lines_of(path):
    """The lines that are there whole."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def status_of(process):
    """/proc/PID/status, by name; only before poll() has said that the process ended."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def is_in(number, signals):
    return bool(int(signals, 16) & 1 << number - 1)


def resume(process):
    """Sends SIGCONT to a stopped process only. To another one it does harm: LeakSanitizer attaches to a process that ends,
    by a SIGSTOP of its own, which SIGCONT takes away; then it waits for ever."""
    if process.poll() is not None:
        return
    status = status_of(process)
    if status["State"].startswith("T") or is_in(signal.SIGSTOP, status["ShdPnd"]):
        process.send_signal(signal.SIGCONT)


def sigterm_is(process, field):
    """Whether SIGTERM is in that set of rdzv's status: SigBlk (blocked), ShdPnd (sent, but not taken yet)."""
    status = status_of(process)
    return status["Name"] == "rdzv" and is_in(signal.SIGTERM, status[field])


def ask_to_leave(process):
    """Sends the one SIGTERM that makes rdzv leave. Before rdzv takes signals, and as a second one, SIGTERM kills."""
    resume(process)
    rdzvtest.wait_until(lambda: process.poll() is not None or sigterm_is(process, "SigBlk"), "rdzv takes signals")
    process.send_signal(signal.SIGTERM)
    rdzvtest.wait_until(lambda: process.poll() is not None or not sigterm_is(process, "ShdPnd"), "rdzv took SIGTERM")


class Schedule:
    """What is done when: pairs of a moment and an action, by the seed alone, so that a replay has the same."""

    def __init__(self, case, seconds):
        self.case, self.end, self.steps, self.began = case, seconds, [], time.monotonic()

    def at(self, moment, name, action):
        self.steps.append((min(moment, self.end), len(self.steps), name, action))

    def pair(self, moment, longest, name, first, second):
        """What is over after a while, and at the end of the schedule at the latest."""
        pause = self.case.random.uniform(0.1, longest)
        self.at(moment, name, first)
        self.at(moment + pause, f"{name}: over", second)

    def run(self, look=lambda: None):
        """Does it all in its time; `look` is called all the while."""
        self.began = time.monotonic()
        for moment, _, name, action in sorted(self.steps, key=lambda step: step[:2]):
            while (left := self.began + moment - time.monotonic()) > 0:
                look()
                time.sleep(min(left, 0.02))
            self.case.say(f"{moment:6.2f} s ({time.monotonic() - self.began:6.2f} s): {name}")
            action()
