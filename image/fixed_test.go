package image

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// TestFixedPartsInHostileRoots adds the fixed parts to roots that were made to
// lead them astray.
func TestFixedPartsInHostileRoots(t *testing.T) {
	needRoot(t)
	everything := []string{"etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", "home/user", "workspace", "tmp", "var/tmp", ".berth", "proc"}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    sandbox.Kind
	}{
		"nothing at all":  {nil, ""},
		"links upward":    {[]tar.Header{symlink("etc", "../../../.."), symlink("home", ".."), symlink("var", "/../..")}, ""},
		"links elsewhere": {[]tar.Header{symlink("etc/passwd", "/../secret"), symlink("etc/resolv.conf", "../../secret"), symlink("home/user", "/"), symlink("tmp", "/etc"), symlink("workspace", "../secret")}, ""},
		"files for folders": {[]tar.Header{file("tmp", "x"), file("workspace", "x"), file("proc", "x"), file("home/user", "x"),
			file(".berth/guest", "x"), file("sys/x/y", "x"), file("etc/skel", "x")}, ""},
		"folders for files":     {[]tar.Header{dir("etc/passwd/x/y"), dir("etc/hosts"), dir("etc/resolv.conf/a"), dir("etc/sudoers.d/90-user"), dir("etc/skel/.profile"), dir("usr/bin/sudo")}, ""},
		"links in the skeleton": {[]tar.Header{symlink("etc/skel/a", "/../secret"), symlink("etc/skel/b", "b"), file("etc/skel/c", "kept")}, ""},
		"a file above":          {[]tar.Header{file("etc", "x")}, sandbox.Invalid},
		"a loop above":          {[]tar.Header{symlink("home", "home")}, sandbox.Invalid},
		"huge accounts":         {[]tar.Header{file("etc/passwd", strings.Repeat("x", maxRead+1))}, sandbox.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := unpackInto(t, defaultCaps, archiveOf(t, c.entries...))
			if err != nil {
				t.Fatal(err)
			}
			err = fix(root, config{workdir: "/srv/app"})
			if sandbox.KindOf(err) != c.want {
				t.Fatalf("kind %q, want %q: %v", sandbox.KindOf(err), c.want, err)
			}
			checkOutside(t, filepath.Dir(root))
			if c.want != "" {
				return
			}
			tr, err := openTree(root)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			for _, p := range append(everything, "srv/app") {
				f, err := tr.open(p, os.O_RDONLY)
				if err != nil {
					t.Errorf("%s: %v", p, err)
					continue
				}
				f.Close()
			}
			if text, err := tr.read("etc/passwd"); err != nil || strings.Count("\n"+string(text), "\nuser:x:1000:1000:") != 1 {
				t.Errorf("accounts: %q, %v", text, err)
			}
		})
	}
}

// TestSteps follows lines that a real build printed.
func TestSteps(t *testing.T) {
	var told []sandbox.Progress
	steps := aptSteps{say: func(p sandbox.Progress) { told = append(told, p) }}
	for line, want := range linesAndSteps {
		steps.line(want.line)
		got := told[len(told)-1]
		if got.Step != want.step || got.Done != want.done || got.Total != want.total || got.Log != want.line {
			t.Errorf("line %d, %q: %+v, want %s %d of %d", line, want.line, got, want.step, want.done, want.total)
		}
	}
}

var linesAndSteps = []struct {
	line, step  string
	done, total int64
}{
	{"I: running apt-get update...", "fetch package lists", 0, 0},
	{"Get:1 http://mirror.example bookworm InRelease [151 kB]", "fetch package lists", 0, 0},
	{"I: downloading packages with apt...", "download packages", 0, 0},
	{"0 upgraded, 89 newly installed, 0 to remove and 0 not upgraded.", "download packages", 0, 0},
	{"Get:1 http://mirror.example bookworm/main amd64 mawk amd64 1.3 [119 kB]", "download packages", 1, 89},
	{"Get:89 http://mirror.example bookworm/main amd64 bash amd64 5.2 [1 kB]", "download packages", 89, 89},
	{"I: installing remaining packages inside the chroot...", "download packages", 0, 0},
	{"0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.", "download packages", 0, 0},
	{"Unpacking locales (2.36-9) ...", "unpack packages", 1, 2},
	{"Setting up locales (2.36-9) ...", "set up packages", 1, 2},
	{"Unpacking jq (1.6-2.1) ...", "unpack packages", 2, 2},
	{"Setting up jq (1.6-2.1) ...", "set up packages", 2, 2},
	{"Setting up jq again", "set up packages", 3, 0},
	{"I: cleaning package lists and apt cache...", "clean up", 0, 0},
}
