package intercept

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on what can be masked: what is shorter would be found everywhere, and
// what is longer would be costly to look for.
const (
	minMasked = sandbox.MinMasked
	maxMasked = 8 << 10 // bytes
)

// mask replaces secrets in an answer by as many asterisks: no length changes.
type mask struct {
	replacer
	seen map[string]bool
}

func (m *mask) on() bool { return len(m.from) > 0 }

// hide adds a secret, in each form that an answer may repeat it.
func (m *mask) hide(v sandbox.SecretValue) error {
	v = bytes.TrimSpace(v)
	if len(v) < minMasked || len(v) > maxMasked {
		return fmt.Errorf("it has %d bytes, %d to %d can be masked", len(v), minMasked, maxMasked)
	}
	if m.seen == nil {
		m.seen = map[string]bool{}
	}
	for _, form := range forms(string([]byte(v))) {
		if len(form) >= minMasked && !m.seen[form] {
			m.seen[form] = true
			m.add([]byte(form), bytes.Repeat([]byte("*"), len(form)))
		}
	}
	return nil
}

// forms are the ways in which a text is commonly written.
func forms(s string) []string {
	escaped := func(f func(string) string) []string {
		e := f(s)
		return []string{e, lowerEscapes(e)}
	}
	all := []string{s, html.EscapeString(s), hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s)))}
	all = append(append(all, escaped(url.QueryEscape)...), escaped(url.PathEscape)...)
	if b, err := json.Marshal(s); err == nil {
		quoted := string(b[1 : len(b)-1])
		all = append(all, quoted, strings.ReplaceAll(quoted, "/", `\/`), strings.ReplaceAll(s, "/", `\/`))
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			all = append(all, inBase64(e, s, shift))
		}
	}
	return all
}

// lowerEscapes writes the escapes of a URL in lower case.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// inBase64 is the part of a base64 text that s alone decides when shift bytes,
// modulo 3, come before it.
func inBase64(e *base64.Encoding, s string, shift int) string {
	text := e.EncodeToString([]byte(strings.Repeat("\x00", shift) + s))
	first := (shift*8 + 5) / 6 // digits that depend on what comes before
	last := (shift + len(s)) * 8 / 6
	return text[first:last]
}

// ask has the server answer in a form that can be read here.
func (m *mask) ask(out *http.Request) {
	h := out.Header
	h.Set("Accept-Encoding", "identity")
	for _, k := range []string{
		"Range", "If-Range", // a secret in two halves is none
		"Sec-Websocket-Extensions", "Grpc-Accept-Encoding", "Connect-Accept-Encoding", // compression of messages
		"Te",
	} {
		if k == "Te" && strings.EqualFold(h.Get(k), "trailers") {
			continue
		}
		h.Del(k)
	}
}

// apply masks an answer: its header at once, the rest as it passes.
func (m *mask) apply(resp *http.Response) error {
	if !m.on() {
		return nil
	}
	m.fields(resp.Header)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		duplex, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			return &refusal{http.StatusBadGateway, "the server changes the protocol in a way that cannot be masked"}
		}
		resp.Body = &maskedDuplex{ReadWriteCloser: duplex, r: m.reader(duplex)}
		return nil
	}
	source := io.Reader(resp.Body)
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		source = &unzipped{src: resp.Body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	default:
		return &refusal{http.StatusBadGateway, fmt.Sprintf("the server compresses its answer with %.40q although asked not to: it cannot be masked", encoding)}
	}
	resp.Body = &maskedBody{Closer: resp.Body, r: m.reader(source), mask: m, resp: resp}
	return nil
}

// fields masks the values of a header, and drops fields whose name repeats the
// secret.
func (m *mask) fields(h http.Header) {
	for k, values := range h {
		if !bytes.Equal(m.text([]byte(k)), []byte(k)) {
			delete(h, k)
			continue
		}
		for i, v := range values {
			values[i] = string(m.text([]byte(v)))
		}
	}
}

// maskedBody masks a body and, at its end, its trailers.
type maskedBody struct {
	io.Closer
	r    io.Reader
	mask *mask
	resp *http.Response
}

func (b *maskedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		b.mask.fields(b.resp.Trailer)
	}
	return n, err
}

// maskedDuplex masks what a server sends after a change of protocol.
type maskedDuplex struct {
	io.ReadWriteCloser
	r io.Reader
}

func (d *maskedDuplex) Read(p []byte) (int, error) { return d.r.Read(p) }

// unzipped decompresses a body, of which nothing is read before it is asked for.
type unzipped struct {
	src io.Reader
	r   *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.r == nil {
		r, err := gzip.NewReader(u.src)
		if err != nil {
			return 0, err
		}
		u.r = r
	}
	return u.r.Read(p)
}
