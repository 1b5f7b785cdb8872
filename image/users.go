package image

import (
	"errors"
	"io"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// userID is the uid and the gid of the guest's user.
const userID = 1000

// addUser makes "user" with uid and gid 1000. An account of the image that has
// that uid ("node", say) keeps its name and its home, as an alias that stands
// behind: programs that ask who uid 1000 is are told "user". An account of the
// image that is called "user" and has another uid is replaced.
func addUser(t *tree) error {
	shell := "/bin/sh"
	if t.has("bin/bash") {
		shell = "/bin/bash"
	}
	name := sandbox.DefaultUser
	for _, file := range []struct {
		path, line string
		mode       uint32
		always     bool   // made when the image has none
		first      string // of the file then
	}{
		{"etc/passwd", name + ":x:1000:1000::" + sandbox.DefaultHome + ":" + shell, 0o644, true, "root:x:0:0:root:/root:/bin/sh\n"},
		{"etc/group", name + ":x:1000:", 0o644, true, "root:x:0:\n"},
		{"etc/shadow", name + ":*:19000:0:99999:7:::", 0o640, false, ""},
		{"etc/gshadow", name + ":!::", 0o640, false, ""},
	} {
		text, err := t.read(file.path)
		if errors.Is(err, errNoFile) {
			if !file.always {
				continue
			}
			text, err = []byte(file.first), nil
		}
		if err != nil {
			return err
		}
		if err := t.write(file.path, []byte(withAccount(string(text), name, file.line)), file.mode, rootOwner); err != nil {
			return err
		}
	}
	return nil
}

// withAccount puts line into an account file, before the first entry with id
// 1000 or else at the end, in place of the entry that has its name.
func withAccount(text, name, line string) string {
	var before, after []string
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		fields := strings.Split(l, ":")
		switch {
		case fields[0] == name:
		case len(after) > 0 || (len(fields) > 2 && fields[1] == "x" && fields[2] == "1000"):
			after = append(after, l)
		default:
			before = append(before, l)
		}
	}
	return strings.Join(append(append(before, line), after...), "\n") + "\n"
}

// ignoreEnd drops the error that says a folder has been read to its end.
func ignoreEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
