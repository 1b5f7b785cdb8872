package rig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// CodeSource is what the template code-interpreter is built from.
const CodeSource = "distribution:bookworm+code"

// CodeTemplate makes sure that the server has the template code-interpreter, as it
// would be built now, and keeps it beneath BERTH_TEST_DATA for later runs. A new one
// takes a minute or two, and the network.
func (s *Server) CodeTemplate(t *testing.T) {
	t.Helper()
	s.template(t, sandbox.CodeTemplate, CodeSource)
}

// BucketTemplate does the same with the template bucket-mounts, which has what that one has
// too.
func (s *Server) BucketTemplate(t *testing.T) {
	t.Helper()
	s.CodeTemplate(t)
	s.template(t, sandbox.BucketTemplate, CodeSource+"+s3fs")
}

func (s *Server) template(t *testing.T, name, from string) {
	t.Helper()
	made, err := s.BuildTemplate(t.Context(), sandbox.BuildRequest{Name: name, From: from}, nil)
	if err != nil {
		t.Fatalf("build the template %s: %v (%s)", name, err, sandbox.HintOf(err))
	}
	if kept := os.Getenv("BERTH_TEST_DATA"); kept != "" {
		if err := keepTemplate(filepath.Join(s.Data, "templates"), filepath.Join(kept, "templates"), made); err != nil {
			t.Fatal(err)
		}
	}
}

// keepTemplate copies a template from one data directory to another, its name last.
func keepTemplate(from, to string, made sandbox.Template) error {
	image := filepath.Join("images", strings.TrimPrefix(made.Digest, "sha256:"))
	name := made.Name + ".json"
	if _, err := os.Stat(filepath.Join(to, image+".erofs")); err == nil {
		old, err := os.ReadFile(filepath.Join(to, name))
		if err == nil && strings.Contains(string(old), made.Digest) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Join(to, "images"), 0o700); err != nil {
		return err
	}
	for _, file := range []string{image + ".erofs", image + ".json", name} {
		part := filepath.Join(to, filepath.Dir(file), ".part-"+filepath.Base(file))
		if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		info, err := os.Stat(filepath.Join(from, file))
		if err != nil {
			return err
		}
		if info.Size() < linkLeast || os.Link(filepath.Join(from, file), part) != nil {
			if err := copyFile(filepath.Join(from, file), part, info.Mode().Perm()); err != nil {
				return err
			}
		}
		if err := os.Rename(part, filepath.Join(to, file)); err != nil {
			return err
		}
	}
	return nil
}
