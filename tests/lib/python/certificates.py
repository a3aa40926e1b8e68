# SPDX-License-Identifier: BSD-3-Clause
"""Authorities and certificates made for the test."""
import functools
import os
import shutil
import subprocess
import tempfile
import unittest


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


class Authority:
    """Makes certificates, all in one folder."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.cert, self.key = self.path(".crt"), self.path(".key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                f"/CN={name}", "-keyout", self.key, "-out", self.cert)

    def path(self, end):
        return os.path.join(self.folder, self.name + end)

    def issue(self, name, names, days=2):
        """The files of a certificate for these names, and its key."""
        cert, key, request, more = (self.path(f"-{name}{end}") for end in (".crt", ".key", ".csr", ".ext"))
        with open(more, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days",
                str(days), "-extfile", more, "-out", cert)
        return cert, key


@functools.lru_cache(maxsize=None)
def folder():
    made = tempfile.mkdtemp(prefix="rdzv-tls-")
    os.chmod(made, 0o755)
    unittest.addModuleCleanup(shutil.rmtree, made)
    return made


@functools.lru_cache(maxsize=None)
def made_authority(name):
    return Authority(folder(), name)


def authority(name="right"):
    return made_authority(name)


@functools.lru_cache(maxsize=None)
def issued(by, name, names, days=2):
    return authority(by).issue(name, names, days)
