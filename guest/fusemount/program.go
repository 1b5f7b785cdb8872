package fusemount

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// IsProgram reports whether a program is called by a name under which libraries look for
// the one that mounts.
func IsProgram(argv0 string) bool {
	name := filepath.Base(argv0)
	return name == "fusermount" || name == "fusermount3"
}

// socketVariable names, to that program, the descriptor of the socket that the connection
// is to be sent over.
const socketVariable = "_FUSE_COMMFD"

// usage is of a program that others execute.
const usage = `usage: fusermount [options] mountpoint
    -o OPTIONS  mount with these, words with commas between them
    -u          unmount
    --all       unmount all that the caller has mounted; no mountpoint is needed
    -z          unmount although it is in use
    -q          say nothing of what goes wrong
`

// call is what the program was called for.
type call struct {
	request
	quiet bool
	told  string // to be printed, and nothing to be done
}

// Program is fusermount(1): it has the guest mount or unmount. It returns the exit code.
func Program(argv []string, getenv func(string) string, out, errs io.Writer) int {
	c, err := parseCall(argv[1:])
	if err == nil {
		err = c.run(getenv, out)
	}
	if err == nil {
		return 0
	}
	if !c.quiet {
		fmt.Fprintf(errs, "%s: %v\n", filepath.Base(argv[0]), err)
	}
	return 1
}

// parseCall reads the arguments as getopt(3) does.
func parseCall(args []string) (c call, err error) {
	var paths []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			paths = append(paths, args[i+1:]...)
			i = len(args)
		case strings.HasPrefix(arg, "--"):
			err = c.take(strings.TrimPrefix(arg, "--"))
		case len(arg) < 2 || arg[0] != '-':
			paths = append(paths, arg)
		default:
			var used int
			if used, err = c.letters(arg[1:], args[i+1:]); err == nil {
				i += used
			}
		}
		if err != nil {
			return c, err
		}
	}
	want := 1
	if c.told != "" || c.All {
		want = 0
	}
	if len(paths) != want {
		return c, fmt.Errorf("%d mountpoints are needed, not %d", want, len(paths))
	}
	if want == 1 && paths[0] == "" {
		return c, errors.New("the mountpoint has no name")
	}
	if (c.Lazy || c.All) && !c.Unmount {
		return c, errors.New("-z and --all can only be used with -u")
	}
	c.Path = strings.Join(paths, "")
	return c, nil
}

// words are the options' long names.
var words = map[string]string{"u": "unmount", "z": "lazy", "q": "quiet", "h": "help", "V": "version"}

// take heeds an option without a value, by its long name.
func (c *call) take(word string) error {
	switch word {
	case "unmount":
		c.Unmount = true
	case "all":
		c.All = true
	case "lazy":
		c.Lazy = true
	case "quiet":
		c.quiet = true
	case "help":
		c.told = usage
	case "version":
		c.told = "fusermount version: 3.14.0\n" // of which it takes the arguments
	default:
		return fmt.Errorf("unknown option '--%.80s'", word)
	}
	return nil
}

// letters heeds options in one argument, and says how many of the next it has used.
func (c *call) letters(letters string, next []string) (used int, err error) {
	for i := range len(letters) {
		letter := letters[i : i+1]
		if letter != "o" {
			if words[letter] == "" {
				return 0, fmt.Errorf("unknown option '-%.1s'", letter)
			}
			if err := c.take(words[letter]); err != nil {
				return 0, err
			}
			continue
		}
		value := letters[i+1:]
		if value == "" {
			if len(next) == 0 {
				return 0, errors.New("option -o needs a value")
			}
			value, used = next[0], 1
		}
		if c.Options != "" {
			c.Options += ","
		}
		c.Options += value
		return used, nil
	}
	return 0, nil
}

// run has the guest do it.
func (c *call) run(getenv func(string) string, out io.Writer) error {
	if c.told != "" {
		_, err := io.WriteString(out, c.told)
		return err
	}
	if c.Unmount {
		r := c.request
		if r.Options = ""; !r.All {
			var err error
			if r.Path, err = whole(c.Path); err != nil {
				return err
			}
		}
		_, err := ask(r, nil)
		return err
	}
	socket, err := strconv.Atoi(getenv(socketVariable))
	if err != nil {
		return errors.New("old style mounting not supported: " + socketVariable + " names no socket")
	}
	fd, err := unix.Open(c.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bad mount point %s: %w", c.Path, err)
	}
	folder := os.NewFile(uintptr(fd), c.Path)
	defer folder.Close()
	server, err := ask(request{Options: c.Options}, folder)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(server.Fd())), nil, 0); err != nil {
		return fmt.Errorf("give the connection to the caller: %w", err)
	}
	return nil
}

// whole is a path without links but for its last name, which may lie in a file system
// that nobody serves any more.
func whole(p string) (string, error) {
	p, err := filepath.Abs(p)
	if err != nil || p == "/" {
		return p, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(p))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(p)), nil
}

// ask sends the guest a request, with a folder beside it if that is not nil, and returns
// what came with the answer.
func ask(r request, folder *os.File) (*os.File, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: address, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("%w (%w): it is made with how many it may have at once, as fuse_mounts among its limits", errNotAllowed, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * callTime))
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	beside := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())})
	if folder != nil {
		beside = append(beside, unix.UnixRights(int(folder.Fd()))...)
	}
	if _, _, err := c.WriteMsgUnix(b, beside, nil); err != nil {
		return nil, fmt.Errorf("ask the guest: %w", err)
	}
	b, beside = make([]byte, maxRequest), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(b, beside)
	if err != nil {
		return nil, fmt.Errorf("ask the guest: %w", err)
	}
	var a answer
	if err := json.Unmarshal(b[:n], &a); err != nil {
		return nil, fmt.Errorf("read the guest's answer: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	files, _, err := parseBeside(beside[:m])
	if err != nil || folder == nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("the guest's answer lacks the connection")
	}
	return files[0], nil
}
