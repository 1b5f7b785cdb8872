// Package blobtest holds every body of blob.Store to its contract.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Open returns the store that lives in dir, and ends the test if it cannot.
// Opening dir again gives the same blobs.
type Open func(t *testing.T, dir string) blob.Store

// Run runs the whole suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"PutGivesBack", putGivesBack},
		{"PutTwice", putTwice},
		{"OpenFromOffset", openFromOffset},
		{"AbsentIsNotFound", absentIsNotFound},
		{"MalformedDigest", malformedDigest},
		{"RemoveKeepsReaders", removeKeepsReaders},
		{"ListsAll", listsAll},
		{"VisibleWholeOrNot", visibleWholeOrNot},
		{"ReaderFails", readerFails},
		{"EndedContext", endedContext},
		{"Concurrent", concurrent},
		{"ReopenKeepsAll", reopenKeepsAll},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

// Damaged checks that reading d, whose stored bytes the caller has changed,
// ends with Internal.
func Damaged(t *testing.T, s blob.Store, d blob.Digest) {
	t.Helper()
	r, err := s.Open(t.Context(), d, 0)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	wantKind(t, "read damaged blob", err, sandbox.Internal)
}

// samples are blobs of telling sizes.
func samples() [][]byte {
	big := make([]byte, 3<<20+7)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	return [][]byte{{}, {0}, []byte("hello"), bytes.Repeat([]byte{0xff}, 4096), big}
}

func digestOf(b []byte) blob.Digest { return blob.DigestOf(sha256.Sum256(b)) }

func put(t *testing.T, s blob.Store, b []byte) blob.Info {
	t.Helper()
	info, err := s.Put(t.Context(), bytes.NewReader(b))
	if err != nil {
		t.Fatalf("put %d bytes: %v", len(b), err)
	}
	if info.Digest != digestOf(b) || info.Size != int64(len(b)) || info.Stored.IsZero() {
		t.Fatalf("put %d bytes: %+v, want digest %s", len(b), info, digestOf(b))
	}
	return info
}

func wantBytes(t *testing.T, s blob.Store, d blob.Digest, offset int64, want []byte) {
	t.Helper()
	r, err := s.Open(t.Context(), d, offset)
	if err != nil {
		t.Errorf("open %s from %d: %v", d, offset, err)
		return
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %s from %d: %d bytes, %v; want %d equal ones", d, offset, len(got), err, len(want))
	}
	if err := r.Close(); err != nil {
		t.Errorf("close %s: %v", d, err)
	}
}

func wantKind(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s: kind %q, want %q (error: %v)", what, got, want, err)
	}
	var e *sandbox.Error
	if err != nil && (!errors.As(err, &e) || e.Op == "") {
		t.Errorf("%s: %v (%T) names no operation", what, err, err)
	}
}

func wantList(t *testing.T, s blob.Store, want ...[]byte) {
	t.Helper()
	found := map[blob.Digest]int64{}
	err := s.List(t.Context(), func(i blob.Info) error {
		if _, twice := found[i.Digest]; twice || i.Stored.IsZero() {
			t.Errorf("list: %+v is listed twice or without a time", i)
		}
		found[i.Digest] = i.Size
		return nil
	})
	if err != nil || len(found) != len(want) {
		t.Errorf("list: %d blobs, %v; want %d", len(found), err, len(want))
	}
	for _, b := range want {
		if size, ok := found[digestOf(b)]; !ok || size != int64(len(b)) {
			t.Errorf("list: %s has size %d (found %v), want %d", digestOf(b), size, ok, len(b))
		}
	}
}

func putGivesBack(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	for _, b := range samples() {
		info := put(t, s, b)
		wantBytes(t, s, info.Digest, 0, b)
		stat, err := s.Stat(t.Context(), info.Digest)
		if err != nil || stat.Digest != info.Digest || stat.Size != info.Size || !stat.Stored.Equal(info.Stored) {
			t.Errorf("stat: %+v, %v; want %+v", stat, err, info)
		}
	}
}

