package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

func TestReport(t *testing.T) {
	notFound := &sandbox.Error{Op: "get", ID: someID, Kind: sandbox.NotFound, Err: errors.New("no such sandbox"), Hint: "see berth ls"}
	for _, c := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"success", nil, 0, ""},
		{"kind", notFound, 3, "berth: get " + someID + ": no such sandbox\nhint: see berth ls\n"},
		{"unknown", errors.New("odd"), 1, "berth: odd\n"},
		{"many", errors.Join(notFound, errors.New("odd")), 3, "berth: get " + someID + ": no such sandbox\nhint: see berth ls\nberth: odd\n"},
		{"code alone", &exitError{code: 42}, 42, ""},
		{"own failure", ownFailure(notFound), 125, "berth: get " + someID + ": no such sandbox\nhint: see berth ls\n"},
		{"interrupted", context.Canceled, exitInterrupted, "berth: context canceled\n"},
		{"control characters", errors.New("a\x1b[2Jb"), 1, "berth: a?[2Jb\n"},
	} {
		var out bytes.Buffer
		p := &program{err: &out, parsed: true}
		if code := p.report(c.err); code != c.code || out.String() != c.text {
			t.Errorf("%s: exit code %d with %q; want %d with %q", c.name, code, out.String(), c.code, c.text)
		}
	}
}

func TestReportAsJSON(t *testing.T) {
	var out bytes.Buffer
	p := &program{err: &out, parsed: true, json: true}
	p.report(&sandbox.Error{Op: "create", Kind: sandbox.Exhausted, Err: errors.New("the disk is full"), Hint: "free some"})
	var got struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if e := got.Error; e.Code != "exhausted" || e.Message != "create: the disk is full" || e.Hint != "free some" {
		t.Errorf("the object is %+v", e)
	}
}

// TestEveryKindHasACode holds the table of exit codes to docs/cli.md: a new kind
// needs a decision.
func TestEveryKindHasACode(t *testing.T) {
	for _, k := range sandbox.Kinds() {
		if _, ok := exitCodes[k]; !ok && k != sandbox.Internal {
			t.Errorf("%s has no exit code", k)
		}
	}
}
