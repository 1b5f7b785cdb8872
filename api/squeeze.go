package api

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	fast "github.com/klauspost/compress/gzip"
)

// squeezeFrom is the size, in bytes, below which an answer is sent as it is: it fits
// into one packet.
const squeezeFrom = 1400

// takesGzip reports whether a request accepts an answer in gzip.
func takesGzip(h http.Header) bool {
	for _, one := range strings.Split(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(one, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		q, ok := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(weight, " ", "")), "q=")
		if !ok {
			return true
		}
		f, err := strconv.ParseFloat(q, 64)
		return err == nil && f > 0
	}
	return false
}

// squeezers compress fast rather than well: links are faster than disks.
var squeezers = sync.Pool{New: func() any {
	z, err := fast.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a good one
	}
	return z
}}

// squeeze sends a body in gzip if its first bytes are text. The answer's header goes
// with them.
type squeeze struct {
	w       http.ResponseWriter
	out     io.Writer // to w
	length  int64     // of the whole body; -1: not known
	decided bool
	z       *fast.Writer
}

// Write implements io.Writer.
func (s *squeeze) Write(p []byte) (int, error) {
	if !s.decided {
		s.decide(strings.HasPrefix(http.DetectContentType(p), "text/"))
	}
	if s.z != nil {
		return s.z.Write(p)
	}
	return s.out.Write(p)
}

func (s *squeeze) decide(text bool) {
	s.decided = true
	if text {
		s.w.Header().Set("Content-Encoding", "gzip")
		s.z = squeezers.Get().(*fast.Writer)
		s.z.Reset(s.out)
	} else if s.length >= 0 {
		s.w.Header().Set("Content-Length", strconv.FormatInt(s.length, 10))
	}
	s.w.WriteHeader(http.StatusOK)
}

// end completes the answer. It gives nothing back to the pool that an error left in
// the middle.
func (s *squeeze) end() error {
	if !s.decided {
		s.decide(false)
	}
	if s.z == nil {
		return nil
	}
	err := s.z.Close()
	squeezers.Put(s.z)
	return err
}

// sendSqueezed copies a body as sendBody does, in gzip if that helps.
func sendSqueezed(w http.ResponseWriter, body io.Reader, length int64) error {
	s := &squeeze{w: w, out: &pacedWriter{w: w, rc: http.NewResponseController(w)}, length: length}
	var n int64
	var err error
	if length < 0 {
		n, err = io.CopyBuffer(s, body, make([]byte, 256<<10))
	} else {
		n, err = copyUpTo(s, body, length)
	}
	if err == nil && n < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return s.end()
}
