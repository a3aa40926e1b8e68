# SPDX-License-Identifier: BSD-3-Clause
"""An installed copy works: files in their places, pkg-config, the CMake package, the command, exported symbols."""
import os
import re
import subprocess
import unittest

import rdzvtest

PROGRAM = """
#include <rdzv/rdzv.h>
#include <stdio.h>
int main(void) {
  rdzv_store *store;
  int64_t sum = 0;
  if (rdzv_store_open_hash(NULL, &store, NULL) < 0) return 1;
  if (rdzv_store_add(store, rdzv_str("k"), 41, NULL, NULL) < 0) return 1;
  if (rdzv_store_add(store, rdzv_str("k"), 1, &sum, NULL) < 0) return 1;
  rdzv_store_free(store);
  if (rdzv_store_open_etcd("", NULL, &store, NULL) != RDZV_E_INVALID) return 1; /* it needs a prefix */
  printf("%s %lld\\n", rdzv_version(), (long long)sum);
  return 0;
}
"""

# Functions of a program under the names of some that the library has inside.
CLASH = """
#include <rdzv/rdzv.h>
#include <stdio.h>
#include <stdlib.h>
#define MINE(name) void name(void); void name(void) { abort(); }
MINE(resolve) MINE(spawn) MINE(curl) MINE(error_set) MINE(flag_open) MINE(net_connect) MINE(buf_append) MINE(clock_ms)
int main(void) {
  rdzv_store *store;
  rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = 50};
  puts(rdzv_error_name(rdzv_store_open_tcp("127.0.0.1:1", &options, &store, NULL)));
  return 0;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(rdzv 0.1 REQUIRED)
foreach(kind SHARED STATIC rdzv)
  add_executable(user_${kind} user.c)
  target_link_libraries(user_${kind} PRIVATE rdzv::${kind})
endforeach()
"""

