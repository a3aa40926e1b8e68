# SPDX-License-Identifier: BSD-3-Clause
"""The tests of the Python package without PyTorch, to be run by the Python that they are for: test_python.py does.

The package is that of a wheel; nothing of the other tests is imported here.
"""
import contextlib
import datetime
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import rdzv
from rdzv import errors

SOON = 120.0  # seconds; much longer than anything takes
QUICK = {"last_call_timeout": 0.1}
CALL = {"last_call_timeout": 3}  # long enough for a second thread to join


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_child(text):
    """Runs a program in a new interpreter; gives the finished process."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SOON, check=False)


class Soon:
    """A signal to this process after begin(), which the main thread calls last before the call to be interrupted, and
    when that thread has been asleep for a while: it waits in the call."""

    def __init__(self, number):
        self.begun, self.number = threading.Event(), number
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        self.begun.wait()
        asleep = 0
        while asleep < 10:
            time.sleep(0.01)  # without Python's lock, which the main thread would take
            asleep = asleep + 1 if self.main_is_asleep() else 0
        os.kill(os.getpid(), self.number)

    @staticmethod
    def main_is_asleep():
        with open("/proc/self/stat", encoding="ascii") as file:  # of the process: that of its main thread
            return file.read().rpartition(")")[2].split()[0] == "S"

    def begin(self):
        self.begun.set()

    def join(self):
        self.thread.join()


class Stores(unittest.TestCase):
    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)

    def all_stores(self):
        path = f"/tmp/rdzv-python-{os.getpid()}-{time.monotonic_ns()}"
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        yield rdzv.Store.hash()
        yield rdzv.Store.file(path)
        yield rdzv.Store.tcp(self.server.address)
        yield rdzv.Store.tcp(self.server.address).prefix("view")

    def test_every_call_on_every_store(self):
        for store in self.all_stores():
            with self.subTest(store=store.describe()):
                self.check_values(store)
                if "queues" in store.features:
                    self.check_queues(store)
                if "versions" in store.features:
                    self.check_versions(store)

    def check_values(self, store):
        store.set("text", "wörd")
        self.assertEqual(store.get("text"), "wörd".encode())
        store.set(b"zero\0key", bytearray(b"\0\1"))
        self.assertEqual(store.get(b"zero\0key"), b"\0\1")
        store.set("view", memoryview(b"abc"))
        self.assertEqual(store.get("view"), b"abc")
        store.set("", "")
        self.assertEqual(store.get(""), b"")
        self.assertEqual((store.add("n", 5), store.add("n", -7), store.add("n")), (5, -2, -1))
        self.assertEqual(store.compare_set("c", "", "1"), b"1")
        self.assertEqual(store.compare_set("c", "2", "3"), b"1")
        self.assertTrue(store.check(["text", "c"]))
        self.assertTrue(store.check([]))
        self.assertFalse(store.check(["text", "none"]))
        store.append("c", "0")
        store.multi_set({"a": "1", "b": b"2"})
        store.publish({"p": "3"})
        self.assertEqual(store.multi_get(key for key in ("b", "a", "c")), [b"2", b"1", b"10"])
        store.wait(["a", "b"], SOON)
        store.wait(["a"], datetime.timedelta(seconds=SOON))
        self.assertTrue({b"a", b"b"} <= set(store.list_keys()))
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.check(["a"]))
        self.assertGreaterEqual(store.num_keys(), 5)
        store.timeout = 0.05
        self.assertEqual(store.timeout, 0.05)
        store.set_request_timeout(10)
        for call in (lambda: store.get("none"), lambda: store.multi_get(["a", "b"]), lambda: store.wait(["none"]),
                     lambda: store.wait(["none"], 0.01)):
            with self.assertRaises(errors.Timeout) as raised:
                call()
            self.assertIsInstance(raised.exception, TimeoutError)
            self.assertEqual((raised.exception.code, raised.exception.name), (-3, "TIMEOUT"))
        with self.assertRaises(errors.NotANumber):
            store.add("text", 1)

    def check_queues(self, store):
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        self.assertEqual((store.queue_len("q"), store.queue_pop("q"), store.queue_pop("q", False)), (2, b"1", b"2"))
        with self.assertRaises(errors.Empty):
            store.queue_pop("q", block=False)
        with self.assertRaises(errors.Timeout):
            store.queue_pop("q")

    def check_versions(self, store):
        self.assertEqual(store.get_version("v"), (b"", 0))
        swapped, _, version = store.compare_set_version("v", 0, "1")
        self.assertTrue(swapped)
        self.assertEqual(store.compare_set_version("v", 0, "2"), (False, b"1", version))
        self.assertEqual(store.wait_changed("v", 0, SOON), (b"1", version))
        with self.assertRaises(errors.Timeout):
            store.wait_changed("v", version, 0.01)

    def test_timeouts_and_defaults_of_single_calls(self):
        """Each call takes a timeout in place of that of its store, whose own stays as it is."""
        for store in self.all_stores():
            store.timeout = 10 * SOON
            self.check_short_waits(store)
            self.assertEqual(store.timeout, 10 * SOON)
            store.set("k", "v", timeout=SOON)
            self.assertEqual(store.get("k", timeout=SOON), b"v")
            self.assertEqual(store.get("k", timeout=datetime.timedelta(seconds=SOON), default=None), b"v")
            self.assertEqual(store.multi_get(["k"], timeout=SOON, default=None), [b"v"])
            self.assertEqual((store.add("n", 2, timeout=SOON), store.check(["k"], timeout=SOON)), (2, True))
            with self.assertRaises(errors.Invalid):
                store.get("k", timeout=-1)

    def check_short_waits(self, store):
        began = time.monotonic()
        for wait in (lambda **more: store.get("never", **more), lambda **more: store.multi_get(["never"], **more)):
            for timeout in (0, 0.01):
                with self.assertRaises(errors.Timeout):
                    wait(timeout=timeout)
                self.assertIsNone(wait(timeout=timeout, default=None))
                self.assertEqual(wait(timeout=timeout, default=7), 7)
        if "queues" in store.features:
            with self.assertRaises(errors.Timeout):
                store.queue_pop("never", timeout=0.01)
            self.assertEqual((store.queue_pop("never", timeout=0.01, default=1), store.queue_pop("never", False, default=2)),
                             (1, 2))
        if "versions" in store.features:
            self.assertEqual(store.wait_changed("never", 0, 0.01, default=3), 3)
        self.assertLess(time.monotonic() - began, SOON)

    def test_a_timeout_of_a_call_that_waits_for_no_other_process(self):
        """The server is silent. The next call has the time of the store again."""
        text = "import rdzv, sys; server = rdzv.Server(port=0); print(server.address, flush=True); sys.stdin.read()"
        server = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with contextlib.ExitStack() as stack:
            for end in (server.stdin.close, server.stdout.close, server.wait, server.kill):
                stack.callback(end)
            store = rdzv.Store.tcp(server.stdout.readline().decode().strip(), timeout=10 * SOON)
            server.send_signal(signal.SIGSTOP)
            os.waitpid(server.pid, os.WUNTRACED)  # it has stopped
            began = time.monotonic()
            with self.assertRaises(errors.ConnectionFailed):
                store.num_keys(timeout=0.2)
            with self.assertRaises(errors.Error):
                store.set("k", "v", timeout=0.2)
            self.assertLess(time.monotonic() - began, SOON)
            server.send_signal(signal.SIGCONT)
            store.set("k", "w")
            self.assertEqual(store.get("k"), b"w")

    def test_arguments_that_are_wrong(self):
        store = rdzv.Store.hash()
        for call in (lambda: store.set_timeout(-1), lambda: store.set_timeout(float("nan")),
                     lambda: rdzv.Store.tcp("local\0host"), lambda: rdzv.Store.tcp("x:y:z"),
                     lambda: rdzv.Store.tcp("localhost", dialect="latin"), lambda: rdzv.Server(max_dogs=1),
                     lambda: rdzv.Store.hash(log=print, level="loud"), lambda: rdzv.Handler(run_id="x", nnodes="two"),
                     lambda: rdzv.Handler(run_id="x", conf={"a": "b,c"}), lambda: rdzv.Handler(run_id=None)):
            with self.assertRaises(errors.Invalid) as raised:
                call()
            self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaises(TypeError):
            store.set(1, "value")
        with self.assertRaises(AttributeError):
            rdzv.nothing

    def test_closed(self):
        base = rdzv.Store.tcp(self.server.address)
        view, clone = base.prefix("p"), base.clone()
        base.close()
        base.close()
        for store in (base, view):
            with self.assertRaisesRegex(errors.Invalid, "the store is closed"):
                store.get("k")
        clone.set("k", "v")
        with clone as same:
            self.assertEqual(same.get("k"), b"v")
        self.assertTrue(clone.closed)
        self.assertEqual(repr(clone), "<rdzv.Store closed>")

    def test_close_and_cancel_end_calls_of_other_threads(self):
        for end in (rdzv.Store.close, rdzv.Store.cancel):
            store, raised = rdzv.Store.tcp(self.server.address), []
            thread = threading.Thread(target=self.wait_for_ever, args=(store, raised))
            thread.start()
            while not store._calls:
                pass
            end(store)
            thread.join(SOON)
            self.assertIsInstance(raised[0], errors.Canceled)

    def test_close_frees_once_its_cancel_has_returned(self):
        """The call that it cancels may end before: in the library, the store is still used then."""
        for opened in (rdzv.Store.hash(), rdzv.Store.tcp(self.server.address)):
            order, stop, free = [], opened._stop, opened._free
            thread = threading.Thread(target=self.wait_for_ever, args=(opened, []))

            def stop_slowly(pointer):
                stop(pointer)
                thread.join(SOON)
                order.append("canceled")

            def note_free(pointer):
                order.append("freed")
                free(pointer)

            opened._stop, opened._free = stop_slowly, note_free
            thread.start()
            while not opened._calls:
                pass
            opened.close()
            self.assertEqual(order, ["canceled", "freed"])

    def wait_for_ever(self, store, raised):
        try:
            store.get("never")
        except errors.Error as error:
            raised.append(error)

    def test_threads_wait_side_by_side(self):
        """A call that waits lets the other threads run."""
        store = rdzv.Store.hash()
        found = []
        threads = [threading.Thread(target=lambda key=key: found.append(store.get(key))) for key in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        store.multi_set({"a": "1", "b": "2", "c": "3"})
        for thread in threads:
            thread.join(SOON)
        self.assertEqual(sorted(found), [b"1", b"2", b"3"])

    def test_log(self):
        lines = []
        store = rdzv.Store.hash(log=lambda level, line: lines.append((level, line)), level="info", timeout=3.5)
        with self.assertRaises(errors.Timeout):
            store.get("never")
        self.assertEqual(lines[0][0], "info")
        self.assertIn("never", lines[0][1])

    def test_log_by_the_environment(self):
        """Objects without a log of their own write to stderr if RDZV_LOG is set, and not through Python."""
        ended = in_child("""
