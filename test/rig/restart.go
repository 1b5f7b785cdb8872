package rig

import (
	"os"
	"testing"
)

// Restart ends the server by a signal, SIGKILL too, and starts another one on its
// data with flags. Its address is another one.
func (s *Server) Restart(t *testing.T, signal os.Signal, flags ...string) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	s.cmd.Wait() // a killed one ends with an error
	if err := s.start(Binary(t), flags); err != nil {
		t.Fatalf("%v\n%s", err, s.tail())
	}
}
