# SPDX-License-Identifier: BSD-3-Clause
"""The tests of rdzv.torch that need PyTorch in the process, to be run by its Python: test_torch_stores_of_ours.py does.

torch_store_peer.py RDZV_ENDPOINT ETCD_ENDPOINT

OwnStore is called by C++ (a PrefixStore of PyTorch's around it), by Python and by gloo; PlainStore likewise.
"""
import os
import signal
import sys
import threading
import time
import unittest
from datetime import timedelta

import rdzv_torch_hook  # noqa: F401, what rdzv-torch.pth does
import torch
import torch.distributed as dist

import rdzv
from rdzv.torch import store as stores

IS_2 = not torch.__version__.startswith("1.")
SOON = timedelta(seconds=120)  # an etcd on a busy machine writes slowly
SHORT = timedelta(milliseconds=int(os.environ.get("SHORT_MS", "50")))  # enough for etcd to answer
THREADS, TIMES = 6, 8
endpoint, etcd_endpoint = sys.argv.pop(1), sys.argv.pop(1)


def own_on_server(name):
    return stores.OwnStore(lambda: rdzv.Store.tcp(endpoint).prefix(name))


def own_on_etcd(name):
    return stores.OwnStore(lambda: rdzv.Store.etcd3(f"/{name}", rdzv.Etcd(etcd_endpoint)))


def plain(name):
    host, port = endpoint.split(":")
    return stores.PlainStore(name, stores.torch_client(host, int(port), SOON),
                             lambda: rdzv.Store.tcp(endpoint).prefix(name))


MAKERS = {"server": own_on_server, "etcd": own_on_etcd, "plain": plain}


def name_of(test):
    return f"{test.id()}-{os.getpid()}-{time.monotonic_ns()}"


class Trampolines(unittest.TestCase):
    """Each call that C++ makes on a Python store, by a PrefixStore of PyTorch's; and the same by Python."""

    def each(self, kinds=tuple(MAKERS)):
        for kind in kinds:
            own = MAKERS[kind](name_of(self))
            for how, store in (("python", own), ("c++", dist.PrefixStore("p", own))):
                with self.subTest(kind=kind, how=how):
                    yield store

    def test_values(self):
        for store in self.each():
            store.set("k", "text")
            self.assertEqual(store.get("k"), b"text")
            store.set("b", b"\0\xff\0".decode("latin-1"))
            store.set("empty", "")
            self.assertEqual(store.get("empty"), b"")
            self.assertEqual((store.add("n", 3), store.add("n", -5)), (3, -2))
            self.assertEqual(store.compare_set("c", "", "1"), b"1")
            self.assertEqual(store.compare_set("c", "1", "2"), b"2")
            self.assertEqual(store.compare_set("c", "1", "3"), b"2")
            store.wait(["k", "c"])
            store.wait(["k", "c"], SOON)
            self.assertTrue(store.delete_key("k"))
            self.assertGreaterEqual(store.num_keys(), 1)

    @unittest.skipUnless(IS_2, "1.13 has no such calls")
    def test_extended(self):
        for store in self.each():
            self.assertTrue(store.has_extended_api())
            store.append("a", "1")
            store.append("a", "2")
            store.multi_set(["x", "y"], ["10", "20"])
            self.assertEqual(store.multi_get(["a", "y", "x"]), [b"12", b"20", b"10"])
            self.assertTrue(store.check(["a", "x"]))
            self.assertFalse(store.check(["a", "z"]))

    def test_c_plus_plus_names(self):
        own = own_on_server(name_of(self))
        own.set("k", b"v")
        self.assertEqual((own.getNumKeys() > 0, own.deleteKey("k")), (True, True))
        self.assertEqual(own.compare_set("c", list(b""), list(b"\0\1")), b"\0\1")  # as 1.13 gives them

    def test_time_is_over(self):
        for store in self.each():
            store.set_timeout(SHORT)
            self.assertEqual(store.timeout, SHORT)
            began = time.monotonic()
            for call in (lambda: store.get("never"), lambda: store.wait(["never"], SHORT), lambda: store.wait(["never"])):
                with self.assertRaises(Exception) as raised:
                    call()
                self.assertIsInstance(raised.exception, (stores.DistStoreError, RuntimeError))
            self.assertLess(time.monotonic() - began, 60)

    def test_threads(self):
        """All calls at once. One that waits keeps none from setting what it waits for, as it does in PyTorch's own
        client."""
        for store in self.each(("server", "etcd")):
            errors = []

            def work(number, store=store, errors=errors):
                try:
                    for i in range(TIMES):
                        store.set(f"{number}/{i}", str(i))
                        store.add("sum", 1)
                        if number > 0 and i == 0:
                            self.assertEqual(store.get("go"), b"1")
                        store.wait([f"{number}/{i}"], SOON)
                        self.assertEqual(store.get(f"{number}/{i}"), str(i).encode())
                    if number == 0:
                        store.set("go", "1")
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])
            self.assertEqual(store.add("sum", 0), THREADS * TIMES)

    def test_signal_ends_a_wait(self):
        """Called by Python, as torchrun's agent does."""
        for make in MAKERS.values():
            store = make(name_of(self))
            begun = threading.Event()
            thread = threading.Thread(target=lambda: begun.wait() and time.sleep(0.2) or os.kill(os.getpid(), signal.SIGINT))
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                begun.set()
                store.get("never")
            thread.join()

    def test_end_of_a_round_ends_a_wait(self):
        for base in (stores.OwnStore(lambda: rdzv.Store.hash(), lambda: "somebody went"),):
            with self.assertRaisesRegex(stores.RoundOver, "somebody went"):
                base.get("never")
            base.set("k", "v")
            store = rdzv.Store.hash()
            late = stores.OwnStore(store.clone, lambda: store.set("key", "late") or "somebody went")
            self.assertEqual(late.get("key"), b"late")  # what is there is given all the same