import os, rdzv
rdzv.Server(port=0).close()
os.environ["RDZV_LOG"] = "info"
rdzv.Server(port=0).close()
rdzv.Server(port=0, log=lambda *_: None).close()
""")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stderr.count(": info: listening on 127.0.0.1:"), 1, ended.stderr)

    def test_nothing_listens(self):
        silent = socket.socket()  # has the port, so that nobody else gets it, and does not listen
        self.addCleanup(silent.close)
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with self.assertRaises(errors.ConnectionFailed) as raised:
            rdzv.Store.tcp(address, timeout=2)
        self.assertIsInstance(raised.exception, ConnectionError)
        self.assertIn(address, str(raised.exception))

    def test_server(self):
        with self.assertRaises(errors.AddressInUse):
            rdzv.Server(port=self.server.port)
        with rdzv.Server("127.0.0.1", 0, run_id="mine", max_connections=10) as other:
            with self.assertRaises(errors.Stale):
                rdzv.Store.tcp(other.address, run_id="yours", timeout=SOON)
            other.drain(0.01)
            other.stop()
        self.assertEqual(repr(other), "<rdzv.Server closed>")

    def test_a_server_runs_in_a_thread_of_ours(self):
        with rdzv.Server("127.0.0.1", 0, start=False) as server:
            thread = threading.Thread(target=server.run)
            thread.start()
            with rdzv.Store.tcp(server.address) as store:
                store.set("k", "v")
            server.stop()
            thread.join()
            with self.assertRaises(errors.Invalid):
                server.run()
        with rdzv.Server("127.0.0.1", 0, start=False) as server:
            timer = Soon(signal.SIGINT)
            timer.begin()
            with self.assertRaises(KeyboardInterrupt):
                server.run()
            timer.join()

    def test_servers_with_their_state_in_etcd(self):
        """One is active. The other stands by, and has what was written when it takes over."""
        etcd = rdzv.Etcd(os.environ["ETCD_ENDPOINT"])
        prefix = f"/python-{os.getpid()}"
        servers = [rdzv.Server("127.0.0.1", 0, state_etcd=etcd, state_prefix=prefix, state_lease=20, start=False)
                   for _ in range(2)]
        threads = [threading.Thread(target=server.run) for server in servers]
        threads[0].start()
        with rdzv.Store.tcp(servers[0].address, timeout=SOON) as store:
            store.set("k", "v")
            threads[1].start()
            servers[0].stop()
            threads[0].join()
        with rdzv.Store.tcp(servers[1].address, timeout=SOON) as store:
            self.assertEqual(store.get("k"), b"v")
        servers[1].stop()
        threads[1].join()
        for server in servers:
            server.close()

    def test_a_server_with_a_secret_and_a_folder(self):
        """The state is there again; only who has the secret gets it, also when it was replaced."""
        with tempfile.TemporaryDirectory() as folder:
            secret = os.path.join(folder, "secret")

            def write(text):
                with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                    file.write(text)

            write("0123456789abcdef\n")
            state = os.path.join(folder, "state")
            with rdzv.Server("127.0.0.1", 0, secret_file=secret, state_dir=state, run_ttl=60, max_runs=3) as server:
                with rdzv.Store.tcp(server.address, secret_file=secret) as store:
                    store.set("k", "v")
                with self.assertRaises(errors.Error):
                    rdzv.Store.tcp(server.address, timeout=2)
            with rdzv.Server("127.0.0.1", 0, secret_file=secret, state_dir=state) as server:
                write("fedcba9876543210\n")
                server.reload()
                with rdzv.Store.tcp(server.address, secret_file=secret) as store:
                    self.assertEqual(store.get("k"), b"v")


class Handlers(unittest.TestCase):
    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)

    def node(self, nnodes, conf=QUICK, **more):
        handler = rdzv.Handler(endpoint=self.server.address, run_id="job", nnodes=nnodes,
                               conf={"is_host": False, **conf}, **more)
        self.addCleanup(handler.close)
        return handler

    def join_all(self, handlers):
        results = [None] * len(handlers)

        def join(i):
            results[i] = handlers[i].next()

        threads = [threading.Thread(target=join, args=(i,)) for i in range(len(handlers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        return results

    def test_two_nodes(self):
        heard = []
        nodes = [self.node("1:2", CALL, on_event=heard.append), self.node((1, 2), CALL)]
        results = self.join_all(nodes)
        self.assertEqual(sorted(result.rank for result in results), [0, 1])
        self.assertEqual({(result.round, result.world_size, result.run_id) for result in results}, {(0, 2, "job")})
        results[0].store.set("k", "v")
        self.assertEqual(results[1].store.get("k"), b"v")
        self.assertEqual([one.rank for one in results[0].participants], [0, 1])
        self.assertEqual(results[0].participants, results[1].participants)
        self.assertGreater(results[0].master_port, 0)
        status = nodes[0].status()
        self.assertEqual((status.exists, status.participants, status.complete, len(status.nodes)), (True, 2, True, 2))
        self.assertEqual({node.way for node in status.nodes}, {"native"})
        self.assertIsNone(nodes[0].poll_change())
        with self.assertRaises(errors.Timeout):
            nodes[0].wait_change(0.01)
        nodes[1].leave()
        change = next(nodes[0].changes())
        self.assertEqual((change.what, change.is_over), ({"left"}, True))
        self.assertEqual(change.nodes, (nodes[1].node,))
        self.assertEqual(nodes[0].next().world_size, 1)
        self.assertIn("INIT", {event.state for event in heard})
        self.assertEqual(nodes[0].num_nodes_waiting(), 0)
        nodes[0].set_closed("enough")
        self.assertTrue(nodes[0].is_closed())
        with self.assertRaisesRegex(errors.Closed, "enough"):
            nodes[1].next()

    def test_a_timeout_of_next(self):
        """The node gives up, and can join later."""
        nodes = [self.node(2), self.node(2)]
        began = time.monotonic()
        for _ in range(2):
            with self.assertRaisesRegex(errors.Timeout, "within 0.2 s"):
                nodes[0].next(timeout=0.2)
        while nodes[1].status(wait=1).nodes:  # it leaves by itself; till then others can complete a round with it
            self.assertLess(time.monotonic() - began, SOON)
        other = threading.Thread(target=nodes[1].next)
        other.start()
        self.assertEqual(nodes[0].next(timeout=SOON).world_size, 2)
        other.join()
        nodes[0].set_closed("over")
        with self.assertRaises(errors.Closed):
            nodes[0].next(timeout=SOON)

    def test_worker_ranks(self):
        nodes = [self.node(2), self.node(2)]
        for node, workers in zip(nodes, (2, 3)):
            node.set_workers("trainer", workers)
        ranks = [result.worker_ranks for result in self.join_all(nodes)]
        self.assertEqual({one.world_size for one in ranks}, {5})
        self.assertEqual(min(one.base for one in ranks), 0)

    def test_url_and_descriptors(self):
        url = f"c10d://{self.server.address}/job?min_nodes=1&max_nodes=1&is_host=false&last_call_timeout=0.1"
        with rdzv.Handler(url=url) as node:
            result = node.next()
            self.assertEqual(result.world_size, 1)
            self.assertGreaterEqual(min(node.change_fd(), node.ended_fd()), 0)
            self.assertIn("c10d", node.describe())
            with self.assertRaises(errors.Unsupported):
                node.set_extra("a", "b")
            with self.assertRaises(errors.Unsupported):
                node.get_extra("a", 1)
        self.assertTrue(node.closed)
        result.close()

    def test_runs(self):
        with self.node(1) as node:
            node.next()
        self.assertEqual(rdzv.list_runs(endpoint=self.server.address), ["job"])
        self.assertGreater(rdzv.remove_run(endpoint=self.server.address, run_id="job"), 0)
        self.assertEqual(rdzv.list_runs(endpoint=self.server.address), [])

    def test_find_master_later_shutdown_and_cancel(self):
        node = self.node(1, find_master_later=True)
        result = node.next()
        node.find_master(result)
        self.assertGreater(result.master_port, 0)
        node.set_close_timeout(5)
        node.set_linger(0)
        node.shutdown()
        other = self.node(2)
        other.cancel()
        with self.assertRaises(errors.Canceled):
            other.next()

    def test_agent(self):
        events = []
        with rdzv.Agent(["/bin/sh", "-c", "exit $((RANK * 4))"], standalone=True, nproc_per_node=2, log_dir="/dev/null",
                        on_agent=events.append, on_worker=events.append) as agent:
            outcome = agent.run()
        self.assertEqual((outcome.state, outcome.exit_code, outcome.failures[0].rank), ("FAILED", 4, 1))
        self.assertIn("STARTED", {event.state for event in events})
        with rdzv.Agent(["/bin/sh", "-c", "exit $((3 - TORCHELASTIC_RESTART_COUNT))"], standalone=True, max_restarts=1,
                        log_dir="/dev/null") as agent:
            attempts = [(one.attempt, one.exit_code) for one in agent.run().attempts]
        self.assertEqual(attempts, [(0, 3), (1, 2)])
        with rdzv.Agent(["/bin/true"], standalone=True, log_dir="/dev/null") as agent:
            self.assertEqual(agent.run().state, "SUCCEEDED")

    def test_agent_names_the_machine_of_rank_0(self):
        """With direct_master, also in a protected rendezvous; otherwise a port of its own on loopback."""
        with tempfile.TemporaryDirectory() as folder:
            secret, said = os.path.join(folder, "secret"), os.path.join(folder, "said")
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
                file.write("0123456789abcdef\n")
            with rdzv.Server("127.0.0.1", 0, secret_file=secret) as server:
                for direct in (False, True):
                    program = ["/bin/sh", "-c", f"echo $MASTER_ADDR >{said}"]
                    with rdzv.Agent(program, endpoint=server.address, run_id=f"j{direct}", backend="c10d", log_dir="/dev/null",
                                    local_addr="127.0.0.2", direct_master=direct,
                                    conf={"secret_file": secret, "is_host": False, **QUICK}) as agent:
                        self.assertEqual(agent.run().state, "SUCCEEDED")
                    with open(said, encoding="ascii") as file:
                        self.assertEqual(file.read(), "127.0.0.2\n" if direct else "127.0.0.1\n")


class Leaks(unittest.TestCase):
    def test_a_million_calls_keep_memory_constant(self):
        """In a thread of its own, where a call costs least; calls that fail, too."""
        store = rdzv.Store.hash(timeout=0)
        grown = []

        def use(times):
            for _ in range(times // 4):
                store.set("key", b"value")
                store.get("key")
                store.add("n", 1)
                try:
                    store.get("never")
                except errors.Timeout:
                    pass

        def run():
            use(100_000)
            before = resident()
            use(1_000_000)
            grown.append(resident() - before)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertLess(grown[0], 1 << 20)

    def test_objects_are_freed(self):
        """Opened and forgotten, closed or not: neither descriptors nor memory stay."""
        server = rdzv.Server(port=0)

        def use(times):
            for i in range(times):
                store = rdzv.Store.tcp(server.address)
                store.prefix("p").set("k", "v")
                with rdzv.Handler(endpoint=server.address, run_id=f"run{i % 3}", nnodes=1,
                                  conf={"is_host": False, **QUICK}, log=lambda *_: None) as node:
                    result = node.next()
                    result.store.set("k", "v")
                    node.poll_change()
                rdzv.Store.hash().clone()

        use(20)
        fds, memory = len(os.listdir("/proc/self/fd")), resident()
        use(100)
        until = time.monotonic() + SOON
        while len(os.listdir("/proc/self/fd")) > fds and time.monotonic() < until:
            time.sleep(0.01)  # the server, in its thread, has to notice that its clients are gone
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), fds)
        self.assertLess(resident() - memory, 1 << 21)
        server.close()


class Package(unittest.TestCase):
    def test_names(self):
        for name in rdzv.__all__:
            self.assertIsNotNone(getattr(rdzv, name))
        self.assertIn("Store", dir(rdzv))
        self.assertRegex(rdzv.__version__, r"^\d+\.\d+\.\d+$")

    def test_unknown_codes(self):
        error = errors.error_of(-99, "odd")
        self.assertIsInstance(error, errors.UncertainError)
        self.assertEqual(error.code, -99)


if __name__ == "__main__":
    unittest.main(verbosity=1)
