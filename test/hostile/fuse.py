# Serves file systems as no kernel should meet them, uses each, and prints what came of it:
# "well ..." or "bad ...".
#
#   fuse.py whole FOLDER     all of them, one after the other, beneath a folder
#   fuse.py requests FOLDER  asks the guest for what it may not do
#   fuse.py wedge FOLDER     one that answers nothing, and those who wait for it, for ever
import ctypes, errno, fcntl, json, mmap, os, signal, socket, stat, struct, subprocess, sys, tempfile, time

libc = ctypes.CDLL(None, use_errno=True)
LOOKUP, GETATTR, READLINK, OPEN, READ, WRITE, GETXATTR, INIT, READDIR = 1, 3, 5, 14, 15, 16, 22, 26, 28
ROOT, FILE = 1, 2
MIB = 1 << 20


class Request:
    def __init__(self, connection, raw):
        self.connection = connection
        _, self.operation, self.unique, self.node = struct.unpack_from("<IIQQ", raw)
        self.body = raw[40:]

    def header(self, length, failed=0, unique=None):
        return struct.pack("<IiQ", length, failed, self.unique if unique is None else unique)

    def answer(self, payload=b"", failed=0):
        os.write(self.connection, self.header(16 + len(payload), failed) + payload)

    def refused(self, number, parts):
        """Writes what is no answer: the kernel must say so with a number."""
        try:
            os.writev(self.connection, parts)
        except OSError as e:
            if e.errno == number:
                return
            print("bad answer gives", e, flush=True)
        else:
            print("bad answer taken:", len(parts), "parts", parts[0], flush=True)


def attributes(node, size=0, mode=None, device=0, seconds=0):
    mode = mode or (0o040777 if node == ROOT else 0o100666)
    return struct.pack("<6Q10I", node, size, 1, seconds, seconds, seconds, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), device, 4096, 0)


def entry(node=FILE, valid=0, **others):
    return struct.pack("<QQQQII", node, 1, valid, valid, 0, 0) + attributes(node, **others)


def told(node, valid=0, **others):
    return struct.pack("<QII", valid, 0, 0) + attributes(node, **others)


def agreed(major=7, minor=23, flags=1 << 22, write=1 << 17, pages=256):
    return struct.pack("<4I2H2I2H", major, minor, 65536, flags, 12, 9, write, 1, pages, 0).ljust(64, b"\0")