FLAGS = "-fsanitize=" + rdzvtest.SANITIZED if rdzvtest.SANITIZED else ""


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class Install(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.prefix = self.path("prefix")
        rdzvtest.built("librdzv.a")
        run("cmake", "--install", rdzvtest.BUILD, "--prefix", self.prefix)
        with open(self.path("user.c"), "w", encoding="ascii") as file:
            file.write(PROGRAM)
        self.version = run(rdzvtest.RDZV, "--version").split()[1]

    def library_folder(self):
        for folder, _, files in os.walk(self.prefix):
            if "librdzv.a" in files:
                return folder
        return self.fail("librdzv.a was not installed")

    def test_everything_is_in_its_place(self):
        files = {os.path.relpath(os.path.join(folder, name), self.prefix)
                 for folder, _, names in os.walk(self.prefix) for name in names}
        for name in ("bin/rdzv", "include/rdzv/rdzv.h", "include/rdzv/store.h", "include/rdzv/server.h",
                     "include/rdzv/handler.h", "include/rdzv/params.h", "include/rdzv/backend.h", "include/rdzv/event.h",
                     "include/rdzv/etcd.h", "share/man/man1/rdzv-etcd.1",
                     "share/man/man1/rdzv-join.1", "share/man/man1/rdzv-status.1", "share/man/man1/rdzv-close.1",
                     "share/man/man1/rdzv-list.1", "share/man/man1/rdzv-reset.1",
                     "share/man/man1/rdzv.1", "share/man/man1/rdzv-serve.1", "share/man/man1/rdzv-store.1",
                     "share/man/man3/librdzv.3", "share/bash-completion/completions/rdzv",
                     "share/zsh/site-functions/_rdzv", "share/fish/vendor_completions.d/rdzv.fish"):
            self.assertIn(name, files)
        self.assertEqual(run(os.path.join(self.prefix, "bin/rdzv"), "--version"), f"rdzv {self.version}\n")

    def test_the_python_package_finds_the_library_and_torchrun_the_package(self):
        folders = [folder for folder, _, files in os.walk(self.prefix) if "rdzv-torch.pth" in files]
        self.assertEqual(len(folders), 1)
        text = ("import rdzv, importlib.metadata as m; print(rdzv.__version__, m.version('rdzv'), sorted(e.name for e in "
                "m.entry_points(group='torchrun.handlers')), rdzv._library.library._name)")
        if rdzvtest.SANITIZED:
            self.skipTest("Python is not built with a sanitizer")
        said = run(rdzvtest.PYTHON, "-c", text, env={**os.environ, "PYTHONPATH": folders[0]}).split()
        self.assertEqual(said[:4], [self.version, self.version, "['etcd-v3',", "'rdzv']"])
        self.assertTrue(os.path.samefile(said[4], os.path.join(self.library_folder(), f"librdzv.so.{self.version}")))

    def test_a_program_finds_it_by_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(self.library_folder(), "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "rdzv", env=environment).split()
        run("cc", *FLAGS.split(), self.path("user.c"), *flags, "-o", self.path("user"))
        done = run(self.path("user"), env={**os.environ, "LD_LIBRARY_PATH": self.library_folder()})
        self.assertEqual(done, f"{self.version} 42\n")

    @unittest.skipIf(rdzvtest.SANITIZED, "no sanitizer links statically")
    def test_pkg_config_knows_what_the_static_library_needs(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(self.library_folder(), "pkgconfig")}
        flags = run("pkg-config", "--static", "--cflags", "--libs", "rdzv", env=environment).split()
        run("cc", "-static", self.path("user.c"), *flags, "-o", self.path("user"))
        self.assertEqual(run(self.path("user")), f"{self.version} 42\n")

    def test_a_program_finds_it_by_cmake(self):
        with open(self.path("CMakeLists.txt"), "w", encoding="ascii") as file:
            file.write(CMAKE)
        run("cmake", "-S", self.folder, "-B", self.path("b"), f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_FLAGS={FLAGS}")
        run("cmake", "--build", self.path("b"))
        for kind in ("SHARED", "STATIC", "rdzv"):
            self.assertEqual(run(os.path.join(self.path("b"), "user_" + kind)), f"{self.version} 42\n")

    def exported(self, library, *arguments):
        lines = [line.split() for line in run("nm", *arguments, "--defined-only", library).splitlines()]
        names = {words[-1].split("@")[0] for words in lines if len(words) == 3 and words[1] != "A"}
        return {name for name in names if not name.startswith(("__asan", "__tsan", "__ubsan", "__odr"))}

    def test_only_the_api_is_exported(self):
        api = set()
        for name in os.listdir(os.path.join(rdzvtest.SOURCE, "include/rdzv")):
            with open(os.path.join(rdzvtest.SOURCE, "include/rdzv", name), encoding="utf-8") as file:
                api |= set(re.findall(r"RDZV_API [^;(]*?\*?(rdzv_\w+)\(", file.read()))
        self.assertGreater(len(api), 30)
        self.assertEqual(self.exported(os.path.join(self.library_folder(), "librdzv.so"), "-D"), api)
        self.assertEqual(self.exported(os.path.join(self.library_folder(), "librdzv.a"), "-g"), api)

    def test_the_soname_and_the_symbols_name_the_same_versions_as_the_cmake_package(self):
        library = os.path.join(self.library_folder(), "librdzv.so")
        major, minor, _ = self.version.split(".")
        abi = f"{major}.{minor}" if major == "0" else major
        self.assertIn(f"[librdzv.so.{abi}]", run("readelf", "-d", library))
        self.assertIn(f"rdzv_version@@RDZV_{abi}\n", run("nm", "-D", library))
        with open(os.path.join(self.library_folder(), "cmake/rdzv/rdzv-config-version.cmake"), encoding="utf-8") as file:
            same_minor = "CVF_VERSION_MINOR" in file.read()
        self.assertEqual(same_minor, major == "0")

    def test_the_static_library_does_not_call_a_program_s_functions(self):
        with open(self.path("clash.c"), "w", encoding="ascii") as file:
            file.write(CLASH)
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(self.library_folder(), "pkgconfig")}
        words = run("pkg-config", "--static", "--libs-only-l", "rdzv", env=environment).split()
        libraries = [word.replace("-luv_a", "-luv") for word in words if word != "-lrdzv"]
        run("cc", *FLAGS.split(), f"-I{self.prefix}/include", self.path("clash.c"),
            os.path.join(self.library_folder(), "librdzv.a"), *libraries, "-o", self.path("clash"))
        self.assertEqual(run(self.path("clash")), "CONNECTION\n")


if __name__ == "__main__":
    rdzvtest.main()
