package credentials

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// TestJavaTrustsTheGateway brings a Java with a list of authorities of its own into a
// sandbox, as an archive does, before the gateway looks into anything of it.
func TestJavaTrustsTheGateway(t *testing.T) {
	java, err := os.Open(rig.Java(t, "Ask.java"))
	if err != nil {
		t.Fatal(err)
	}
	defer java.Close()
	h := newHouse(t)
	s, err := h.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	if _, err := h.Unpack(t.Context(), id, "/opt/jdk-test", sandbox.UnpackOptions{User: "root"}, java); err != nil {
		t.Fatal(err)
	}
	const ask = "/opt/jdk-test/bin/java -Xshare:auto -cp /opt/jdk-test Ask " + whoami
	if out, err := h.try(id, ask); err == nil {
		t.Errorf("before, with a server that nobody vouches for: %q", out)
	}
	if _, err := h.SetPolicy(t.Context(), id, *policy(nil)); err != nil {
		t.Fatal(err)
	}
	if out, err := h.try(id, ask); err != nil || out != "api."+zone+" known" {
		t.Errorf("Java printed %q, %v", out, err)
	}
	f, err := h.Fork(t.Context(), id, sandbox.ForkRequest{Count: 1})
	if err != nil || f.Children[0].Err != nil {
		t.Fatal(err, f)
	}
	if out, err := h.try(string(f.Children[0].Sandbox.ID), ask); err != nil || out != "api."+zone+" known" {
		t.Errorf("in a copy, which has an authority of its own, it printed %q, %v", out, err)
	}
}
