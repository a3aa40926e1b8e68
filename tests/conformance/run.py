#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plays cases.txt on a store of PyTorch, through PyTorch's own API. run.c does the same on rdzv's stores.

run.py [--tags T,...] [--prefix P]... [--case NAME] CASES hash | file:PATH | tcp | tcp:HOST:PORT

`tcp` is a server in this process and clients of it, `tcp:HOST:PORT` clients of another. The grammar and the tags are
at the top of cases.txt; the kind of store, `py` and the version of PyTorch are tags by themselves.
"""
import argparse
import os
import re
import sys
import threading
import time
from datetime import timedelta

import torch
from torch import distributed as dist

TIMEOUT_MS = 10000  # of a case that says no other
GRACE = 5.0  # seconds in which something that should happen at once has happened
ESCAPES = {"n": b"\n", "t": b"\t", "\\": b"\\", '"': b'"'}
PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\*(\d+))?')
ESCAPE = re.compile(r"\\(x..|.)")
FAULTS = (  # what PyTorch's messages mean
    ("!not_a_number", ("stoll",)),
    ("!timeout", ("timeout", "timed out")),
    ("!closed", ("connection reset", "connection was likely closed", "connection closed", "broken pipe",
                 "failed to recv")))


# Steps that neither 1.13 nor 2.6 can express.
NOT_IN_ANY_API = ("push", "pop", "popw", "len", "keys", "features", "getv", "casv", "waitv")


class NotInThisApi(Exception):
    pass


# ---- the cases ------------------------------------------------------------------------------------------------------


def piece(match):
    text, out, at = match.group(1), b"", 0
    for escape in ESCAPE.finditer(text):
        out += text[at:escape.start()].encode()
        name = escape.group(1)
        out += bytes.fromhex(name[1:]) if name[0] == "x" else ESCAPES[name]
        at = escape.end()
    return (out + text[at:].encode()) * int(match.group(2) or 1)


def split_words(text):
    """The words of a line, as bytes."""
    words, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] != '"':
            end = re.compile(r"\S*").match(text, at).end()
            words.append(text[at:end].encode())
            at = end
        else:
            word = b""
            while match := PIECE.match(text, at):
                word += piece(match)
                at = match.end()
            words.append(word)
            if at < len(text) and not text[at].isspace():
                raise ValueError(f"cannot read {text[at:]!r}")
    return words


def choose(words, tags):
    """Of the results of a line, that for these tags."""
    results = [[]]
    for word in words:
        if word == b";":
            results.append([])
        else:
            results[-1].append(word)
    for result in results[1:]:
        if set(result[0].decode().rstrip(":").split("+")) <= tags:
            return result[1:]
    return results[0]


class Step:
    def __init__(self, text, number, tags):
        self.text, self.number = text, number
        words = split_words(text)
        arrow = words.index(b"->") if b"->" in words else len(words)
        self.expected = choose(words[arrow + 1:], tags) if arrow < len(words) else None
        self.hangs, self.late = self.takes(b"!hangs"), self.takes(b"!late")
        words = words[:arrow]
        self.later = words[0] == b"later"
        words = words[self.later:]
        self.views = words[1].split(b"/") if words[0] == b"at" else []
        words = words[2:] if self.views else words
        self.op, self.arguments = words[0].decode(), words[1:]

    def takes(self, word):
        """Takes that word off the front of the result."""
        found = bool(self.expected) and self.expected[0] == word
        self.expected = self.expected[1:] if found else self.expected
        return found


class Case:
    def __init__(self, header, rule):
        words = header.split()
        self.name, self.rule, self.steps = words[1], rule, []
        self.raw, self.needs, self.lacks = False, [], []
        into = None
        for word in words[2:]:
            if word == "raw":
                self.raw = True
            elif word in ("needs", "lacks"):
                into = getattr(self, word)
            else:
                into.append(word)


def read_cases(path, tags):
    cases, rule = [], ""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if line.startswith("#"):
                rule = line.strip("# ")
            elif line.startswith("case "):
                cases.append(Case(line, rule))
            elif line:
                cases[-1].steps.append(Step(line, number, tags))
    return cases


# ---- the stores -----------------------------------------------------------------------------------------------------


class Stores:
    """Two handles on the store under test; `again` makes one anew that its server has closed."""

    def __init__(self, where, prefixes):
        self.where, self.prefixes = where, prefixes
        self.timeout = timedelta(milliseconds=TIMEOUT_MS)
        self.server = self.shared = None
        if where == "hash":
            self.shared = dist.HashStore()
        elif where == "tcp":
            self.server = self.open_tcp("127.0.0.1", 0, True)
        self.handles = [self.open(), self.open()]
        if where.startswith("file:"):
            self.handles[0].set("there", "")  # whoever reads waits for the file

    @staticmethod
    def open_tcp(host, port, is_master=False):
        arguments = dict(is_master=is_master, wait_for_workers=False, timeout=timedelta(seconds=30))
        try:
            return dist.TCPStore(host, port, use_libuv=False, **arguments)
        except TypeError:  # before 2.3 there is no such argument
            return dist.TCPStore(host, port, **arguments)

    def open_base(self):
        if self.shared is not None:
            return self.shared
        if self.where.startswith("file:"):
            return dist.FileStore(self.where[len("file:"):], -1)
        if self.server is not None:
            return self.open_tcp("127.0.0.1", self.server.port)
        _, host, port = self.where.split(":")
        return self.open_tcp(host, int(port))

    def open(self):
        store = self.open_base()
        store.set_timeout(self.timeout)
        for prefix in self.prefixes:
            store = dist.PrefixStore(prefix, store)
        return store

    def set_timeout(self, milliseconds):
        self.timeout = timedelta(milliseconds=milliseconds)
        self.handles[0].set_timeout(self.timeout)

    def again(self, which):
        self.handles[which] = self.open()


def features():
    """What this version's API has; the stores all have it."""
    found = {"append": "append", "multi": "multi_get"}
    return {feature for feature, method in found.items() if hasattr(dist.Store, method)}


