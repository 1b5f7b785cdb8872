package docker

import (
	"archive/tar"
	"errors"
	"io"
)

// rename copies a tar stream with other names. Hard links lead to the new names too.
func rename(w io.Writer, r io.Reader, name func(string) string) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		h.Name, h.Format = name(h.Name), tar.FormatPAX
		if h.Typeflag == tar.TypeLink {
			h.Linkname = name(h.Linkname)
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