def named(name, at=1, length=None):
    return struct.pack("<QQII", 5, at, len(name) if length is None else length, 0) + name.ljust(-(-len(name) // 8) * 8, b"\0")


def plain(q):
    """What a server that means well says."""
    match q.operation:
        case 1:
            return entry()
        case 3:
            return told(q.node)
        case 4:
            return told(q.node)
        case 14 | 27:
            return struct.pack("<QII", 7, 0, 0)
        case 15:
            return bytes(struct.unpack_from("<QI", q.body, 8)[1])
        case 16:
            return struct.pack("<II", struct.unpack_from("<QQI", q.body)[2], 0)
        case 17:
            return struct.pack("<5Q10I", 8, 4, 4, 2, 1, 4096, 255, 4096, *[0] * 7)
        case 18 | 20 | 25 | 29 | 34:
            return b""
        case 26:
            return agreed()
        case 28:
            return b""
    return errno.ENOSYS


def mounted(folder, options="rw"):
    here, there = socket.socketpair()
    there.set_inheritable(True)
    subprocess.run(["fusermount", "-o", options, "--", folder], executable="/.berth/berth-guest", check=True,
                   pass_fds=[there.fileno()], env={**os.environ, "_FUSE_COMMFD": str(there.fileno())})
    there.close()
    return socket.recv_fds(here, 1, 1)[1][0]


def unmounted(folder):
    subprocess.run(["fusermount", "-uzq", folder], executable="/.berth/berth-guest")


def serve(connection, odd, folder):
    while True:
        try:
            q = Request(connection, os.read(connection, 4 * MIB))
            q.folder = folder
        except OSError as e:
            os._exit(e.errno != errno.ENODEV)
        if q.operation in (2, 36, 42):
            continue
        answer = odd.get(q.operation, plain)(q)
        if isinstance(answer, bytes):
            q.answer(answer)
        elif answer is not None:
            q.answer(failed=-answer)


def reaped(pid, seconds):
    for _ in range(seconds * 50):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def forked(step):
    pid = os.fork()
    if not pid:
        try:
            step()
        except BaseException as e:
            print("bad step:", repr(e), flush=True)
        os._exit(1)
    return pid


def use(what, step, folder):
    """Uses the file system. An error is as good as an answer."""
    try:
        print("well", what + ":", step(folder), flush=True)
    except OSError as e:
        print("well", what + ":", e, flush=True)
    os._exit(0)


def tried(what, odd, step, waits=False, dies=False):
    """Serves a file system and has a process use it, which waits for ever, dies or ends."""
    folder = tempfile.mkdtemp(dir=HERE)
    connection = mounted(folder)
    came, comes = os.pipe()
    if waits:
        inner = odd
        odd = {n: lambda q, f=f: (os.write(comes, b"x"), f(q))[1] for n, f in inner.items()}
    server = forked(lambda: serve(connection, odd, folder))
    os.close(connection)
    os.close(comes)
    user = forked(lambda: use(what, step, folder))
    if waits:
        os.read(came, 1)
        os.kill(user, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
    if not reaped(user, 60):
        print("bad", what + ": who used it does not end", flush=True)
    elif waits or dies:
        print("well", what, flush=True)
    if not waits:
        os.kill(server, signal.SIGKILL)
    if not reaped(server, 60):
        print("bad", what + ": its server does not end", flush=True)
    unmounted(folder)
    os.rmdir(folder)
    os.close(came)


def nothing(q):
    return None


def errors(q, numbers=[5, -(1 << 31), -134, -133, -512, -99999, (1 << 31) - 1]):
    os.write(q.connection, q.header(16, numbers.pop(0) if numbers else -errno.EIO))


def lengths(q):
    for n in (0, 1, 15, 17, 4096, (1 << 32) - 1):
        q.refused(errno.EINVAL, [q.header(n)])
    q.refused(errno.EINVAL, [b"short"])
    return plain(q)


def strangers(q):
    q.refused(errno.EINVAL, [q.header(16, unique=q.unique + 1000)])
    q.refused(errno.EINVAL, [q.header(16, unique=q.unique + 2)])
    q.answer(plain(q))
    q.refused(errno.EINVAL, [q.header(16)])


def endless(q):
    block = memoryview(bytes(MIB))
    q.refused(errno.EINVAL, [q.header(16 + 1023 * MIB)] + [block] * 1023)
    return plain(q)


def half(q):
    """An answer of which one part is nowhere."""
    header = ctypes.create_string_buffer(q.header(16 + 104), 16)
    parts = (ctypes.c_size_t * 4)(ctypes.addressof(header), 16, 8, 104)
    if libc.writev(q.connection, parts, 2) != -1 or ctypes.get_errno() != errno.EFAULT:
        print("bad half an answer is taken", flush=True)
    return plain(q)


def stats(folder, times=8):
    seen = []
    for _ in range(times):
        try:
            seen.append(os.stat(folder + "/file").st_size)
        except OSError as e:
            seen.append(e.errno)
    return seen


def reads(folder):
    f = os.open(folder + "/file", os.O_RDWR)
    out = []
    for step in (lambda: os.lseek(f, 0, os.SEEK_END), lambda: len(os.pread(f, MIB, 0)), lambda: len(os.pread(f, MIB, (1 << 63) - 1)),
                 lambda: len(os.pread(f, 10, (1 << 62))), lambda: os.ftruncate(f, 1), lambda: mmap.mmap(f, 4096), lambda: os.pwrite(f, b"x", (1 << 63) - 2)):
        try:
            out.append(step())
        except (OSError, ValueError) as e:
            out.append(getattr(e, "errno", "none"))
    return out


def much(folder):
    """Reads more at once than there is memory."""
    room = mmap.mmap(-1, 1 << 30)
    return os.preadv(os.open(folder + "/file", os.O_RDONLY), [room], 0)


def asked(folder):
    if len(os.pread(os.open(folder + "/file", os.O_RDONLY), 10, 0)) > 10:
        raise AssertionError("more is read than was asked for")


def fails(folder):
    try:
        got = os.pread(os.open(folder + "/file", os.O_RDONLY), 10, 0)
    except OSError as e:
        if e.errno == errno.EIO:
            return e
        raise AssertionError(e)
    raise AssertionError("a read that failed gives %r" % got)


def far(folder):
    f = os.open(folder + "/file", os.O_RDWR)
    return [os.pwrite(f, b"x", at) for at in (1 << 32, 1 << 33, 5000, 0)]


def once(q, seen=set()):
    at, size = struct.unpack_from("<QQI", q.body)[1:]
    if size != 1 or at in seen:
        print("bad write of", size, "bytes at", at, flush=True)
        return errno.EIO
    seen.add(at)
    return plain(q)


def attribute(folder):
    n = libc.getxattr((folder + "/file").encode(), b"user.any", None, 0)
    if n != -1:
        raise AssertionError("an attribute has %d bytes" % n)
    return os.strerror(ctypes.get_errno())


def listed(folder):
    seen = 0
    with os.scandir(folder) as all:
        for _ in all:
            seen += 1
            if seen == 5000:
                break
    return seen


def linked(folder):
    out = []
    for step in (lambda p: len(os.readlink(p)), lambda p: os.stat(p).st_size, lambda p: os.open(p, os.O_RDONLY)):
        try:
            out.append(step(folder + "/file"))
        except (OSError, ValueError) as e:
            out.append(getattr(e, "errno", "none"))
    return out


def opened(folder):
    """Opens what is no file, and executes what is root's."""
    for n in range(6):
        try:
            os.close(os.open(folder + "/node%d" % n, os.O_RDWR | os.O_NONBLOCK))
        except OSError:
            continue
        raise AssertionError("node %d is opened" % n)
    try:
        subprocess.run([folder + "/program"])
    except OSError as e:
        return e
    raise AssertionError("a program is run")


def kinds(q):
    name = q.body.rstrip(b"\0")
    modes = {b"node0": 0o020666, b"node1": 0o060666, b"node2": 0o010666, b"node3": 0o140666, b"node4": 0o000666, b"node5": 0o170666}
    return entry(mode=modes.get(name, 0o104777), device=0x101)


def deep(folder):
    os.stat(folder + "/a" * 300)
    return os.rename(folder + "/a/b", folder + "/a/b/c/d")


def cloned(folder):
    other = os.open("/dev/fuse", os.O_RDWR)
    out = []
    for of in (other, 0, 99):
        try:
            fcntl.ioctl(other, 0x8004E500, struct.pack("<I", of))
            raise AssertionError("a connection is had that was not given")
        except OSError as e:
            out.append(e.errno)
    for step in (lambda: os.read(other, MIB), lambda: os.write(other, bytes(16))):
        try:
            step()
            raise AssertionError("a connection that is none is used")
        except OSError as e:
            out.append(e.errno)
    return out


def died(q):
    os._exit(0)


def whole():
    worst = (1 << 64) - 1
    tried("errors of all numbers", {GETATTR: errors}, stats)
    tried("answers that are too short", {GETATTR: lambda q: b"123", LOOKUP: lambda q: b"1"}, stats)
    tried("lengths that are not", {LOOKUP: lengths}, stats)
    tried("answers to nobody", {LOOKUP: strangers}, stats)
    tried("an answer of a GiB", {LOOKUP: endless}, stats)
    tried("half an answer", {LOOKUP: half}, stats)
    for size in (worst, 1 << 63, (1 << 63) - 1, 1):
        tried("a file of %d bytes" % size, {GETATTR: lambda q: told(q.node, size=size), LOOKUP: lambda q: entry(size=size)}, reads)
    big = {GETATTR: lambda q: told(q.node, size=1 << 40), LOOKUP: lambda q: entry(size=1 << 40)}
    tried("more than was asked for", {**big, READ: lambda q: bytes(8192)}, asked)
    tried("a read that fails", {**big, READ: lambda q: errno.EIO}, fails)
    tried("a read of more than there is memory", big, much, dies=True)
    tried("a write far into a file", {WRITE: once}, far)
    tried("a write of more than was given", {WRITE: lambda q: struct.pack("<II", 1 << 31, 0)}, far)
    tried("a write of nothing", {WRITE: lambda q: struct.pack("<II", 0, 0)}, far)
    tried("an attribute of 4 GiB", {GETXATTR: lambda q: struct.pack("<II", (1 << 32) - 1, 0)}, attribute)
    for names in (named(b"x", length=0), named(b"x", length=(1 << 32) - 1), named(b"x" * 8, length=7000), named(b"a/../../b") + named(b"a\0b", 2), b"\xff" * 100, named(b"again")):
        tried("names of a folder", {READDIR: lambda q: names}, listed)
    for link in (b"", b"a/" * (MIB // 2), b"a\0b", b"file", b"/proc/1/root/.berth/berth-guest"):
        tried("a link", {LOOKUP: lambda q: entry(mode=0o120777), READLINK: lambda q: link}, linked)
    tried("nodes of all kinds", {LOOKUP: kinds}, opened)
    tried("a folder in itself", {LOOKUP: lambda q: entry(ROOT, mode=0o040777)}, deep)
    tried("times without end", {GETATTR: lambda q: told(q.node, worst, seconds=worst), LOOKUP: lambda q: entry(valid=worst, seconds=worst)}, stats)
    for init in (agreed(major=6), agreed(write=0), agreed(pages=0), agreed(pages=65535), agreed(minor=0)):
        tried("what is agreed", {INIT: lambda q: init}, far)
    tried("another's connection", {}, cloned)
    tried("a server that dies", {GETATTR: died, LOOKUP: died}, stats)
    for what, odd in (("silence from the beginning", {INIT: nothing}), ("half of a greeting", {INIT: lambda q: q.refused(errno.EINVAL, [q.header(24), b"12345678"])}),
                      ("no more to be read at once than there is", {INIT: lambda q: (q.answer(agreed(write=(1 << 32) - 1)), time.sleep(3600))[1]}),
                      ("silence about a name", {LOOKUP: nothing}), ("silence about a folder", {GETATTR: nothing}), ("silence about a read", {**big, READ: nothing})):
        tried(what, odd, reads, waits=True)
    tried("a server that waits for itself", {LOOKUP: lambda q: os.stat(q.folder + "/other")}, stats, waits=True)


def answered(text, files, pid=None, uid=None):
    """What the guest says to a request."""
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    c.settimeout(30)
    c.connect("\0berth-fuse")
    who = struct.pack("3i", pid or os.getpid(), os.getuid() if uid is None else uid, os.getgid())
    beside = [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, who)]
    if files:
        beside.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("%di" % len(files), *files)))
    c.sendmsg([text if isinstance(text, bytes) else json.dumps(text).encode()], beside)
    said, given, _, _ = socket.recv_fds(c, 1 << 16, 4)
    if given:
        return "a connection"
    return json.loads(said).get("error", "") if said else "the end"


def requests():
    """Asks the guest for what it may not do: it must say so, and say why."""
    folder = os.open(HERE, os.O_RDONLY)
    ends = os.pipe()
    for text, files in (
            (b"{", []), (b"[]", [folder]), (b"null", []), (b"x" * 16000, [folder]), (b"x" * 60000, [folder]), ({}, []), ({}, [folder, folder]), ({}, [folder] * 5), ({}, [ends[0]]),
            ({}, [os.open("/dev/null", os.O_RDONLY)]), ({}, [os.open("/proc/self", os.O_RDONLY)]), ({}, [os.open("/sys", os.O_RDONLY)]),
            ({}, [os.open("/", os.O_RDONLY)]), ({}, [os.open("/proc/self/root", os.O_PATH)]), ({}, [os.open("/proc/self/root/etc", os.O_PATH)]),
            *[({"options": o}, [folder]) for o in ("suid", "dev", "fd=0", "rw,fd=0", "user_id=0", "rootmode=104777", "bind", "remount", "x\\,suid", "a=b", "fsname=" + "x" * 5000, "max_read=-1", "blkdev", "context=x")],
            *[({"unmount": True, "path": p}, []) for p in ("/", "/proc", "/dev", "/.berth", "", "..", "/proc/self/root/proc", "x" * 9000)]):
        said = answered(text, files)
        print("bad" if said in ("", "a connection") else "well", "request:", str(text)[:60], said[:100], flush=True)
    if os.getuid():
        try:
            print("bad request as root's:", answered({}, [folder], pid=1, uid=0), flush=True)
        except OSError as e:
            print("well request as root's:", e, flush=True)


def wedge(folder):
    connection = mounted(folder, "rw,allow_other" if os.getuid() == 0 else "rw")
    q = Request(connection, os.read(connection, 4 * MIB))
    q.answer(agreed())
    for step in (lambda: os.stat(folder), lambda: os.open(folder + "/file", os.O_RDONLY), lambda: os.stat(folder + "/other"),
                 lambda: os.mkdir(folder + "/new"), lambda: os.listdir(folder), lambda: unmounted(folder), lambda: os.mkdir(folder + "/newer")):
        forked(step)
        time.sleep(0.1)  # the locks that they wait for should be taken in this order
    print("wedged", flush=True)
    signal.pause()


if sys.argv[1] == "wedge":
    wedge(sys.argv[2])
HERE = os.path.realpath(tempfile.mkdtemp(dir=sys.argv[2]))
{"requests": requests, "whole": whole}[sys.argv[1]]()
print("done", flush=True)
