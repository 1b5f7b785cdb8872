package main

import "testing"

func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc\n", 9, "a\nb\nc\n"}, {"a\nb", 1, "b"},
		{"a\nb", 0, ""}, {"", 3, ""}, {"\n\n", 1, "\n"}, {"x", 1, "x"},
	} {
		if got := string(lastLines([]byte(c.in), c.n)); got != c.want {
			t.Errorf("last %d of %q: %q, want %q", c.n, c.in, got, c.want)
		}
	}
}
