package gvisor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// look prints all that a program may find itself to be, without what differs from one
// start to the next.
const look = `
import ctypes, os, resource, signal, sys
c = ctypes.CDLL(None)
def show(*a): print(*a, file=sys.stdout)
for line in open("/proc/self/status"):
    if line.split(":")[0] not in ("Pid", "Tgid", "NSpid", "NStgid", "NSpgid", "NSsid", "VmPeak", "VmSize", "VmRSS", "VmHWM", "VmData", "RssAnon", "RssFile", "RssShmem", "FDSize"):
        show(line.strip())
show("ids", os.getresuid(), os.getresgid(), os.getgroups())
show("leads", os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getppid())
stat = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
show("stat", stat[0], stat[1], int(stat[2]) == os.getpid(), int(stat[3]) == os.getpid(), stat[4:7], stat[15:18])
show("limits", [(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")])
show("files", sorted((f, os.readlink("/proc/self/fd/" + f).split(":")[0], oct(__import__("fcntl").fcntl(int(f), 3)), __import__("fcntl").fcntl(int(f), 1)) for f in os.listdir("/proc/self/fd") if int(f) < 3))
show("no more files", [f for f in os.listdir("/proc/self/fd") if int(f) > 3])
show("umask", oct(os.umask(0)), "nice", os.nice(0), "folder", os.getcwd(), "oom", open("/proc/self/oom_score_adj").read().strip())
show("blocked", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "pending", sorted(signal.sigpending()))
show("ignored", [s for s in range(1, 65) if s not in (32, 33) and signal.getsignal(s) == signal.SIG_IGN])
for name, option in ("dumpable", 3), ("keepcaps", 7), ("seccomp", 21), ("securebits", 27), ("subreaper", None), ("nnp", 39), ("death", None):
    if option: show(name, c.prctl(option, 0, 0, 0, 0))
show("personality", c.personality(0xffffffff))
show("bounding", [n for n in range(41) if c.prctl(23, n, 0, 0, 0) == 1])
show("cgroup", open("/proc/self/cgroup").read(), "cpus", sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0))
show("environment", sorted((k, v) for k, v in os.environ.items() if k != "BERTH_PROCESS"), "BERTH_PROCESS" in os.environ)
show("spaces", {n: os.readlink("/proc/self/ns/" + n) for n in ("mnt", "net", "pid", "user", "uts", "ipc")} if os.getuid() == 0 else "")
show("began as", open("/proc/self/cmdline").read().split("\0")[:2], open("/proc/self/comm").read())
`

