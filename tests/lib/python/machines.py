# SPDX-License-Identifier: BSD-3-Clause
"""Machines for tests: network namespaces, each with an address of its own, on one bridge. Needs root.

    10.77.0.254    the hub, in which nothing but a store runs
    10.77.0.1 …    machines, each with a host name that nobody can resolve
"""
import itertools
import os
import shutil
import subprocess

import rdzvtest

HUB = "10.77.0.254"
_numbers = itertools.count()


def run(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=rdzvtest.DEADLINE)


def need():
    """Ends the test as skipped where there can be no namespaces."""
    name = f"rdzv-test-{os.getpid()}"
    words = ["ip", "netns", "add", name]
    if not shutil.which("ip") or subprocess.run(words, capture_output=True, check=False).returncode:
        rdzvtest.skip("`ip netns add` does not work here")
    run("ip", "netns", "del", name)


class Network:
    """So many machines; remove() when all that runs on them has ended."""

    def __init__(self, count):
        self.name = f"rdzv-test-{os.getpid()}-{next(_numbers)}"
        self.count = count
        try:
            self.build()
        except Exception:
            self.remove()
            raise

    def namespace(self, number):
        """Number 0 is the hub."""
        return f"{self.name}-{number}"

    def build(self):
        hub = self.namespace(0)
        run("ip", "netns", "add", hub)
        run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", hub, "address", "add", f"{HUB}/24", "dev", "bridge")
        for name in ("lo", "bridge"):
            run("ip", "-n", hub, "link", "set", name, "up")
        for number in range(1, self.count + 1):
            self.add(number)

    def add(self, number):
        hub, own = self.namespace(0), self.namespace(number)
        run("ip", "netns", "add", own)
        run("ip", "-n", own, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", hub)
        run("ip", "-n", own, "address", "add", f"{address(number)}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            run("ip", "-n", own, "link", "set", name, "up")
        run("ip", "-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")

    def remove(self):
        for number in range(self.count + 1):
            subprocess.run(["ip", "netns", "del", self.namespace(number)], check=False, capture_output=True)
            shutil.rmtree(self.hosts_folder(number), ignore_errors=True)

    def on(self, number):
        """The words that execute a command there; its process is the one that is started."""
        name = f"machine{number}.invalid"
        return ["ip", "netns", "exec", self.namespace(number), "unshare", "--uts", "sh", "-c",
                f'hostname {name} && exec "$@"', "sh"]

    def cut(self, number):
        run("ip", "-n", self.namespace(0), "link", "set", f"port{number}", "down")

    def mend(self, number):
        run("ip", "-n", self.namespace(0), "link", "set", f"port{number}", "up")

    def hosts_folder(self, number):
        return f"/etc/netns/{self.namespace(number)}"

    def name_hosts(self, number, text):
        """What that machine finds in its /etc/hosts."""
        os.makedirs(self.hosts_folder(number), exist_ok=True)
        with open(os.path.join(self.hosts_folder(number), "hosts"), "w", encoding="ascii") as file:
            file.write(text)


def address(number):
    return f"10.77.0.{number}"
