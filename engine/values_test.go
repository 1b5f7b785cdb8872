package engine_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

const ownValue = "k-own-value-123"

// setting is a policy whose one rule sets a header; nil keeps its value.
func setting(header string, text *string) *sandbox.Policy {
	var v *sandbox.HeaderText
	if text != nil {
		t := sandbox.HeaderText(*text)
		v = &t
	}
	return &sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: []sandbox.Inject{{Host: "api.example.com", Values: map[string]*sandbox.HeaderText{header: v}}}}
}

func textOf(s string) *string { return &s }

// sets are the keys of the values on record, and whether any entry of the store
// holds a value as it stands.
func (h *house) sets(t *testing.T, of sandbox.ID) (sets []string) {
	t.Helper()
	entries, err := h.records.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if bytes.Contains(e.Value, []byte(ownValue)) {
			t.Errorf("%s holds the value", e.Key)
		}
		if strings.HasPrefix(e.Key, "values/"+string(of)) {
			sets = append(sets, e.Key)
		}
	}
	return sets
}

// setOf is the set of values that a sandbox's policy has now.
func (h *house) setOf(t *testing.T, id sandbox.ID) string {
	t.Helper()
	p, err := h.Policy(operator(t), string(id))
	if err != nil {
		t.Fatal(err)
	}
	return "values/" + string(id) + "/" + p.ValueSet
}

func TestValuesGoWithTheSandbox(t *testing.T) {
	h, _ := newKeepingHouse(t)
	s := h.create(t, sandbox.CreateRequest{Policy: setting("X-Key", textOf(ownValue))})
	shown, err := json.Marshal(s)
	if err != nil || bytes.Contains(shown, []byte(ownValue)) || !bytes.Contains(shown, []byte(`"X-Key":null`)) {
		t.Errorf("%s, %v", shown, err)
	}
	first := h.setOf(t, s.ID)
	if sets := h.sets(t, s.ID); len(sets) != 1 || sets[0] != first {
		t.Fatalf("%q, want %s", sets, first)
	}
	f, err := h.Fork(operator(t), string(s.ID), forkOf(2))
	if err != nil {
		t.Fatal(err)
	}
	child := f.Children[0].Sandbox.ID
	if sets := h.sets(t, child); len(sets) != 1 || sets[0] != h.setOf(t, child) {
		t.Errorf("the child has %q", sets)
	}
	// Set again as it was read, then without the header.
	set := func(id sandbox.ID, p *sandbox.Policy) error {
		_, err := h.SetPolicy(operator(t), string(id), *p)
		if err != nil && strings.Contains(err.Error(), "guest") {
			return nil // nothing serves files there that a certificate could go to
		}
		return err
	}
	if err := set(s.ID, setting("X-Key", nil)); err != nil {
		t.Fatal(err)
	}
	if sets := h.sets(t, s.ID); len(sets) != 1 || sets[0] == first {
		t.Errorf("set again: %q", sets)
	}
	wantKind(t, set(s.ID, setting("X-Other", nil)), sandbox.Invalid)
	if sets := h.sets(t, s.ID); len(sets) != 1 || sets[0] != h.setOf(t, s.ID) {
		t.Errorf("after a policy that was refused: %q", sets)
	}
	if err := set(s.ID, &sandbox.Policy{Profile: sandbox.ProfileOpen}); err != nil {
		t.Fatal(err)
	}
	if sets := h.sets(t, s.ID); len(sets) != 0 {
		t.Errorf("without values: %q", sets)
	}
	if sets := h.sets(t, child); len(sets) != 1 {
		t.Errorf("the child's went with its parent's: %q", sets)
	}
	for _, id := range []sandbox.ID{s.ID, child, f.Children[1].Sandbox.ID} {
		if err := h.Remove(operator(t), string(id)); err != nil {
			t.Fatal(err)
		}
	}
	if sets := h.sets(t, ""); len(sets) != 0 {
		t.Errorf("removed, and left %q", sets)
	}
}

func TestNothingThatIsNewHasAValueToKeep(t *testing.T) {
	h, _ := newKeepingHouse(t)
	s := h.create(t, sandbox.CreateRequest{Policy: setting("X-Key", textOf(ownValue))})
	read, err := h.Policy(operator(t), string(s.ID))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Create(operator(t), sandbox.CreateRequest{Policy: &read})
	wantKind(t, err, sandbox.Invalid)
	if sandbox.HintOf(err) == "" {
		t.Errorf("no hint: %v", err)
	}
	other := h.create(t, sandbox.CreateRequest{})
	_, err = h.SetPolicy(operator(t), string(other.ID), read)
	wantKind(t, err, sandbox.Invalid)
	if sets := h.sets(t, ""); len(sets) != 1 {
		t.Errorf("%q", sets)
	}
}

// TestACreateThatFailsLeavesNoValue fails at each commit of a create.
func TestACreateThatFailsLeavesNoValue(t *testing.T) {
	h, _ := newKeepingHouse(t)
	for n := 1; n < 20; n++ {
		_, err := h.createFailing(t, n, setting("X-Key", textOf(ownValue)))
		if err == nil {
			if n < 4 {
				t.Errorf("only %d commits can fail", n-1)
			}
			return
		}
		if sets := h.sets(t, ""); len(sets) != 0 {
			t.Fatalf("after the commit %d has failed: %q", n, sets)
		}
	}
	t.Error("it fails for ever")
}
