#!/usr/bin/env python3
"""A complete lock client for Redis that Fencepost can test (docs/worker-protocol.md).

Standard library only. One thread a client, one a grant for its watchdog. The store is
Fencepost's witness, or "none".

    fencepost run kleppmann-pause --system redis --worker "python3 examples/workers/redis_lock.py"
"""

import json
import queue
import random
import secrets
import select
import socket
import sys
import threading
import time

ACQUIRE = """if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2]) end return false"""
RELEASE = """if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"""
RENEW = """if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"""


class Fail(Exception):
    """It surely had no effect."""


class Unknown(Exception):
    """It may have had an effect, or may have one yet."""


class Connection:
    """One connection, opened when needed, dropped after any answer that did not come."""

    def __init__(self, addr, timeout):
        self.host, port = addr.rsplit(":", 1)
        self.port, self.timeout, self.sock = int(port), timeout, None

    def open(self):
        if self.sock is not None and select.select([self.sock], [], [], 0)[0]:
            self.drop()  # closed by the other side while idle
        if self.sock is None:
            try:
                self.sock = socket.create_connection((self.host, self.port), self.timeout)
            except OSError as e:
                raise Fail(f"connect: {e}")  # nothing was sent
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.file = self.sock.makefile("rb")

    def drop(self):
        self.file.close()
        self.sock.close()
        self.sock = None

    def exchange(self, request, read):
        self.open()
        return self.exchange_now(request, read)

    def exchange_now(self, request, read):
        """Sends and reads on a connection that is open: the socket write comes first."""
        try:
            self.sock.sendall(request)
            return read(self.file)
        except OSError as e:
            self.drop()
            raise Unknown("timeout" if isinstance(e, TimeoutError) else str(e) or "connection closed")


def line_of(file):
    line = file.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("connection closed")
    return line


