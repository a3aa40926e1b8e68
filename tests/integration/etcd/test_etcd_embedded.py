# SPDX-License-Identifier: BSD-3-Clause
"""etcd as a sidecar of a program that does other things, too: `rdzv_etcd_process_*`. What the command does with it is in
test_etcd_process.py."""
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import rdzvtest
from rdzvtest import wait_until
from test_etcd_process import Case, children, is_alive

# A program with a sidecar. It does what it reads, a word a line, and answers each with a line.
PROGRAM = r"""
#include <errno.h>
#include <pthread.h>
#include <rdzv/etcd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *reap(void *unused) {
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
  }
  return unused;
}

static void *start(void *process) {
  const char *fd = getenv("LOG_FD");
  const rdzv_etcd_process_options options = {.size = sizeof options, .log_fd = fd ? atoi(fd) : 0};
  rdzv_error error;
  if (rdzv_etcd_process_start(&options, process, &error) == 0) return NULL;
  printf("%s\n", error.message);
  exit(1);
}

int main(void) {
  char word[32];
  static rdzv_etcd_process *process;
  rdzv_error error;
  pthread_t thread;
  int status;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (scanf("%31s", word) == 1) {
    if (strcmp(word, "start") == 0) { /* in a thread that ends */
      pthread_create(&thread, NULL, start, &process);
      pthread_join(thread, NULL);
      printf("%lld\n", (long long)rdzv_etcd_process_pid(process));
    } else if (strcmp(word, "reap") == 0) {
      pthread_create(&thread, NULL, reap, NULL);
      pthread_detach(thread);
      puts("reaping");
    } else if (strcmp(word, "wait") == 0) {
      status = -1;
      printf("%d ", rdzv_etcd_process_wait(process, 0, &status, &error));
      printf("%d\n", status);
    } else if (strcmp(word, "chdir") == 0) {
      printf("%d\n", chdir("/"));
    } else if (strcmp(word, "fork") == 0) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(60);
        for (;;) pause();
      }
      printf("%d\n", (int)child);
    } else if (strcmp(word, "stop-in-child") == 0) {
      const pid_t child = fork();
      if (child == 0) {
        rdzv_etcd_process_free(process);
        _exit(0);
      }
      waitpid(child, &status, 0);
      printf("%d\n", status);
    } else if (strcmp(word, "stop") == 0) {
      rdzv_etcd_process_free(process);
      rdzv_etcd_process_free(NULL);
      puts("stopped");
    }
  }
  return 0;
}
"""


@functools.lru_cache(maxsize=None)
def program():
    folder = tempfile.mkdtemp(prefix="rdzv-test-")
    unittest.addModuleCleanup(shutil.rmtree, folder, True)
    source, built = os.path.join(folder, "program.c"), os.path.join(folder, "program")
    with open(source, "w", encoding="ascii") as file:
        file.write(PROGRAM)
    sanitize = ["-fsanitize=" + rdzvtest.SANITIZED] if rdzvtest.SANITIZED else []
    subprocess.run(["cc", "-D_GNU_SOURCE", "-Wall", "-Werror", "-pthread", *sanitize, source, "-I",
                    os.path.join(rdzvtest.SOURCE, "include"), "-L", rdzvtest.BUILD, "-lrdzv",
                    "-Wl,-rpath," + rdzvtest.BUILD, "-o", built], check=True)
    return built