func putTwice(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	b := []byte("again")
	put(t, s, b)
	wantBytes(t, s, put(t, s, b).Digest, 0, b)
	wantList(t, s, b)
}

func openFromOffset(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	for _, b := range samples() {
		d := put(t, s, b).Digest
		for _, offset := range []int{1, len(b) / 2, len(b) - 1, len(b)} {
			if offset >= 0 && offset <= len(b) {
				wantBytes(t, s, d, int64(offset), b[offset:])
			}
		}
		for _, offset := range []int64{-1, int64(len(b)) + 1} {
			_, err := s.Open(t.Context(), d, offset)
			wantKind(t, "open outside of the blob", err, sandbox.Invalid)
		}
	}
}

func absentIsNotFound(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	d := digestOf([]byte("never stored"))
	_, err := s.Open(t.Context(), d, 0)
	wantKind(t, "open", err, sandbox.NotFound)
	_, err = s.Stat(t.Context(), d)
	wantKind(t, "stat", err, sandbox.NotFound)
	if err := s.Remove(t.Context(), d); err != nil {
		t.Errorf("remove: %v", err)
	}
	wantList(t, s)
}

func malformedDigest(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	hex := digestOf([]byte("x")).Hex()
	for _, d := range []blob.Digest{"", "sha256:", blob.Digest(hex), "sha512:" + blob.Digest(hex), "sha256:" + blob.Digest(strings.ToUpper(hex)),
		"sha256:" + blob.Digest(strings.Repeat("../", 21)+"x"), "sha256:" + blob.Digest(hex) + "0", blob.Digest("sha256:" + hex[1:] + "\x00")} {
		_, err := s.Open(t.Context(), d, 0)
		wantKind(t, "open "+string(d), err, sandbox.Invalid)
		_, err = s.Stat(t.Context(), d)
		wantKind(t, "stat "+string(d), err, sandbox.Invalid)
		wantKind(t, "remove "+string(d), s.Remove(t.Context(), d), sandbox.Invalid)
	}
}

func removeKeepsReaders(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	b := samples()[4]
	d := put(t, s, b).Digest
	r, err := s.Open(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	head := make([]byte, 1000)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Remove(t.Context(), d); err != nil {
			t.Fatalf("remove: %v", err)
		}
	}
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(head, rest...), b) {
		t.Errorf("read on after remove: %d bytes, %v", len(rest), err)
	}
	_, err = s.Stat(t.Context(), d)
	wantKind(t, "stat after remove", err, sandbox.NotFound)
	wantList(t, s)
}

func listsAll(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	wantList(t, s)
	for _, b := range samples() {
		put(t, s, b)
	}
	wantList(t, s, samples()...)
	stop := errors.New("enough")
	calls := 0
	err := s.List(t.Context(), func(blob.Info) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("list: %v after %d calls, want the caller's error after one", err, calls)
	}
}

func endedContext(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	d := put(t, s, []byte("x")).Digest
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, strings.NewReader("y"))
	wantCancelled(t, "put", err)
	_, err = s.Open(ctx, d, 0)
	wantCancelled(t, "open", err)
	_, err = s.Stat(ctx, d)
	wantCancelled(t, "stat", err)
	wantCancelled(t, "remove", s.Remove(ctx, d))
	wantCancelled(t, "list", s.List(ctx, func(blob.Info) error { return nil }))
	wantList(t, s, []byte("x"))
}

func wantCancelled(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%s with an ended context: %v, want it to wrap context.Canceled", what, err)
	}
	wantKind(t, what, err, sandbox.Unavailable)
}

func reopenKeepsAll(t *testing.T, open Open) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, b := range samples() {
		put(t, s, b)
	}
	s = open(t, dir)
	wantList(t, s, samples()...)
	for _, b := range samples() {
		wantBytes(t, s, digestOf(b), 0, b)
	}
}