def resp(*words):
    """A command in RESP."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def read_resp(file):
    line = line_of(file)
    kind, rest = line[:1], line[1:-2]
    if kind == b":":
        return int(rest)
    if kind == b"+":
        return rest.decode()
    if kind == b"$":
        size = int(rest)
        return None if size < 0 else file.read(size + 2)[:-2].decode()
    if kind == b"*":
        return None if int(rest) < 0 else [read_resp(file) for _ in range(int(rest))]
    raise Unknown(rest.decode())  # an error of the server: when in doubt, unknown


class Grant:
    """A lock held: from its grant to its deadline, its loss or its release."""

    def __init__(self, key, owner, fence, ttl, sent):
        self.key, self.owner, self.fence, self.ttl = key, owner, fence, ttl
        self.live, self.over = True, threading.Event()
        self.extend(sent)

    def extend(self, sent):
        self.deadline = sent + self.ttl - (self.ttl * 0.05 + 0.01)

    def claim(self):
        return {"key": self.key, "owner": self.owner, "fence": self.fence}


class Worker:
    def __init__(self):
        self.lock = threading.RLock()  # grants, points, last_read and standard output
        self.grants, self.points, self.last_read = {}, {}, 0
        self.clients = []

    def say(self, **line):
        with self.lock:
            sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
            sys.stdout.flush()

    def lose(self, grant, reason):
        with self.lock:
            if grant.live:
                grant.live = False
                grant.over.set()
                self.say(event="lost", reason=reason, after=self.last_read, **grant.claim())

    def sweep(self):
        with self.lock:
            for grant in list(self.grants.values()):
                if time.monotonic() >= grant.deadline:
                    self.lose(grant, "deadline")

    def init(self, r):
        if r["protocol"] != 1:
            return {"type": "fail", "error": f"protocol {r['protocol']} asked for; this worker speaks 1"}
        self.params = r["system"].get("params", {})
        self.redis, self.store = r["system"]["endpoints"][0]["addr"], r["store"]
        self.timeout = r["timeout_ms"] / 1000
        self.clients = [Client(self) for _ in range(r["clients"])]
        return {"type": "ok", "value": {"protocol": 1, "name": "redis_lock.py", "clients": 256,
                                        "points": ["before-store-write"], "deadline": True}}

    def handle(self, r):
        if "go" in r:
            with self.lock:
                self.points.setdefault(r["go"], threading.Event()).set()
            return
        op, answer = r["op"], None
        with self.lock:
            self.last_read = r["id"]
        if op == "init":
            answer = self.init(r)
        elif op == "ping":
            with self.lock:
                self.sweep()
                claims = [g.claim() for g in self.grants.values() if g.live]
                self.say(id=r["id"], type="ok", value={"claims": claims})
        elif op == "close":
            threading.Thread(target=self.close, args=(r["id"],), daemon=True).start()
        elif r["client"] >= len(self.clients):
            answer = {"type": "fail", "error": f"no client {r['client']}"}
        else:
            self.clients[r["client"]].todo.put(r)
        if answer:
            self.say(id=r["id"], **answer)

    def close(self, id):
        for grant in list(self.grants.values()):
            if grant.live:
                client = Client(self)
                try:
                    client.release({"key": grant.key, "owner": grant.owner})
                except (Fail, Unknown):
                    pass  # it expires
        self.say(id=id, type="ok", value=None)


class Client:
    """One sequential caller: its thread, its connections to Redis and to the store."""

    def __init__(self, worker):
        self.worker, self.todo = worker, queue.Queue()
        self.redis = Connection(worker.redis, worker.timeout)
        self.fenced = Connection(worker.store["addr"] or "none:0", worker.timeout)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            r = self.todo.get()
            try:
                answer = {"type": "ok", "value": getattr(self, r["op"])(r)}
            except Fail as e:
                answer = {"type": "fail", "error": str(e)}
            except Unknown as e:
                answer = {"type": "info", "error": str(e)}
            if r["op"] != "acquire" or answer["type"] != "ok":  # acquire says its ok by itself
                self.worker.say(id=r["id"], **answer)

    def script(self, connection, text, key, *args, more_keys=()):
        keys = ["fencepost:lock:" + key, *more_keys]
        return connection.exchange(resp("EVAL", text, len(keys), *keys, *args), read_resp)

    def acquire(self, r):
        key, ttl_ms, owner = r["key"], r["ttl_ms"], secrets.token_hex(20)
        until = time.monotonic() + r.get("wait_ms", 0) / 1000
        while True:
            sent = time.monotonic()
            fence = self.script(self.redis, ACQUIRE, key, owner, ttl_ms, more_keys=["fencepost:fence:" + key])
            if fence is not None:
                break
            left = until - time.monotonic()
            if left <= 0:
                raise Fail("busy")
            time.sleep(min(left, random.uniform(0.01, 0.03)))
        grant = Grant(key, owner, fence, ttl_ms / 1000, sent)
        with self.worker.lock:
            self.worker.grants[owner] = grant
            self.worker.say(id=r["id"], type="ok", value={"owner": owner, "fence": fence, "ttl_ms": ttl_ms})
        threading.Thread(target=self.watch, args=(grant, ttl_ms, sent), daemon=True).start()

    def watch(self, grant, ttl_ms, sent):
        """Renews at each third of the TTL; reports the loss at the deadline even while a call hangs."""
        connection = Connection(self.worker.redis, self.worker.timeout)
        threading.Thread(target=self.expire, args=(grant,), daemon=True).start()
        while not grant.over.wait(max(0, sent + grant.ttl / 3 - time.monotonic())):
            if not self.worker.params.get("watchdog", True):
                return
            sent, after, ok, gone = time.monotonic(), self.worker.last_read, None, False
            try:
                ok = self.script(connection, RENEW, grant.key, grant.owner, ttl_ms) == 1
                gone = not ok
            except Fail:
                ok = False
            except Unknown:
                pass
            with self.worker.lock:
                if not grant.live:
                    return
                if ok:
                    grant.extend(sent)
                granted = ttl_ms if ok else None
                self.worker.say(event="renew", ok=ok, ttl_ms=granted, after=after, **grant.claim())
                if gone:
                    self.worker.lose(grant, "not-held")

    def expire(self, grant):
        while not grant.over.wait(max(0.001, grant.deadline - time.monotonic())):
            self.worker.sweep()

    def renew(self, r):
        sent = time.monotonic()
        if self.script(self.redis, RENEW, r["key"], r["owner"], r["ttl_ms"]) != 1:
            raise Fail("not-held")
        with self.worker.lock:
            grant = self.worker.grants.get(r["owner"])
            if grant and grant.live:
                grant.extend(sent)
        return {"ttl_ms": r["ttl_ms"]}

    def release(self, r):
        with self.worker.lock:  # not claimed any more, whatever Redis answers
            grant = self.worker.grants.pop(r["owner"], None)
            if grant:
                grant.live = False
                grant.over.set()
        return {"held": self.script(self.redis, RELEASE, r["key"], r["owner"]) == 1}

    def ask(self, r, op, **more):
        """A line of the witness's protocol."""
        line = {"id": r["id"], "op": op, "key": r["key"], "owner": r["owner"], "fence": r.get("fence"), **more}
        return json.dumps(line).encode() + b"\n"

    def told(self, exchange, request):
        if self.worker.store["kind"] == "none":
            return {}
        told = json.loads(exchange(request, line_of))
        if not told["ok"]:
            raise Fail(told.get("error", "refused"))
        return told

    def read(self, r):
        return {"value": self.told(self.fenced.exchange, self.ask(r, "read")).get("value")}

    def write(self, r):
        self.change(r, self.ask(r, "write", value=r["value"], prev=r.get("prev")))

    def add(self, r):
        try:
            elements = self.told(self.fenced.exchange, self.ask(r, "read-set")).get("set") or []
        except Unknown as e:
            raise Fail(str(e))  # nothing was added
        time.sleep(r.get("work_ms", 0) / 1000)
        self.change(r, self.ask(r, "add", element=r["element"], set=elements + [r["element"]]))

    def change(self, r, request):
        if self.worker.store["kind"] == "witness":
            self.fenced.open()
        grant = self.worker.grants.get(r["owner"])
        if grant is None or not grant.live or time.monotonic() >= grant.deadline:
            raise Fail("deadline")
        if r.get("stop_at") == "before-store-write":
            with self.worker.lock:
                go = self.worker.points.setdefault(r["id"], threading.Event())
            self.worker.say(event="point", name="before-store-write", id=r["id"])
            go.wait()
        self.told(self.fenced.exchange_now, request)


def main():
    worker = Worker()
    for line in sys.stdin:
        worker.handle(json.loads(line))


if __name__ == "__main__":
    main()