class Gloo(unittest.TestCase):
    """Process groups over each store, in forked processes."""

    groups: list = []

    def in_child(self, work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        return pid

    def run_all(self, works):
        pids = [self.in_child(work) for work in works]
        self.assertEqual([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids], [0] * len(pids))

    def reduce(self, size):
        total = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(total)
        self.assertEqual(total.item(), size * (size + 1) / 2)
        dist.barrier()

    def end_group(self):
        """The group itself stays until the process ends: when it goes right after a collective, PyTorch 2.6 may wait for
        its own thread for ever."""
        self.groups.append(dist.group.WORLD)
        dist.destroy_process_group()

    def test_process_groups(self):
        for kind, make in MAKERS.items():
            name = name_of(self)

            def work(rank, make=make, name=name):
                dist.init_process_group("gloo", store=make(name), rank=rank, world_size=3, timeout=SOON)
                self.reduce(3)

            with self.subTest(kind=kind):
                self.run_all([lambda rank=rank: work(rank) for rank in range(3)])

    def test_init_method(self):
        """Without a launcher. One process goes; the others join the next round by the same call."""
        for url in (f"rdzv://{endpoint}/{time.monotonic_ns()}?nnodes=2:3&is_host=false",
                    f"rdzv://127.0.0.1:1,{endpoint}/{time.monotonic_ns()}?nnodes=2:3&is_host=false",
                    f"rdzv://{etcd_endpoint}/{time.monotonic_ns()}?nnodes=2:3&backend=etcd-v3"):
            def join(size, url=url):
                """On a busy machine one may come later than the last call: then all join once more."""
                from rdzv.torch import init_method
                while True:
                    dist.init_process_group("gloo", init_method=url, timeout=SOON)
                    if dist.get_world_size() == size:
                        return
                    self.end_group()
                    next(init_method.handler(url).changes())

            def work(goes, url=url):
                join(3)
                self.reduce(3)
                self.end_group()
                from rdzv.torch import init_method
                if goes:
                    init_method.leave(url)
                    return
                for change in init_method.handler(url).changes():
                    if change.is_over:
                        break
                join(2)
                self.reduce(2)
                self.end_group()

            with self.subTest(url=url):
                self.run_all([lambda goes=goes: work(goes) for goes in (False, False, True)])

    def test_init_method_refuses(self):
        from rdzv.torch import init_method
        for url in ("rdzv://localhost:1", "rdzv:///job", "rdzv://h/j?rank=3", "rdzv://h/j?nnodes=x"):
            with self.assertRaises(ValueError):
                init_method.Params(url)


class Registered(unittest.TestCase):
    def test_backends(self):
        from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
        import torch.distributed.elastic.rendezvous.registry  # noqa: F401
        names = rendezvous_handler_registry._registry
        self.assertTrue({"rdzv", "etcd-v3", "c10d"} <= set(names))
        self.assertNotEqual(names["c10d"], names["rdzv"])

    def test_contract_of_a_handler(self):
        """What PyTorch's own tests ask of any handler: names, a closed one, a timeout, shutdown more than once."""
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous import api
        from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

        def make(nodes, run_id, **conf):
            return get_rendezvous_handler(RendezvousParameters("rdzv", endpoint, run_id, *nodes, is_host="false",
                                                               timeout=900, **conf))

        run_id = name_of(self)
        handler = make((1, 1), run_id)
        self.assertIsInstance(handler, api.RendezvousHandler)
        self.assertEqual((handler.get_backend(), handler.get_run_id(), handler.is_closed()), ("rdzv", run_id, False))
        info = handler.next_rendezvous()
        store, rank, size = (info.store, info.rank, info.world_size) if IS_2 else info
        self.assertIsInstance(store, dist.PrefixStore)
        self.assertEqual((rank, size, handler.num_nodes_waiting()), (0, 1, 0))
        store.set("k", "v")
        self.assertEqual(store.get("k"), b"v")
        if IS_2:
            where = info.bootstrap_store_info
            self.assertTrue(handler.use_agent_store)
            client = stores.torch_client(where.master_addr, where.master_port, SOON)
            self.assertEqual(client.add("n", 1), 1)
            del client
        handler.set_closed()
        self.assertTrue(handler.is_closed())
        with self.assertRaises(api.RendezvousClosedError):
            make((1, 1), run_id).next_rendezvous()
        self.assertTrue(handler.shutdown())
        self.assertTrue(handler.shutdown())
        self.assertEqual(handler.num_nodes_waiting(), 0)
        late = make((2, 2), run_id + "late", join_timeout="2")
        with self.assertRaises(api.RendezvousTimeoutError):
            late.next_rendezvous()
        late.shutdown()
        with self.assertRaises(api.RendezvousConnectionError):
            get_rendezvous_handler(RendezvousParameters("rdzv", "127.0.0.1:1", "x", 1, 1, is_host="false",
                                                        read_timeout="2"))

    def test_an_address_that_a_program_gives_its_agents(self):
        """WorkerSpec.master_addr and master_port, on an agent of PyTorch."""
        from torch.distributed.elastic.agent.server import WorkerSpec
        from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
        more = {}
        if IS_2:
            from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
            more = {"logs_specs": DefaultLogsSpecs()}
        for given in ({"master_addr": "10.1.2.3", "master_port": 4321}, {"master_port": 4321}, {}):
            run_id = f"{name_of(self)}{len(given)}"
            handler = get_rendezvous_handler(RendezvousParameters("rdzv", endpoint, run_id, 1, 1, is_host="false"))
            spec = WorkerSpec("default", 1, entrypoint="/bin/true", rdzv_handler=handler, **given)
            agent = LocalElasticAgent(spec, **more)
            group = agent._worker_group
            agent._rendezvous(group)
            found = (group.master_addr, group.master_port) if IS_2 else agent._get_master_addr_port(group.store)
            self.assertEqual(found, (given.get("master_addr", found[0]), given.get("master_port", found[1])))
            self.assertGreater(found[1], 0)
            handler.shutdown()

    def test_what_ends_an_agent_closes_the_rendezvous_only_if_the_job_is_over(self):
        from torch.distributed.elastic.multiprocessing import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

        def is_closed_after(error):
            run_id = f"{name_of(self)}-{type(error).__name__}-{sys.exc_info()[0]}"
            handler, witness = (get_rendezvous_handler(RendezvousParameters("rdzv", endpoint, run_id, 1, 2,
                                                                            is_host="false")) for _ in range(2))
            handler.next_rendezvous()
            try:
                if error:
                    raise error
                handler.shutdown()
            except Exception:
                handler.shutdown()
            return witness.is_closed()

        failure = ChildFailedError("program", {1: ProcessFailure(0, 77, 3, "")})
        self.assertEqual([is_closed_after(error) for error in (None, failure)], [True, True])
        for error in (SignalException("SIGTERM", 15), OSError("gone"), RuntimeError("a participant is gone")):
            self.assertFalse(is_closed_after(error), error)
        try:
            raise ValueError("a program launches a job while it handles this")
        except ValueError:
            self.assertTrue(is_closed_after(None))

    def test_events_and_metrics(self):
        import logging
        from torch.distributed.elastic import metrics
        from torch.distributed.elastic.events import handlers
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
        lines, values = [], []

        class Lines(logging.Handler):
            def emit(self, record):
                lines.append(record.getMessage())

        class Values(metrics.MetricHandler):
            def emit(self, metric_data):
                values.append(metric_data.name)

        handlers._log_handlers["dynamic_rendezvous"] = Lines()
        metrics.configure(Values())
        handler = get_rendezvous_handler(RendezvousParameters("rdzv", endpoint, name_of(self), 1, 1, is_host="false"))
        handler.next_rendezvous()
        handler.shutdown()
        self.assertTrue(any("joined round 0 as rank 0 of 1" in line for line in lines), lines)
        self.assertIn("rendezvous.duration.ms", values)


if __name__ == "__main__":
    unittest.main(verbosity=1)
