# Tries to get out of the sandbox, or at what is not its own, each attempt in a process
# of its own, and prints what came of each: "ok ..." if it succeeded, "no ..." if not.
import ctypes, fcntl, os, resource, signal, socket, sys, tempfile

libc = ctypes.CDLL(None, use_errno=True)
buf = ctypes.create_string_buffer(4096)
os.chdir(tempfile.mkdtemp())

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def call(number, *args):
    return checked(libc.syscall(number, *args))

def mount(source, target, kind=None, flags=0, data=None):
    return checked(libc.mount(source, target, kind, flags, data))

RDONLY, REMOUNT, BIND, REC = 1, 32, 4096, 16384
NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000

def within(step):
    """Does a step as root of user and mount namespaces of its own."""
    checked(libc.unshare(NEWUSER | NEWNS))
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"0 {os.getuid()} 1")
    return step()

def write(path, text="x"):
    f = os.open(path, os.O_WRONLY)
    return os.write(f, text.encode())

def device(path, kind, major, minor):
    os.mknod(path, kind | 0o666, os.makedev(major, minor))
    return os.read(os.open(path, os.O_RDONLY), 16)

def remounted(path, flags, write_to):
    try:
        mount(b"none", path.encode(), None, REMOUNT | flags)
    except OSError:
        pass  # what counts is whether it can be written to
    return write(write_to)

def copied(path, write_to):
    copy = os.path.abspath("copy")
    os.makedirs(copy, exist_ok=True)
    mount(path.encode(), copy.encode(), None, BIND | REC)
    return remounted(copy, BIND, copy + "/" + write_to)

def unpinned(path):
    checked(libc.umount2(path.encode(), 2))
    return os.listdir(path)

def agent():
    """The classic: the kernel of the host runs a program when a cgroup is empty."""
    os.makedirs("cg", exist_ok=True)
    mount(b"none", b"cg", b"cgroup", 0, b"memory")
    return write("cg/release_agent", "/tmp/run")

def handle():
    buf.raw = (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(8, "little") + bytes(4080)
    return os.read(call(304, os.open("/", os.O_RDONLY), buf, os.O_RDONLY), 16)

def traced(pid):
    call(101, 16, pid, 0, 0)
    return "attached"

def written(pid):
    with open(f"/proc/{pid}/maps") as maps:
        start = int(next(line for line in maps if " rw" in line).split("-")[0], 16)
    one = (ctypes.c_size_t * 2)(ctypes.addressof(buf), 8)
    other = (ctypes.c_size_t * 2)(start, 8)
    return call(311, pid, one, 1, other, 1, 0)

def read(pid):
    with open(f"/proc/{pid}/maps") as maps:
        start = int(next(line for line in maps if " rw" in line).split("-")[0], 16)
    f = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    return len(os.pread(f, 8, start))

def leaked():
    own = [f for f in os.listdir("/proc/self/fd") if int(f) > 2 and os.path.exists(f"/proc/self/fd/{f}")]
    if not own:
        raise OSError("there is none")
    return [os.readlink(f"/proc/self/fd/{f}") for f in own]

def asFirst(number, *args):
    """Calls as the first process of a namespace, who is not the sandbox's."""
    checked(libc.unshare(NEWUSER | NEWPID))
    child = os.fork()
    if not child:
        try:
            call(number, *args)
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    errno = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if errno:
        raise OSError(errno, os.strerror(errno))

FUSE = b"rootmode=40000,user_id=%d,group_id=%d,fd=%d"

def fuse(user=None):
    """Mounts a file system whose server is this process."""
    user = os.getuid() if user is None else user
    return mount(b"fuse", b"/mnt", b"fuse", 6, FUSE % (user, user, os.open("/dev/fuse", os.O_RDWR)))

def byTheGuest():
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return c.connect("\0berth-fuse")

def cloned():
    of, clone = os.open("/dev/fuse", os.O_RDWR), os.open("/dev/fuse", os.O_RDWR)
    return fcntl.ioctl(clone, 0x8004E500, of.to_bytes(4, "little"))

def raised(what):
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (hard * 2, hard * 2))
    return hard * 2

guest = os.readlink("/proc/1/exe") if os.getuid() == 0 else "/.berth/berth-guest"
volume = sys.argv[1]