# ---- the steps ------------------------------------------------------------------------------------------------------


def pairs(words):
    return words[0::2], words[1::2]


def say(yes):
    return b"yes" if yes else b"no"


def done(_):
    return [b"ok"]


class Operations:
    """One method a step: takes the words behind its name and gives the words of its result."""

    def __init__(self, store, unique):
        self.store, self.unique = store, unique

    def method(self, name):
        if not hasattr(self.store, name):
            raise NotInThisApi(name)
        return getattr(self.store, name)

    def set(self, key, value):
        return done(self.store.set(self.unique(key), value))

    def get(self, key):
        return [self.store.get(self.unique(key))]

    def add(self, key, number):
        return [b"%d" % self.store.add(self.unique(key), int(number))]

    def cas(self, key, expected, desired):
        return [self.store.compare_set(self.unique(key), expected, desired)]

    def check(self, *keys):
        return [say(self.method("check")([self.unique(key) for key in keys]))]

    def wait(self, *keys):
        return done(self.store.wait([self.unique(key) for key in keys]))

    def waitfor(self, milliseconds, *keys):
        return done(self.store.wait([self.unique(key) for key in keys], timedelta(milliseconds=int(milliseconds))))

    def delete(self, key):
        return [say(self.store.delete_key(self.unique(key)))]

    def append(self, key, value):
        return done(self.method("append")(self.unique(key), value))

    def mset(self, *words):
        keys, values = pairs(words)
        return done(self.method("multi_set")([self.unique(key) for key in keys], list(values)))

    def mget(self, *keys):
        return self.method("multi_get")([self.unique(key) for key in keys])

    def __getattr__(self, name):
        raise NotInThisApi(name) if name in NOT_IN_ANY_API else AttributeError(f"there is no step {name}")


def fault(error):
    """The word for an exception of PyTorch."""
    text = str(error).lower()
    for word, marks in FAULTS:
        if any(mark in text for mark in marks):
            return word
    return f"!{type(error).__name__}"


class Asleep:
    """Tells when a thread is asleep in a call. The state is read with the GIL free, so it does not wait for that."""

    def __init__(self, thread):
        self.file = os.open(f"/proc/self/task/{thread}/stat", os.O_RDONLY)

    def look(self):
        return os.pread(self.file, 512, 0).rpartition(b")")[2].split()[0] == b"S"

    def close(self):
        os.close(self.file)


