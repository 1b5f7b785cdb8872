package main

import (
	"errors"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

func TestHouseClosesInReverse(t *testing.T) {
	var order string
	odd := errors.New("odd")
	h := &house{parts: []part{
		{"lower", func() error { order += "lower "; return nil }},
		{"upper", func() error { order += "upper "; return odd }},
	}}
	if err := h.close(); !errors.Is(err, odd) || order != "upper lower " {
		t.Errorf("close gave %v in the order %q", err, order)
	}
	if err := h.close(); err != nil {
		t.Errorf("a second close gave %v", err)
	}
}

func TestPartThatHangsIsNamed(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	err := part{"engine", func() error { <-never; return nil }}.closeInTime(time.Millisecond)
	if sandbox.KindOf(err) != sandbox.Timeout || err.Error() != "close engine: it did not close in 1ms" {
		t.Errorf("closeInTime gave %v", err)
	}
}
