"""Serves a small FUSE file system over a folder, as a library would have it mounted.

The folder has a file, what was said in it, and one of which nothing is ever told.
"""
import errno
import os
import socket
import struct
import subprocess
import sys

OPTIONS, FOLDER = sys.argv[1:3]
ROOT, HELLO = 1, 2
TEXT = b"of the server"

here, there = socket.socketpair()
there.set_inheritable(True)
mounter = subprocess.run(
    ["fusermount", "-o", OPTIONS, "--", FOLDER], executable="/.berth/berth-guest",
    pass_fds=[there.fileno()], env={**os.environ, "_FUSE_COMMFD": str(there.fileno())})
if mounter.returncode:
    sys.exit(mounter.returncode)
there.close()
_, (connection,), _, _ = socket.recv_fds(here, 1, 1)
print("mounted", flush=True)


def attributes(node):
    mode, size = (0o040755, 0) if node == ROOT else (0o100644, len(TEXT))
    return struct.pack("<6Q10I", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)


def name(number, node, at):
    text = [b".", b"..", b"hello", b"stuck"][number]
    return struct.pack("<QQII", node, at, len(text), 0) + text.ljust(8, b"\0")


def answered(operation, node, body):
    """What a request is answered with, or an error's number; None is no answer."""
    match operation:
        case 1:  # LOOKUP
            wanted = body.rstrip(b"\0")
            if wanted == b"stuck":
                return None
            if wanted != b"hello":
                return errno.ENOENT
            return struct.pack("<QQQQII", HELLO, 1, 0, 0, 0, 0) + attributes(HELLO)
        case 2 | 36 | 42:  # FORGET, INTERRUPT, BATCH_FORGET
            return None
        case 3:  # GETATTR
            return struct.pack("<QII", 0, 0, 0) + attributes(node)
        case 14 | 27:  # OPEN, OPENDIR
            return struct.pack("<QII", 7, 0, 0)
        case 15:  # READ
            offset, size = struct.unpack_from("<QI", body, 8)
            return TEXT[offset:offset + size]
        case 17:  # STATFS
            return struct.pack("<5Q10I", 8, 4, 4, 2, 1, 4096, 255, 4096, *[0] * 7)
        case 18 | 25 | 29 | 34:  # RELEASE, FLUSH, RELEASEDIR, ACCESS
            return b""
        case 26:  # INIT
            return struct.pack("<4I2H2I", 7, 23, 65536, 0, 12, 9, 65536, 1).ljust(64, b"\0")
        case 28:  # READDIR
            offset = struct.unpack_from("<Q", body, 8)[0]
            return b"".join(name(n, n + 1, n + 1) for n in range(offset, 4))
    return errno.ENOSYS


while True:
    try:
        request = os.read(connection, 1 << 18)
    except OSError as e:
        if e.errno == errno.ENODEV:
            break
        raise
    _, operation, unique, node = struct.unpack_from("<IIQQ", request)
    answer = answered(operation, node, request[40:])
    if answer is None:
        continue
    failed, answer = (answer, b"") if isinstance(answer, int) else (0, answer)
    os.write(connection, struct.pack("<IiQ", 16 + len(answer), -failed, unique) + answer)
print("unmounted", flush=True)