class Player:
    def __init__(self, stores, tags):
        self.stores, self.tags = stores, tags
        self.left_out = {}  # by reason and step

    # A failed client of a server is of no more use: 1.13 has no way to take a wait back, and none connects again.
    def recover(self, which, word):
        if "tcp" in self.tags and (word == "!closed" or "torch113" in self.tags):
            self.stores.again(which)

    def perform(self, case, step, which):
        store = self.stores.handles[which]
        unique = b"" if case.raw else f"{os.getpid()}.{case.name}.".encode()
        for view in step.views:
            store = dist.PrefixStore(unique + view, store)
            unique = b""
        if step.op == "num_keys":
            return [b"%+d" % (store.num_keys() - case.keys_before)]
        return getattr(Operations(store, lambda key: unique + key), step.op)(*step.arguments)

    def attempt(self, case, step, which):
        """Performs a step and gives the words of its result and, of an error, its text."""
        try:
            return self.perform(case, step, which), ""
        except NotInThisApi:
            raise
        except Exception as error:  # PyTorch has many kinds
            word = fault(error)
            self.recover(which, word)
            return [word.encode()], f" ({error})"

    def leave_out(self, step, reason):
        names = self.left_out.setdefault(reason, {})
        names[step.op] = names.get(step.op, 0) + 1

    def judge(self, step, result, seconds):
        """What is wrong with a result, or None."""
        if step.expected == [b"*"]:
            return None
        if step.expected is None and result[:1] and result[0].startswith(b"!"):
            return f"got {show(result)}"
        if step.expected is not None and step.expected != result:
            return f"expected {show(step.expected)}, got {show(result)}"
        timeout = self.stores.timeout.total_seconds() if step.op != "waitfor" else int(step.arguments[0]) / 1000
        if step.late or result == [b"!timeout"]:
            in_time = timeout - 0.002 <= seconds <= timeout + GRACE
        else:
            in_time = seconds <= GRACE
        return None if in_time else f"got {show(result)} after {seconds:.3f} s of {timeout:.3f}"

    def play_step(self, case, step, which=0):
        """None where all is well, else what is not."""
        if step.op == "timeout":
            self.stores.set_timeout(int(step.expected[0]))
            return None
        if step.hangs:
            return self.leave_out(step, "would not end there")
        start = time.monotonic()
        try:
            result, text = self.attempt(case, step, which)
        except NotInThisApi:
            return self.leave_out(step, "are not in this API")
        case.performed += 1
        wrong = self.judge(step, result, time.monotonic() - start)
        return f"line {step.number}: {step.text}: {wrong}{text}" if wrong else None

    def play_blocked(self, case, step, later):
        """Performs `step`, and `later` from the second handle once it has blocked: it is asleep, and still asleep
        when the server has done something for another, so that it has the request and has not ended it."""
        asleep, ended, faults = Asleep(threading.get_native_id()), threading.Event(), []

        def blocked():
            while not ended.is_set() and not asleep.look():
                time.sleep(0.001)
            return not ended.is_set()

        def play_later():
            seen = step.hangs or (blocked() and self.stores.handles[1].num_keys() >= 0 and blocked())
            if not seen and step.expected != [b"!timeout"]:  # that one has blocked, even if nobody looked in time
                faults.append(f"line {step.number}: {step.text}: it did not block")
            faults.extend(self.play_step(case, other, 1) for other in later)

        thread = threading.Thread(target=play_later)
        thread.start()
        faults.append(self.play_step(case, step))
        ended.set()
        thread.join()
        asleep.close()
        return next(filter(None, faults), None)

    def play(self, case):
        self.stores.set_timeout(TIMEOUT_MS)
        case.performed, case.keys_before = 0, self.stores.handles[0].num_keys()
        later, fault_found = [], None
        for step in case.steps:
            if step.later:
                later.append(step)
                continue
            fault_found = self.play_blocked(case, step, later) if later else self.play_step(case, step)
            later = []
            if fault_found:
                break
        return fault_found


# ---- the whole ------------------------------------------------------------------------------------------------------


def show(words):
    def one(word):
        return repr(word)[1:] if len(word) <= 60 else f"{repr(word[:40])[1:]}... ({len(word)} bytes)"
    return " ".join(map(one, words)) or "nothing"


def reason_to_skip(case, has):
    if missing := [feature for feature in case.needs if feature not in has]:
        return f"{missing[0]} is not in this API"
    return f"without {case.lacks[0]}, it is not in this API" if case.lacks else None


def play_all(cases, player):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        reason = reason_to_skip(case, features())
        wrong = None if reason else player.play(case)
        if wrong:
            counts["failed"] += 1
            print(f"FAIL {case.name}: {case.rule}\n     {wrong}", flush=True)
        elif reason or not case.performed:
            counts["skipped"] += 1
            print(f"skip {case.name}: {reason or 'no step of it is in this API'}", flush=True)
        else:
            counts["passed"] += 1
            print(f"ok   {case.name}", flush=True)
    return counts


def torch_tag():
    return "torch" + "".join(torch.__version__.split(".")[:2])


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tags", default="")
    parser.add_argument("--prefix", action="append", default=[])
    parser.add_argument("--case")
    parser.add_argument("cases")
    parser.add_argument("store")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    tags = {"py", torch_tag(), arguments.store.split(":")[0], *filter(None, arguments.tags.split(","))}
    if arguments.prefix:
        tags.add("prefix")
    cases = [case for case in read_cases(arguments.cases, tags) if arguments.case in (None, case.name)]
    player = Player(Stores(arguments.store, arguments.prefix), tags)
    counts = play_all(cases, player)
    for reason, names in player.left_out.items():
        listed = ", ".join(f"{count} {name}" for name, count in names.items())
        print(f"steps that {reason}: {listed}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()), flush=True)
    # At once: the server's thread ends with the process, and shutting the interpreter down does nothing more.
    os._exit(1 if counts["failed"] or not counts["passed"] else 0)


main()
