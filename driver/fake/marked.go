package fake

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// mark is the variable that every process of a machine inherits. By it those are
// found that left the tree they were started in.
const mark = "BERTH_FAKE_SANDBOX"

// killTime bounds the search for processes that go on starting others.
const killTime = 5 * time.Second

// hostProcess is a process on the host, by its number.
type hostProcess int

// marked lists the living processes of a machine.
func marked(id sandbox.ID) []hostProcess {
	want := []byte(mark + "=" + string(id))
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	var found []hostProcess
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(dir + "/environ")
		if err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return bytes.Equal(v, want) }) {
			found = append(found, hostProcess(pid))
		}
	}
	return found
}

// wipe kills what a machine left running and removes its folder.
func wipe(ctx context.Context, dir string, id sandbox.ID) error {
	if err := kill(ctx, id); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return &sandbox.Error{Kind: sandbox.Internal, Err: err}
	}
	return nil
}

// kill ends every process of a machine.
func kill(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	for {
		left := marked(id)
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			if err := syscall.Kill(int(p), syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return &sandbox.Error{Kind: sandbox.Internal, Err: fmt.Errorf("kill process %d: %w", p, err)}
			}
		}
		select {
		case <-ctx.Done():
			return &sandbox.Error{Kind: sandbox.Internal, Err: fmt.Errorf("%d processes do not end: %w", len(left), ctx.Err())}
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// freeze stops every process of a machine, those too that start meanwhile.
func freeze(id sandbox.ID) error {
	stopped := map[hostProcess]bool{}
	for {
		fresh := false
		for _, p := range marked(id) {
			if stopped[p] {
				continue
			}
			if err := syscall.Kill(int(p), syscall.SIGSTOP); err != nil && err != syscall.ESRCH {
				return &sandbox.Error{Kind: sandbox.Internal, Err: fmt.Errorf("stop process %d: %w", p, err)}
			}
			stopped[p], fresh = true, true
		}
		if !fresh {
			return nil
		}
	}
}

// thaw lets every process of a machine go on.
func thaw(id sandbox.ID) error {
	for _, p := range marked(id) {
		if err := syscall.Kill(int(p), syscall.SIGCONT); err != nil && err != syscall.ESRCH {
			return &sandbox.Error{Kind: sandbox.Internal, Err: fmt.Errorf("continue process %d: %w", p, err)}
		}
	}
	return nil
}

// usage is a process's CPU time and resident memory; zero if it has ended.
func (p hostProcess) usage() (time.Duration, int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return 0, 0
	}
	field := func(n int) int64 { // numbered as in proc(5)
		v, _ := strconv.ParseInt(string(fields[n-3]), 10, 64)
		return v
	}
	const tick = time.Second / 100 // the kernel's own, on every Linux
	return time.Duration(field(14)+field(15)) * tick, field(24) * int64(os.Getpagesize())
}

// blocks is what a file takes on the disk.
func blocks(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}
