# SPDX-License-Identifier: BSD-3-Clause
"""A node whose clock was set back: what others show of it is not its clock's."""
import json
import os
import subprocess

import etcd
import rdzvtest
from rdzvtest import wait_until

BACK_S = 7200
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *out) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(id, out);
  if (result == 0 && id == CLOCK_REALTIME) out->tv_sec -= %d;
  return result;
}
"""


class Clocks(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        if rdzvtest.SANITIZED:
            self.skipTest("a sanitizer has to be loaded first")
        etcd.need()
        with open(self.path("shim.c"), "w", encoding="ascii") as file:
            file.write(SHIM % BACK_S)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path("shim.so"), self.path("shim.c"), "-ldl"], check=True)

    def places(self):
        return {"etcd-v2": ["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", etcd.shared().endpoint, "--rdzv-id", self.id()],
                "swap": ["--rdzv-endpoint", self.serve().endpoint, "--rdzv-id", "job"]}

    def status(self, place):
        done = self.rdzv("status", *place, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def age(self, place):
        """What rdzv status says of the only node's last heartbeat, in milliseconds."""
        return self.status(place)["nodes"][0]["heartbeat_age_ms"]

    def phase(self, place):
        return self.status(place)["phase"]

    def test_a_clock_that_was_set_back(self):
        for name, place in self.places().items():
            with self.subTest(name):
                conf = "last_call_timeout=0.1,keep_alive_interval=0.5" + (",mode=swap" if name == "swap" else "")
                node = self.start([rdzvtest.RDZV, "join", *place, "--rdzv-conf", conf], stdout=subprocess.PIPE,
                                  env={**os.environ, "LD_PRELOAD": self.path("shim.so")})
                node.stdout.readline()
                if name == "etcd-v2":  # a server has only the clock of the node
                    wait_until(lambda: self.age(place) < 1000 * BACK_S / 2, "a node that is heard has no age of hours")
                self.assertEqual(self.phase(place), "complete")  # its heartbeats come
                node.kill()
                node.wait()
                wait_until(lambda: self.age(place) >= 1000 * BACK_S, "a node that is silent has the age of its last heartbeat")
                wait_until(lambda: self.phase(place) == "ended", "its run has ended")


if __name__ == "__main__":
    rdzvtest.main()
