package main

import (
	"strings"
	"testing"
	"unicode"

	"github.com/berth-dev/berth/sandbox"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "1": 1, "512": 512, "512b": 512, "1k": 1 << 10, "512MiB": 512 << 20, "2GiB": 2 << 30,
		"2 gib": 2 << 30, "1.5G": 3 << 29, "1TiB": 1 << 40,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "-1GiB", "GiB", "2GB", "two", "1e400", "NaN", "Inf", "9e18GiB"} {
		if got, err := parseSize(text); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
			t.Errorf("parseSize(%q) = %d, %v; want an invalid with a hint", text, got, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"", "1GiB", "-1", "1e9", "0x10", "NaN", "1.5t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && (n < 0 || n == 0 && s != "") {
			t.Errorf("parseSize(%q) = %d", s, n)
		}
	})
}

func TestParseCPU(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "1": 1000, "0.5": 500, "250m": 250, "2.5": 2500} {
		if got, err := parseCPU(text); err != nil || got != want {
			t.Errorf("parseCPU(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "m", "one", "NaN", "1e99"} {
		if got, err := parseCPU(text); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("parseCPU(%q) = %d, %v; want an invalid", text, got, err)
		}
	}
}

func TestSizeReadsBack(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 2 << 30: "2 GiB", 1<<20 - 1: "1 MiB", 3 << 40: "3 TiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

const someID = "abcdefghij0123456789"

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]endpoint{
		"file":            {path: "file"},
		"./a:b":           {path: "./a:b"},
		"/tmp/a:b":        {path: "/tmp/a:b"},
		"-":               {path: "-"},
		someID + ":/":     {id: someID, path: "/"},
		"my-box:/x":       {id: "my-box", path: "/x"},
		someID + ":/a:b/": {id: someID, path: "/a:b/"},
	} {
		if got, err := parseEndpoint(text); err != nil || got != want {
			t.Errorf("parseEndpoint(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", someID + ":", someID + ":relative", "NOBODY:/x", someID + ":/" + strings.Repeat("x", 5000)} {
		if got, err := parseEndpoint(text); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("parseEndpoint(%q) = %v, %v; want an invalid", text, got, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"a", "./a:b", someID + ":/x", ":", "C:\\x", someID + ":/\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEndpoint(s)
		if err != nil || e.id == "" {
			return
		}
		if sandbox.CheckRef(e.id) != nil || sandbox.CheckPath(e.path) != nil {
			t.Errorf("parseEndpoint(%q) = %+v", s, e)
		}
	})
}

func TestParseEnv(t *testing.T) {
	t.Setenv("BERTH_TEST_GIVEN", "own")
	got, err := parseEnv([]string{"A=1", "B=x=y", "C=", "BERTH_TEST_GIVEN"})
	if err != nil || got["A"] != "1" || got["B"] != "x=y" || got["C"] != "" || got["BERTH_TEST_GIVEN"] != "own" {
		t.Errorf("parseEnv gave %v, %v", got, err)
	}
	for _, entry := range []string{"", "=x", "BERTH_TEST_SURELY_UNSET"} {
		if _, err := parseEnv([]string{entry}); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("parseEnv(%q) gave %v, want an invalid", entry, err)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("plain\ntext\t.")
	f.Add("\x1b[2J\x07\u202e")
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range printable(s) {
			if r != '\n' && r != '\t' && unicode.IsControl(r) {
				t.Errorf("printable(%q) holds %q", s, r)
			}
		}
	})
}
