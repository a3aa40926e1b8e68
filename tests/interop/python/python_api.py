# SPDX-License-Identifier: BSD-3-Clause
"""The tests of the Python package without PyTorch, to be run by the Python that they are for: test_python.py does.

The package is that of a wheel; nothing of the other tests is imported here.
"""
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

SOON = 30.0  # seconds; much longer than anything takes
QUICK = {"last_call_timeout": 0.1}


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_child(text):
    """Runs a program in a new interpreter; gives the finished process."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SOON, check=False)


class Soon:
    """A signal to this process a moment after begin(), which the main thread calls last before the call to be
    interrupted. The thread runs before that, so that nothing else is."""

    def __init__(self, number):
        self.begun, self.number = threading.Event(), number
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        self.begun.wait()
        time.sleep(0.1)
        os.kill(os.getpid(), self.number)

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
        store.wait(["a", "b"], 1)
        store.wait(["a"], datetime.timedelta(seconds=1))
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
        self.assertEqual(store.wait_changed("v", 0, 1), (b"1", version))
        with self.assertRaises(errors.Timeout):
            store.wait_changed("v", version, 0.01)

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

    def test_nothing_listens(self):
        silent = socket.socket()  # has the port, so that nobody else gets it, and does not listen
        self.addCleanup(silent.close)
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with self.assertRaises(errors.ConnectionFailed) as raised:
            rdzv.Store.tcp(address, timeout=0.3)
        self.assertIsInstance(raised.exception, ConnectionError)
        self.assertIn(address, str(raised.exception))

    def test_server(self):
        with self.assertRaises(errors.AddressInUse):
            rdzv.Server(port=self.server.port)
        with rdzv.Server("127.0.0.1", 0, run_id="mine", max_connections=10) as other:
            with self.assertRaises(errors.Stale):
                rdzv.Store.tcp(other.address, run_id="yours", timeout=1)
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
        servers = [rdzv.Server("127.0.0.1", 0, state_etcd=etcd, state_prefix=prefix, state_lease=2, start=False)
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

    def node(self, nnodes, **more):
        handler = rdzv.Handler(endpoint=self.server.address, run_id="job", nnodes=nnodes,
                               conf={"is_host": False, **QUICK}, **more)
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
        nodes = [self.node("1:2", on_event=heard.append), self.node((1, 2))]
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
        with rdzv.Agent(["/bin/true"], standalone=True, log_dir="/dev/null") as agent:
            self.assertEqual(agent.run().state, "SUCCEEDED")


class Signals(unittest.TestCase):
    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)
        self.store = rdzv.Store.tcp(self.server.address)

    def assert_interrupted(self, call):
        began = time.monotonic()
        timer = Soon(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            timer.begin()
            call()
        timer.join()
        self.assertLess(time.monotonic() - began, SOON)

    def test_keyboard_interrupt_in_every_kind_of_call(self):
        silent = socket.create_server(("127.0.0.1", 0))  # it accepts, and says nothing
        self.addCleanup(silent.close)
        nobody = rdzv.Handler(endpoint=self.server.address, run_id="j", nnodes=2, conf={"is_host": False})
        hash_store, view = rdzv.Store.hash(), self.store.prefix("p")
        alone = rdzv.Handler(endpoint=self.server.address, run_id="k", nnodes=1, conf={"is_host": False, **QUICK})
        result = alone.next()
        self.assertIsNotNone(result.store)
        for call in (lambda: self.store.get("never"), lambda: self.store.wait(["never"]),
                     lambda: self.store.multi_get(["never"]), lambda: self.store.queue_pop("never"),
                     lambda: self.store.wait_changed("never", 0), lambda: view.get("never"),
                     lambda: hash_store.get("never"), lambda: result.store.get("never"), nobody.next,
                     lambda: alone.wait_change(1000), lambda: next(alone.changes()),
                     lambda: rdzv.Store.tcp(f"127.0.0.1:{silent.getsockname()[1]}")):
            self.assert_interrupted(call)
        self.store.set("k", "v")  # all can be used afterwards
        view.set("k", "v")
        self.assertEqual((self.store.get("k"), hash_store.num_keys(), result.store.check(["k"])), (b"v", 0, False))
        self.assertEqual(nobody.status().participants, 0)
        nobody.close()
        alone.close()

    def test_a_handler_that_does_not_raise_ends_no_call_and_costs_no_time(self):
        caught = []
        before = signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        began = time.monotonic()
        timer = Soon(signal.SIGUSR1)
        self.store.set_timeout(0.6)
        timer.begin()
        with self.assertRaises(errors.Timeout):
            self.store.get("never")
        timer.join()
        self.assertEqual(caught, [1])
        self.assertGreaterEqual(time.monotonic() - began, 0.6)
        timer = Soon(signal.SIGUSR1)
        self.store.set_timeout(SOON)
        timer.begin()
        with self.assertRaisesRegex(errors.Canceled, "interrupted by a signal"):
            self.store.queue_pop("never")
        timer.join()
        setter = threading.Timer(0.4, lambda: rdzv.Store.tcp(self.server.address).set("late", "1"))
        timer = Soon(signal.SIGUSR1)
        timer.begin()
        setter.start()
        self.assertEqual(self.store.get("late"), b"1")
        timer.join()
        setter.join()

    def test_a_signal_that_another_wakeup_fd_waits_for(self):
        """asyncio's way: what was set is told, and set again."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        old = signal.set_wakeup_fd(write)
        timer = Soon(signal.SIGUSR1)
        timer.begin()
        self.store.set_timeout(0.4)
        with self.assertRaises(errors.Timeout):
            self.store.get("never")
        timer.join()
        self.assertEqual(signal.set_wakeup_fd(old), write)
        self.assertEqual(os.read(read, 9), bytes([signal.SIGUSR1]))
        os.close(read)
        os.close(write)

    def test_agent_is_stopped(self):
        agent = rdzv.Agent(["/bin/sleep", "1000"], standalone=True, log_dir="/dev/null",
                           on_worker=lambda event: event.state == "STARTED" and os.kill(os.getpid(), signal.SIGINT))
        with self.assertRaises(KeyboardInterrupt):
            agent.run()
        agent.close()


