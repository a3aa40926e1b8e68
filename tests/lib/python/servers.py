# SPDX-License-Identifier: BSD-3-Clause
"""Servers with their state in etcd: which of them is active."""
import base64
import json
import os
import subprocess

import rdzvtest

LEASE = rdzvtest.slow_int(5 if rdzvtest.SANITIZED else 3)  # seconds; a test waits for it to end
PATIENT = 60  # where a server must not lose it


def ask(member, path, **body):
    """A call of etcd's v3 API."""
    return json.loads(member.open_body("POST", path, json.dumps(body).encode()))


def read(member, key):
    """The value of a key, or None."""
    found = ask(member, "/v3/kv/range", key=base64.b64encode(key.encode()).decode()).get("kvs", [])
    return base64.b64decode(found[0]["value"]) if found else None


def active_address(member, prefix="/rdzv-server"):
    """Where the active server is, as all can read in etcd; None: there is none."""
    found = read(member, f"{prefix}/active")
    return json.loads(found)["address"] if found else None


class Group:
    """Servers of one state, which a case starts one after the other."""

    def __init__(self, case, member, url=None, prefix="/rdzv-server", options=(), lease=LEASE):
        self.case, self.member, self.prefix = case, member, prefix
        self.options = ["--state-etcd", url or member.endpoint, "--state-prefix", prefix, "--state-lease", str(lease),
                        *options]
        self.servers = []

    def add(self, *options):
        """One more; its log is a file."""
        log = self.case.path(f"server-{len(self.servers)}.log")
        with open(log, "ab") as file:
            server = self.case.serve(*self.options, *options, stderr=file)
        server.log = log
        self.servers.append(server)
        return server

    def start(self, count):
        """So many; the first one is active."""
        first = self.add()
        self.await_active(first)
        return [first, *(self.add() for _ in range(count - 1))]

    def await_active(self, *among):
        """Waits until one of these is active, or any."""
        endpoints = [server.endpoint for server in among or self.servers]
        found = rdzvtest.wait_until(lambda: (a := active_address(self.member, self.prefix)) in endpoints and a,
                                    f"one of {endpoints} is active")
        return next(server for server in self.servers if server.endpoint == found)

    def await_standby(self, server):
        """Waits until it knows whom to name."""
        rdzvtest.wait_until(lambda: "standby; active server" in self.text(server), "a server stands by")

    @staticmethod
    def text(server):
        with open(server.log, encoding="utf-8") as file:
            return file.read()

    @property
    def endpoints(self):
        return ",".join(server.endpoint for server in self.servers)

    def store(self, *words, **options):
        """Also where it has to wait for the end of a lease, which is long on a busy machine."""
        return self.case.rdzv("store", "--endpoint", self.endpoints, "--timeout", str(rdzvtest.DEADLINE - 10), *words, **options)

    def begin(self, *words):
        """A command that goes on."""
        return self.case.start([rdzvtest.RDZV, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ))
