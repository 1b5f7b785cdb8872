package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/sandbox"
)

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// imageOf makes an image of layers for this machine.
func imageOf(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c.Architecture, c.OS = runtime.GOARCH, "linux"
	c.Config = v1.Config{Env: []string{"PATH=/opt/bin:/bin", "GREETING=a=b", "broken"}, WorkingDir: "/app", User: "node:staff"}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

func gzipLayer(t testing.TB, entries ...tar.Header) v1.Layer {
	t.Helper()
	archive := archiveOf(t, entries...)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sample is a small image of two layers like those of a language's base image.
func sample(t testing.TB) v1.Image {
	return imageOf(t,
		gzipLayer(t, dir("etc/"), file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n"),
			file("etc/group", "root:x:0:\nnode:x:1000:\n"), file("etc/shadow", "root:*:1:::::\n"),
			file("bin/sh", "#!"), file("usr/bin/sudo", "sudo"), symlink("etc/resolv.conf", "/run/resolve/resolv.conf"),
			file("etc/skel/.profile", "umask 022\n"), file("removed", "x"), symlink("workspace", "/etc")),
		gzipLayer(t, gone(".wh.removed"), tar.Header{Name: "app/owned", Typeflag: tar.TypeReg, Uid: 1234, Gid: 5678, Mode: 0o640}))
}

// savedImage writes what "docker save" would.
func savedImage(t testing.TB, img v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved.tar")
	tag, err := name.NewTag("sample:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, img); err != nil {
		t.Fatal(err)
	}
	return path
}

// layoutOf writes an OCI layout as a folder and as a tar file.
func layoutOf(t testing.TB, img v1.Image) (folder, file string) {
	t.Helper()
	folder = t.TempDir()
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	other, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	// Another machine's image comes first.
	if err := l.AppendImage(other, layout.WithPlatform(v1.Platform{OS: "plan9", Architecture: "mips"})); err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "layout.tar")
	if out, err := exec.Command("tar", "-C", folder, "-cf", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return folder, file
}

// extract unpacks a root image with the file system's own checker.
func extract(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "extracted")
	if out, err := exec.Command("fsck.erofs", "--extract="+to, "--preserve", path).CombinedOutput(); err != nil {
		t.Fatalf("fsck.erofs: %v: %s", err, out)
	}
	return to
}

// needTools skips, loudly, where the file system's tools are not installed.
func needTools(t testing.TB) {
	t.Helper()
	needRoot(t)
	for _, tool := range []string{"mkfs.erofs", "fsck.erofs"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NOT TESTED: building an image; %s is not installed (apt-get install erofs-utils)", tool)
		}
	}
}

func checkSample(t *testing.T, s *Store, tpl sandbox.Template) {
	t.Helper()
	if tpl.Workdir != "/app" || tpl.User != "node" || tpl.Env["GREETING"] != "a=b" || tpl.Env["PATH"] != "/opt/bin:/bin" || len(tpl.Env) != 2 {
		t.Errorf("template %+v", tpl)
	}
	root := extract(t, s.RootPath(tpl))
	for p, want := range map[string]struct {
		mode     uint32
		uid, gid uint32
		text     string
	}{
		"app/owned":             {syscall.S_IFREG | 0o640, 1234, 5678, ""},
		"workspace":             {syscall.S_IFDIR | 0o755, 1000, 1000, ""},
		"home/user":             {syscall.S_IFDIR | 0o755, 1000, 1000, ""},
		"home/user/.profile":    {syscall.S_IFREG | 0o644, 1000, 1000, "umask 022\n"},
		"tmp":                   {syscall.S_IFDIR | 0o1777, 0, 0, ""},
		"proc":                  {syscall.S_IFDIR | 0o555, 0, 0, ""},
		".berth":                {syscall.S_IFDIR | 0o755, 0, 0, ""},
		"etc/sudoers.d/90-user": {syscall.S_IFREG | 0o440, 0, 0, "user ALL=(ALL:ALL) NOPASSWD: ALL\n"},
		"etc/resolv.conf":       {syscall.S_IFREG | 0o644, 0, 0, "# filled in when the sandbox starts\n"},
		"etc/passwd":            {syscall.S_IFREG | 0o644, 0, 0, "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n"},
		"etc/group":             {syscall.S_IFREG | 0o644, 0, 0, "root:x:0:\nuser:x:1000:\nnode:x:1000:\n"},
		"etc/shadow":            {syscall.S_IFREG | 0o640, 0, 0, "root:*:1:::::\nuser:*:19000:0:99999:7:::\n"},
	} {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(root, p), &st); err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if st.Mode != want.mode || st.Uid != want.uid || st.Gid != want.gid {
			t.Errorf("%s: mode %o, owner %d:%d; want %o, %d:%d", p, st.Mode, st.Uid, st.Gid, want.mode, want.uid, want.gid)
		}
		if want.text != "" {
			if b, err := os.ReadFile(filepath.Join(root, p)); err != nil || string(b) != want.text {
				t.Errorf("%s: %q, %v; want %q", p, b, err, want.text)
			}
		}
	}
	for _, p := range []string{"removed", "etc/gshadow"} {
		if _, err := os.Lstat(filepath.Join(root, p)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there (%v)", p, err)
		}
	}
}

