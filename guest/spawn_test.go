package guest

import (
	"io"
	"os"
	"syscall"
	"testing"
)

// TestSpawnIsLikeForkExec compares what a program finds itself to be.
func TestSpawnIsLikeForkExec(t *testing.T) {
	const look = `grep -E "^(Sig|Shd|Groups|Uid|Gid)" /proc/self/status; pwd; env; ulimit -n; ls /proc/self/fd; ps -o sid= -p $$ | tr -d " " | grep -qx $$ && echo leads`
	how := func(start func(string, []string, *syscall.ProcAttr) (int, error)) string {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		null, err := nothing.open()
		if err != nil {
			t.Fatal(err)
		}
		attr := &syscall.ProcAttr{Dir: "/usr", Env: []string{"A=b", "PATH=" + defaultPath}, Files: []uintptr{null, w.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}
		if os.Getuid() == 0 {
			attr.Sys.Credential = &syscall.Credential{Uid: 12345, Gid: 12346, Groups: []uint32{12346, 12347}}
		}
		pid, err := start("/bin/sh", []string{"sh", "-c", look}, attr)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	want := how(syscall.ForkExec)
	tried := false
	got := how(func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		pid, ok, err := spawn(path, argv, attr)
		if tried = ok; !ok {
			return syscall.ForkExec(path, argv, attr)
		}
		return pid, err
	})
	if !tried {
		t.Log("this kernel lacks what spawn needs: it was not tried")
	}
	if got != want {
		t.Errorf("spawned:\n%s\nforked:\n%s", got, want)
	}
}

func TestSpawnTellsWhyNot(t *testing.T) {
	null, err := nothing.open()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plainFile := dir + "/plain"
	if err := os.WriteFile(plainFile, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, dir string
		want      syscall.Errno
	}{
		{"/nowhere/true", "/", syscall.ENOENT},
		{"/bin/true", "/nowhere", syscall.ENOENT},
		{"/bin/true", plainFile, syscall.ENOTDIR},
		{plainFile, "/", syscall.ENOEXEC},
		{dir, "/", syscall.EACCES},
	} {
		_, ok, err := spawn(c.path, []string{"x"}, &syscall.ProcAttr{Dir: c.dir, Files: []uintptr{null, null, null}, Sys: &syscall.SysProcAttr{Setsid: true}})
		if ok && err != c.want {
			t.Errorf("start %s in %s: %v, want %v", c.path, c.dir, err, c.want)
		}
	}
}
