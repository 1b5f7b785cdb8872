package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEveryVerbSaysWhatItTakes: each verb and each flag has its line, what it does not
// take is told with where to look, and the page on the command line has the verb.
func TestEveryVerbSaysWhatItTakes(t *testing.T) {
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: its line is %q", cmd.CommandPath(), cmd.Short)
		}
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no line", cmd.CommandPath(), f.Name)
			}
		})
		if len(path) == 1 && !strings.Contains(page, "`"+path[0]) {
			t.Errorf("docs/cli.md does not know %q", path[0])
		}
		if len(path) > 0 {
			saysWhatItTakes(t, path)
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look((&program{}).root())
}

func saysWhatItTakes(t *testing.T, path []string) {
	t.Helper()
	var out, errs strings.Builder
	say := func(flags ...string) int {
		out.Reset()
		errs.Reset()
		return run(t.Context(), append(append([]string{}, path...), flags...), strings.NewReader(""), &out, &errs)
	}
	if code := say("--help"); code != 0 || !strings.Contains(out.String(), "Usage:\n  berth "+strings.Join(path, " ")) {
		t.Errorf("%q --help: exit %d, %s", path, code, &out)
	}
	if code := say("--no-such-flag"); code != 2 || !strings.Contains(errs.String(), "\nhint: see ") {
		t.Errorf("%q with a flag that is not there: exit %d, %s", path, code, &errs)
	}
	var told struct {
		Error struct{ Code, Message, Hint string }
	}
	code := say("--json", "--no-such-flag")
	if err := json.Unmarshal([]byte(errs.String()), &told); code != 2 || err != nil || told.Error.Code != "invalid" || told.Error.Hint == "" || told.Error.Message == "" {
		t.Errorf("%q as JSON: exit %d, %s", path, code, &errs)
	}
}
