# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say is so: their C examples compile and run, man pages and completions know every option that
--help does and no other, and the wire's table is the code's."""
import os
import re
import subprocess
import unittest

import rdzvtest

LIBRARY_FLAGS = ["-fsanitize=" + rdzvtest.SANITIZED] if rdzvtest.SANITIZED else []


def read(*path):
    with open(os.path.join(rdzvtest.SOURCE, *path), encoding="utf-8") as file:
        return file.read()


class Examples(rdzvtest.Case):
    def build(self, source, name):
        with open(self.path(name + ".c"), "w", encoding="utf-8") as file:
            file.write(source)
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *LIBRARY_FLAGS, self.path(name + ".c"),
                        "-I", os.path.join(rdzvtest.SOURCE, "include"), "-L", rdzvtest.BUILD, "-lrdzv",
                        "-Wl,-rpath," + rdzvtest.BUILD, "-o", self.path(name)], check=True)
        return self.path(name)

    def test_the_c_examples_of_the_readme_compile_and_run(self):
        blocks = re.findall(r"```c\n(.*?)```", read("README.md"), re.S)
        self.assertGreaterEqual(len(blocks), 1)
        for number, block in enumerate(blocks):
            server = self.serve()
            program = self.build(block, f"example{number}")
            done = subprocess.run([program, server.endpoint], capture_output=True, text=True, check=False,
                                  timeout=rdzvtest.DEADLINE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout)
            self.stop(server)

    def test_the_counter_gives_each_process_a_rank_of_its_own(self):
        server = self.serve()
        program = os.path.join(rdzvtest.BUILD, "examples", "counter")
        workers = [self.start([program, server.endpoint, "5"], stdout=subprocess.PIPE, text=True) for _ in range(5)]
        lines = sorted(worker.communicate(timeout=rdzvtest.DEADLINE)[0] for worker in workers)
        self.assertEqual(lines, [f"rank {rank} of 5: now\n" for rank in range(5)])
        self.stop(server)

    def test_the_demonstration_runs(self):
        done = subprocess.run([os.path.join(rdzvtest.SOURCE, "examples", "store-demo"), rdzvtest.RDZV],
                              capture_output=True, text=True, timeout=rdzvtest.DEADLINE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the waiting client got: 10.0.0.7:29500", done.stdout)

    def test_the_shell_examples_of_the_readme_run(self):
        """Lines that begin with `$ rdzv store` print what stands below them."""
        server = self.serve()
        examples = re.findall(r"^\$ (rdzv store .*)\n((?:(?!\$|```).*\n)*)", read("README.md"), re.M)
        self.assertGreaterEqual(len(examples), 3)
        environment = {**os.environ, "PATH": rdzvtest.BUILD + ":" + os.environ["PATH"],
                       "RDZV_ENDPOINT": server.endpoint}
        for command, output in examples:
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False,
                                  timeout=rdzvtest.DEADLINE)
            self.assertEqual(done.stdout, output, command)
        self.stop(server)


class Options(unittest.TestCase):
    COMMANDS = ("serve", "store")

    @staticmethod
    def of_help(command):
        text = subprocess.run([rdzvtest.RDZV, command, "--help"], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^  --([a-z-]+)", text, re.M))

    @staticmethod
    def operations():
        text = subprocess.run([rdzvtest.RDZV, "store", "--help"], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^  ([a-z-]+) ", text.split("operations:")[1], re.M))

    def test_man_pages_have_the_options_of_help(self):
        for command in self.COMMANDS:
            page = read("man", f"rdzv-{command}.1").replace("\\-", "-")
            documented = set(re.findall(r"^\.BI? --([a-z-]+)", page, re.M))
            self.assertEqual(documented, self.of_help(command), command)

    def test_the_man_page_has_the_operations_of_help(self):
        page = read("man", "rdzv-store.1").replace("\\-", "-").split(".SH OPERATIONS")[1].split(".SH EXIT")[0]
        self.assertEqual(set(re.findall(r'^\.BI? "?([a-z-]+)', page, re.M)) - {"-"}, self.operations())

    def test_completions_have_the_options_of_help(self):
        options = set().union(*(self.of_help(command) for command in self.COMMANDS))
        bash = set(re.findall(r"--([a-z-]+)", read("completions", "rdzv.bash")))
        zsh = set(re.findall(r"'--([a-z-]+)\[", read("completions", "_rdzv")))
        fish = set(re.findall(r"^complete .* -l ([a-z-]+)", read("completions", "rdzv.fish"), re.M))
        self.assertEqual(bash - {"version"}, options)
        self.assertEqual(zsh, options)
        self.assertEqual(fish - {"version"}, options)
        for name in ("rdzv.bash", "_rdzv", "rdzv.fish"):
            for operation in self.operations():
                self.assertIn(operation, read("completions", name), name)

    def test_man_pages_are_well_formed(self):
        for page in os.listdir(os.path.join(rdzvtest.SOURCE, "man")):
            done = subprocess.run(["man", "--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-Z",
                                   os.path.join(rdzvtest.SOURCE, "man", page)], capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    def test_the_bash_completion_completes(self):
        script = (f". {os.path.join(rdzvtest.SOURCE, 'completions', 'rdzv.bash')}; COMP_WORDS=(rdzv store --ti); "
                  'COMP_CWORD=2; _rdzv; echo "${COMPREPLY[@]}"')
        self.assertEqual(subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout,
                         "--timeout\n")


class Wire(unittest.TestCase):
    def test_the_table_of_operations_is_the_one_of_the_code(self):
        code = {name: [number if number != "-1" else "" for number in numbers.replace(" ", "").split(",")]
                for name, numbers in re.findall(r"X\((\w+), ((?:-?\d+, ){2}-?\d+),", read("src", "wire", "op.h"))}
        table = {cells[0]: cells[1:4] for cells in
                 ([cell.strip() for cell in row.strip("|").split("|")]
                  for row in re.findall(r"^\| [A-Z_]+ \|.*$", read("docs", "wire.md"), re.M))}
        self.assertGreater(len(code), 20)
        self.assertEqual(table, code)


class Headers(unittest.TestCase):
    def test_every_header_compiles_alone_in_c_and_cpp(self):
        for header in os.listdir(os.path.join(rdzvtest.SOURCE, "include", "rdzv")):
            for compiler in (["cc", "-std=c11", "-xc"], ["c++", "-std=c++11", "-xc++"]):
                done = subprocess.run([*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I",
                                       os.path.join(rdzvtest.SOURCE, "include"), "-"],
                                      input=f"#include <rdzv/{header}>\n#include <rdzv/{header}>\nextern int unused;\n",
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, f"{header}: {done.stderr}")


if __name__ == "__main__":
    rdzvtest.main()
