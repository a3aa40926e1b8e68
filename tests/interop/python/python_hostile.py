# SPDX-License-Identifier: BSD-3-Clause
"""Programs that do to the Python package what they should not: arguments that change or lie, objects that are copied.
test_python.py runs this file as it runs python_api.py. What may crash runs in an interpreter of its own."""
import copy
import gc
import multiprocessing
import pickle
import threading
import time
import unittest

import rdzv
import rdzv._call
from python_api import QUICK, SOON, in_child
from rdzv import store

LIARS = """
import rdzv, sys, threading
store = rdzv.Store.hash(timeout=0)

class LongBytes(bytes):
    def __len__(self): return 1 << 40
    def __bytes__(self): return self
    def __buffer__(self, flags): return memoryview(b"short")
    def __iter__(self): return iter(range(1 << 20))

class LongArray(bytearray):
    def __len__(self): return 1 << 40
    def __bytes__(self): return LongBytes(b"x")

class OddText(str):
    def __len__(self): return 1 << 40
    def encode(self, *_): return LongBytes(b"x")

class NotText(str):
    def encode(self, *_): return 1 << 40

class Torn(dict):
    "Has more keys than values."
    def keys(self): return [b"%d" % i for i in range(100000)]
    def values(self): return [b"1"]
    def items(self): return [(b"1", b"1")]
    def __getitem__(self, key): return b"1"
"""


class Arguments(unittest.TestCase):
    """Each ends as it should: with what was given, or with an exception."""

    def assert_prints(self, text, expected):
        ended = in_child(text)
        self.assertEqual((ended.returncode, ended.stdout), (0, expected), ended.stderr[-2000:])

    def test_a_dict_that_another_thread_changes(self):
        self.assert_prints(LIARS + """
for name in ("multi_set", "publish"):
    items, done = {}, threading.Event()
    def change():
        while not done.is_set():
            for i in range(300):
                items[b"%d" % i] = b"v" * 50
            items.clear()
    thread = threading.Thread(target=change)
    thread.start()
    sys.setswitchinterval(1e-5)
    for _ in range(2000):
        getattr(store, name)(items)
    done.set()
    thread.join()
print({store.get(key) for key in store.list_keys()})
""", "{b'" + "v" * 50 + "'}\n")

    def test_a_mapping_with_more_keys_than_values(self):
        self.assert_prints(LIARS + """
store.multi_set(Torn())
store.publish(Torn({b"k": b"v"}))
print(store.num_keys() in (0, 1, 100000))
""", "True\n")

    def test_texts_that_lie_about_their_length(self):
        self.assert_prints(LIARS + """
texts = [LongBytes(b"short"), LongArray(b"short"), OddText("short"), NotText("short"), memoryview(LongBytes(b"short"))]
for text in texts:
    store.set(text, text)
    store.multi_set({b"m": text})
    store.compare_set("c", "", text)
    print(store.get(text), store.get("m"), store.get("c"), store.check([text]), store.multi_get([text, text]))
    view = store.prefix(text)
    view.set(text, text)
    store.queue_push("q", text)
    print(store.get("short/short"), store.queue_pop("q"))
    if not isinstance(text, (LongArray, memoryview)):
        rdzv.Server(port=0, run_id=text).close()
        with rdzv.Agent([text], role=text, standalone=True):
            pass
""",
                           "b'short' b'short' b'short' True [b'short', b'short']\nb'short' b'short'\n" * 5)

    def test_a_buffer_that_another_thread_changes(self):
        """A value is what the buffer held at one moment."""
        self.assert_prints(LIARS + """
buffer, done = bytearray(1 << 16), threading.Event()
def change():
    while not done.is_set():
        try:
            del buffer[100:]
            buffer.extend(bytes(1 << 16))
        except BufferError:  # it is being copied
            pass
thread = threading.Thread(target=change)
thread.start()
sys.setswitchinterval(1e-5)
for _ in range(2000):
    store.set("k", buffer)
    store.multi_set({"k": buffer})
done.set()
thread.join()
print(set(store.get("k")))
""", "{0}\n")

    def test_none_where_c_expects_a_text(self):
        self.assert_prints("""
import rdzv
server = rdzv.Server(port=0)
node = rdzv.Handler(endpoint=server.address, run_id="j", conf={"is_host": False})
for call in (lambda: rdzv.Store.tcp(None), lambda: rdzv.Store.file(None), lambda: rdzv.Store.etcd(None),
             lambda: rdzv.Store.etcd3(None), lambda: rdzv.Store.hash().prefix(None), lambda: node.set_extra(None, "v"),
             lambda: node.set_extra("k", None), lambda: node.get_extra(None, 1), lambda: rdzv.Agent(["x", None, "y"]),
             lambda: rdzv.Agent("text"), lambda: rdzv.remove_run(endpoint=server.address, run_id=None)):
    try:
        call()
        print("no error")
    except TypeError:
        pass
node.close()
""", "")

    def test_a_text_where_an_etcd_is_expected(self):
        for call in (lambda: rdzv.Store.etcd("p", "127.0.0.1:1"), lambda: rdzv.Store.etcd3("p", etcd="127.0.0.1:1"),
                     lambda: rdzv.Server(port=0, state_etcd="127.0.0.1:1")):
            with self.assertRaisesRegex(TypeError, "must be an rdzv.Etcd"):
                call()

    def test_numbers_that_do_not_fit(self):
        store = rdzv.Store.hash()
        for call in (lambda: store.add("n", 2**64 + 5), lambda: store.add("n", 2**63),
                     lambda: store.compare_set_version("n", 2**64, "v"), lambda: store.compare_set_version("n", -1, "v"),
                     lambda: store.wait_changed("n", 2**64, 0), lambda: rdzv.Server(port=2**32 + 1),
                     lambda: rdzv.Server(port=0, max_keys=-1), lambda: rdzv.Server(port=0, listen_fd=2**40),
                     lambda: rdzv.Handler(endpoint="here:1", run_id="j", nnodes=2**64 + 1),
                     lambda: rdzv.Handler(endpoint="here:1", run_id="j", nnodes=(1, 2**64 + 1)),
                     lambda: rdzv.Agent(["x"], standalone=True, max_restarts=2**64),
                     lambda: rdzv.Store.file("/nowhere/file", num_workers=2**64 + 1)):
            with self.assertRaises(OverflowError):
                call()
        for call in (lambda: store.add("n", 1.5), lambda: store.add("n", "1"), lambda: rdzv.Server(port=1.5)):
            with self.assertRaises(TypeError):
                call()
        self.assertEqual(store.num_keys(), 0)
        self.assertEqual((store.add("n", 2**63 - 1), store.add("n", -2**63 + 1)), (2**63 - 1, 0))

    def test_a_buffer_that_is_gone(self):
        store, view = rdzv.Store.hash(), memoryview(b"abc")
        view.release()
        with self.assertRaises(ValueError):
            store.set("k", view)
        store.set("k", memoryview(b"abcdef")[::2])
        self.assertEqual(store.get("k"), b"ace")


