package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"

	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/tarball"
)

// carryFrom is the size from which on it is worth while to let the host move the
// bytes of a file by itself.
const carryFrom = 256 << 10

// carrier is the host's offer, on one request, to move the bytes itself.
type carrier struct {
	w http.ResponseWriter
	r *http.Request
}

// carrierOf returns nil if the request has no offer.
func carrierOf(w http.ResponseWriter, r *http.Request) *carrier {
	if r.Header.Get(guestapi.CarryHeader) == "" {
		return nil
	}
	return &carrier{w, r}
}

// descriptor is f's number. The caller keeps f open while the number is in use.
func descriptor(f *os.File) (fd uintptr, err error) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = n })
	}
	return fd, err
}

// offer lets the host write into f, which is empty, in place of the body.
func (c *carrier) offer(f *os.File) error {
	if c == nil {
		return nil
	}
	fd, err := descriptor(f)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set(guestapi.CarryHeader, fmt.Sprint(fd))
	c.w.WriteHeader(http.StatusEarlyHints)
	h.Del(guestapi.CarryHeader)
	return nil
}

// carried reports whether the host has written in place of the body, which has
// ended.
func (c *carrier) carried() bool {
	return c != nil && c.r.Trailer.Get(guestapi.CarriedTrailer) != ""
}

// complete completes f after that.
func (c *carrier) complete(f *os.File) error {
	told := c.r.Trailer.Get(guestapi.CarriedTrailer)
	var size int64
	var errno uint16
	if n, err := fmt.Sscanf(told, "%d %d", &size, &errno); err != nil || n != 2 || size < 0 {
		return refuse(invalid, "", "malformed %s %.40q", guestapi.CarriedTrailer, told)
	}
	if errno != 0 {
		return &os.PathError{Op: "write", Path: f.Name(), Err: syscall.Errno(errno)}
	}
	return f.Truncate(size) // a hole at the end is part of the file
}

// fill writes a body into f, which is empty, by whoever moves the bytes. c may be nil.
func (c *carrier) fill(ctx context.Context, f *os.File, body io.Reader) error {
	if err := c.offer(f); err != nil {
		return err
	}
	first := make([]byte, 1)
	n, err := io.ReadAtLeast(body, first, 1)
	switch {
	case errors.Is(err, io.EOF) && c.carried():
		return c.complete(f)
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	_, err = tarball.CopySparse(ctx, f, io.MultiReader(bytes.NewReader(first[:n]), body))
	return err
}

// errHungUp is the end of an answer that only its reader ends.
var errHungUp = errors.New("the host hung up")

// lend lets the host read length bytes of f, and returns when it has hung up.
func (c *carrier) lend(f *os.File, length int64) error {
	at, err := f.Seek(0, 1)
	if err != nil {
		return err
	}
	fd, err := descriptor(f)
	if err != nil {
		return err
	}
	c.w.Header().Set(guestapi.CarryHeader, fmt.Sprintf("%d %d %d", fd, at, length))
	c.w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		return err
	}
	<-c.r.Context().Done()
	return errHungUp
}
