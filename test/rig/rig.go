// Package rig starts the real program for tests that use it from outside, as
// published clients do.
package rig

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/client"
)

// Server is a berth that runs for one test, on real sandboxes.
type Server struct {
	*client.Client
	URL  string // http
	Key  string // the admin's
	Data string // directory
	log  string
	cmd  *exec.Cmd
}

// Start runs a server with the template base, and ends it, with all its sandboxes,
// when the test ends. Without root it skips the test, loudly.
func Start(t *testing.T, flags ...string) *Server {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of gVisor is tested by this run")
	}
	data := filepath.Join(t.TempDir(), "data")
	Templates(t, filepath.Join(data, "templates"))
	return StartIn(t, data, flags...)
}

// Templates puts those that were made before into a folder, if there are any.
func Templates(t *testing.T, dir string) {
	t.Helper()
	kept := filepath.Join(os.Getenv("BERTH_TEST_DATA"), "templates")
	if _, err := os.Stat(filepath.Join(kept, "base.json")); err != nil {
		return
	}
	if err := LinkTree(kept, dir); err != nil {
		t.Fatal(err)
	}
}

// StartIn is Start in a data directory of the test's, on any driver.
func StartIn(t *testing.T, data string, flags ...string) *Server {
	t.Helper()
	s := &Server{Data: data, log: filepath.Join(t.TempDir(), "server.log")}
	if err := s.start(Binary(t), flags); err != nil {
		t.Fatalf("%v\n%s", err, s.tail())
	}
	t.Cleanup(func() {
		if err := s.end(Binary(t)); err != nil {
			t.Errorf("end the server: %v\n%s", err, s.tail())
		}
	})
	return s
}

// Binary is the program under test: BERTH_BIN, or what "make build" made.
func Binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BERTH_BIN")
	if path == "" {
		path = filepath.Join(Root(t), "bin", "berth")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it first, with: make build", err)
	}
	return path
}

// Root is the folder of the module.
func Root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("find the module: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func (s *Server) start(binary string, flags []string) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if flags, err = WithRoom(s.log+".toml", flags); err != nil {
		return err
	}
	args := append([]string{"serve", "--json", "--data", s.Data, "--listen", "127.0.0.1:0", "--log-level", "debug"}, flags...)
	s.cmd = exec.Command(binary, args...)
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct{ URL string }
	if jerr := json.Unmarshal(line, &ready); err != nil || jerr != nil {
		return errors.Join(fmt.Errorf("it said %q", line), err, jerr, s.cmd.Process.Kill(), s.cmd.Wait())
	}
	key, err := os.ReadFile(filepath.Join(s.Data, "admin.key"))
	if err != nil {
		return err
	}
	s.URL, s.Key = ready.URL, strings.TrimSpace(string(key))
	s.Client = client.New(s.URL, s.Key)
	return nil
}

// end removes every sandbox and stops the server.
func (s *Server) end(binary string) error {
	rm := exec.Command(binary, "rm", "--all", "-f")
	rm.Env = append(os.Environ(), "BERTH_URL="+s.URL, "BERTH_API_KEY="+s.Key)
	if out, err := rm.CombinedOutput(); err != nil {
		return fmt.Errorf("remove all: %w: %s", err, out)
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// tail is the end of the server's log.
func (s *Server) tail() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// linkLeast is the size from which a file is linked, not copied: those are images,
// which never change.
const linkLeast = 4 << 20

// LinkTree makes dst a copy of the directory src, but for what is in its folder work.
func LinkTree(src, dst string) error {
	return filepath.WalkDir(src, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, name)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		switch {
		case entry.IsDir() && rel == "work": // builds under way, of another server
			if err := os.MkdirAll(to, info.Mode().Perm()); err != nil {
				return err
			}
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(to, info.Mode().Perm())
		case !info.Mode().IsRegular():
			return nil
		case info.Size() >= linkLeast && os.Link(name, to) == nil:
			return nil
		}
		return copyFile(name, to, info.Mode().Perm())
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Packages installs the npm packages that the package-lock.json of dir names, or its
// package.json where there is no other, once for each version of that file, and
// returns the folder that holds node_modules. They are kept in .cache of the module.
func Packages(t *testing.T, dir string) string {
	t.Helper()
	files, verb := []string{"package-lock.json", "package.json"}, "ci"
	list, err := os.ReadFile(filepath.Join(dir, files[0]))
	if errors.Is(err, fs.ErrNotExist) {
		files, verb = files[1:], "install"
		list, err = os.ReadFile(filepath.Join(dir, files[0]))
	}
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%.12x", sha256.Sum256(list))
	kept := filepath.Join(Root(t), ".cache", "npm", name)
	done := filepath.Join(kept, "done")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		t.Fatal(err)
	}
	defer alone(t, kept+".lock")()
	if _, err := os.Stat(done); err == nil {
		return kept
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(kept, file), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("npm", verb, "--no-audit", "--no-fund")
	cmd.Dir = kept
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm %s: %v\n%s", verb, err, out)
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return kept
}

// Node runs test files of dir (none given: all that are *.test.mjs; BERTH_TEST_FILES
// names others, with spaces between) under Node's own test runner, with the packages
// of its package-lock.json, and fails the test with what they print if one fails.
func Node(t *testing.T, dir string, env []string, files ...string) {
	t.Helper()
	if only := strings.Fields(os.Getenv("BERTH_TEST_FILES")); len(only) > 0 {
		files = only
	}
	if len(files) == 0 {
		all, err := filepath.Glob(filepath.Join(dir, "*.test.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range all {
			files = append(files, filepath.Base(file))
		}
	}
	packages := Packages(t, dir)
	work := t.TempDir()
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(work, "node_modules")); err != nil {
		t.Fatal(err)
	}
	args := []string{"--test", "--test-reporter=spec"}
	all, err := filepath.Glob(filepath.Join(dir, "*.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range all {
		if err := copyFile(from, filepath.Join(work, filepath.Base(from)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", append(args, files...)...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if err != nil || testing.Verbose() {
		t.Logf("node %s:\n%s", strings.Join(files, " "), out.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
}
