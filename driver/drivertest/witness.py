"""Holds one of each thing that a copy of a running machine must carry over."""
import ctypes
import hashlib
import os
import select
import socket
import sqlite3
import struct
import sys
import threading
import time

os.chdir("/workspace")

counts = [0, 0, 0, 0]


def count(i):
    while True:
        counts[i] += 1
        time.sleep(0.002)


for i in range(len(counts)):
    threading.Thread(target=count, args=(i,), daemon=True).start()

heap = bytearray(b"%08d" % 7 * (1 << 20))  # 8 MiB
heap_sum = hashlib.sha256(heap).digest()

with open("lines", "w") as f:
    f.write("".join("line %d\n" % n for n in range(1, 1000)))
lines = os.open("lines", os.O_RDONLY)  # the offset is the kernel's

ghost = open("ghost", "w+")
ghost.write("ghost")
ghost.flush()
os.unlink("ghost")

os.makedirs("watched", exist_ok=True)
libc = ctypes.CDLL(None, use_errno=True)
notify = libc.inotify_init1(os.O_NONBLOCK)
assert notify >= 0 and libc.inotify_add_watch(notify, b"watched", 0x100) >= 0  # IN_CREATE

db = sqlite3.connect("db", isolation_level=None)
db.execute("create table t (x)")
db.execute("insert into t values (1)")
db.execute("begin")
db.execute("insert into t values (2)")


def rows():
    return str(db.execute("select count(*) from t").fetchone()[0])


def seen():
    select.select([notify], [], [], 60)
    b, names = os.read(notify, 4096), []
    while b:
        _, _, _, n = struct.unpack("iIII", b[:16])
        names.append(b[16:16 + n].rstrip(b"\0").decode())
        b = b[16 + n:]
    return " ".join(names)


def answer(q):
    if q == "count":
        return str(min(counts))
    if q == "threads":
        return str(sum(c > 0 for c in counts))
    if q == "heap":
        return "intact" if hashlib.sha256(heap).digest() == heap_sum else "changed"
    if q == "next":
        return os.read(lines, 7).decode().strip()
    if q.startswith("note+"):
        ghost.write(q[5:])
        ghost.flush()
        ghost.seek(0)
        return ghost.read()
    if q == "seen":
        return seen()
    if q == "pending":
        return rows()
    if q in ("commit", "rollback"):
        db.execute(q)
        return rows()
    return "?"


server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    c, _ = server.accept()
    with c, c.makefile("rw") as f:
        f.write(answer(f.readline().strip()) + "\n")
