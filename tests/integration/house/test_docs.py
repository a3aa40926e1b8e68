# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say is so: their C examples compile and run, man pages and completions know every option that
--help does and no other, and the wire's table is the code's."""
import html
import os
import re
import subprocess
import unittest

import rdzvtest

LIBRARY_FLAGS = ["-fsanitize=" + rdzvtest.SANITIZED] if rdzvtest.SANITIZED else []


def read(*path):
    with open(os.path.join(rdzvtest.SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def pages():
    """The Markdown pages for people."""
    docs = os.path.join(rdzvtest.SOURCE, "docs")
    return ["README.md", "CONTRIBUTING.md", *(os.path.join("docs", name) for name in sorted(os.listdir(docs)) if name.endswith(".md"))]


class Examples(rdzvtest.Case):
    def build(self, source, name):
        with open(self.path(name + ".c"), "w", encoding="utf-8") as file:
            file.write(source)
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *LIBRARY_FLAGS, self.path(name + ".c"),
                        "-I", os.path.join(rdzvtest.SOURCE, "include"), "-L", rdzvtest.BUILD, "-lrdzv",
                        "-Wl,-rpath," + rdzvtest.BUILD, "-o", self.path(name)], check=True)
        return self.path(name)

    def test_the_c_examples_compile_and_run(self):
        blocks = [block for page in pages() for block in re.findall(r"```c\n(.*?)```", read(page), re.S)]
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
        program = rdzvtest.built("examples/counter")
        workers = [self.start([program, server.endpoint, "5"], stdout=subprocess.PIPE, text=True) for _ in range(5)]
        lines = sorted(worker.communicate(timeout=rdzvtest.DEADLINE)[0] for worker in workers)
        self.assertEqual(lines, [f"rank {rank} of 5: now\n" for rank in range(5)])
        self.stop(server)

    def test_the_demonstration_runs(self):
        done = subprocess.run([os.path.join(rdzvtest.SOURCE, "examples", "store-demo"), rdzvtest.RDZV],
                              capture_output=True, text=True, timeout=rdzvtest.DEADLINE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the waiting client got: 10.0.0.7:29500", done.stdout)

    def test_the_demonstration_of_the_rendezvous_runs(self):
        done = subprocess.run([os.path.join(rdzvtest.SOURCE, "examples", "rendezvous-demo"), rdzvtest.RDZV],
                              capture_output=True, text=True, timeout=rdzvtest.DEADLINE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("every round had the ranks that it must have", done.stdout)

    def test_the_shell_examples_run(self):
        """Lines that begin with `$ rdzv store` print what stands below them."""
        server = self.serve()
        examples = [example for page in pages()
                    for example in re.findall(r"^\$ (rdzv store .*)\n((?:(?!\$|```).*\n)*)", read(page), re.M)]
        self.assertGreaterEqual(len(examples), 3)
        environment = {**os.environ, "PATH": rdzvtest.BUILD + ":" + os.environ["PATH"],
                       "RDZV_ENDPOINT": server.endpoint}
        for command, output in examples:
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False,
                                  timeout=rdzvtest.DEADLINE)
            self.assertEqual(done.stdout, output, command)
        self.stop(server)


    def test_the_picture_shows_what_the_command_prints(self):
        """examples/record draws it; times, process ids and random names are not compared."""
        done = subprocess.run([os.path.join(rdzvtest.SOURCE, "examples", "record"), rdzvtest.RDZV], capture_output=True,
                              text=True, check=False, timeout=rdzvtest.DEADLINE)
        self.assertEqual(done.returncode, 0, done.stderr)
        picture = re.findall(r"<text [^>]*>(.*)</text>", read("docs", "failing-job.svg"))
        self.assertEqual(self.without_chance(html.unescape("\n".join(picture))), self.without_chance(done.stdout.rstrip("\n")))

    @staticmethod
    def without_chance(session):
        session = re.sub(r"(\d{4}-\d\d-\d\dT)?\d\d:\d\d:[\d.]+Z", "TIME", session)
        session = re.sub(r"(pid |run\[)\d+", r"\1PID", session)
        session = re.sub(r"/rdzv_\w+/\w+", "/LOGS", session)
        return re.sub(r"\n\s*\|\s+\^+$", "", session, flags=re.M)  # only newer Pythons mark the place


class Pages(unittest.TestCase):
    """What the pages point to is there."""

    @staticmethod
    def anchors(page):
        titles = re.findall(r"^#+ (.*)$", read(page), re.M)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    def test_links(self):
        count = 0
        for page in [*pages(), "CHANGELOG.md"]:
            for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
                if link.startswith("http"):
                    continue
                path, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                self.assertTrue(os.path.exists(os.path.join(rdzvtest.SOURCE, target)), f"{page}: {link}")
                if anchor:
                    self.assertIn(anchor, self.anchors(target), f"{page}: {link}")
                count += 1
        self.assertGreater(count, 20)

    def test_paths_of_the_source(self):
        """`src/server/`, `server/conn.c`, `tests/sim`: in backticks, from the top of the tree or from a room."""
        rooms = os.listdir(os.path.join(rdzvtest.SOURCE, "src"))
        tops = os.listdir(rdzvtest.SOURCE)
        count = 0
        for page in pages():
            for path in re.findall(r"`([a-z0-9_]+/[\w./-]*\w/?)`", read(page)):
                first = path.split("/")[0]
                bases = [base for base, names in (("", tops), ("src", rooms)) if first in names and first != "build"]
                if not bases:
                    continue
                found = [name for base in bases for name in
                         (os.path.join(rdzvtest.SOURCE, base, path + ending) for ending in ("", ".c", ".h")) if os.path.exists(name)]
                self.assertTrue(found, f"{page}: {path}")
                count += 1
        self.assertGreater(count, 60)

    def test_make_targets(self):
        targets = set(re.findall(r"^([a-z][a-z -]*):", read("Makefile"), re.M))
        targets = {name for names in targets for name in names.split()}
        for page in pages():
            for target in re.findall(r"^make ([a-z][a-z-]*)|`make ([a-z][a-z-]*)", read(page), re.M):
                self.assertIn("".join(target), targets, page)


class Options(unittest.TestCase):
    COMMANDS = ("run", "join", "status", "close", "list", "reset", "etcd", "serve", "store")

    @staticmethod
    def of_help(command):
        text = subprocess.run([rdzvtest.RDZV, command, "--help"], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^  (?:-[a-z], )?--([a-z0-9-]+)", text, re.M))

    @staticmethod
    def operations():
        text = subprocess.run([rdzvtest.RDZV, "store", "--help"], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^  ([a-z-]+) ", text.split("operations:")[1], re.M))

    def test_no_line_of_help_is_wider_than_80_columns(self):
        for words in ([], *([command] for command in self.COMMANDS)):
            text = subprocess.run([rdzvtest.RDZV, *words, "--help"], capture_output=True, text=True, check=True).stdout
            self.assertEqual([line for line in text.splitlines() if len(line) > 80], [], words)

    def test_man_pages_have_the_options_of_help(self):
        for command in self.COMMANDS:
            page = read("man", f"rdzv-{command}.1").replace("\\-", "-")
            documented = set(re.findall(r'^\.BI? "?(?:-[a-z]\\fR, \\fB)?--([a-z0-9-]+)', page, re.M))
            self.assertEqual(documented, self.of_help(command), command)

    def test_the_man_page_has_the_operations_of_help(self):
        page = read("man", "rdzv-store.1").replace("\\-", "-").split(".SH OPERATIONS")[1].split(".SH EXIT")[0]
        self.assertEqual(set(re.findall(r'^\.BI? "?([a-z-]+)', page, re.M)) - {"-"}, self.operations())

    @staticmethod
    def of_bash(command):
        """What the completion offers, with -- before the cursor."""
        script = (f". {os.path.join(rdzvtest.SOURCE, 'completions', 'rdzv.bash')}; COMP_WORDS=(rdzv {command} --); "
                  'COMP_CWORD=2; _rdzv; echo "${COMPREPLY[@]}"')
        words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()
        return {word[2:] for word in words} - {""}

    @staticmethod
    def of_zsh(command):
        text = read("completions", "_rdzv")
        shared = re.search(r"rendezvous=\((.*?)\n  \)", text, re.S)[1]
        block = re.search(rf"^    {command}\)(.*?);;", text, re.M | re.S)[1].replace("$rendezvous", shared)
        return set(re.findall(r"""['"]--([a-z0-9-]+)=?\[""", block))

    def test_zsh_takes_a_value_behind_an_equals_sign(self):
        """--option=[text]:…: is followed by a value in the same word or in the next."""
        for name, equals, rest in re.findall(r"""['"]--([a-z0-9-]+)(=?)\[[^]]*\](.?)""", read("completions", "_rdzv")):
            self.assertEqual(equals == "=", rest == ":", name)

    @staticmethod
    def of_fish(command):
        text = read("completions", "rdzv.fish")
        shared = re.search(r"^set -l rendezvous ('.*')$", text, re.M)[1]
        found = {"help"}
        for condition, option in re.findall(r"^complete -c rdzv -n (\S+|'.*?') -l ([a-z0-9-]+)",
                                            text.replace("$rendezvous", shared), re.M):
            if command in condition.strip("'").split():
                found.add(option)
        return found

    def test_completions_have_the_options_of_help(self):
        for command in self.COMMANDS:
            for shell, offered in (("bash", self.of_bash), ("zsh", self.of_zsh), ("fish", self.of_fish)):
                with self.subTest(command=command, shell=shell):
                    self.assertEqual(offered(command), self.of_help(command))
        for name in ("rdzv.bash", "_rdzv", "rdzv.fish"):
            for operation in self.operations():
                self.assertIn(operation, read("completions", name), name)

    def test_all_commands_are_told_of_everywhere(self):
        text = subprocess.run([rdzvtest.RDZV, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(set(re.findall(r"^  ([a-z]+) ", text, re.M)), set(self.COMMANDS))
        page = read("man", "rdzv.1").replace("\\-", "-")
        self.assertEqual(set(re.findall(r"^\.BR rdzv-([a-z]+) \(1\)$", page, re.M)), set(self.COMMANDS))
        self.assertEqual(set(re.findall(r"^\.BR rdzv-([a-z]+) \(1\),$", page, re.M)), set(self.COMMANDS))
        in_order = " ".join(re.findall(r"^  ([a-z]+) ", text, re.M))
        self.assertIn(f'words="{in_order} --help', read("completions", "rdzv.bash"))
        self.assertIn(f"({in_order} --help", read("completions", "_rdzv"))
        fish = re.findall(r"-n __fish_use_subcommand -a ([a-z]+) -d '(.*)'", read("completions", "rdzv.fish"))
        self.assertEqual(fish, re.findall(r"^  ([a-z]+) +(.*)", text, re.M))

    def test_the_man_page_has_the_exit_codes_of_the_code(self):
        codes = set(re.findall(r"^  EXIT_\w+ = (\d+)", read("src", "cli", "cli.h"), re.M))
        page = read("man", "rdzv.1").split(".SH EXIT STATUS")[1].split(".SH ")[0]
        self.assertEqual(set(re.findall(r"^\.B (\d+)$", page, re.M)), codes)

    def test_the_man_page_has_the_options_of_rdzv_conf_with_their_defaults(self):
        types = dict(re.findall(r'^    \{"([a-z_]+)", CONF_([A-Z]+),', read("src", "handler", "conf.c"), re.M))
        numbers = dict(re.findall(r"^    \.([a-z_]+) = (\d+),", read("src", "handler", "conf.c"), re.M))
        page = read("man", "rdzv-join.1").split(".SH CONFIGURATION")[1].split(".SH ")[0]
        documented = dict(re.findall(r'^\.TP\n\.BR? ([a-z_]+)(?: " \((.*)\)")?$', page, re.M))
        self.assertEqual(set(documented), set(types))
        self.assertGreater(len(numbers), 7)
        for name, number in numbers.items():
            in_ms = types[name] in ("SECONDS", "TENTHS")
            self.assertEqual(int(number), round(float(documented[name]) * (1000 if in_ms else 1)), name)

    def test_the_man_page_has_the_variables_of_workers(self):
        source = read("src", "agent", "worker", "environment.c")
        code = re.findall(r'\bset(?:_default)?\(to, "([A-Z_]+)"', source)
        page = read("man", "rdzv-run.1").split(".SS Of workers")[1].split(".SS ")[0]
        documented = re.findall(r"^\.BR? (.*)$", "\n".join(re.findall(r"^\.TP\n(.*)$", page, re.M)), re.M)
        self.assertGreater(len(code), 15)
        self.assertEqual(sorted(re.findall(r"[A-Z_]+", " ".join(documented))), sorted(code))

    def test_the_man_page_has_the_states_of_agents_and_workers(self):
        source = read("src", "agent", "agent.c")
        states = {kind.upper(): set(re.findall(r'"(\w+)"', names)) for kind, names in re.findall(
            r"rdzv_(agent|worker)_state_name\(.*?names\[\] = \{(.*?)\};", source, re.S)}
        page = read("man", "rdzv-run.1").split(".SH EVENTS")[1].split(".SH ")[0]
        _, agent, worker = re.split(r"^\.TP$", page, flags=re.M)[1:]
        self.assertEqual(set(re.findall(r"^\.BR? ([A-Z]+)", agent, re.M)) - {"AGENT"}, states["AGENT"])
        self.assertEqual(set(re.findall(r"^\.BR? ([A-Z]+)", worker, re.M)) - {"WORKER"}, states["WORKER"])

    def test_man_pages_are_well_formed(self):
        for page in os.listdir(os.path.join(rdzvtest.SOURCE, "man")):
            done = subprocess.run(["man", "--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-Z",
                                   os.path.join(rdzvtest.SOURCE, "man", page)], capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    def test_the_bash_completion_completes(self):
        for words, offered in (("rdzv store --ti", "--timeout"), ("rdzv j", "join"), ("rdzv join --nn", "--nnodes"),
                               ("rdzv run --max", "--max-restarts"), ("rdzv run --nproc-per-node g", "gpu"),
                               ("rdzv close --rdzv-backend st", "static"), ("rdzv status --log-level deb", "debug"),
                               ("rdzv status --log-level = deb", "debug"), ("rdzv store --dialect =", "auto v1 v2 rdzv"),
                               ("rdzv run --numa-binding = ex", "exclusive")):
            script = (f". {os.path.join(rdzvtest.SOURCE, 'completions', 'rdzv.bash')}; COMP_WORDS=({words}); "
                      'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _rdzv; echo "${COMPREPLY[@]}"')
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, offered + "\n", words)


class Wire(unittest.TestCase):
    def test_the_table_of_operations_is_the_one_of_the_code(self):
        code = {name: [number if number != "-1" else "" for number in numbers.replace(" ", "").split(",")]
                for name, numbers in re.findall(r"X\((\w+), ((?:-?\d+, ){2}-?\d+),", read("src", "wire", "op.h"))}
        table = {cells[0]: cells[1:4] for cells in
                 ([cell.strip() for cell in row.strip("|").split("|")]
                  for row in re.findall(r"^\| [A-Z_]+ \|.*$", read("docs", "wire.md").split("## Greeting")[0], re.M))}
        self.assertGreater(len(code), 20)
        self.assertEqual(table, code)


class Headers(unittest.TestCase):
    def test_every_header_compiles_alone_in_c_and_cpp(self):
        for header in os.listdir(os.path.join(rdzvtest.SOURCE, "include", "rdzv")):
            for compiler in (["gcc", "-std=c11", "-xc"], ["clang", "-std=c11", "-xc"], ["g++", "-std=c++17", "-xc++"],
                             ["clang++", "-std=c++17", "-xc++"]):
                done = subprocess.run([*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I",
                                       os.path.join(rdzvtest.SOURCE, "include"), "-"],
                                      input=f"#include <rdzv/{header}>\n#include <rdzv/{header}>\nextern int unused;\n",
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), f"{header} with {compiler}")


if __name__ == "__main__":
    rdzvtest.main()
