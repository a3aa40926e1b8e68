# SPDX-License-Identifier: BSD-3-Clause
"""The Python package without PyTorch: its whole interface under Python 3.11 and 3.13, its types, its constants, and a
wheel in an environment that sees nothing else."""
import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import etcd
import peers
import rdzvtest

PACKAGE = rdzvtest.built("python")
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = [os.path.join(HERE, name) for name in ("python_api.py", "python_hostile.py", "python_signals.py")]
LONG = 900.0


def environment(**more):
    names = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RDZV_", "PET_"))}
    return {**names, "PYTHONDONTWRITEBYTECODE": "1", **more}


class Interface(rdzvtest.Case):
    """Every call, by the Python of each PyTorch; all at once."""

    def test_python_3_11_and_3_13(self):
        etcd.need()
        for version in peers.VERSIONS:
            peers.need(version)
        running = {(version, program): self.start(
                       [*rdzvtest.torch_python(version), program], cwd=rdzvtest.SOURCE, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True,
                       env=environment(PYTHONPATH=PACKAGE, ETCD_ENDPOINT=etcd.shared().endpoint))
                   for version in peers.VERSIONS for program in PROGRAMS}
        for (version, program), process in running.items():
            with self.subTest(version=version, program=os.path.basename(program)):
                said, _ = process.communicate(timeout=LONG)
                self.assertEqual(process.returncode, 0, said)
                self.assertRegex(said, r"Ran \d+ tests")


