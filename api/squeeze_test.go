package api_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestGzip: text goes in gzip to who asks for it; all else goes as it is.
func TestGzip(t *testing.T) {
	v := visit(t)
	files := v.create("") + "/files"
	text := strings.Repeat("a line of text, like many others\n", 40_000)
	noise, err := io.ReadAll(io.LimitReader(rand.NewChaCha8([32]byte{5}), 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	v.do("PUT", files+"?path=/text", text, 200)
	v.do("PUT", files+"?path=/noise", string(noise), 200)
	v.do("PUT", files+"?path=/short", "short", 200)
	for _, c := range []struct {
		path, accept, span string
		squeezed           bool
		want               string
		status             int
	}{
		{"/text", "gzip", "", true, text, 200},
		{"/text", "br, GZIP;q=0.5, *;q=0", "", true, text, 200},
		{"/text", "identity", "", false, text, 200},
		{"/text", "gzip;q=0", "", false, text, 200},
		{"/text", "xgzip", "", false, text, 200},
		{"/text", "gzip", "bytes=5-9", false, text[5:10], 206},
		{"/noise", "gzip", "", false, string(noise), 200},
		{"/short", "gzip", "", false, "short", 200},
	} {
		r := v.s.Request(t, "GET", files+"?path="+c.path, "")
		r.Header.Set("Accept-Encoding", c.accept)
		if c.span != "" {
			r.Header.Set("Range", c.span)
		}
		h, b := v.send(r, c.status)
		squeezed := h.Get("Content-Encoding") == "gzip"
		if squeezed != c.squeezed {
			t.Errorf("%s with %q: %v", c.path, c.accept, h)
		}
		if !squeezed {
			if string(b) != c.want || h.Get("Content-Length") != strconv.Itoa(len(c.want)) {
				t.Errorf("%s with %q: %d bytes, %v", c.path, c.accept, len(b), h)
			}
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || string(got) != c.want || len(b) > len(c.want)/10 {
			t.Errorf("%s with %q: %d of %d bytes in %d, %v", c.path, c.accept, len(got), len(c.want), len(b), err)
		}
	}
}