// TestTheEngineSpawnsAsForkAndExec compares what a program is that the engine started by
// one call with what it is after clone3, a dozen calls of the child's and execve.
func TestTheEngineSpawnsAsForkAndExec(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plain")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w -X github.com/berth-dev/berth/guest.engineless=yes", "-o", file, "github.com/berth-dev/berth/cmd/berth-guest").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	old, err := gvisor.New(gvisor.Config{Dir: t.TempDir(), Guest: func() ([]byte, error) { return os.ReadFile(file) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { old.Close() })
	by := map[string]box{"engine": create(t, newDriver(t, t.TempDir()), newSpec(t)), "plain": create(t, old, newSpec(t))}
	for name, b := range by {
		if out, e := b.sh(t, "root", `mkdir -m 700 /locked; useradd -m -G adm,audio -s /bin/bash other; printf '#!/bin/sh -e\necho script $0 "$@"' > /script; printf '#!/nowhere\n' > /lost; `+
			`printf 'echo no first line' > /bare; touch /empty; printf '\177ELF' > /cut; cp /usr/bin/id /usr/bin/suid; chmod 4755 /script /lost /bare /empty /cut /usr/bin/suid; cp /usr/bin/true /secret; chmod 700 /secret; touch /flat; ln -s /script /link; ln -s /loop /loop`); e.Code != 0 {
			t.Fatalf("%s: prepare: %s", name, out)
		}
	}
	for name, b := range by {
		const pid = "echo $$"
		before, _ := b.sh(t, "root", pid)
		for range 5 {
			b.outcome(t, sandbox.Command{Argv: []string{"/bare"}})
		}
		after, _ := b.sh(t, "root", pid)
		// A start that is refused costs a process, where it is one that asks to be executed.
		if used := number(t, after) - number(t, before); (used < 5) != (name == "engine") {
			t.Errorf("%s: five starts that were refused used %d numbers", name, used)
		}
	}
	for _, user := range []string{"", "root", "other", "1234", "1234:77", "0:5"} {
		for _, cwd := range []string{"", "/tmp"} {
			same(t, by, sandbox.Command{Argv: []string{"python3", "-c", look}, User: user, Cwd: cwd, Env: map[string]string{"A": "b"}})
		}
		for _, argv := range [][]string{{"/script", "a", "b"}, {"/lost"}, {"/bare"}, {"/empty"}, {"/cut"}, {"suid"}, {"/secret"}, {"/flat"}, {"/link", "x"}, {"/loop"}, {"/usr"},
			{"nonesuch"}, {"/nonesuch/program"}, {"/flat/program"}, {""}, {"./script"}, {"bin/true"}, {"sh", "-c", "exit 3"}, {"sh", "-c", "kill -9 $$"}, {"true", strings.Repeat("x", 140<<10)}} {
			same(t, by, sandbox.Command{Argv: argv, User: user})
		}
		for _, cwd := range []string{"/locked", "/nonesuch", "/flat", "/loop"} {
			same(t, by, sandbox.Command{Argv: []string{"pwd"}, User: user, Cwd: cwd})
		}
		same(t, by, sandbox.Command{Shell: "echo $0; shopt login_shell; ulimit -a", User: user})
		same(t, by, sandbox.Command{Argv: []string{"true"}, User: user, Env: map[string]string{"PATH": "/flat:/nonesuch:relative:/usr/bin"}})
		same(t, by, sandbox.Command{Argv: []string{"true"}, User: user, Env: map[string]string{"PATH": "/usr"}})
		same(t, by, sandbox.Command{Argv: []string{"id"}, User: user, Env: map[string]string{"PATH": "/locked:/usr/bin", "LONG": strings.Repeat("y", 120<<10)}})
	}
}

// same runs a command in all machines, where it is to come to the same.
func same(t *testing.T, by map[string]box, cmd sandbox.Command) {
	t.Helper()
	cmd.Merge, cmd.Lossless = true, true
	said := map[string]string{}
	for name, b := range by {
		said[name] = b.outcome(t, cmd)
	}
	if said["engine"] != said["plain"] {
		t.Errorf("%.200q as %q in %q:\n%s\notherwise:\n%s", cmd.Argv, cmd.User, cmd.Cwd, said["engine"], said["plain"])
	}
}

// outcome runs a command and returns all that became of it.
func (b box) outcome(t *testing.T, cmd sandbox.Command) string {
	t.Helper()
	events, err := b.guest.Start(t.Context(), cmd)
	if err != nil {
		return "refused: " + string(sandbox.KindOf(err)) + ": " + err.Error() + " (" + sandbox.HintOf(err) + ")"
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Recv()
		switch {
		case err != nil:
			t.Fatal(errors.Join(err, errors.New(out.String())))
		case e.Started != nil:
			out.WriteString(e.Started.User + " in " + e.Started.Cwd + "\n")
		case e.Exit != nil:
			out.WriteString("exit " + e.Exit.Signal + string(rune('0'+e.Exit.Code%10)))
			return out.String()
		}
		out.Write(e.Data)
	}
}

// ask prints what the processor answers to questions of two numbers each.
const ask = `
import ctypes, mmap, sys
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(bytes.fromhex("534989d089f889f10fa241890041895804418948084189500c5bc3"))
f = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
out = (ctypes.c_uint32 * 4)()
for q in sys.argv[1:]:
    f(int(q.split(".")[0]), int(q.split(".")[1]), ctypes.addressof(out))
    print(*out)
`

// TestTheProcessorAnswers: a program that asks it what it can does not ask the engine. One
// under a hypervisor has answers that the engine would not give.
func TestTheProcessorAnswers(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only this kind of processor is asked by an instruction")
	}
	cpuid.Initialize()
	here := cpuid.HostFeatureSet()
	argv := []string{"python3", "-c", ask, "1073741824.0"} // who the hypervisor is
	var want strings.Builder
	for _, q := range []cpuid.In{{Eax: 0}, {Eax: 7}, {Eax: 0xd}, {Eax: 0xd, Ecx: 1}, {Eax: 0x80000002}} {
		argv = append(argv, fmt.Sprintf("%d.%d", q.Eax, q.Ecx))
		a := here.Query(q)
		fmt.Fprintln(&want, a.Eax, a.Ebx, a.Ecx, a.Edx)
	}
	b := create(t, newDriver(t, t.TempDir()), newSpec(t))
	got := b.outcome(t, sandbox.Command{Argv: argv})
	if !strings.HasSuffix(got, want.String()+"exit 0") {
		t.Errorf("a program was told:\n%s\nthe processor tells:\n%s", got, want.String())
	}
	if here.HasFeature(cpuid.X86FeatureHypervisor) && strings.Contains(got, "\n0 0 0 0\n") {
		t.Errorf("the engine has answered:\n%s", got)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
