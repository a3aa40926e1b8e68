# SPDX-License-Identifier: BSD-3-Clause
"""The gateway of an etcd, as another program uses it; users and their permissions."""
import base64
import json
import time
import urllib.error
import urllib.request

import etcd
import rdzvtest


def b64(text):
    return base64.b64encode(text.encode()).decode()


def post(member, path, body, token=None):
    """A request to the gateway."""
    headers = {"Authorization": token} if token else {}
    request = urllib.request.Request(member.url + path, json.dumps(body).encode(), headers)
    with urllib.request.build_opener(etcd.NO_PROXY).open(request, timeout=30) as answer:
        return json.loads(answer.read().split(b"\n")[0])


def log_in(member, name):
    return post(member, "/v3/auth/authenticate", {"name": name, "password": f"of {name}"})["token"]


def start_with_users(add_cleanup, begin, end):
    """An etcd that forgets tokens after a second. User 'job' may use keys from `begin` to before `end`, 'other' none."""
    member = etcd.start(add_cleanup, ["--auth-token", "simple", "--auth-token-ttl", "1", "--bcrypt-cost", "4"])
    for name in ("root", "job", "other"):
        post(member, "/v3/auth/user/add", {"name": name, "password": f"of {name}"})
    for role in ("root", "job"):
        post(member, "/v3/auth/role/add", {"name": role})
        post(member, "/v3/auth/user/grant", {"user": role, "role": role})
    post(member, "/v3/auth/role/grant", {"name": "job", "perm": {
        "permType": "READWRITE", "key": b64(begin), "range_end": b64(end)}})
    post(member, "/v3/auth/enable", {})
    return member


def await_forgotten(member, key):
    """Until etcd has forgotten a token that was given now and not used since, as which it would remember it. So each
    that is looked at is another one."""
    tokens = [log_in(member, "job") for _ in range(30)]
    for token in tokens:
        time.sleep(1)  # the time after which etcd forgets one
        try:
            post(member, "/v3/kv/range", {"key": b64(key)}, token)
        except urllib.error.HTTPError:
            return
    raise AssertionError("etcd does not forget tokens")


def await_watch(member):
    """Until etcd has a watch: somebody waits."""
    def watching():
        metrics = member.open("GET", "/metrics").decode()
        return any(line.startswith("etcd_debugging_mvcc_watcher_total") and float(line.split()[1]) > 0
                   for line in metrics.splitlines())

    rdzvtest.wait_until(watching, "a watch in etcd")


def compact(member):
    """Forgets all revisions but the last."""
    revision = post(member, "/v3/kv/range", {"key": b64("x")})["header"]["revision"]
    post(member, "/v3/kv/compaction", {"revision": revision, "physical": True})


def fill(member):
    """Until it has the alarm that its space is used up."""
    for i in range(100):
        try:
            post(member, "/v3/kv/put", {"key": b64(f"/fill/{i}"), "value": b64("x" * 100000)})
        except urllib.error.HTTPError:
            return
    raise AssertionError("etcd takes everything")
