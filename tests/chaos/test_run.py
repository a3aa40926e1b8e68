# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` on three nodes whose agents and workers are killed, stopped and cut off.

Workers of two rounds never meet in one store; those of one round agree on their world; when the faults end there is one
world within seconds; and when the workers are done, all agents end with 0 and leave nothing behind.
"""
import collections
import os
import re
import signal
import time

import chaos
import rdzvtest
import run_nodes

NODES, LEAST, WORKERS = 3, 2, 2
SECONDS = float(os.environ.get("CHAOS_LENGTH", 20 if chaos.LONG else 3))  # of faults
DEAD, LAST_CALL = 1.0, 0.3
ONE_WORLD = 60  # seconds after the faults, on a busy machine
CONF = (f"last_call_timeout={LAST_CALL},keep_alive_interval={DEAD / 10},keep_alive_max_attempt=10,close_timeout=2,"
        "read_timeout=2,is_host=false")
LOST = (3, 4)  # exit codes of an agent that had no store for too long; whoever started it starts it again
STARTED = re.compile(r"round (\d+): node (\d+) of (\d+), .*, attempt (\d+), master (\S+)")

Worker = collections.namedtuple("Worker", "pid rank world attempt master roll")


class Place:
    """A place for one agent after the other."""

    def __init__(self, case, number, endpoint):
        self.case, self.number, self.endpoint = case, number, endpoint
        self.node, self.leaving, self.all = None, False, []

    def start(self):
        """Unless there is one, also if it is about to leave."""
        if self.node and self.node.process.poll() is None:
            return
        self.leaving = False
        self.node = self.case.node(f"n{self.number}-{len(self.all)}", f"{LEAST}:{NODES}",
                                   rdzvtest.built("tests/chaos_worker"), endpoint=self.endpoint, conf=CONF)
        self.all.append(self.node)

    def signal(self, number):
        if self.node.process.poll() is not None or (self.leaving and number == signal.SIGSTOP):
            return
        if number == signal.SIGCONT:
            chaos.resume(self.node.process)
        else:
            self.node.signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.node.process.wait()

    def leave(self):
        """Asks once: an agent that is leaving already goes on with that."""
        if not self.leaving:
            chaos.ask_to_leave(self.node.process)
        self.leaving = True

    def world(self):
        """The round that its workers run in, with its size; None: in none."""
        if self.leaving or self.node.process.poll() is not None:
            return None
        last = (self.node.events("AGENT") or [None])[-1]
        return (last["round"], last["group_world_size"]) if last and last["state"] == "RUNNING" else None


class OurServer(chaos.Case, run_nodes.Run):
    def tearDown(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.signal(signal.SIGCONT)
        super().tearDown()

    def launch(self, name, flags, program, **options):
        flags = [*flags, "--nproc-per-node", str(WORKERS), "--max-restarts", "100", "--shutdown-timeout", "2",
                 "--exit-barrier-timeout", "20", "--no-python"]
        return super().launch(name, flags, [*program, self.folder], **options)

    # ---- what is done ----

    def harm_an_agent(self, schedule, moment):
        place = self.random.choice(self.places)
        what = self.random.choice(["kill", "kill", "stop", "stop", "stop", "leave"])
        if what == "stop":
            schedule.pair(moment, 3.0, f"stop agent {place.number}", lambda: place.signal(signal.SIGSTOP),
                           lambda: place.signal(signal.SIGCONT))
        else:
            schedule.pair(moment, 1.0, f"{what} agent {place.number}", getattr(place, what), place.start)

    def harm_a_worker(self, schedule, moment):
        """One that its agent has started last, and that is still its child."""
        place, what = self.random.choice(self.places), self.random.choice(["kill", "kill", "stop"])
        chosen = []

        def signal_worker(number):
            if not chosen:
                chosen.extend((place.node.pid, event["pid"]) for event in place.node.events("WORKER", "STARTED")[-1:])
            for agent, pid in chosen:
                if run_nodes.parent_of(pid) == agent:
                    os.kill(pid, number)

        if what == "kill":
            schedule.at(moment, f"kill a worker of agent {place.number}", lambda: signal_worker(signal.SIGKILL))
        else:
            schedule.pair(moment, 1.0, f"stop a worker of agent {place.number}",
                           lambda: signal_worker(signal.SIGSTOP), lambda: signal_worker(signal.SIGCONT))

    def harm_the_server(self, schedule, moment):
        if self.random.random() < 0.5:
            schedule.at(moment, "restart the server", self.store_server.restart)
        else:
            schedule.pair(moment, 1.5, "stop the server", lambda: self.store_server.signal(signal.SIGSTOP),
                           lambda: self.store_server.signal(signal.SIGCONT))

    def plan(self):
        schedule, moment = chaos.Schedule(self, SECONDS), 0.6
        while (moment := moment + self.random.uniform(0.1, 0.7)) < SECONDS:
            harm = self.random.choice([self.harm_an_agent] * 4 + [self.harm_a_worker] * 2 + [self.harm_a_line] * 2 +
                                      [self.harm_the_server])
            harm(schedule, moment)
        return schedule

    def calm(self):
        self.end_harm(self.store_server, *self.places)

    # ---- what must be ----

    def one_world(self):
        for place in self.places:
            place.start()
        worlds = {place.world() for place in self.places}
        return len(worlds) == 1 and None not in worlds and worlds.pop()[1] == NODES

    def workers(self):
        """What they have noted."""
        found = []
        for line in self.notes():
            pid, rank, world, attempt, master, roll = line.split(" ")
            signed = [int(one) for one in roll.split(",") if one and one != "-"]
            found.append(Worker(int(pid), int(rank), int(world), int(attempt), master, signed))
        return found

    def rounds_of_workers(self):
        """By the events of their agents: the round of each worker's process id."""
        rounds = {}
        for node in self.nodes:
            for event in node.events("WORKER", "STARTED"):
                rounds[event["pid"]] = event["round"], node.name
        return rounds

    def have_signed(self, rounds):
        """How many workers of these rounds of these nodes see each other."""
        own = {pid for pid, (number, name) in self.rounds_of_workers().items() if rounds.get(name) == number}
        return len({worker.pid for worker in self.workers() if worker.pid in own and own <= set(worker.roll)})

    def check_agents(self):
        """Their rounds go up; all of a round agree on its size, and their ranks differ. A round is known by its number
        and master: a store that was restarted may give a number again, to agents that do not know it."""
        terms, ranks = {}, collections.defaultdict(set)
        for node in self.nodes:
            before = -1
            for event in node.events("AGENT", "STARTING"):
                number, rank, size, attempt, master = STARTED.search(event["message"]).groups()
                where = f"{node.name}: {event['message']}"
                self.assertGreater(int(number), before, f"goes back: {where}")
                before = int(number)
                self.assertEqual(terms.setdefault((number, master), (size, attempt)), (size, attempt), where)
                self.assertTrue(LEAST <= int(size) <= NODES and int(rank) < int(size), where)
                self.assertNotIn(rank, ranks[number, master], where)
                ranks[number, master].add(rank)
            code = node.process.poll()
            self.assertIn(code, self.expected(node), f"{node.name}: {node.err()[-2000:]}")
        again = collections.Counter(number for number, _ in terms)
        self.assertLessEqual(max(again.values(), default=0), self.store_server.starts, f"one number for many: {terms}")
        shared = [(attempt, master) for (_, master), (_, attempt) in terms.items()]
        self.assertEqual(len(shared), len(set(shared)), f"rounds with one attempt and master: {terms}")
        return terms

    @staticmethod
    def expected(node):
        """The exit codes that an agent may have. SIGTERM kills it only while it frees what it has, after the job."""
        is_over = [event["state"] for event in node.events("AGENT")][-1:] in (["FAILED"], ["SUCCEEDED"], ["LEFT"])
        return None, 0, -signal.SIGKILL, 128 + signal.SIGTERM, *LOST, *[-signal.SIGTERM] * is_over

    def check_workers(self):
        numbers, seen = self.rounds_of_workers(), collections.defaultdict(dict)
        rounds = {worker.pid: (numbers[worker.pid][0], worker.master) for worker in self.workers() if worker.pid in numbers}
        self.assertTrue(rounds)
        for worker in self.workers():
            if worker.pid not in rounds:
                continue  # its agent was killed before it wrote that
            own = rounds[worker.pid]
            strangers = {pid: rounds[pid] for pid in worker.roll if pid in rounds and rounds[pid] != own}
            self.assertFalse(strangers, f"{worker} of round {own} meets others")
            self.assertLess(worker.rank, worker.world)
            self.assertEqual(seen[own].setdefault(worker.rank, worker.pid), worker.pid, f"two of one rank: {worker}")
            self.assertEqual(seen[own].setdefault("terms", (worker.world, worker.attempt)),
                             (worker.world, worker.attempt), f"{worker} in round {own}")

    def check_nothing_is_left(self):
        """A port has no owner without a process. It is not tried: another program may have it by now."""
        rdzvtest.wait_until(lambda: not self.marked(), f"all processes are gone, not {self.marked()}")
        killed = sum(node.process.returncode not in (0, 128 + signal.SIGTERM) for node in self.nodes)
        self.assertLessEqual(len(self.temporary()), killed, self.temporary())

    def begin(self):
        self.store_server = chaos.Server(self)
        self.proxies = [self.proxy(self.store_server.port, i) for i in range(NODES)]
        self.places = [Place(self, i, self.proxies[i].endpoint) for i in range(NODES)]
        for place in self.places:
            place.start()

    def wait_one_world(self):
        """Gives how long it took."""
        began = time.monotonic()
        try:
            rdzvtest.wait_until(self.one_world, "one world of all agents", ONE_WORLD)
        except TimeoutError as error:
            self.check_agents()
            self.fail(f"{error}; worlds {[place.world() for place in self.places]}\n{self.last_err()}")
        return time.monotonic() - began

    def finish(self):
        """The workers are done; gives what the rounds were."""
        self.check_workers()
        self.touch("end")
        for place in self.places:
            self.gone(place.node)
        self.check_workers()
        terms = self.check_agents()
        self.store_server.check()
        self.check_nothing_is_left()
        return terms

    def test_workers(self):
        self.begin()
        self.plan().run()
        self.calm()
        took = self.wait_one_world()
        terms = self.finish()
        print(f"{len(terms)} rounds, {len({worker.pid for worker in self.workers()})} workers; one world {took:.1f} s "
              "after the faults ...", end=" ", flush=True)

    def test_workers_of_a_stopped_agent_do_not_meet_those_of_the_next_round(self):
        self.begin()
        self.wait_one_world()
        stopped = next(place for place in self.places
                       if place.node.events("AGENT", "RUNNING")[-1]["group_rank"] == NODES - 1)
        others = [place for place in self.places if place is not stopped]
        stopped.signal(signal.SIGSTOP)
        self.wait_for(lambda: all((place.world() or (0, 0))[1] == NODES - 1 for place in others),
                      "the others go on without it")
        rounds = {place.node.name: place.world()[0] for place in others}
        self.wait_for(lambda: self.have_signed(rounds) == len(others) * WORKERS, "their workers have signed")
        stopped.signal(signal.SIGCONT)
        self.wait_one_world()
        self.finish()

    def last_err(self):
        return "\n".join(f"--- {place.node.name}:\n{place.node.err()[-3000:]}" for place in self.places)


if __name__ == "__main__":
    rdzvtest.main()
