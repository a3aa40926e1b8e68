# SPDX-License-Identifier: BSD-3-Clause
"""The examples do what their comments say, and `make run`'s script shows it."""
import json
import os
import re
import signal
import subprocess

import rdzvtest

RING = rdzvtest.built("examples/ring")
DEMO = os.path.join(rdzvtest.SOURCE, "examples", "run-demo")
DEMO_S = 200  # it has a bound of its own, below this


def right_total(steps):
    return 1830 * steps * (steps + 1) // 2


class Ring(rdzvtest.Case):
    def run_ring(self, workers, *arguments, **options):
        return self.rdzv("run", "--standalone", "--log-dir", self.path("logs"), f"--nproc-per-node={workers}", "--", RING,
                         *arguments, **options)

    def test_every_worker_finds_the_sums_right_with_fewer_and_more_workers_than_numbers(self):
        for workers in (1, 2, 3, 20):
            with self.subTest(workers=workers):
                done = self.run_ring(workers, "3")
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = sorted(line for line in done.stdout.splitlines() if "done" in line)
                expected = [f"rank {rank} of {workers}: done, the total is right" for rank in range(workers)]
                self.assertEqual(lines, sorted(expected))
                steps = [f"step {n} of 3: {workers} workers, total {right_total(n)}" for n in (1, 2, 3)]
                self.assertEqual([line for line in done.stdout.splitlines() if line.startswith("step")], steps)

    def test_it_goes_on_from_its_checkpoint_and_leaves_the_last_one(self):
        checkpoint = self.path("checkpoint")
        with open(checkpoint, "w", encoding="ascii") as file:
            file.write(f"4 {right_total(4)}\n")
        done = self.run_ring(2, "6", checkpoint)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"^step (\d+)", done.stdout, re.M), ["5", "6"])
        with open(checkpoint, encoding="ascii") as file:
            self.assertEqual(file.read(), f"6 {right_total(6)}\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["checkpoint", "logs"])

    def test_a_step_that_was_left_out_and_a_checkpoint_that_is_none_are_noticed(self):
        for text, why in ((f"4 {right_total(3)}\n", "ring: total: a step was left out, or counted twice"),
                          ("nonsense", "not a checkpoint")):
            with self.subTest(text=text):
                with open(self.path("checkpoint"), "w", encoding="ascii") as file:
                    file.write(text)
                done = self.run_ring(1, "6", self.path("checkpoint"))
                self.assertEqual(done.returncode, 1)
                self.assertIn(why, done.stderr)

    def test_it_says_what_it_misses_without_a_launcher(self):
        clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        done = subprocess.run([RING, "3"], capture_output=True, text=True, check=False, env=clean,
                              timeout=rdzvtest.DEADLINE)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("ring: RANK: no number in the environment", done.stderr)

    def worker_pid(self, log, rank):
        """Of the first attempt; None: not yet started."""
        with open(log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file if line.endswith("\n")]
        pids = [event["pid"] for event in events if event.get("rank") == rank and event["state"] == "STARTED"]
        return pids[0] if pids else None

    def test_the_next_attempt_goes_on_where_a_killed_worker_left_off(self):
        log, checkpoint = self.path("events"), self.path("checkpoint")
        job = self.start([rdzvtest.RDZV, "run", "--standalone", "--nproc-per-node=3", "--max-restarts=1",
                          "--log-dir", self.path("logs"),
                          f"--event-log={log}", RING, "200", checkpoint, "30"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        rdzvtest.wait_until(lambda: os.path.exists(checkpoint) or job.poll() is not None, "a first step")
        self.assertIsNone(job.poll())
        os.kill(self.worker_pid(log, 2), signal.SIGKILL)
        out, errors = job.communicate(timeout=rdzvtest.DEADLINE)
        self.assertEqual(job.returncode, 0, errors)
        begins = re.findall(r"^rank \d of 3, node 0 of 1: goes on after step (\d+)$", out, re.M)
        self.assertEqual((begins[:3], len(begins)), (["0"] * 3, 6), out)
        self.assertGreater(int(begins[3]), 0)
        self.assertEqual(begins[3:], [begins[3]] * 3)
        self.assertEqual(len(re.findall(r"done, the total is right", out)), 3)


class Nouns(rdzvtest.Case):
    """One small program for each noun of the interface."""

    def example(self, program, *arguments, code=0):
        done = subprocess.run([program, *arguments], capture_output=True, text=True,
                              timeout=rdzvtest.DEADLINE, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_a_server_inside_a_program(self):
        self.assertEqual(self.example(rdzvtest.built("examples/embedded_server")), "visits: 1\n")

    def test_an_etcd_beside_a_program(self):
        self.assertRegex(self.example(rdzvtest.built("examples/sidecar")), r"\Aetcd listens on 127\.0\.0\.1:\d+\nk: kept in etcd\n\Z")

    def test_a_backend_of_one_s_own(self):
        ranks = sorted(self.example(rdzvtest.built("examples/backend"), "4").splitlines())
        self.assertEqual(ranks, [f"rank {rank} of 4" for rank in range(4)])

    def test_a_launcher(self):
        self.assertTrue(self.example(rdzvtest.built("examples/launch"), "2", "true").endswith("SUCCEEDED after 0 restarts\n"))
        said = self.example(rdzvtest.built("examples/launch"), "1", "false", code=1)
        self.assertTrue(said.endswith("FAILED after 1 restarts\nrank 0: exit code 1\n"), said)

    def test_nodes_without_a_launcher_and_their_run(self):
        server = self.serve()
        node = [rdzvtest.built("examples/node"), server.endpoint, "ex", "1", "2", "3"]
        nodes = [self.start(node, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [node.communicate(timeout=rdzvtest.DEADLINE)[0] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0])
        for lines in said:
            self.assertRegex(lines, r"\Around \d+: rank \d of [12], rank 0 is at \S+:\d+\n")
        self.assertEqual(self.example(rdzvtest.built("examples/runs"), server.endpoint), "ex\n")
        self.assertRegex(self.example(rdzvtest.built("examples/runs"), server.endpoint, "ex"), r"\Aremoved [1-9]\d* keys\n\Z")
        self.assertEqual(self.example(rdzvtest.built("examples/runs"), server.endpoint), "")


class Demonstration(rdzvtest.Case):
    def test_a_node_dies_and_one_comes_and_the_job_is_done(self):
        done = subprocess.run([DEMO, rdzvtest.RDZV, RING], capture_output=True, text=True, timeout=DEMO_S, check=False,
                              env={**os.environ, "TMPDIR": self.folder})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("bob is node 0 of 2, its workers are ranks 0 and 1 of 4", done.stdout)
        self.assertIn("dee is node 2 of 3, its workers are ranks 4 and 5 of 6", done.stdout)
        # cyd may leave in the same moment, since its workers have lost those of ada
        self.assertRegex(done.stdout, r"bob said: 127\.0\.0\.1\d_\d+_0 (died|and 1 more died or left): stopping 2 workers")
        self.assertIn("every step ran exactly once", done.stdout)
        self.assertEqual(os.listdir(self.folder), [])

    def test_it_fails_where_the_job_fails(self):
        """A program that is no ring: nobody prints a rank."""
        done = subprocess.run([DEMO, rdzvtest.RDZV, "/bin/false"], capture_output=True, text=True, timeout=DEMO_S,
                              check=False, env={**os.environ, "TMPDIR": self.folder})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"run-demo: \w+ ended")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    rdzvtest.main()
