# SPDX-License-Identifier: BSD-3-Clause
"""Signals, forks and the end of the process in the middle of calls: a call ends or goes on, a write is made once, and
nothing is left behind. test_python.py runs this file as it runs python_api.py."""
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import rdzv
import rdzv._call
from python_api import QUICK, SOON, Soon, in_child
from rdzv import errors


def wait_until(condition):
    until = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("it did not happen")
        time.sleep(0.001)


class Slow:
    """A way to the server on which answers can be held back, and connections cut."""

    def __init__(self, port):
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.passes = threading.Event()
        self.passes.set()
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            self.sockets += [client, server]
            for one, other, gate in ((client, server, None), (server, client, self.passes)):
                threading.Thread(target=self.carry, args=(one, other, gate), daemon=True).start()

    def carry(self, one, other, gate):
        try:
            while data := one.recv(65536):
                if gate:
                    gate.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        while self.sockets:
            each = self.sockets.pop()
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self):
        self.passes.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


class Writes(unittest.TestCase):
    """A signal comes while a write waits for its answer, and its handler raises nothing. Another client has written
    since: the write is not made again."""

    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)
        self.slow = Slow(self.server.port)
        self.addCleanup(self.slow.close)
        self.other = rdzv.Store.tcp(self.server.address, timeout=SOON)
        self.store = rdzv.Store.tcp(self.slow.address, timeout=SOON)
        self.caught = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda *_: self.caught.set())
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

    def during(self, is_done, change, end):
        """In another thread: when the server has done the write, another client changes it, the signal comes, and only
        then can the answer."""
        def run():
            try:
                wait_until(is_done)
                change()
                os.kill(os.getpid(), signal.SIGUSR1)
                self.caught.wait(SOON)
            finally:
                self.slow.passes.set()
            end()

        self.store.num_keys()  # it is connected, also after a cut
        self.caught.clear()
        self.slow.passes.clear()
        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def has(self, key, value):
        return lambda: self.other.check([key]) and self.other.get(key) == value

    def check_all(self, end):
        other, store = self.other, self.store
        for name, write, done in (
                ("set", lambda: store.set("k", "mine"), self.has("k", b"mine")),
                ("multi_set", lambda: store.multi_set({"k": "mine2", "l": "1"}), self.has("k", b"mine2")),
                ("publish", lambda: store.publish({"k": "mine3"}), self.has("k", b"mine3"))):
            with self.subTest(call=name):
                thread = self.during(done, lambda: other.set("k", "of another"), end)
                write()
                self.assertTrue(self.caught.is_set())
                thread.join()
                self.assertEqual(other.get("k"), b"of another")
        for name, write, expected, key, value in (
                ("add", lambda: store.add("n", 5), 5, "n", b"5"),
                ("append", lambda: store.append("a", "x"), None, "a", b"x"),
                ("compare_set", lambda: store.compare_set("c", "", "1"), b"1", "c", b"1"),
                ("delete_key", lambda: store.delete_key("k"), True, "d", b"")):
            with self.subTest(call=name):
                done = (lambda: not other.check(["k"])) if name == "delete_key" else self.has(key, value)
                thread = self.during(done, lambda: None, end)
                self.assertEqual(write(), expected)
                self.assertTrue(self.caught.is_set())
                thread.join()
                self.assertTrue(name == "delete_key" or other.get(key) == value)
        with self.subTest(call="queue_push"):
            self.during(lambda: other.queue_len("q") == 1, lambda: None, end)
            store.queue_push("q", "1")
            self.assertEqual(other.queue_len("q"), 1)

    def test_the_answer_comes_late(self):
        self.check_all(lambda: None)

    def test_the_connection_is_lost(self):
        """As in a fail-over: the session knows whether the write was done."""
        self.check_all(self.slow.cut)

    def test_a_pop_goes_on(self):
        for store in (self.store, rdzv.Store.hash()):
            self.caught.clear()
            thread = threading.Thread(target=self.push_after_signal, args=(store, store.clone()))
            thread.start()
            self.assertEqual(store.queue_pop("late"), b"1")
            thread.join()

    def push_after_signal(self, store, clone):
        wait_until(lambda: store._calls)
        time.sleep(0.05)  # it is in C by then, most probably; if not, the test says less
        os.kill(os.getpid(), signal.SIGUSR1)
        self.caught.wait(SOON)
        clone.queue_push("late", "1")

    def test_a_handler_uses_the_store(self):
        """The same one: its call comes after the one that was interrupted."""
        signal.signal(signal.SIGUSR1, lambda *_: (self.slow.passes.set(), self.store.set("h", "1"), self.caught.set()))
        thread = self.during(self.has("k", b"mine"), lambda: None, lambda: None)
        self.store.set("k", "mine")
        thread.join()
        self.assertEqual((self.other.get("k"), self.other.get("h")), (b"mine", b"1"))

    def test_a_handler_that_raises_ends_the_write(self):
        def stop(*_):
            raise InterruptedError("enough")

        signal.signal(signal.SIGUSR1, stop)
        self.slow.passes.clear()
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with self.assertRaisesRegex(InterruptedError, "enough"):
            self.store.set("k", "mine")
        self.slow.passes.set()
        self.store.set("k", "mine again")
        self.assertEqual(self.other.get("k"), b"mine again")


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

    def test_keyboard_interrupt_in_drain(self):
        """The server can be used afterwards."""
        self.store.set("k", "v")  # it stays connected
        self.assert_interrupted(lambda: self.server.drain(SOON))
        self.assertEqual(self.store.get("k"), b"v")
        self.assertFalse(self.server._calls)
        self.server.drain(0.2)
        self.assertEqual(self.store.get("k"), b"v")
        self.store.close()
        began = time.monotonic()
        self.server.drain(2 * SOON)
        self.assertLess(time.monotonic() - began, SOON)

    def test_close_ends_a_drain(self):
        self.store.set("k", "v")
        ended = []

        def drain():
            try:
                self.server.drain(SOON)
            except errors.Invalid as error:
                ended.append(str(error))

        thread = threading.Thread(target=drain)
        thread.start()
        wait_until(lambda: self.server._calls)
        self.server.close()
        thread.join()
        self.assertIn(ended, ([], ["the server is closed"]))  # without clients it has ended by itself

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
        self.store.set_timeout(SOON)
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


