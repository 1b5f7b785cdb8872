package guest

import (
	"context"
	"errors"
	"io"
	"os"
)

// maxNested bounds folders within folders for what works on whole trees.
const maxNested = 1000

// eachName calls f for the names in a folder, in no order, without holding them
// all. Names that come while it runs may be left out.
func (g *Guest) eachName(ctx context.Context, dir string, f func(name string) error) error {
	d, err := g.files.open(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(n); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// steady is a reader that ends with its context.
type steady struct {
	ctx context.Context
	r   io.Reader
}

func (s *steady) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(b)
}
