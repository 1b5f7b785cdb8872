package secret_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

func value(key, header string, text *string) sandbox.RuleValue {
	v := sandbox.RuleValue{Key: key, Host: "api.example.com", Header: header}
	if text != nil {
		t := sandbox.HeaderText(*text)
		v.Text = &t
	}
	return v
}

func TestValuesAreEachSandboxsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	records := store(t, path)
	v := secret.NewValues(records, sealer(t, 1))
	ctx, parent, child := t.Context(), sandbox.NewID(), sandbox.NewID()
	one, two, three := "value one of many", "value two", "value three"
	if err := v.Keep(ctx, parent, "vs-a", "", []sandbox.RuleValue{value("x", "X", &one), value("y", "Y", &two), value("x", "X", &three)}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a fork that was cut short does it again
		if err := v.Inherit(ctx, parent, child); err != nil {
			t.Fatal(err)
		}
	}
	// A policy that keeps one value, changes another and drops the rest.
	if err := v.Keep(ctx, parent, "vs-b", "vs-a", []sandbox.RuleValue{value("x", "X", nil), value("z", "Z", &three)}); err != nil {
		t.Fatal(err)
	}
	all, err := v.Open(ctx, parent, "vs-b")
	if err != nil || len(all) != 2 || all["x"] != one || all["z"] != three {
		t.Errorf("%d, %v", len(all), err)
	}
	if err := v.Prune(ctx, parent, "vs-b"); err != nil {
		t.Fatal(err)
	}
	_, err = v.Open(ctx, parent, "vs-a")
	kind(t, err, sandbox.NotFound)
	of, err := v.Open(ctx, child, "vs-a")
	if err != nil || len(of) != 2 || of["x"] != one || of["y"] != two {
		t.Errorf("the child has %d, %v", len(of), err)
	}
	entries, err := records.List(ctx, "values/"+string(child)+"/", "", 0)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	if _, err := sealer(t, 1).Open("values/"+string(parent)+"/vs-a", entries[0].Value); err == nil {
		t.Error("what is the child's opens as the parent's")
	}
	if err := v.Prune(ctx, child, ""); err != nil {
		t.Fatal(err)
	}
	if err := v.Prune(ctx, child, ""); err != nil {
		t.Fatal(err)
	}
	if left, err := records.List(ctx, "values/", "", 0); err != nil || len(left) != 1 {
		t.Errorf("%d are left, %v", len(left), err)
	}
	file, err := os.ReadFile(path)
	if err != nil || bytes.Contains(file, []byte(one)) || !bytes.Contains(file, []byte("vs-b")) {
		t.Errorf("the file holds a value, or is another one: %v", err)
	}
}

func TestAValueThatIsNotThereCannotBeKept(t *testing.T) {
	v := secret.NewValues(store(t, filepath.Join(t.TempDir(), "records.db")), sealer(t, 1))
	ctx, id, text := t.Context(), sandbox.NewID(), "hush"
	if err := v.Keep(ctx, id, "vs-a", "", []sandbox.RuleValue{value("x", "X", &text)}); err != nil {
		t.Fatal(err)
	}
	for what, before := range map[string]string{"the first policy": "", "another header": "vs-a"} {
		err := v.Keep(ctx, id, "vs-b", before, []sandbox.RuleValue{value("y", "Y", nil)})
		kind(t, err, sandbox.Invalid)
		if sandbox.HintOf(err) == "" || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", what, err)
		}
	}
	kind(t, v.Keep(ctx, id, "vs-b", "vs-none", []sandbox.RuleValue{value("x", "X", nil)}), sandbox.NotFound)
	kind(t, v.Keep(ctx, id, "vs-a", "", []sandbox.RuleValue{value("x", "X", &text)}), sandbox.Conflict)
	if err := v.Keep(ctx, id, "vs-c", "", nil); err != nil {
		t.Fatal(err)
	}
	_, err := v.Open(ctx, id, "vs-c")
	kind(t, err, sandbox.NotFound)
}