// wantNoWork checks that no build left anything half made.
func wantNoWork(t testing.TB, s *Store) {
	t.Helper()
	left, err := os.ReadDir(s.workDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	mounts, err := mountsBeneath(s.dir)
	if err != nil || len(mounts) > 0 {
		t.Errorf("mounts left behind: %v, %v", mounts, err)
	}
	images, _ := filepath.Glob(filepath.Join(s.imagesDir(), "*.erofs"))
	for _, i := range images {
		if _, err := os.Stat(strings.TrimSuffix(i, "erofs") + "json"); err != nil {
			t.Errorf("an image that nothing is said of: %v", err)
		}
	}
}

func build(t testing.TB, s *Store, name, from string) sandbox.Template {
	t.Helper()
	tpl, err := s.Build(t.Context(), sandbox.BuildRequest{Name: name, From: from}, nil)
	if err != nil {
		t.Fatalf("build %s from %s: %v", name, from, err)
	}
	return tpl
}

func TestBuildFromArchives(t *testing.T) {
	needTools(t)
	img := sample(t)
	folder, file := layoutOf(t, img)
	for _, from := range []string{"docker-archive:" + savedImage(t, img), "oci-archive:" + folder, "oci-archive:" + file} {
		s := openStore(t, t.TempDir())
		tpl := build(t, s, "sample", from)
		if tpl.Source != from || tpl.Name != "sample" || tpl.Created.IsZero() {
			t.Errorf("template %+v", tpl)
		}
		checkSample(t, s, tpl)
		wantNoWork(t, s)
	}
}

func TestBuildFromRegistry(t *testing.T) {
	needTools(t)
	server := httptest.NewServer(registry.New(registry.Logger(discardLog())))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	push := func(tag string, img v1.Image) string {
		t.Helper()
		ref, err := name.ParseReference(host + "/team/" + tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		return "oci:" + ref.String()
	}
	s := openStore(t, t.TempDir())
	from := push("sample:1", sample(t))
	steps := 0
	tpl, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "sample", From: from}, func(sandbox.Progress) { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	checkSample(t, s, tpl)
	if steps < 4 {
		t.Errorf("%d steps were told", steps)
	}

	// A tag that has moved is another image; one that has not is the same.
	if again := build(t, s, "sample", from); again.Digest != tpl.Digest || !again.Created.Equal(tpl.Created) {
		t.Errorf("an unchanged tag was built anew: %+v", again)
	}
	push("sample:1", imageOf(t, gzipLayer(t, file("changed", "x"))))
	changed := build(t, s, "sample", from)
	if changed.Digest == tpl.Digest {
		t.Error("a moved tag was not built anew")
	}
	// The sandboxes of before still find their image.
	if old, err := s.Get(t.Context(), tpl.Digest); err != nil || old.Workdir != "/app" {
		t.Errorf("get %s: %+v, %v", tpl.Digest, old, err)
	}

	_, err = s.Build(t.Context(), sandbox.BuildRequest{Name: "none", From: "oci:" + host + "/team/none:1"}, nil)
	wantRefusal(t, "absent image", err, sandbox.NotFound)
	foreign := imageOf(t, gzipLayer(t, file("a", "x")))
	c, _ := foreign.ConfigFile()
	c.Architecture = "mips"
	foreign, _ = mutate.ConfigFile(foreign, c)
	_, err = s.Build(t.Context(), sandbox.BuildRequest{Name: "none", From: push("foreign:1", foreign)}, nil)
	wantRefusal(t, "another machine's image", err, sandbox.Unsupported)
	server.Close()
	_, err = s.Build(t.Context(), sandbox.BuildRequest{Name: "none", From: from}, nil)
	wantRefusal(t, "registry out of reach", err, sandbox.Unavailable)
	wantNoWork(t, s)
}

func TestZstdLayer(t *testing.T) {
	needTools(t)
	plain := archiveOf(t, file("a", "from zstd"))
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := static.NewLayer(w.EncodeAll(plain, nil), types.OCILayerZStd)
	img := imageOf(t, l)
	c, _ := img.ConfigFile()
	sum, _, err := v1.SHA256(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	c.RootFS.DiffIDs = []v1.Hash{sum}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	folder, _ := layoutOf(t, img)
	s := openStore(t, t.TempDir())
	root := extract(t, s.RootPath(build(t, s, "z", "oci-archive:"+folder)))
	if b, err := os.ReadFile(filepath.Join(root, "a")); err != nil || string(b) != "from zstd" {
		t.Errorf("a: %q, %v", b, err)
	}
}

func TestCacheAndForce(t *testing.T) {
	needTools(t)
	s := openStore(t, t.TempDir())
	from := "docker-archive:" + savedImage(t, sample(t))
	first := build(t, s, "one", from)
	if again := build(t, s, "one", from); !again.Created.Equal(first.Created) {
		t.Error("an unchanged build was done again")
	}
	if twin := build(t, s, "two", from); twin.Name != "two" || twin.Digest != first.Digest || !twin.Created.Equal(first.Created) {
		t.Errorf("an equal build under another name: %+v", twin)
	}
	forced, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "one", From: from, Force: true}, nil)
	if err != nil || forced.Created.Equal(first.Created) {
		t.Errorf("forced build: %+v, %v", forced, err)
	}
	// What another process finds is the same.
	list, err := openStore(t, s.dir).List(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "one" || list[1].Name != "two" || list[0].Env["GREETING"] != "a=b" {
		t.Errorf("list: %+v, %v", list, err)
	}
	// A lost image is built anew.
	if err := os.Remove(s.RootPath(first)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "two"); sandbox.KindOf(err) != sandbox.Internal || sandbox.HintOf(err) == "" {
		t.Errorf("get without its image: %v", err)
	}
	checkSample(t, s, build(t, s, "two", from))
}

func TestBuildsOfOneNameShare(t *testing.T) {
	needTools(t)
	s := openStore(t, t.TempDir())
	from := "docker-archive:" + savedImage(t, sample(t))
	var mu sync.Mutex
	made := map[string]int{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			tpl, err := s.Build(t.Context(), sandbox.BuildRequest{Name: "one", From: from}, func(p sandbox.Progress) {
				if p.Step == "unpack layers" && p.Done == p.Total {
					mu.Lock()
					made["unpacked"]++
					mu.Unlock()
				}
			})
			if err != nil {
				t.Errorf("build: %v", err)
			}
			mu.Lock()
			made[tpl.Digest]++
			mu.Unlock()
		})
	}
	all.Wait()
	if len(made) != 2 || made["unpacked"] != 1 {
		t.Errorf("builds: %v, want one image, unpacked once", made)
	}
	wantNoWork(t, s)

	// A waiting build ends with its context.
	unlock, err := s.building.Lock(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := s.Build(ctx, sandbox.BuildRequest{Name: "one", From: from}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("build: %v", err)
	}
}

func TestGetRemovePrune(t *testing.T) {
	needTools(t)
	s := openStore(t, t.TempDir())
	_, err := s.Get(t.Context(), "base")
	if sandbox.KindOf(err) != sandbox.NotFound || !strings.Contains(sandbox.HintOf(err), "template build") {
		t.Errorf("get: %v (hint %q)", err, sandbox.HintOf(err))
	}
	for _, bad := range []string{"", "../x", "sha256:zz", "sha256:" + strings.Repeat("../", 22)} {
		if _, err := s.Get(t.Context(), bad); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("get %q: %v", bad, err)
		}
		if err := s.Remove(t.Context(), bad); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("remove %q: %v", bad, err)
		}
	}
	from := "docker-archive:" + savedImage(t, sample(t))
	one := build(t, s, "one", from)
	build(t, s, "two", from)
	if err := s.Remove(t.Context(), one.Digest); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("remove a named image by its digest: %v", err)
	}
	if err := s.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "two"); err != nil || got.Digest != one.Digest {
		t.Errorf("the other name: %+v, %v", got, err)
	}
	if err := s.Remove(t.Context(), "one"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("second remove: %v", err)
	}
	// Building "two" from something else leaves the image to those who use it.
	build(t, s, "two", "docker-archive:"+savedImage(t, imageOf(t, gzipLayer(t, file("a", "x")))))
	if removed, err := s.Prune(t.Context(), func(d string) bool { return d == one.Digest }); err != nil || len(removed) != 0 {
		t.Errorf("prune what is in use: %v, %v", removed, err)
	}
	if removed, err := s.Prune(t.Context(), func(string) bool { return false }); err != nil || len(removed) != 1 || removed[0] != one.Digest {
		t.Errorf("prune: %v, %v", removed, err)
	}
	if err := s.Remove(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.imagesDir()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
