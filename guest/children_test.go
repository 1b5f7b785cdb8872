package guest

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startShell runs a line in a shell that reads and writes nothing.
func startShell(t *testing.T, c *children, line string) *child {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := null.Fd()
	k, err := c.start("/bin/sh", []string{"sh", "-c", line}, &syscall.ProcAttr{Dir: "/", Env: []string{"PATH=" + defaultPath},
		Files: []uintptr{fd, fd, fd}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *child) mustEnd(t *testing.T) syscall.WaitStatus {
	t.Helper()
	select {
	case <-k.done:
	case <-time.After(time.Minute):
		t.Errorf("the end of %d was not noticed", k.pid)
	}
	return k.status
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestChildrenEnd starts many at once, by both ways of noticing how they end.
func TestChildrenEnd(t *testing.T) {
	for _, way := range []string{"by descriptor", "by a thread each"} {
		t.Run(way, func(t *testing.T) {
			c, stop := newChildren(false)
			defer stop()
			if c.ends == nil {
				t.Log("this kernel has no descriptors of processes")
			} else if way == "by a thread each" {
				c.ends.close()
				c.ends = nil
			}
			before := descriptors(t)
			var wg sync.WaitGroup
			for n := range 50 {
				wg.Go(func() {
					k := startShell(t, c, "exit "+strconv.Itoa(n))
					if s := k.mustEnd(t); s.ExitStatus() != n {
						t.Errorf("%d ended with %d", n, s.ExitStatus())
					}
					if alive, err := c.signal(k, syscall.SIGTERM); alive || err != nil {
						t.Errorf("a signal to one that has ended: %v %v", alive, err)
					}
				})
			}
			wg.Wait()
			deadline := time.Now().Add(time.Minute)
			for descriptors(t) > before && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			if now := descriptors(t); now > before {
				t.Errorf("%d descriptors stay", now-before)
			}
		})
	}
}

// TestAnEndIsToldOnce hears of it by two descriptors.
func TestAnEndIsToldOnce(t *testing.T) {
	c, stop := newChildren(false)
	defer stop()
	k := startShell(t, c, "sleep 0.2; exit 7")
	if c.ends != nil {
		fd, err := unix.PidfdOpen(k.pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !c.ends.watch(fd, k) {
			t.Fatal("not watched")
		}
	}
	if s := k.mustEnd(t); s.ExitStatus() != 7 {
		t.Errorf("ended with %d", s.ExitStatus())
	}
}
