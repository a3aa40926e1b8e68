# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` on machines of their own, which are network namespaces: addresses, names, and links that go down."""
import os
import subprocess
import time

import machines
import rdzvtest
import run_nodes
from machines import HUB, address
from run_nodes import CONNECT, NEVER, QUICK, TIMEOUT, is_alive

PORT = 29400  # every machine has all ports
# Says where it is; all workers meet in the store; then it runs until it is told to end.
SITTER = f"""
store() {{ {rdzvtest.RDZV} store --endpoint "$MASTER_ADDR:$MASTER_PORT" "$@"; }}
note $ROLE_NAME $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR
store set here$RANK x || exit 11
for rank in $(seq 0 $((WORLD_SIZE - 1))); do store wait here$rank || exit 12; done
note $ROLE_NAME met $WORLD_SIZE
await end
"""


class Case(run_nodes.Run):
    def setUp(self):
        self.network = machines.Network(3)
        self.addCleanup(self.network.remove)  # after all that super() cleans up
        super().setUp()

    def serve_at_hub(self):
        port_file = self.path("port")
        server = self.start([*self.network.on(0), rdzvtest.RDZV, "serve", "--bind", HUB, "--port", str(PORT),
                             "--port-file", port_file], stdout=subprocess.DEVNULL)
        self.wait_for(lambda: os.path.exists(port_file) or server.poll() is not None, "the store is served")
        self.assertIsNone(server.poll())

    def on(self, number, nnodes, *flags, endpoint=f"{HUB}:{PORT}", conf=NEVER, name=None):
        """A node on that machine, told nothing of its own address. It is named by its number."""
        name = name or f"m{number}"
        words = ["--nnodes", nnodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                 "--rdzv-conf", conf, "--role", name, *flags]
        return self.launch(name, words, [self.script(SITTER)], prefix=self.network.on(number))

    def wait_met(self, *names):
        self.wait_notes(*[f"{name} met {len(names)}" for name in names], more=True)

    def finish(self, *nodes):
        self.touch("end")
        for node in nodes:
            self.gone(node)

    def masters(self, size):
        """Of rounds of that size: the addresses that workers were told, and the names of those of group rank 0."""
        found = [note.split() for note in self.notes() if f"/{size} " in note]
        return {note[2] for note in found}, {note[0] for note in found if note[1].startswith("0/")}


class Addresses(Case):
    def check_master(self, nodes):
        self.wait_world(*nodes)
        self.wait_met(*[node.name for node in nodes])
        told, first = self.masters(len(nodes))
        self.assertEqual(told, {address(int(name[1:])) for name in first})  # of group rank 0, for all
        self.finish(*nodes)

    def test_the_masters_address_is_the_one_that_reaches_the_endpoint(self):
        self.serve_at_hub()
        self.check_master([self.on(number, "3") for number in (1, 2, 3)])

    def test_one_of_the_machines_serves_the_store_and_is_found_by_its_address(self):
        self.check_master([self.on(number, "3", endpoint=f"{address(2)}:{PORT}") for number in (1, 2, 3)])

    def test_one_of_the_machines_serves_the_store_and_is_found_by_a_name(self):
        for number in (1, 2, 3):
            self.network.name_hosts(number, f"127.0.0.1 localhost\n{address(3)} head.example\n")
        self.check_master([self.on(number, "3", endpoint=f"head.example:{PORT}") for number in (1, 2, 3)])

    def test_local_addr_goes_before_what_was_found(self):
        self.serve_at_hub()
        machines.run("ip", "-n", self.network.namespace(1), "address", "add", "10.77.0.101/24", "dev", "eth0")
        nodes = [self.on(1, "1", "--local-addr", "10.77.0.101")]
        self.wait_met("m1")
        self.assertEqual(self.masters(1)[0], {"10.77.0.101"})
        self.finish(*nodes)

    def test_a_name_that_resolves_nowhere_is_told(self):
        node = self.gone(self.on(1, "2", endpoint=f"nowhere.invalid:{PORT}", conf="read_timeout=2"), CONNECT)
        self.assertIn("nowhere.invalid", node.err().splitlines()[-1])
        self.assertEqual(self.notes(), [])


