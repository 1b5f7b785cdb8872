package fusemount

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(`ro,allow_other,max_read=65536,fsname=a\,b,subtype=s3fs,nonempty,`)
	if err != nil {
		t.Fatal(err)
	}
	if o.flags != unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV || o.source != "a,b" {
		t.Errorf("%+v", o)
	}
	if got := o.data(7, 1, 2); got != "fd=7,rootmode=40000,user_id=1,group_id=2,allow_other,max_read=65536" {
		t.Errorf("the kernel is told %q", got)
	}
	for _, text := range []string{"suid", "dev", "fd=3", "user_id=0", "rootmode=40000", "max_read=x", "fsname=a\nb", "fsname=" + strings.Repeat("x", 300), strings.Repeat(",", 5000)} {
		if _, err := parseOptions(text); err == nil {
			t.Errorf("%.20q is taken", text)
		}
	}
}

func TestParseCall(t *testing.T) {
	c, err := parseCall([]string{"-uz", "-q", "--", "/mnt"})
	if err != nil || !c.Unmount || !c.Lazy || !c.quiet || c.Path != "/mnt" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parseCall([]string{"-oro", "-o", "nodev", "/mnt"})
	if err != nil || c.Options != "ro,nodev" || c.Unmount {
		t.Errorf("%+v, %v", c, err)
	}
	for _, args := range [][]string{{}, {"-u"}, {"/a", "/b"}, {"-z", "/a"}, {"-x", "/a"}, {"-o"}, {"-u", "--all", "/a"}, {"--all"}} {
		if c, err := parseCall(args); err == nil {
			t.Errorf("%q is taken as %+v", args, c)
		}
	}
}

// FuzzOptions: whatever is asked for, nothing of what the kernel is told is the caller's but
// numbers and known words.
func FuzzOptions(f *testing.F) {
	f.Add(`rw,fsname=s3fs,max_read=4096`)
	f.Add(`\\,\,fd=1`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseOptions(text)
		if err != nil {
			return
		}
		if o.flags&(unix.MS_NOSUID|unix.MS_NODEV) != unix.MS_NOSUID|unix.MS_NODEV {
			t.Errorf("%q allows set-uid or devices", text)
		}
		for word := range strings.SplitSeq(strings.TrimPrefix(o.data(3, 4, 5), "fd=3,rootmode=40000,user_id=4,group_id=5"), ",") {
			if word != "" && word != "allow_other" && word != "default_permissions" && !strings.HasPrefix(word, "max_read=") {
				t.Errorf("%q tells the kernel %q", text, word)
			}
		}
	})
}

// FuzzCall: any arguments are refused or understood, and none fells the program.
func FuzzCall(f *testing.F) {
	f.Add("-u\x00-z\x00/mnt")
	f.Add("-o\x00ro\x00--\x00-x")
	f.Fuzz(func(t *testing.T, args string) {
		if c, err := parseCall(strings.Split(args, "\x00")); err == nil && c.told == "" && c.All == (c.Path != "") {
			t.Errorf("%q is taken as %+v", args, c)
		}
	})
}
