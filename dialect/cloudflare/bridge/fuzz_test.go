package bridge

import (
	"os/exec"
	"path"
	"strings"
	"testing"
)

// FuzzQuote holds quoting against the shell that reads it.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a b", "'", "\\", "$(x)", "a\nb", "~", "-n", "ä", "!", "#", "a=b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) || len(s) > 10_000 {
			return
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s. "+quote(s)).Output()
		if err != nil || string(out) != s+"." {
			t.Errorf("%q came as %q, %v", s, out, err)
		}
	})
}

// FuzzPaths holds what is let through against the folder that it must stay in.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"workspace/x", "../x", "/workspace/..", "workspace2", "//", "a/./b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, given := range []string{s, "/" + s} {
			p, ok := inWorkspace(given)
			if ok && (path.Clean(p) != p || p != workspace && !strings.HasPrefix(p, workspace+"/")) {
				t.Errorf("%q gave %q", given, p)
			}
		}
		all, err := excludesOf(s)
		for _, p := range all {
			if err != nil || !strings.HasPrefix(p, "/") || strings.Contains(p, "/../") || strings.Contains(p, ",") {
				t.Errorf("%q gave %q, %v", s, p, err)
			}
		}
	})
}

// FuzzS3FS holds what is let through against what s3fs makes of it: its options have commas
// between them, its keys colons, and neither has lines.
func FuzzS3FS(f *testing.F) {
	f.Add("b", "https://s3.example.com", "/a/", "id", "hush", "ro,a=1")
	f.Add("b:c", "https://x,url=http://y", "a", "i:d", "a\nb", "url=http://y")
	f.Fuzz(func(t *testing.T, bucket, endpoint, prefix, id, secret, option string) {
		q := bucketMount{Bucket: bucket, MountPath: "/mnt", Options: &mountOptions{Endpoint: endpoint, Prefix: prefix,
			Credentials: &mountCredentials{ID: id, Secret: secret}, S3FSOptions: []string{option}}}
		m, err := q.plan()
		if err != nil {
			return
		}
		last := len(m.options) - 1
		if m.options[last] != "url="+endpoint || strings.Count(strings.Join(m.options, ","), ",") != last {
			t.Errorf("%q became %q", endpoint, m.options)
		}
		for _, o := range m.options[:last] {
			if strings.HasPrefix(o, "url=") || strings.HasPrefix(o, "passwd_file") || strings.ContainsAny(o, "\n\x00") {
				t.Errorf("%q let %q through", option, o)
			}
		}
		if strings.Count(m.keys, ":") != 2 || strings.Count(m.keys, "\n") != 1 || strings.Count(m.source, ":") > 1 {
			t.Errorf("%q, %q", m.keys, m.source)
		}
	})
}