class DefaultPort(Case):
    def test_of_two_plain_jobs_with_one_port_the_second_fails_at_once(self):
        worker = self.script("note $1 $MASTER_PORT; await end")
        first = self.launch("first", ["--master-port", "29500"], [worker, "first"], prefix=self.network.on(1))
        self.wait_notes("first 29500")
        for flags, variables in (["--master-port", "29500"], {}), ([], {"MASTER_PORT": "29500"}):
            second = self.gone(self.launch("second", flags, [worker, "second"], prefix=self.network.on(1),
                                           env=variables), CONNECT)
            self.assertIn("rdzv run: cannot open rendezvous 'none': rank 0 cannot serve the store: cannot listen on "
                          "127.0.0.1:29500: Address already in use (is another job running? choose --standalone or "
                          "another --master-port)\n", second.err())
        other = self.launch("other", ["--master-port", "29501"], [worker, "other"], prefix=self.network.on(1))
        self.wait_notes("first 29500", "other 29501")
        self.finish(first, other)


class Partitions(Case):
    def workers_of(self, node):
        return [event["pid"] for event in node.events("WORKER", "STARTED")]

    def test_who_is_cut_off_ends_and_the_others_go_on_and_it_can_come_again(self):
        self.serve_at_hub()
        nodes = [self.on(number, "1:3", conf=QUICK) for number in (1, 2, 3)]
        before = self.wait_world(*nodes)
        self.wait_met("m1", "m2", "m3")
        self.network.cut(2)
        before = self.wait_world(nodes[0], nodes[2], after=before)
        self.assertIn(nodes[1].process.wait(rdzvtest.DEADLINE), (CONNECT, TIMEOUT))
        self.assertIn(f"{HUB}:{PORT}", nodes[1].err().splitlines()[-1])
        self.assertEqual([pid for pid in self.workers_of(nodes[1]) if is_alive(pid)], [])
        self.network.mend(2)
        again = self.on(2, "1:3", conf=QUICK, name="m2-again")
        self.wait_world(nodes[0], nodes[2], again, after=before)
        self.wait_met("m1", "m3", "m2-again")
        self.finish(nodes[0], nodes[2], again)

    def test_a_cut_that_is_shorter_than_the_dead_time_is_not_noticed(self):
        self.serve_at_hub()
        nodes = [self.on(number, "1:2", conf=f"last_call_timeout={rdzvtest.slow(0.5)},keep_alive_interval=0.5,keep_alive_max_attempt=60")
                 for number in (1, 2)]
        self.wait_world(*nodes)
        self.wait_met("m1", "m2")
        self.network.cut(2)
        time.sleep(1.5)  # it is what is tested: some keep-alives are late by that
        self.network.mend(2)
        self.finish(*nodes)
        for node in nodes:
            self.assertEqual(len(node.events("AGENT", "RUNNING")), 1)

    def test_the_machine_that_serves_the_store_is_cut_off(self):
        endpoint = f"{address(1)}:{PORT}"
        nodes = [self.on(number, "1:3", endpoint=endpoint, conf=QUICK) for number in (1, 2, 3)]
        before = self.wait_world(*nodes)
        self.wait_met("m1", "m2", "m3")
        self.network.cut(1)
        for node in nodes[1:]:
            self.assertIn(node.process.wait(rdzvtest.DEADLINE), (CONNECT, TIMEOUT))
            self.assertIn(endpoint, node.err().splitlines()[-1])
            self.assertEqual([pid for pid in self.workers_of(node) if is_alive(pid)], [])
        self.wait_world(nodes[0], after=before)  # it has the store, and goes on alone
        self.finish(nodes[0])


if __name__ == "__main__":
    machines.need()
    rdzvtest.main()
