package kernel

import (
	"errors"
	"maps"
	"testing"
	"time"
)

func prepare(t *testing.T, s *Set, o Options) {
	t.Helper()
	if err := s.Prepare(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// awaitEnd waits until a kernel has ended.
func awaitEnd(t *testing.T, k *scripted) {
	t.Helper()
	select {
	case <-k.done:
	case <-time.After(time.Minute):
		t.Fatal("a kernel that nobody can have lives on")
	}
}

func TestAPreparedKernelIsTakenOver(t *testing.T) {
	s, script, o := newScripted(t)
	o.Env["GONE"] = "soon"
	prepare(t, s, o)
	prepare(t, s, o) // there is one
	if len(script.kernels) != 1 || len(s.List()) != 0 {
		t.Fatalf("%d kernels, %d contexts", len(script.kernels), len(s.List()))
	}
	first := o
	first.Name, first.Cwd, first.Env = "first", "/elsewhere", map[string]string{"KEPT": "other", "NEW": "1"}
	c := create(t, s, first)
	if end := expect(t, s, c, "env CWD\nenv KEPT\nenv NEW\nenv GONE", OK, "out /elsewhere", "out other", "out 1"); end.Count != 1 {
		t.Errorf("its first run is counted as %d", end.Count)
	}
	if len(script.kernels) != 1 || c.Info().PID != 4711 || c.Info().Restarts != 0 {
		t.Errorf("%d kernels, %+v", len(script.kernels), c.Info())
	}
	r, err := s.Run(c, "env KEPT", map[string]string{"KEPT": "mine"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	read(t, r)
	expect(t, s, c, "env KEPT", OK, "out other") // not what the kernel was started with
	if err := c.Restart(t.Context()); err != nil || len(script.kernels) != 2 {
		t.Errorf("a restart: %v, %d kernels", err, len(script.kernels))
	}
	prepare(t, s, o) // contexts are there
	if len(script.kernels) != 2 {
		t.Errorf("%d kernels", len(script.kernels))
	}
}

func TestAPreparedKernelThatDoesNotFit(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"user":           func(o *Options) { o.User = "other" },
		"early variable": func(o *Options) { o.Env["PYTHONHASHSEED"] = "1" },
		"kernelspec":     func(o *Options) { o.Folders = newFolders(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s, script, o := newScripted(t)
			prepare(t, s, o)
			o.Env = maps.Clone(o.Env)
			change(&o)
			c := create(t, s, o)
			if len(script.kernels) != 2 {
				t.Fatalf("%d kernels", len(script.kernels))
			}
			awaitEnd(t, script.kernels[0])
			expect(t, s, c, "print a", OK, "out a")
		})
	}
}

func TestAPreparedKernelThatEnded(t *testing.T) {
	s, script, o := newScripted(t)
	script.unstarts = 1
	if err := s.Prepare(t.Context(), o); err == nil {
		t.Error("a kernel that ends at once is prepared")
	}
	other := o
	other.Language = "cobol"
	if err := s.Prepare(t.Context(), other); !errors.Is(err, ErrNoKernel) {
		t.Errorf("a language without kernel: %v", err)
	}
	script.unstarts = 0
	await(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.spare == nil })
	prepare(t, s, o)
	script.last().end("was killed by SIGKILL")
	c := create(t, s, o) // whether or not its end was seen
	expect(t, s, c, "print a", OK, "out a")
	if len(script.kernels) != 3 {
		t.Errorf("%d kernels", len(script.kernels))
	}
}

// TestAPreparedKernelGoesWithItsSet ends one that nobody took; newScripted looks.
func TestAPreparedKernelGoesWithItsSet(t *testing.T) {
	s, script, o := newScripted(t)
	prepare(t, s, o)
	s.Close()
	awaitEnd(t, script.last())
	if err := s.Prepare(t.Context(), o); err != nil || len(script.kernels) != 1 {
		t.Errorf("a closed set prepares: %v, %d kernels", err, len(script.kernels))
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came true")
		}
	}
}
