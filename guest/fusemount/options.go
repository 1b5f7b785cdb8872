package fusemount

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxOptions bounds the text of a mount's options.
const maxOptions = 4096

// maxSource bounds the name under which a mount is listed.
const maxSource = 256

// options are what a program asks of its mount, as fusermount(1) has them.
type options struct {
	flags              uintptr // of mount(2)
	source             string
	allowOther         bool
	defaultPermissions bool
	maxRead            uint32 // bytes; 0 leaves it open
}

// flagWords are the options that are flags of mount(2), or the lack of one. Whoever may
// mount must not gain anything by what lies there.
var flagWords = map[string]uintptr{
	"rw": 0, "ro": unix.MS_RDONLY, "noexec": unix.MS_NOEXEC, "exec": 0, "noatime": unix.MS_NOATIME, "atime": 0,
	"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "async": 0, "nonempty": 0,
}

// parseOptions reads words that commas part; a backslash takes what follows it as it is.
func parseOptions(text string) (options, error) {
	o := options{flags: unix.MS_NOSUID | unix.MS_NODEV}
	if len(text) > maxOptions {
		return o, fmt.Errorf("the options have %d bytes, at most %d are taken", len(text), maxOptions)
	}
	subtype := ""
	for _, word := range splitOptions(text) {
		name, value, _ := strings.Cut(word, "=")
		flag, known := flagWords[word]
		switch {
		case word == "":
		case known:
			o.flags |= flag
		case word == "allow_other":
			o.allowOther = true
		case word == "default_permissions":
			o.defaultPermissions = true
		case name == "max_read":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return o, fmt.Errorf("max_read=%.20q is no number of bytes", value)
			}
			o.maxRead = uint32(n)
		case name == "fsname":
			o.source = value
		case name == "subtype":
			subtype = value
		default:
			return o, fmt.Errorf("unknown option '%.80s'", word)
		}
	}
	if o.source == "" {
		o.source = subtype
	}
	if o.source == "" {
		o.source = device
	}
	if len(o.source) > maxSource || strings.ContainsFunc(o.source, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return o, errors.New("the file system's name is too long, or has control characters")
	}
	return o, nil
}

// splitOptions parts a text at its commas.
func splitOptions(text string) (words []string) {
	var word strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
		case c == ',':
			words = append(words, word.String())
			word.Reset()
		default:
			word.WriteByte(c)
		}
	}
	return append(words, word.String())
}

// data is what the kernel is told of a connection for a user.
func (o options) data(fd int, uid, gid uint32) string {
	text := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d", fd, unix.S_IFDIR, uid, gid)
	if o.allowOther {
		text += ",allow_other"
	}
	if o.defaultPermissions {
		text += ",default_permissions"
	}
	if o.maxRead > 0 {
		text += fmt.Sprintf(",max_read=%d", o.maxRead)
	}
	return text
}
