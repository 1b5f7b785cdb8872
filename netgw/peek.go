package netgw

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// maxPeek bounds the first bytes that are held back until they name a host.
const maxPeek = 64 << 10

// maxMethod bounds the first word of what may be a request.
const maxMethod = 32

// speech is what the first bytes of a client say.
type speech int

const (
	unclear   speech = iota // more bytes are needed
	opaque                  // neither of the two below
	speaksTLS               // a ClientHello
	speaksHTTP
	malformed // the beginning of one of the two, and wrong
)

// listen tells what the first bytes of a client are and the host that they name,
// if they do: in lower case, never an address.
func listen(b []byte) (s speech, host string) {
	switch {
	case len(b) == 0:
		return unclear, ""
	case b[0] == 0x16:
		s, host = hello(b)
	default:
		s, host = request(b)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		host = ""
	}
	return s, host
}

// errHeard ends a handshake that is only listened to.
var errHeard = errors.New("heard")

// hello reads a ClientHello.
func hello(b []byte) (speech, string) {
	c := &deaf{r: bytes.NewReader(b)}
	var host string
	heard := false
	err := tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		heard, host = true, h.ServerName
		return nil, errHeard
	}}).Handshake()
	switch {
	case heard:
		return speaksTLS, host
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return unclear, ""
	}
	return malformed, ""
}

// deaf is a connection that can only be read.
type deaf struct{ r io.Reader }

func (d *deaf) Read(b []byte) (int, error)       { return d.r.Read(b) }
func (d *deaf) Write(b []byte) (int, error)      { return len(b), nil }
func (d *deaf) Close() error                     { return nil }
func (d *deaf) LocalAddr() net.Addr              { return nil }
func (d *deaf) RemoteAddr() net.Addr             { return nil }
func (d *deaf) SetDeadline(time.Time) error      { return nil }
func (d *deaf) SetReadDeadline(time.Time) error  { return nil }
func (d *deaf) SetWriteDeadline(time.Time) error { return nil }

// request reads the head of an HTTP request. Servers forgive much, so all that
// one of them could take for a request counts as one.
func request(b []byte) (speech, string) {
	b = bytes.TrimLeft(b, "\r\n")
	line, _, whole := bytes.Cut(b, []byte("\n"))
	if word := bytes.IndexFunc(line, func(c rune) bool { return !isToken(c) }); word == 0 || word > maxMethod || word < 0 && len(line) > maxMethod {
		return opaque, ""
	} else if word > 0 && line[word] != ' ' && line[word] != '\t' && (line[word] != '\r' || word < len(line)-1) {
		return opaque, ""
	}
	if !whole {
		return unclear, ""
	}
	words := strings.Fields(string(line))
	if len(words) < 2 {
		return opaque, ""
	}
	version := words[len(words)-1]
	if !strings.HasPrefix(strings.ToUpper(version), "HTTP/") {
		if target := words[1]; len(words) == 2 && (strings.HasPrefix(target, "/") || strings.Contains(target, "://")) {
			return speaksHTTP, "" // of version 0.9: it names no host
		}
		return opaque, ""
	}
	if words[0] == "PRI" {
		return speaksHTTP, "" // of version 2: what follows is not read here
	}
	end := bytes.Index(b, []byte("\n\r\n"))
	if bare := bytes.Index(b, []byte("\n\n")); end < 0 || bare >= 0 && bare < end {
		end = bare
	}
	if end < 0 {
		return unclear, ""
	}
	return head(b[:end+1])
}

// head takes the host out of a request's head, which must name one only.
func head(b []byte) (speech, string) {
	hosts, named := 0, ""
	for line := range bytes.Lines(b) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(bytes.TrimSpace(name), []byte("host")) {
			hosts, named = hosts+1, string(bytes.TrimSpace(value))
		}
	}
	full := append(append([]byte{}, b...), "\r\n"...)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(full)))
	if err != nil || hosts > 1 || hosts == 1 && !strings.EqualFold(named, r.Host) {
		return malformed, ""
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return speaksHTTP, host
}

func isToken(c rune) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune("()<>@,;:\\\"/[]?={}", c)
}
