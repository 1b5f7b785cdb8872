package client_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

// The benchmarks measure what the API adds: the fake driver's guest is in the
// same process.

func bench(b *testing.B) (*client.Client, string) {
	b.Helper()
	c := client.New(served.Start(b).URL, served.Key)
	s, err := c.Create(b.Context(), sandbox.CreateRequest{})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	return c, string(s.ID)
}

var megabytes = bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // 64 MiB

func BenchmarkUpload(b *testing.B) {
	c, id := bench(b)
	b.SetBytes(int64(len(megabytes)))
	for b.Loop() {
		if _, err := c.WriteFile(b.Context(), id, "/f", sandbox.WriteOptions{}, bytes.NewReader(megabytes)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDownload(b *testing.B) {
	c, id := bench(b)
	if _, err := c.WriteFile(b.Context(), id, "/f", sandbox.WriteOptions{}, bytes.NewReader(megabytes)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(megabytes)))
	for b.Loop() {
		body, _, err := c.ReadFile(b.Context(), id, "/f", sandbox.ReadRange{})
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, body); err != nil || n != int64(len(megabytes)) {
			b.Fatal(n, err)
		}
		body.Close()
	}
}

func BenchmarkExec(b *testing.B) {
	c, id := bench(b)
	for b.Loop() {
		events, err := c.Exec(b.Context(), id, sandbox.Command{Argv: []string{"true"}})
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = events.Recv()
		}
		events.Close()
		if err != io.EOF {
			b.Fatal(err)
		}
	}
}