class Source(rdzvtest.Case):
    def test_types(self):
        if not shutil.which("mypy") and not os.environ.get("CI"):
            self.skipTest("there is no mypy")
        ended = subprocess.run(["mypy", "--config-file", "mypy.ini", "--cache-dir", self.path("cache")],
                               cwd=os.path.join(rdzvtest.SOURCE, "python"), capture_output=True, text=True,
                               timeout=LONG, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_types_as_a_program_sees_them(self):
        if not shutil.which("mypy") and not os.environ.get("CI"):
            self.skipTest("there is no mypy")
        lines = {"Store": "with rdzv.Store.hash() as it: reveal_type(it)",
                 "Server": "with rdzv.Server(port=0) as it: reveal_type(it)",
                 "Own": "with Own.tcp('h') as it: reveal_type(it)",
                 "bytes": "reveal_type(rdzv.Store.hash().get('k', timeout=1))",
                 "bytes | None": "reveal_type(rdzv.Store.hash().get('k', timeout=1, default=None))",
                 "bytes | int": "reveal_type(rdzv.Store.hash().queue_pop('k', default=1))"}
        mappings = ("str, bytes", "bytes, bytes", "str, str", "bytes, str")
        program = self.path("program.py")
        with open(program, "w", encoding="ascii") as file:
            file.write("import rdzv\nclass Own(rdzv.Store): pass\n")
            file.writelines(f"def f{i}() -> None:\n    {line}\n" for i, line in enumerate(lines.values()))
            file.writelines(f"def g{i}(items: dict[{each}], store: rdzv.Store) -> None:\n"
                            "    store.multi_set(items)\n    store.publish(items)\n" for i, each in enumerate(mappings))
        ended = subprocess.run(["mypy", "--strict", "--cache-dir", self.path("cache"), program], cwd=self.folder,
                               capture_output=True, text=True, timeout=LONG, check=False,
                               env=environment(MYPYPATH=os.path.join(rdzvtest.SOURCE, "python")))
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        found = [re.sub(r"[\w.]*\.(?=\w)|builtins\.", "", each) for each in re.findall(r'Revealed type is "(.*)"', ended.stdout)]
        self.assertEqual([re.sub(r"Union\[(\w+), (\w+)\]", r"\1 | \2", each) for each in found], list(lines), ended.stdout)

    def test_constants_are_those_of_the_headers(self):
        sys.path.insert(0, PACKAGE)
        from rdzv import _library, errors, handler, store
        text = self.headers()
        codes = {name: int(code) for name, code in re.findall(r"X\((\w+), (-\d+), \w+,", text)}
        self.assertEqual({kind.name: kind.code for kind in errors.BY_CODE.values()}, codes)
        classes = dict(re.findall(r"X\((\w+), -\d+, (\w+),", text))
        for kind in errors.BY_CODE.values():
            self.assertTrue(issubclass(kind, getattr(errors, classes[kind.name].capitalize() + "Error")), kind)
        version = tuple(int(re.search(rf"RDZV_VERSION_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))
        self.assertEqual(_library.VERSION, version)
        self.assertEqual(store.FEATURES, {name.lower(): 1 << int(bit) for name, bit in
                                          re.findall(r"RDZV_FEATURE_(\w+) = 1 << (\d)", text)})
        self.assertEqual({name: 1 << i for i, name in enumerate(handler.CHANGES)},
                         {name.lower(): 1 << int(bit) for name, bit in re.findall(r"RDZV_CHANGE_(\w+) = 1 << (\d)", text)})

    def test_every_function_of_the_headers_is_declared(self):
        """But for those that a Python program has no use for."""
        sys.path.insert(0, PACKAGE)
        from rdzv import _library
        left_out = re.compile(r"rdzv_(printable|error_name|error_class_of|version|log_level_\w+|registry_\w+|"
                              r"\w*backend\w*|handler_open_dynamic|agent_(suspend|handler)|etcd_process_wait|"
                              r"handler_protection)$")
        functions = set(re.findall(r"RDZV_API[^(;]*?\b(rdzv_\w+)\(", self.headers()))
        missing = {name for name in functions if name[5:] not in _library.FUNCTIONS and not left_out.match(name)}
        self.assertEqual(missing, set())

    def headers(self):
        texts = []
        for path in glob.glob(os.path.join(rdzvtest.SOURCE, "include", "rdzv", "*.h")):
            with open(path, encoding="utf-8") as file:
                texts.append(file.read())
        return "\n".join(texts)

    def mirrored(self):
        """The structs of C, by name, as Python has them."""
        sys.path.insert(0, PACKAGE)
        from rdzv import _library as mine
        pairs = {"rdzv_error": mine.ErrorStruct, "rdzv_log": mine.Log, "rdzv_hash_options": mine.HashOptions,
                 "rdzv_file_options": mine.FileOptions, "rdzv_tcp_options": mine.TcpOptions,
                 "rdzv_etcd_options": mine.EtcdOptions, "rdzv_etcd_store_options": mine.EtcdStoreOptions,
                 "rdzv_etcd3_store_options": mine.Etcd3StoreOptions, "rdzv_server_options": mine.ServerOptions,
                 "rdzv_etcd_process_options": mine.EtcdProcessOptions, "rdzv_params": mine.Params,
                 "rdzv_event": mine.EventStruct, "rdzv_participant": mine.ParticipantStruct,
                 "rdzv_result": mine.ResultStruct, "rdzv_worker_ranks": mine.WorkerRanksStruct,
                 "rdzv_node_status": mine.NodeStatusStruct, "rdzv_status": mine.StatusStruct,
                 "rdzv_agent_options": mine.AgentOptions, "rdzv_agent_event": mine.AgentEventStruct,
                 "rdzv_worker_event": mine.WorkerEventStruct, "rdzv_worker_failure": mine.FailureStruct,
                 "rdzv_agent_result": mine.AgentResultStruct, "rdzv_bytes": mine.Bytes, "rdzv_value": mine.Value}
        return pairs

    def test_every_field_of_the_headers_is_mirrored(self):
        """Also one that fits into what was padding before, which no size shows."""
        left_out = {"rdzv_protection", "rdzv_backend_ops"}  # a Python program has no use for them
        text = re.sub(r"/\*.*?\*/", "", self.headers(), flags=re.DOTALL)
        structs = {name: re.findall(r"(?:\(\*)?(\w+)(?:\)\([^;]*\)|\[\w+\])?;", body) for body, name in
                   re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.DOTALL)}
        self.assertEqual(set(structs) - left_out, set(self.mirrored()))
        for name, kind in self.mirrored().items():
            with self.subTest(struct=name):
                self.assertEqual([field for field, *_ in kind._fields_], structs[name])

    def test_structs_have_the_layouts_of_c(self):
        pairs = self.mirrored()
        said = self.c_layouts(pairs)
        for name, kind in pairs.items():
            with self.subTest(struct=name):
                self.assertEqual(said[name], self.layout(kind))

    @staticmethod
    def layout(kind):
        fields = [(name, getattr(kind, name).offset, getattr(kind, name).size) for name, *_ in kind._fields_]
        return [*fields, ("", 0, ctypes.sizeof(kind))]

    def c_layouts(self, pairs):
        """What the compiler says of the fields, and of the whole."""
        source, program = self.path("layout.c"), self.path("layout")
        lines = "".join(f'printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));\n'
                        for name, kind in pairs.items() for field, *_ in kind._fields_)
        lines += "".join(f'printf("{name} whole 0 %zu\\n", sizeof({name}));\n' for name in pairs)
        with open(source, "w", encoding="ascii") as file:
            file.write(f"#include <rdzv/rdzv.h>\n#include <stdio.h>\nint main(void) {{\n{lines}return 0;\n}}\n")
        subprocess.run(["cc", "-I", os.path.join(rdzvtest.SOURCE, "include"), source, "-o", program], check=True)
        found = {name: [] for name in pairs}
        for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
            name, field, offset, size = line.split()
            found[name].append(("" if field == "whole" else field, int(offset), int(size)))
        return found


class Page(rdzvtest.Case):
    def test_the_store_of_the_page(self):
        """docs/python.md: the comments say what the calls return."""
        with open(os.path.join(rdzvtest.SOURCE, "docs", "python.md"), encoding="utf-8") as file:
            block = next(each for each in re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL) if "Server(" in each)
        text = "import rdzv\n" + re.sub(r"( +)(store\.get.*?) +# (\S+)[ ,\n]", r"\1assert \2 == \3\n#", block)
        self.assertEqual(text.count("assert"), 2)
        ended = subprocess.run([rdzvtest.PYTHON, "-c", text], capture_output=True, text=True, timeout=LONG, check=False,
                               env=environment(PYTHONPATH=PACKAGE))
        self.assertEqual(ended.returncode, 0, text + ended.stderr)


class Wheel(rdzvtest.Case):
    """`pip install` of the file, without a network, in a new environment."""

    def run_in(self, venv, *words, **options):
        options.setdefault("env", environment())
        return subprocess.run([os.path.join(venv, "bin", words[0]), *words[1:]], capture_output=True, text=True,
                              timeout=LONG, check=False, **options)

    def test_install_use_and_uninstall(self):
        wheels = glob.glob(os.path.join(rdzvtest.built("wheel"), "rdzv-*.whl"))
        self.assertEqual(len(wheels), 1, wheels)
        venv = tempfile.mkdtemp(prefix="rdzv-venv-")
        self.addCleanup(shutil.rmtree, venv)
        subprocess.run([rdzvtest.PYTHON, "-m", "venv", venv], check=True, env=environment())
        before = self.files(venv)
        done = self.run_in(venv, "pip", "install", "--no-index", "--no-compile", wheels[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        checked = self.run_in(venv, "pip", "check")
        self.assertEqual((checked.returncode, checked.stdout), (0, "No broken requirements found.\n"), checked.stderr)
        self.check_use(venv)
        gone = self.run_in(venv, "pip", "uninstall", "-y", "rdzv")
        self.assertEqual(gone.returncode, 0, gone.stderr)
        self.assertEqual(self.files(venv), before)

    def check_use(self, venv):
        text = ("import rdzv, sys, importlib.metadata as m\n"
                "server = rdzv.Server(port=0); store = rdzv.Store.tcp(server.address); store.set('k', 'v')\n"
                "found = m.entry_points(group='torchrun.handlers')\n"
                "print(store.get('k').decode(), m.version('rdzv') == rdzv.__version__,"
                " sorted(e.name for e in found), [callable(e.load()()) for e in found],"
                " any(f.__name__ == '_Finder' for f in sys.meta_path if isinstance(f, type)), 'torch' in sys.modules)\n"
                "print([line.split()[-1] for line in open('/proc/self/maps') if 'librdzv' in line or 'libuv' in line"
                " or 'jansson' in line])")
        used = self.run_in(venv, "python", "-c", text)
        self.assertEqual(used.returncode, 0, used.stderr)
        first, mapped = used.stdout.splitlines()
        self.assertEqual(first, "v True ['etcd-v3', 'rdzv'] [True, True] True False")
        self.assertTrue(all(path.startswith(venv) for path in eval(mapped)), mapped)
        pages = {os.path.basename(path) for path in self.files(os.path.join(venv, "share", "man"))}
        self.assertEqual(pages, set(os.listdir(os.path.join(rdzvtest.SOURCE, "man"))))
        self.assertTrue(os.path.exists(os.path.join(venv, "share", "man", "man1", "rdzv-run.1")))
        command = self.run_in(venv, "rdzv", "--version")
        self.assertRegex(command.stdout, r"^rdzv \d+\.\d+\.\d+\n$")

    @staticmethod
    def files(folder):
        return sorted(os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
                      if "__pycache__" not in where)

    def test_hook_is_quick_and_never_raises(self):
        """The cheapest of several starts of it, in one interpreter; and a registry that it cannot use."""
        text = ("import sys, time; sys.path.insert(0, sys.argv[1]); times = []\n"
                "for _ in range(20):\n"
                "    sys.modules.pop('rdzv_torch_hook', None)\n"
                "    sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, '__name__', '') != '_Finder']\n"
                "    began = time.perf_counter(); import rdzv_torch_hook; times.append(time.perf_counter() - began)\n"
                "print(min(times), 'rdzv' in sys.modules, 'ctypes' in sys.modules)")
        env = environment()
        env.pop("PYTHONDONTWRITEBYTECODE")
        copy = self.path("package")
        shutil.copytree(PACKAGE, copy)
        said = subprocess.run([rdzvtest.PYTHON, "-c", text, copy], check=True, capture_output=True, text=True,
                              env=env).stdout.split()
        self.assertLess(float(said[0]), 0.001)
        self.assertEqual(said[1:], ["False", "False"])
        broken = self.path("broken")
        os.makedirs(os.path.join(broken, "torch", "distributed", "elastic", "rendezvous"))
        for name in ("torch", "torch/distributed", "torch/distributed/elastic", "torch/distributed/elastic/rendezvous"):
            with open(os.path.join(broken, name, "__init__.py"), "w", encoding="ascii"):
                pass
        ended = subprocess.run([rdzvtest.PYTHON, "-c", "import rdzv_torch_hook, torch.distributed.elastic.rendezvous;"
                                "print('imported')"], capture_output=True, text=True, check=False,
                               env=environment(PYTHONPATH=f"{PACKAGE}:{broken}"))
        self.assertEqual((ended.returncode, ended.stdout), (0, "imported\n"), ended.stderr)
        self.assertIn("rdzv cannot be registered with PyTorch", ended.stderr)


if __name__ == "__main__":
    peers.main()
