# SPDX-License-Identifier: BSD-3-Clause
"""The build as people meet it: a read-only checkout in a folder with a space, on a system without dpkg, installed to a
prefix with a space and removed again; and as a part of somebody else's CMake project."""
import os
import re
import shutil
import subprocess

import rdzvtest

SUBPROJECT = """
cmake_minimum_required(VERSION 3.22)
project(user C)
add_subdirectory("%s" rdzv)
foreach(name rdzv::rdzv rdzv::SHARED rdzv::STATIC)
  string(REPLACE ":" "_" program ${name})
  add_executable(${program} user.c)
  target_link_libraries(${program} PRIVATE ${name})
endforeach()
install(TARGETS rdzv__rdzv)
"""

# Mounts the checkout read-only where only this command sees it.
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$1" && shift && exec "$@"'


def files_below(folder):
    return {os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder) for name in names}


def exported(build):
    names = subprocess.run(["nm", "-D", "--defined-only", os.path.join(build, "librdzv.so")], check=True, capture_output=True,
                           text=True).stdout
    return set(re.findall(r" T (rdzv_\w+)", names))


class Build(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.checkout = self.path("a checkout")
        tracked = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=rdzvtest.SOURCE,
                                 check=True, capture_output=True, text=True).stdout
        for name in filter(None, tracked.split("\0")):
            if name.startswith("tests/") or not os.path.exists(os.path.join(rdzvtest.SOURCE, name)):
                continue
            target = os.path.join(self.checkout, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(rdzvtest.SOURCE, name), target)

    def tools_without(self, *names):
        """A PATH with every program of this machine but these."""
        folder = self.path("tools")
        os.makedirs(folder)
        for path in os.environ["PATH"].split(":"):
            for name in os.listdir(path) if os.path.isdir(path) else ():
                if not name.startswith(names) and not os.path.lexists(os.path.join(folder, name)):
                    os.symlink(os.path.join(path, name), os.path.join(folder, name))
        return folder

    def compile_quickly(self, tools):
        """Puts a compiler there that does not optimize, which takes half the time."""
        path = os.path.join(tools, "cc")
        compiler = os.path.realpath(path)
        os.unlink(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {compiler} "$@" -O0 -U_FORTIFY_SOURCE\n')
        os.chmod(path, 0o755)

    def make(self, *arguments, path=None):
        environment = {**os.environ, "PATH": path or os.environ["PATH"], "BUILD": self.path("the build")}
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", READ_ONLY, "sh", self.checkout,
                               "make", *arguments], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_a_read_only_checkout_without_dpkg_builds_installs_and_is_removed(self):
        path = self.tools_without("dpkg", "apt", "ninja")
        self.compile_quickly(path)
        prefix = self.path("a prefix")
        done = self.make("install", f"PREFIX={prefix}", path=path)
        self.assertNotIn("setup:", done.stderr)  # nothing is missing, and nothing is called missing
        with open(os.path.join(rdzvtest.SOURCE, "docs", "guide.md"), encoding="utf-8") as file:
            example = re.search(r"```c\n(.*?)```", file.read(), re.S)[1]
        with open(self.path("prog.c"), "w", encoding="utf-8") as file:
            file.write(example)
        # As the guide says it, by a shell that keeps the space of the prefix.
        subprocess.run(["bash", "-c", 'eval cc prog.c $(pkg-config --cflags --libs rdzv) -o prog'], cwd=self.folder, check=True,
                       env={**os.environ, "PKG_CONFIG_PATH": os.path.join(prefix, "lib/pkgconfig")})
        server = self.serve()
        done = subprocess.run([self.path("prog"), server.endpoint], capture_output=True, text=True, check=False,
                              timeout=rdzvtest.DEADLINE, env={"PATH": os.environ["PATH"]})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.stop(server)
        self.make("uninstall", f"PREFIX={prefix}", path=path)
        self.assertEqual(files_below(prefix), set())

    def test_a_library_that_is_missing_is_named(self):
        environment = {**os.environ, "PATH": self.tools_without("dpkg", "apt"), "BUILD": self.path("b"),
                       "PKG_CONFIG_LIBDIR": self.folder}
        done = subprocess.run(["scripts/setup", "build"], cwd=self.checkout, env=environment, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("libuv", done.stderr)
        self.assertIn("README.md", done.stderr)

    def make_where_packages_are_missing(self, target, *prefix):
        """Nothing is installed there, and apt-get only writes down that it was called."""
        shims, calls = self.path("shims"), self.path("calls")
        os.makedirs(shims, exist_ok=True)
        for name, body in (("apt-get", f'echo "$@" >>"{calls}"'), ("dpkg-query", "exit 1")):
            with open(os.path.join(shims, name), "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{body}\n")
            os.chmod(os.path.join(shims, name), 0o755)
        environment = {**os.environ, "PATH": f"{shims}:{self.tools_without('sudo')}", "BUILD": self.path("b"),
                       "PKG_CONFIG_LIBDIR": self.folder}
        os.chmod(self.folder, 0o755)
        done = subprocess.run([*prefix, "make", target], cwd=self.checkout, env=environment, capture_output=True, text=True,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("libuv1-dev", done.stderr)
        if not os.path.exists(calls):
            return done.stderr, ""
        with open(calls, encoding="ascii") as file:
            return done.stderr, file.read()

    def test_make_installs_nothing_and_names_what_is_missing(self):
        said, calls = self.make_where_packages_are_missing("all")
        self.assertIn("`make deps` installs them", said)
        self.assertEqual(calls, "")

    def test_make_deps_installs_what_is_missing(self):
        said, calls = self.make_where_packages_are_missing("deps")
        self.assertIn("setup: installing", said)
        self.assertRegex(calls, r"(?m)^install .*\blibuv1-dev\b")

    def test_make_deps_without_root_says_what_root_has_to_do(self):
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        said, calls = self.make_where_packages_are_missing("deps", *nobody)
        self.assertRegex(said, r"only root can install them: apt-get install .*\blibuv1-dev\b")
        self.assertEqual(calls, "")

    def test_a_build_without_etcd_agent_and_tls_says_so_and_has_the_same_interface(self):
        build = self.path("b")
        for command in (["-S", self.checkout, "-B", build, "-G", "Ninja", "-DRDZV_ETCD=OFF", "-DRDZV_AGENT=OFF", "-DRDZV_TLS=OFF",
                         "-DRDZV_TESTS=OFF", "-DRDZV_BENCH=OFF", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0"], ["--build", build]):
            done = subprocess.run(["cmake", *command], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for part, command in (("agent", ["run", "true"]), ("etcd", ["etcd", "start"]), ("etcd", ["store", "--etcd", "::1", "get", "k"]),
                              ("etcd", ["join", "--rdzv-backend", "etcd", "--rdzv-id", "x"]),
                              ("etcd", ["list", "--rdzv-backend", "etcd-v2"]),
                              ("TLS", ["store", "--tls-ca", "/ca.pem", "get", "k"]), ("TLS", ["serve", "--secret-file", "/s"])):
            done = subprocess.run([os.path.join(build, "rdzv"), *command], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, f"built without (the )?{part} ")
        self.assertEqual(exported(build), exported(rdzvtest.BUILD))

    def test_a_project_takes_it_as_a_folder_of_its_own(self):
        with open(self.path("CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(SUBPROJECT % self.checkout)
        with open(self.path("user.c"), "w", encoding="utf-8") as file:
            file.write("#include <rdzv/rdzv.h>\nint main(void) { return rdzv_version() == 0; }\n")
        done = subprocess.run(["cmake", "-S", self.folder, "-B", self.path("b")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("b/rdzv/cmake_install.cmake"), encoding="utf-8") as file:
            self.assertNotIn("librdzv", file.read())  # it installs nothing that the project did not ask for


if __name__ == "__main__":
    rdzvtest.main()
