package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/sandbox"
)

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "limit=1&after=x", "a=%zz", "limit=-1", "metadata.k=v&metadata.k=w", "mode=0644", "follow=true;x", "limit=99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q := api.QueryOf(&http.Request{URL: &url.URL{RawQuery: raw}})
		limit, mode := api.Numbers(q)
		if err := api.Check(q); err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if limit < 0 || limit > 1000 || mode < 0 {
			t.Errorf("%q: limit %d, mode %o", raw, limit, mode)
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=9223372036854775807-", "bytes=-9223372036854775807", "bytes=0-9223372036854775807", "bytes=1-0", "bytes=a-b", "items=1-2"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		offset, length, ok := api.Span(header, size)
		if ok && (offset < 0 || length < 1 || offset > size-length) {
			t.Errorf("%q of %d bytes: %d+%d", header, size, offset, length)
		}
	})
}

func FuzzASCIIJSON(f *testing.F) {
	f.Add("/a/é/\U0001F600\n\x7f")
	f.Fuzz(func(t *testing.T, path string) {
		s := api.ASCIIJSON(sandbox.FileInfo{Path: path})
		for i := range len(s) {
			if s[i] < ' ' || s[i] > '~' {
				t.Fatalf("%q holds %q", s, s[i])
			}
		}
		var fi sandbox.FileInfo
		if err := json.Unmarshal([]byte(s), &fi); err != nil {
			t.Fatal(err)
		}
		if fi.Path != path {
			t.Errorf("%q, want %q", fi.Path, path)
		}
	})
}
