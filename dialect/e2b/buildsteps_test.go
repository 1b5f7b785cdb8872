package e2b

import (
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func TestBuildSteps(t *testing.T) {
	at := &buildPlace{user: defaultUser, dir: defaultDir}
	steps, force, err := at.steps([]buildStep{
		{Type: "COPY", Args: []string{"a", "b", "", "0755"}, FilesHash: "h"},
		{Type: "USER", Args: []string{"mish"}},
		{Type: "WORKDIR", Args: []string{"work"}, Force: true},
		{Type: "COPY", Args: []string{"a", ".", "", ""}, FilesHash: "h"},
		{Type: "COPY", Args: []string{"a", "/b", "root", ""}, FilesHash: "h"},
		{Type: "RUN", Args: []string{"whoami", "root"}},
	}, false)
	if err != nil || !force || len(steps) != 6 {
		t.Fatalf("%d steps, force %v, %v", len(steps), force, err)
	}
	if c := steps[0].Copy; c.Owner != "user" || c.To != "/home/user/b" || *c.Mode != 0o755 {
		t.Errorf("a copy of who has said nothing: %+v", c)
	}
	if s := steps[1]; s.User != "mish" || !s.NewUser {
		t.Errorf("a user: %+v", s)
	}
	if s := steps[2]; s.Workdir != "/home/user/work" {
		t.Errorf("a folder: %+v", s)
	}
	if c := steps[3].Copy; c.Owner != "mish" || c.To != "/home/user/work/" {
		t.Errorf("a copy to where it stands: %+v", c)
	}
	if c := steps[4].Copy; c.Owner != "root" || c.To != "/b" {
		t.Errorf("a copy for another: %+v", c)
	}
	if s := steps[5]; s.Run.User != "root" || s.Text != "RUN whoami" {
		t.Errorf("a command of another: %+v", s)
	}
}

func TestBuildReasons(t *testing.T) {
	for _, one := range []struct {
		build         sandbox.Build
		step, message string
	}{
		{sandbox.Build{Error: "no such image", Hint: "look"}, "base", "no such image (look)"},
		{sandbox.Build{Error: "it ended", FailedText: "start"}, "finalize", "it ended"},
		{sandbox.Build{Error: "code 1", FailedStep: 2, FailedText: "RUN false"}, "2", "failed to run command 'false': code 1"},
		{sandbox.Build{Error: `start process: no user "x y"`, Hint: "h", FailedStep: 1, FailedText: "RUN whoami"}, "1",
			"failed to run command 'whoami': command failed: unauthenticated: invalid username: 'x y'"},
		{sandbox.Build{Error: "no", FailedStep: 3, FailedText: "COPY a b"}, "3", "no"},
	} {
		if r := reasonOf(&one.build); r.Step != one.step || r.Message != one.message {
			t.Errorf("%+v: step %q, %q", one.build, r.Step, r.Message)
		}
	}
}
