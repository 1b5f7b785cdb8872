package test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestSnapshotMovesToAnotherServer takes a snapshot with its memory to a server that has
// neither its template nor its root. What was damaged on the way is refused by name, and
// leaves nothing.
func TestSnapshotMovesToAnotherServer(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := r.suite.run([]string{"BERTH_URL=" + r.url, "BERTH_DATA=" + r.data}, "template", "build", "small", "--from", "docker-archive:"+smallArchive(t)); err != nil {
		t.Fatal(err)
	}
	s, err := r.Create(ctx, sandbox.CreateRequest{Template: "small"})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	for _, path := range []string{"/on-disk", "/dev/shm/in-memory"} {
		if _, err := r.WriteFile(ctx, id, path, sandbox.WriteOptions{}, strings.NewReader("kept in "+path)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Snapshot(ctx, id, sandbox.SnapshotRequest{Name: "moment"}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := r.ExportSnapshot(ctx, "moment", sandbox.ExportRequest{}, &file); err != nil {
		t.Fatal(err)
	}

	other := &real{instance: &instance{suite: r.suite, data: filepath.Join(t.TempDir(), "data"), log: filepath.Join(t.TempDir(), "server.log")}}
	other.again(t)
	t.Cleanup(func() {
		if err := other.clear(); err != nil {
			t.Errorf("clear: %v\n%s", err, tail(other.log))
		}
	})
	for _, entry := range []string{"root/piece-00000000.zst", "manifest", "chunks/"} {
		part, damaged := damage(t, file.Bytes(), entry)
		_, err := other.ImportSnapshot(ctx, bytes.NewReader(damaged), sandbox.ImportRequest{Name: "moment"})
		if sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" || !strings.Contains(err.Error(), part) {
			t.Errorf("with %s damaged: %v, which should name %q", entry, err, part)
		}
	}
	if all, err := other.Snapshots(ctx, sandbox.SnapshotQuery{}); err != nil || len(all) > 0 {
		t.Errorf("damaged ones are kept: %v, %v", all, err)
	}
	other.moved(ctx, t, file.Bytes())

	// The server that it was of may have lost both, too.
	if err := r.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveSnapshot(ctx, "moment"); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveTemplate(ctx, "small"); err != nil {
		t.Fatal(err)
	}
	r.moved(ctx, t, file.Bytes())
}

// moved imports what TestSnapshotMovesToAnotherServer has exported, and goes on from it.
func (r *real) moved(ctx context.Context, t *testing.T, file []byte) {
	t.Helper()
	if _, err := r.ImportSnapshot(ctx, bytes.NewReader(file), sandbox.ImportRequest{Name: "moment"}); err != nil {
		t.Fatalf("import: %v\n%s", err, tail(r.log))
	}
	if _, err := r.Collect(ctx, false); err != nil { // the root is needed now
		t.Fatal(err)
	}
	s, err := r.Create(ctx, sandbox.CreateRequest{Snapshot: "moment"})
	if err != nil {
		t.Fatalf("create: %v\n%s", err, tail(r.log))
	}
	for _, path := range []string{"/on-disk", "/dev/shm/in-memory", "/etc/hostname"} {
		body, _, err := r.ReadFile(ctx, string(s.ID), path, sandbox.ReadRange{})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		b, err := io.ReadAll(body)
		body.Close()
		if want := "kept in " + path; err != nil || path != "/etc/hostname" && string(b) != want {
			t.Errorf("%s holds %q, %v", path, b, err)
		}
	}
	if err := r.Remove(ctx, string(s.ID)); err != nil {
		t.Error(err)
	}
}

// damage changes one bit in the first entry whose name begins so, and says by what an
// error should name it.
func damage(t *testing.T, file []byte, prefix string) (part string, damaged []byte) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for in := tar.NewReader(bytes.NewReader(file)); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if part == "" && strings.HasPrefix(h.Name, prefix) {
			b[len(b)/2] ^= 1
			if part = h.Name; prefix == "chunks/" {
				part = "chunk 0 of "
			} else if strings.HasPrefix(part, "root/") {
				part = "root/piece-0"
			} else {
				part = "manifest"
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || part == "" {
		t.Fatalf("no entry %s, %v", prefix, err)
	}
	return part, out.Bytes()
}
