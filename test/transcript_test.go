package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-dev/berth/test/rig"
)

// TestFake runs every transcript on the fake driver.
func TestFake(t *testing.T) { transcripts(t, "fake") }

// TestGVisor runs every transcript on real sandboxes.
func TestGVisor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of gVisor is tested by this run")
	}
	transcripts(t, "gvisor")
}

// binary is the program under test: BERTH_BIN, or what "make build" made.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BERTH_BIN")
	if path == "" {
		path = filepath.Join("..", "bin", "berth")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it first, with: make build", err)
	}
	return path
}

func transcripts(t *testing.T, driver string) {
	if only := os.Getenv("BERTH_TEST_DRIVER"); only != "" && only != driver {
		t.Skipf("SKIPPED: BERTH_TEST_DRIVER asks for %s alone", only)
	}
	s := &suite{driver: driver, berth: binary(t)}
	s.small = smallArchive(t)
	s.seed = s.makeSeed(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup:               s.setup,
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "fake", "gvisor":
				return cond == driver, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": s.command,
			"save":   save,
		},
	})
}

// suite is all transcripts on one driver.
type suite struct {
	driver string
	berth  string // path of the program
	small  string // path of a small image, as "docker save" writes it
	seed   string // a data directory that holds the template base
}

// instanceKey finds a transcript's server among its values.
type instanceKey struct{}

// setup gives a transcript its own data directory, with the templates of the
// seed, and ends what it leaves running.
func (s *suite) setup(env *testscript.Env) error {
	data := filepath.Join(env.WorkDir, "data")
	if err := rig.LinkTree(filepath.Join(s.seed, "templates"), filepath.Join(data, "templates")); err != nil {
		return err
	}
	env.Setenv("BERTH_DATA", data)
	env.Setenv("DRIVER", s.driver)
	env.Setenv("SMALL", s.small)
	env.Setenv("PATH", filepath.Dir(s.berth)+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("GOCOVERDIR", os.Getenv("GOCOVERDIR"))
	i := &instance{suite: s, data: data, log: filepath.Join(env.WorkDir, "server.log")}
	env.Values[instanceKey{}] = i
	env.Defer(func() {
		if err := i.clear(); err != nil {
			log, _ := os.ReadFile(i.log)
			env.T().Log(string(log))
			env.T().Fatal("clear: ", err)
		}
	})
	return nil
}

// command is "server start", "server stop" and "server kill". Nothing runs ahead of the
// creates, for most never need it and would wait for it: a transcript that is about that,
// or that is to go as it does for users, starts its server with --warm.
func (s *suite) command(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: server start|stop|kill")
	}
	i := ts.Value(instanceKey{}).(*instance)
	var err error
	switch args[0] {
	case "start":
		if err = i.start(append([]string{"--warm", "0"}, args[1:]...)...); err == nil {
			ts.Setenv("BERTH_URL", i.url)
		}
	case "stop":
		err = i.stop(os.Interrupt)
	case "kill":
		err = i.stop(os.Kill)
	default:
		err = errors.New("no such action")
	}
	if err != nil {
		ts.Logf("%s", tail(i.log))
		ts.Fatalf("server %s: %v", args[0], err)
	}
}

// save is "save NAME": the last standard output, trimmed, becomes a variable.
func save(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: save NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-8<<10):])
}

var readyLine = regexp.MustCompile(`^berth: serving (http://\S+), key in \S+$`)

// run runs the program outside of any transcript.
func (s *suite) run(env []string, args ...string) error {
	cmd := exec.Command(s.berth, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("berth %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
