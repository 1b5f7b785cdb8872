package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const fileSize = 256 << 20

// files compares bodies through the API with the same bytes through cat inside.
func files(ctx context.Context, s *server) (rows []row, err error) {
	err = s.with(ctx, func(id string) error {
		var up, down, cat []float64
		for range 3 {
			begin := time.Now()
			if _, err := s.WriteFile(ctx, id, "/workspace/a", sandbox.WriteOptions{}, newNoise(fileSize)); err != nil {
				return err
			}
			up = append(up, rate(begin))
			begin = time.Now()
			body, _, err := s.ReadFile(ctx, id, "/workspace/a", sandbox.ReadRange{})
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, body)
			body.Close()
			if err != nil || n != fileSize {
				return fmt.Errorf("read %d bytes: %w", n, err)
			}
			down = append(down, rate(begin))
			begin = time.Now()
			if _, err := s.run(ctx, id, "sh", "-c", "cat /workspace/a > /workspace/b && rm /workspace/b"); err != nil {
				return err
			}
			cat = append(cat, rate(begin))
		}
		a, b, c := median("upload of 256 MiB", "MB/s", up), median("download of 256 MiB", "MB/s", down), median("  cat inside, the same bytes", "MB/s", cat)
		a.Target, b.Target = "≥ 70 % of cat", "≥ 70 % of cat"
		rows = []row{a, b, c}
		return nil
	})
	return rows, err
}

// noise gives so many bytes, which no file system keeps as holes, and takes no time.
type noise struct{ block, left []byte }

func newNoise(size int64) io.Reader {
	block := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(block)
	return io.LimitReader(&noise{block: block}, size)
}

func (n *noise) Read(p []byte) (int, error) {
	if len(n.left) == 0 {
		n.left = n.block
	}
	k := copy(p, n.left)
	n.left = n.left[k:]
	return k, nil
}

func rate(since time.Time) float64 { return fileSize / 1e6 / time.Since(since).Seconds() }
