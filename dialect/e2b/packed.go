package e2b

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// packing is how the bytes of a file go over the wire.
type packing int

const (
	plain packing = iota
	packed
	refused // the client takes neither
)

// packingOf reads Accept-Encoding. Clients whose library asks for gzip beside
// others by itself get plain bytes, which are faster over a link that is fast; those
// who ask for gzip alone want it.
func packingOf(h http.Header) packing {
	takes := map[string]bool{}
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, weighed := strings.Cut(strings.ToLower(part), ";")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
		takes[name] = !weighed || err != nil || q > 0
	}
	says := func(name string, unsaid bool) bool {
		if yes, ok := takes[name]; ok {
			return yes
		}
		if yes, ok := takes["*"]; ok {
			return yes
		}
		return unsaid
	}
	switch gzips := says("gzip", false); {
	case gzips && takes["gzip"] && len(takes) == 1:
		return packed
	case says("identity", true):
		return plain
	case gzips:
		return packed
	}
	return refused
}

// packer packs what is written to it. A response without a body gets none.
type packer struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (p *packer) Write(b []byte) (int, error) {
	if p.z == nil {
		z, err := gzip.NewWriterLevel(p.ResponseWriter, gzip.BestSpeed)
		if err != nil {
			return 0, err
		}
		p.z = z
	}
	return p.z.Write(b)
}

// Close writes what is left.
func (p *packer) Close() error {
	if p.z == nil {
		return nil
	}
	return p.z.Close()
}
