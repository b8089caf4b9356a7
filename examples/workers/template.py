#!/usr/bin/env python3
"""The smallest worker: put your lock into acquire() and release(). See docs/worker-protocol.md."""
import json, os, socket, sys, time

def acquire(key, ttl_ms, wait_ms):  # -> (owner, fence or None), or None while it is busy
    until = time.monotonic() + wait_ms / 1000
    while True:
        try:  # here: a directory is the lock. It knows no lease, so ttl_ms goes unused
            os.mkdir(f"/tmp/fencepost-template-{key}")
            return f"{os.getpid()}-{time.monotonic_ns()}", None
        except FileExistsError:
            if time.monotonic() >= until:
                return None
            time.sleep(0.005)

def release(key, owner):  # -> was it held?
    os.rmdir(f"/tmp/fencepost-template-{key}")
    return True

held, witness = {}, None
for line in sys.stdin:
    r, value, error = json.loads(line), None, None
    op, grant = r["op"], {k: r.get(k) for k in ("key", "owner", "fence")}
    if op == "init":
        host, port = r["store"]["addr"].rsplit(":", 1)
        witness = socket.create_connection((host, int(port))).makefile("rwb")
        value = {"protocol": 1, "name": "template", "clients": 1, "points": [], "deadline": False}
    elif op == "acquire":
        got = acquire(r["key"], r["ttl_ms"], r.get("wait_ms", 0))
        if got:
            held[got[0]] = {"key": r["key"], "owner": got[0], "fence": got[1]}
            value = {"owner": got[0], "fence": got[1], "ttl_ms": None}
        error = None if got else "busy"
    elif op == "release":
        value = {"held": held.pop(r["owner"], None) is not None and release(r["key"], r["owner"])}
    elif op == "ping":
        value = {"claims": list(held.values())}
    elif op == "close":
        [release(g["key"], g["owner"]) for g in held.values()]
    elif op in ("read", "write"):
        ask = {"id": r["id"], "op": op, **grant, "value": r.get("value"), "prev": r.get("prev")}
        witness.write(json.dumps(ask).encode() + b"\n"), witness.flush()
        told = json.loads(witness.readline())
        value, error = ({"value": told.get("value")} if op == "read" else None), told.get("error")
    else:
        error = f"{op} is not supported"
    answer = {"type": "fail", "error": error} if error else {"type": "ok", "value": value}
    print(json.dumps({"id": r["id"], **answer}), flush=True)