class Processes(unittest.TestCase):
    """What ends with a process, and what does not cross into another."""

    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)

    def test_fork(self):
        """What was opened before is refused in the child; what the child opens works, signals included."""
        store = rdzv.Store.tcp(self.server.address)
        handler = rdzv.Handler(endpoint=self.server.address, run_id="j", nnodes=1, conf={"is_host": False, **QUICK})
        handler.next()
        pid = os.fork()
        if pid == 0:
            os._exit(self.in_child_of_fork(store, handler))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        store.set("k", "v")
        self.assertIsNone(handler.poll_change())
        handler.close()

    def in_child_of_fork(self, store, handler):
        refused = 0
        for call in (lambda: store.get("k"), lambda: store.clone(), handler.next, handler.leave):
            try:
                call()
            except errors.Invalid as error:
                refused += "before this process was forked" in str(error)
        store.close()
        handler.close()
        own = rdzv.Store.tcp(self.server.address)
        own.set("child", "1")
        timer = Soon(signal.SIGINT)
        try:
            timer.begin()
            own.get("never")
        except KeyboardInterrupt:
            timer.join()
            return 0 if refused == 4 else 1
        return 2

    def test_exit_with_waits_under_way(self):
        """Threads that wait in calls, a node with a log, a server: the interpreter ends by itself, and quietly."""
        ended = in_child(f"""
import rdzv, threading, time
server = rdzv.Server(port=0, log=lambda *_: None, level="debug")
stores = [rdzv.Store.tcp("{self.server.address}") for _ in range(3)] + [rdzv.Store.hash()]
node = rdzv.Handler(endpoint="{self.server.address}", run_id="x", nnodes=2, conf={{"is_host": False}},
                    log=lambda *_: None, level="debug", on_event=lambda event: None)
def wait(call):
    try:
        call()
    except rdzv.errors.Canceled:
        pass
calls = [*[lambda store=store: store.get("never") for store in stores], node.next, lambda: node.status(1000)]
for call in calls:
    threading.Thread(target=wait, args=(call,), daemon=True).start()
while not all(each._calls for each in [*stores, node]):
    time.sleep(0.01)
print("ends")
""")
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "ends\n", ""))

    def test_exit_by_signal_and_by_exception(self):
        ended = in_child(f"""
import os, rdzv, signal, threading
store = rdzv.Store.tcp("{self.server.address}")
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
store.get("never")
""")
        self.assertIn("KeyboardInterrupt", ended.stderr)
        self.assertIn(ended.returncode, (1, -signal.SIGINT))

    def test_subinterpreter_is_refused(self):
        ended = in_child("""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import sys
text = "import sys; sys.path[:] = %r\\ntry:\\n import rdzv; rdzv.Store\\nexcept ImportError as error: print(error, flush=True)" % (sys.path,)
number = interpreters.create()
if hasattr(interpreters, "exec"):
    interpreters.exec(number, text)
else:
    interpreters.run_string(number, text)
""")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("cannot be used in a subinterpreter", ended.stdout)

    def test_library_that_is_not_there(self):
        for name, said in (("/nowhere/librdzv.so", "cannot load librdzv: /nowhere/librdzv.so"),
                           ("libc.so.6", "rdzv_version")):
            ended = subprocess.run([sys.executable, "-c", "import rdzv; rdzv.Store"], capture_output=True, text=True,
                                   timeout=SOON, env=dict(os.environ, RDZV_LIBRARY=name), check=False)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(said, ended.stderr)


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
