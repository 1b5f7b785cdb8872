package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// TestHowManyEnginesWait takes the number from the flag, from the file, or from how
// many sandboxes run ahead.
func TestHowManyEnginesWait(t *testing.T) {
	file := filepath.Join(t.TempDir(), "berth.toml")
	if err := os.WriteFile(file, []byte("[limits]\nengines = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, shellsEach * defaultWarm},
		{[]string{"--warm", "2"}, shellsEach * 2},
		{[]string{"--warm", "0"}, 0},
		{[]string{"--warm", "0", "--engines", "5"}, 5},
		{[]string{"--config", file}, 0},
		{[]string{"--config", file, "--engines", "7"}, 7},
	} {
		var f serveFlags
		cmd := new(cobra.Command)
		f.register(cmd.Flags())
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if err := f.configure(cmd); err != nil {
			t.Fatal(err)
		}
		if got := shellsOf(&f, slog.New(slog.DiscardHandler)).Most; got != c.want {
			t.Errorf("%q: %d engines wait, not %d", c.args, got, c.want)
		}
	}
	for _, n := range []int{-2, 1001} {
		if err := checkEngines(n); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%d engines: %v", n, err)
		}
	}
}