attempts = {
    # What the host's kernel might be asked for.
    "eBPF": lambda: call(321, 0, buf, 64),
    "io_uring": lambda: call(425, 8, buf),
    "userfaultfd": lambda: call(323, 0),
    "perf events": lambda: call(298, buf, 0, -1, -1, 0),
    "a key": lambda: call(248, b"user", b"name", b"text", 4, -3),
    "AF_ALG": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
    "AF_VSOCK": lambda: socket.socket(40, socket.SOCK_STREAM),
    "a module": lambda: call(175, buf, 10, b""),
    "another kernel": lambda: call(246, 0, 0, 0, 0),
    "a reboot": lambda: call(169, 0xFEE1DEAD, 672274793, 0x1234567, 0),
    "I/O ports": lambda: call(172, 3),
    "swap": lambda: call(167, b"swap", 0),
    "the clock": lambda: call(164, buf, 0),
    "a file by its handle": handle,
    "an exit program": lambda: call(163, b"account"),
    # Devices.
    "kvm": lambda: os.open("/dev/kvm", os.O_RDWR),
    "memory": lambda: os.open("/dev/mem", os.O_RDWR),
    "a disk": lambda: os.open("/dev/vda", os.O_RDWR),
    "a loop device": lambda: os.open("/dev/loop-control", os.O_RDWR),
    "a character device made": lambda: device("mem", 0o020000, 1, 1),
    "a block device made": lambda: device("disk", 0o060000, 254, 0),
    # Files of the kernel's.
    "core_pattern": lambda: write("/proc/sys/kernel/core_pattern", "|/tmp/run"),
    "modprobe": lambda: write("/proc/sys/kernel/modprobe", "/tmp/run"),
    "uevent_helper": lambda: write("/sys/kernel/uevent_helper", "/tmp/run"),
    "kcore": lambda: os.open("/proc/kcore", os.O_RDONLY),
    "the kernel's log": lambda: os.open("/dev/kmsg", os.O_RDONLY),
    "release_agent": lambda: write("/sys/fs/cgroup/release_agent", "/tmp/run"),
    "release_agent of a mount": agent,
    "release_agent in a namespace": lambda: within(agent),
    # Mounts.
    "a mount": lambda: mount(b"none", b"/mnt", b"tmpfs"),
    "a root of its own": lambda: call(155, b"/tmp", b"/tmp"),
    "a file system of the host's": lambda: within(lambda: mount(b"none", b"/mnt", b"9p", 0, b"trans=fd,rfdno=0,wfdno=0")),
    "an image of the host's": lambda: within(lambda: mount(b"none", b"/mnt", b"erofs", 0, b"ifd=6")),
    "the guest's folder unmounted": lambda: unpinned("/.berth"),
    "the same in a namespace": lambda: within(lambda: unpinned("/.berth")),
    "a volume to read, remounted": lambda: remounted(volume, 0, volume + "/file"),
    "that, as a bind": lambda: remounted(volume, BIND, volume + "/file"),
    "that, in a namespace": lambda: within(lambda: remounted(volume, 0, volume + "/file")),
    "that, as a bind there": lambda: within(lambda: remounted(volume, BIND, volume + "/file")),
    "a copy of that there": lambda: within(lambda: copied(volume, "file")),
    # File systems that programs serve, where there may be none.
    "a FUSE mount": fuse,
    "a FUSE mount in a namespace": lambda: within(lambda: fuse(0)),
    "one served by who holds what is open": lambda: within(lambda: mount(b"fuse", b"/mnt", b"fuse", 0, FUSE % (0, 0, 0))),
    "one by the guest": byTheGuest,
    "another's connection": cloned,
    # The guest.
    "its program": lambda: write(guest),
    "its program, remounted": lambda: within(lambda: remounted("/.berth", 0, guest)),
    "its end": lambda: os.kill(1, signal.SIGKILL),
    "its standstill": lambda: os.kill(1, signal.SIGSTOP),
    "its end from a namespace": lambda: within(lambda: os.kill(1, signal.SIGKILL)),
    "a thread of it": lambda: call(234, 1, 1, int(signal.SIGKILL)),
    "a trace of it": lambda: traced(1),
    "what it has in memory": lambda: read(1),
    "something else in its memory": lambda: written(1),
    "a start as it starts programs": lambda: call(1990, buf),
    "that, as the first of a namespace": lambda: asFirst(1990, buf),
    "a wait as it waits": lambda: call(1991, 1, 1000, -1, -1),
    "that, as the first of a namespace ": lambda: asFirst(1991, 1, 1000, -1, -1),
    # What was left over.
    "descriptors of others": leaked,
    "more processes": lambda: raised(resource.RLIMIT_NPROC),
    "more processes in a namespace": lambda: within(lambda: raised(resource.RLIMIT_NPROC)),
    "more files": lambda: within(lambda: raised(resource.RLIMIT_NOFILE)),
}

for what, attempt in attempts.items():
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    signal.alarm(20)
    try:
        print("ok", what + ":", attempt(), flush=True)
    except (OSError, ValueError) as e:
        print("no", what + ":", e, flush=True)
    os._exit(0)
print("done", len(attempts))
