package engine_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func TestTemplates(t *testing.T) {
	h := newHouse(t)
	var steps []string
	built, err := h.BuildTemplate(operator(t), sandbox.BuildRequest{Name: "mine", From: "oci:example"},
		func(p sandbox.Progress) { steps = append(steps, p.Step) })
	if err != nil || built.Name != "mine" || len(steps) == 0 {
		t.Fatalf("built %+v in %v, %v", built, steps, err)
	}
	if _, err := h.BuildTemplate(operator(t), sandbox.BuildRequest{Name: "mine", From: "oci:example"}, nil); err != nil {
		t.Fatal(err)
	}
	s := h.create(t, sandbox.CreateRequest{Template: "mine"})
	err = h.RemoveTemplate(operator(t), "mine")
	wantKind(t, err, sandbox.Conflict)
	if !strings.Contains(err.Error(), string(s.ID)) {
		t.Errorf("does not name the user: %v", err)
	}
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveTemplate(operator(t), "mine"); err != nil {
		t.Fatal(err)
	}
	_, err = h.Template(operator(t), "mine")
	wantKind(t, err, sandbox.NotFound)
	if all, err := h.Templates(operator(t)); err != nil || len(all) != 1 {
		t.Errorf("listed %v, %v", all, err)
	}
}

func TestBadTemplates(t *testing.T) {
	h := newHouse(t)
	for name, r := range map[string]sandbox.BuildRequest{
		"name": {Name: "../x", From: "oci:x"}, "no source": {Name: "x"}, "unknown source": {Name: "x", From: "tape:x"},
		"empty source": {Name: "x", From: "oci:"}, "relative archive": {Name: "x", From: "oci-archive:x.tar"},
	} {
		_, err := h.BuildTemplate(operator(t), r, nil)
		if sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantKind(t, h.RemoveTemplate(operator(t), "../x"), sandbox.Invalid)
	wantKind(t, h.RemoveTemplate(operator(t), "nope"), sandbox.NotFound)
}

func TestStatus(t *testing.T) {
	h := newHouse(t)
	h.create(t, sandbox.CreateRequest{})
	h.world.set("probe", &sandbox.Error{Op: "probe", Kind: sandbox.Unsupported, Err: errBroken, Hint: "buy another machine"})
	st, err := h.Status(operator(t))
	if err != nil {
		t.Fatal(err)
	}
	if st.Version != "test" || st.Sandboxes[sandbox.Running] != 1 || len(st.Classes) != 1 {
		t.Errorf("status %+v", st)
	}
	if c := st.Classes[0]; c.Usable || c.Hint != "buy another machine" || c.Problem == "" {
		t.Errorf("class %+v", c)
	}
}