class Embedded(Case):
    def setUp(self):
        super().setUp()
        self.process = self.start_program(self.environment)

    def start_program(self, environment):
        return self.start([program()], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          cwd=self.folder)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def begin(self):
        """Gives the watcher and etcd."""
        watcher = int(self.tell("start"))
        return watcher, children(watcher)[0]

    def end_in_order(self):
        self.process.stdin.close()
        self.assertEqual(self.process.wait(20), 0)

    def test_stop(self):
        family = self.begin()
        self.assertEqual(self.tell("stop"), "stopped")
        self.assertEqual([is_alive(pid) for pid in family], [False, False])
        self.assertEqual(os.listdir(self.path("tmp")), [])
        self.end_in_order()

    def test_the_temporary_folder_is_named_from_here_and_we_go_elsewhere(self):
        for killed in False, True:
            self.end_in_order()
            self.process = self.start_program({**self.environment, "TMPDIR": "tmp"})
            watcher, server = self.begin()
            self.assertEqual(len(os.listdir(self.path("tmp"))), 1)
            self.assertEqual(self.tell("chdir"), "0")
            if killed:  # then it is us who remove it
                os.kill(watcher, signal.SIGKILL)
            self.assertEqual(self.tell("stop"), "stopped")
            self.assert_nothing_left(watcher, server)
        self.end_in_order()

    def test_exit_without_stop(self):
        family = self.begin()
        self.end_in_order()
        self.assert_nothing_left(*family)

    def test_stop_when_it_has_ended(self):
        watcher, server = self.begin()
        os.kill(server, signal.SIGKILL)
        self.assertEqual(self.tell("wait"), "0 9")
        self.assertEqual(self.tell("wait"), "0 9")
        self.assertEqual(self.tell("stop"), "stopped")
        self.assertFalse(is_alive(watcher))
        self.assertEqual(os.listdir(self.path("tmp")), [])
        self.end_in_order()

    def test_stop_when_the_watcher_was_killed(self):
        watcher, server = self.begin()
        os.kill(watcher, signal.SIGKILL)
        self.assertEqual(self.tell("wait"), "0 9")
        self.assertEqual(self.tell("stop"), "stopped")
        self.assert_nothing_left(watcher, server)
        self.end_in_order()

    def test_another_waits_for_all_children(self):
        """It gets to know of the watcher's end before we do; nothing hangs, and no status is lost."""
        watcher, server = self.begin()
        self.assertEqual(self.tell("reap"), "reaping")
        os.kill(server, signal.SIGKILL)
        self.assertEqual(self.tell("wait"), "0 9")
        os.kill(watcher, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{watcher}"), "the other has waited for it")
        self.assertEqual(self.tell("stop"), "stopped")
        self.assert_nothing_left()
        watcher, server = self.begin()
        self.assertEqual(self.tell("reap"), "reaping")
        self.assertEqual(self.tell("stop"), "stopped")
        self.assert_nothing_left(watcher, server)
        self.end_in_order()

    def test_we_are_killed_and_a_process_that_we_forked_lives_on(self):
        """It holds all our descriptors, and is no reason to go on."""
        family = self.begin()
        child = int(self.tell("fork"))
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.assert_nothing_left(*family)
        self.assertTrue(is_alive(child))

    def test_a_process_that_we_forked_has_no_say(self):
        family = self.begin()
        self.assertEqual(self.tell("stop-in-child"), "0")
        self.assertEqual([is_alive(pid) for pid in family], [True, True])
        self.assertEqual(len(os.listdir(self.path("tmp"))), 1)
        self.assertEqual(self.tell("stop"), "stopped")
        self.assert_nothing_left(*family)
        self.end_in_order()

    def test_a_descriptor_for_its_log(self):
        """Whichever it is, its own stdout included, it is not mixed up with others."""
        for number in 1, 2, 3, 4, 77:
            with open(self.path("words"), "w", encoding="ascii") as words:
                words.write("start stop")
            log, stdout = self.path(f"log-{number}"), "" if number == 1 else ">/dev/null"
            command = f"exec {program()} <{self.path('words')} {stdout} {number}>{log}"
            done = subprocess.run(["/bin/bash", "-c", command], env={**self.environment, "LOG_FD": str(number)}, check=False,
                                  timeout=60)
            self.assertEqual(done.returncode, 0)
            with open(log, encoding="utf-8") as file:
                self.assertIn("ready to serve client requests", file.read(), number)
        self.assert_nothing_left()
        self.end_in_order()

    def test_a_descriptor_for_its_log_that_is_none(self):
        process = self.start_program({**self.environment, "LOG_FD": "99"})
        output, _ = process.communicate("start", timeout=rdzvtest.DEADLINE)
        self.assertEqual(output, "cannot start etcd: cannot use descriptor 99 for its log: Bad file descriptor\n")
        self.assert_nothing_left()
        self.end_in_order()


if __name__ == "__main__":
    rdzvtest.main()