class Handlers(unittest.TestCase):
    """What signal handlers do to the call that they interrupt."""

    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)
        self.slow = Slow(self.server.port)
        self.addCleanup(self.slow.close)
        self.store = rdzv.Store.tcp(self.slow.address, timeout=SOON)
        self.other = rdzv.Store.tcp(self.server.address, timeout=SOON)

    def handle(self, function, number=signal.SIGUSR1):
        before = signal.signal(number, lambda *_: function())
        self.addCleanup(signal.signal, number, before)

    def kill_in_a_call(self, *more):
        """Sends the signal when the store is in a call."""
        def run():
            wait_until(lambda: self.store._calls)
            os.kill(os.getpid(), signal.SIGUSR1)
            for each in more:
                each()

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_it_closes_the_store(self):
        self.handle(self.store.close)
        self.kill_in_a_call()
        with self.assertRaises((errors.Canceled, errors.Invalid)):
            self.store.get("never")
        self.assertTrue(self.store.closed)

    def test_it_writes_what_the_call_waits_for(self):
        for read in (lambda: self.store.get("k1"), lambda: self.store.multi_get(["k2"])[0],
                     lambda: self.store.wait(["k3"]) or b"v", lambda: self.store.wait_changed("k4", 0)[0]):
            self.handle(lambda: self.store.multi_set({f"k{i}": "v" for i in range(1, 5)}))
            for i in range(1, 5):
                self.other.delete_key(f"k{i}")
            self.kill_in_a_call()
            self.assertEqual(read(), b"v")

    def test_it_uses_a_view_of_the_store(self):
        self.handle(lambda: self.store.prefix("p").set("k", "v"))
        self.kill_in_a_call()
        self.assertEqual(self.store.get("p/k"), b"v")

    def test_a_write_of_another_thread_goes_on(self):
        """The main thread waits for the same handle. Ctrl-C, and a handler that raises, end its call alone, and at
        once."""
        def stop():
            raise InterruptedError

        self.store.num_keys()
        for number, raised in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, InterruptedError)):
            if number == signal.SIGUSR1:
                self.handle(stop)
            self.slow.passes.clear()
            key, ended = f"n{number}", []
            thread = threading.Thread(target=lambda: ended.append(self.store.add(key, 1)))
            thread.start()
            wait_until(lambda: self.other.check([key]))
            killer = threading.Thread(target=lambda: (wait_until(lambda: len(self.store._calls) == 2),
                                                      os.kill(os.getpid(), number)))
            with self.assertRaises(raised):
                killer.start()
                self.store.get("never")
            killer.join()
            self.assertEqual(ended, [])
            self.slow.passes.set()
            thread.join()
            self.assertEqual((ended, self.other.get(key)), ([1], b"1"))

    def test_it_raises_at_any_moment_of_a_write(self):
        def stop():
            raise InterruptedError

        self.handle(stop, signal.SIGALRM)
        store, raised = self.other, 0
        for i in range(600):
            try:
                signal.setitimer(signal.ITIMER_REAL, (i % 300 + 1) * 1e-6)
                store.set("k", "v")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptedError:
                raised += 1
        self.assertGreater(raised, 0)
        self.assertFalse(store._calls)
        store.set("k", "end")
        self.assertEqual(store.get("k"), b"end")

    def test_it_uses_a_store_with_a_timeout(self):
        """The interrupted call keeps its own timeout."""
        self.handle(lambda: self.other.check(["k"], timeout=SOON))
        self.kill_in_a_call()
        began = time.monotonic()
        self.assertIsNone(self.store.get("never", timeout=0.2, default=None))
        self.assertLess(time.monotonic() - began, SOON / 2)

    def test_many_signals_at_once(self):
        self.handle(lambda: None)
        self.handle(lambda: None, signal.SIGUSR2)
        self.kill_in_a_call(*[lambda: os.kill(os.getpid(), number)
                              for number in (signal.SIGUSR1, signal.SIGUSR2) for _ in range(20)])
        self.assertIsNone(self.store.get("never", timeout=0.3, default=None))
        self.store.set("k", "v")
        self.assertEqual(self.store.get("k"), b"v")

    def test_a_read_is_made_without_a_thread(self):
        """A thread for each call costs more than the call."""
        self.handle(lambda: None)
        self.store.multi_set({"k": "v", "n": "1"})
        node = rdzv.Handler(endpoint=self.server.address, run_id="j", conf={"is_host": False})
        self.addCleanup(node.close)
        # Not by unittest.mock: it imports asyncio, which resets the wake-up descriptor in children of this process.
        self.addCleanup(setattr, rdzv._call, "Apart", rdzv._call.Apart)
        rdzv._call.Apart = None
        self.assertEqual((self.store.get("k"), self.store.get("k", timeout=SOON)), (b"v", b"v"))
        self.assertEqual(self.store.multi_get(["k", "n"]), [b"v", b"1"])
        self.store.wait(["k"])
        self.assertEqual((self.store.check(["k"]), self.store.num_keys()), (True, 2))
        self.assertEqual((self.store.wait_changed("k", 0)[0], self.store.get_version("k")[0]), (b"v", b"v"))
        self.assertEqual((len(self.store.list_keys()), self.store.queue_len("q")), (2, 0))
        self.assertFalse(node.is_closed())

    def test_frequent_signals_end_a_read_once(self):
        """Signals come faster than the answer, again and again."""
        caught, calls = [], []
        self.other.set("k", "v")
        self.store.num_keys()
        self.handle(lambda: caught.append(len(self.store._calls)), signal.SIGALRM)
        self.slow.passes.clear()

        def run():
            wait_until(lambda: sum(caught) > 30)  # in calls of the store
            self.slow.passes.set()

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        trying = self.store._try
        self.store._try = lambda *arguments, **more: calls.append(1) or trying(*arguments, **more)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        self.assertEqual(self.store.get("k"), b"v")
        self.assertLessEqual(len(calls), 3)  # get, wait, get

    def test_a_signal_at_the_end_of_a_read_ends_no_later_call(self):
        self.handle(lambda: None)
        self.store._call(lambda _pointer, _error: os.kill(os.getpid(), signal.SIGUSR1) or 0)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        self.store.set("k", "v")
        self.assertEqual(self.other.get("k"), b"v")

    def test_opening_keeps_its_timeout(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        self.handle(lambda: None, signal.SIGALRM)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        with self.assertRaises(errors.Error):
            rdzv.Store.tcp(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)

    def test_the_wakeup_descriptor_is_left_alone(self):
        """A handler uses the store, another one raises; the descriptor of the program is told each signal itself."""
        read, write = os.pipe()
        self.addCleanup(lambda: (os.close(read), os.close(write)))
        os.set_blocking(write, False)
        old = signal.set_wakeup_fd(write)
        self.addCleanup(signal.set_wakeup_fd, old)
        self.handle(lambda: self.store.check(["k"]))
        self.kill_in_a_call()
        self.store.get("never", timeout=0.2, default=None)
        self.assertEqual(os.read(read, 9), bytes([signal.SIGUSR1]))
        self.assertEqual(signal.set_wakeup_fd(write), write)

        def stop():
            raise InterruptedError

        self.handle(stop)
        self.kill_in_a_call()
        with self.assertRaises(InterruptedError):
            self.store.get("never")
        self.assertEqual(signal.set_wakeup_fd(write), write)

    def test_a_clone_of_a_canceled_store(self):
        self.store.cancel()
        with self.assertRaises(errors.Canceled):
            self.store.clone()


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


class Interrupted(unittest.TestCase):
    def test_an_open_that_is_interrupted_leaves_no_descriptor(self):
        """The signal comes at every moment of opening, and a little later."""
        server = rdzv.Server(port=0)
        self.addCleanup(server.close)

        def stop(*_):
            raise InterruptedError

        before = signal.signal(signal.SIGALRM, stop)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        openers = (lambda: rdzv.Store.tcp(server.address), rdzv.Store.hash, lambda: rdzv.Server(port=0),
                   lambda: rdzv.Handler(endpoint=server.address, run_id="j", conf={"is_host": False, **QUICK}))
        for opener in openers:
            opener().close()
        fds = count = len(os.listdir("/proc/self/fd"))
        for opener in openers:
            began = time.perf_counter()
            opener().close()
            took = time.perf_counter() - began
            for i in range(100):
                opened = None  # not while a signal may come
                try:
                    signal.setitimer(signal.ITIMER_REAL, took * (i + 1) / 100)
                    opened = opener()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    opened.close()
                except InterruptedError:
                    pass
        until = time.monotonic() + SOON
        while (count := len(os.listdir("/proc/self/fd"))) > fds + 8 and time.monotonic() < until:
            time.sleep(0.01)  # the server, in its thread, has to notice that its clients are gone
        self.assertLessEqual(count, fds + 8)  # Python may raise between the making of a descriptor and the next instruction


class Forks(unittest.TestCase):
    """A thread forks while the main thread is in a call."""

    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)
        self.store, self.other = (rdzv.Store.tcp(self.server.address, timeout=SOON) for _ in range(2))

    def fork_during_a_call(self, in_child):
        codes = []

        def fork():
            wait_until(lambda: self.store._calls)
            time.sleep(0.05)  # it is in C by then, most probably; if not, the test says less
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    signal.alarm(int(SOON))
                    code = in_child()
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            self.other.set("k", "v")

        thread = threading.Thread(target=fork)
        thread.start()
        self.assertEqual(self.store.get("k"), b"v")
        thread.join()
        self.assertEqual(codes, [0])

    def test_signals_are_not_written_to_files(self):
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def in_child():
            files = [tempfile.TemporaryFile() for _ in range(30)]
            os.kill(os.getpid(), signal.SIGUSR1)
            written = sum(os.fstat(file.fileno()).st_size for file in files)
            for file in files:
                file.close()
            return written

        self.fork_during_a_call(in_child)

    def test_the_wakeup_descriptor_of_the_program_stays(self):
        read, write = os.pipe()
        os.set_blocking(write, False)
        self.addCleanup(lambda: (os.close(read), os.close(write)))
        old = signal.set_wakeup_fd(write)
        self.addCleanup(signal.set_wakeup_fd, old)
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def in_child():
            os.kill(os.getpid(), signal.SIGUSR1)
            return 0 if select.select([read], [], [], SOON)[0] and os.read(read, 9) == bytes([signal.SIGUSR1]) else 1

        self.fork_during_a_call(in_child)

    def test_close_in_the_child_does_not_wait_for_the_call_of_the_parent(self):
        def in_child():
            self.store.close()
            return 0

        self.fork_during_a_call(in_child)


if __name__ == "__main__":
    unittest.main(verbosity=1)
