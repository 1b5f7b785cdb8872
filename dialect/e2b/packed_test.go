package e2b

import (
	"net/http"
	"testing"
)

func TestPacking(t *testing.T) {
	for accepts, want := range map[string]packing{
		"": plain, "gzip": packed, "GZIP ; q=1.0": packed, "gzip;q=0": plain, "identity": plain,
		"gzip, deflate": plain, "gzip, deflate, br, zstd": plain, "*": plain, "br": plain,
		"gzip, identity;q=0": packed, "identity;q=0": refused, "*;q=0": refused, "br, *;q=0": refused, "*;q=0, identity": plain,
		"gzip, *;q=0": packed, ",,;q=": plain,
	} {
		h := http.Header{}
		if accepts != "" {
			h.Set("Accept-Encoding", accepts)
		}
		if got := packingOf(h); got != want {
			t.Errorf("%q: %d, want %d", accepts, got, want)
		}
	}
}