class Copies(unittest.TestCase):
    """An object that holds a handle of the library cannot be copied; a value can."""

    def setUp(self):
        self.server = rdzv.Server(port=0)
        self.addCleanup(self.server.close)

    def node(self):
        node = rdzv.Handler(endpoint=self.server.address, run_id="job", conf={"is_host": False, **QUICK})
        self.addCleanup(node.close)
        return node

    def all_objects(self):
        store, node = rdzv.Store.tcp(self.server.address), self.node()
        yield from (self.server, store, store.prefix("p"), store.clone(), rdzv.Store.hash(), node, node.next(),
                    rdzv.Agent(["/bin/true"], standalone=True), rdzv.EtcdProcess(), rdzv._call.Cancel(), rdzv.Etcd("here:1"))

    def test_every_object_refuses_every_copy(self):
        for one in self.all_objects():
            ways = [copy.copy, copy.deepcopy, lambda one: copy.deepcopy({"one": [one]})]
            ways += [lambda one, i=i: pickle.dumps(one, i) for i in range(pickle.HIGHEST_PROTOCOL + 1)]
            for way in ways:
                with self.subTest(kind=type(one).__name__), self.assertRaisesRegex(TypeError, r"of rdzv cannot be copied"):
                    way(one)
            gc.collect()
            if isinstance(one, rdzv.EtcdProcess):
                one.close()

    def test_a_process_that_is_spawned_does_not_get_one(self):
        store = rdzv.Store.tcp(self.server.address)
        child = multiprocessing.get_context("spawn").Process(target=print, args=(store,))
        with self.assertRaisesRegex(TypeError, r"use clone\(\) in this process, and open the store in the other one"):
            child.start()
        store.set("k", "v")
        self.assertEqual(store.get("k"), b"v")

    def test_a_subclass_that_says_how_it_is_opened_again(self):
        one = Reopened.tcp(self.server.address)
        one.address = self.server.address
        one.set("k", "v")
        self.assertEqual(pickle.loads(pickle.dumps(one)).get("k"), b"v")
        self.assertEqual(copy.copy(one).get("k"), b"v")

    def test_values_can_be_copied_and_pickled(self):
        node = self.node()
        result, status = node.next(), node.status()
        for value in (*result.participants, status, rdzv.Change(what=frozenset({"left"}), nodes=("n",))):
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)
            self.assertEqual(copy.copy(value), value)
            self.assertEqual(copy.deepcopy(value), value)


class Views(unittest.TestCase):
    """A view and its base are closed by different threads."""

    def test_a_view_that_is_opened_while_its_base_is_closed(self):
        """It is refused, or closed with its base. Close comes at the end of the opening."""
        base, opening = rdzv.Store.hash(), store.open_object
        closing = threading.Thread(target=base.close)

        def open_then_close(*arguments):
            opening(*arguments)
            closing.start()
            while not base.closed:
                time.sleep(0.001)

        store.open_object = open_then_close
        try:
            view = base.prefix("p")
        finally:
            store.open_object = opening
        closing.join()
        self.assertTrue(view.closed)

    def test_a_view_that_is_closed_under_a_wait(self):
        server = rdzv.Server(port=0)
        self.addCleanup(server.close)
        base = rdzv.Store.tcp(server.address, timeout=SOON)
        view, ended = base.prefix("p"), []

        def wait():
            try:
                view.get("never")
            except rdzv.errors.Canceled as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while not view._calls:
            time.sleep(0.001)
        view.close()
        thread.join(SOON)
        self.assertEqual(len(ended), 1)
        base.set("k", "v")
        self.assertEqual(base.get("k"), b"v")


class End(unittest.TestCase):
    def test_an_object_that_outlives_the_modules(self):
        ended = in_child("import rdzv, rdzv._call; store = rdzv.Store.hash(); store.close(); rdzv._call.os = None; del store")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


class Reopened(rdzv.Store):
    def __reduce__(self):
        return Reopened.tcp, (self.address,)


if __name__ == "__main__":
    unittest.main(verbosity=1)
