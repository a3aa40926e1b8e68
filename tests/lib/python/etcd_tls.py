# SPDX-License-Identifier: BSD-3-Clause
"""An etcd behind TLS, with authorities and certificates made for the test."""
import functools
import os
import shutil
import ssl
import subprocess
import tempfile
import unittest

import etcd

NOBODY = "nobody"


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
        os.chmod(key, 0o644)
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


def client():
    return issued("right", "client", "DNS:client")


@functools.lru_cache(maxsize=None)
def server(name="server", names="IP:127.0.0.1", days=2, mutual=True):
    """An etcd with such a certificate, which wants one of ours if `mutual`."""
    cert, key = issued("right", name, names, days)
    options = ["--cert-file", cert, "--key-file", key]
    if mutual:
        options += ["--client-cert-auth", "--trusted-ca-file", authority().cert]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*client())
    return etcd.start(unittest.addModuleCleanup, options, scheme="https", context=context)
