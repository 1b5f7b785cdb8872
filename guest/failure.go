package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guestapi"
)

// Codes by the names of the kinds that they carry.
const (
	invalid     = connect.CodeInvalidArgument
	forbidden   = connect.CodePermissionDenied
	notFound    = connect.CodeNotFound
	conflict    = connect.CodeFailedPrecondition
	exhausted   = connect.CodeResourceExhausted
	unsupported = connect.CodeUnimplemented
	canceled    = connect.CodeCanceled
	internal    = connect.CodeInternal
)

// refuse makes an error of a code with a hint, which may be "".
func refuse(code connect.Code, hint, format string, args ...any) error {
	e := connect.NewError(code, fmt.Errorf(format, args...))
	if hint != "" {
		e.Meta().Set(guestapi.HintHeader, hint)
	}
	return e
}

// hintOf is the hint that an error carries, or "".
func hintOf(err error) string {
	if e := new(connect.Error); errors.As(err, &e) {
		return e.Meta().Get(guestapi.HintHeader)
	}
	return ""
}

// codeOfContext is the code of a context that has ended.
func codeOfContext(ctx context.Context) connect.Code {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.CodeDeadlineExceeded
	}
	return canceled
}

// errnos says what the system's refusals mean to the caller.
var errnos = map[syscall.Errno]struct {
	code connect.Code
	hint string
}{
	syscall.ENOENT:       {notFound, ""},
	syscall.ESRCH:        {notFound, ""},
	syscall.ENOTDIR:      {invalid, "a part of the path is not a folder"},
	syscall.EISDIR:       {invalid, "the path is a folder"},
	syscall.EINVAL:       {invalid, ""},
	syscall.ELOOP:        {invalid, "the path runs through symbolic links in a circle"},
	syscall.ENAMETOOLONG: {invalid, "a name has at most 255 bytes"},
	syscall.ENXIO:        {invalid, "the path is not a regular file"},
	syscall.ENODEV:       {invalid, "the path is not a regular file"},
	syscall.EXDEV:        {invalid, "the two paths lie on different file systems"},
	syscall.EEXIST:       {conflict, ""},
	syscall.ENOTEMPTY:    {conflict, "set recursive to remove a folder with what is in it"},
	syscall.EBUSY:        {conflict, "something is mounted there or uses it"},
	syscall.ETXTBSY:      {conflict, "the file is being executed or written"},
	syscall.EACCES:       {forbidden, ""},
	syscall.EPERM:        {forbidden, ""},
	syscall.EROFS:        {forbidden, "this part of the file system is read-only"},
	syscall.ENOSPC:       {exhausted, "the sandbox's disk is full: remove files, or create it with more disk_bytes"},
	syscall.EDQUOT:       {exhausted, "the sandbox's disk is full: remove files, or create it with more disk_bytes"},
	syscall.EFBIG:        {exhausted, "the file is larger than the file system takes"},
	syscall.EMFILE:       {exhausted, "too many files are open"},
	syscall.ENFILE:       {exhausted, "too many files are open"},
	syscall.EAGAIN:       {exhausted, "the sandbox has as many processes as it may: end some"},
	syscall.ENOMEM:       {exhausted, memoryFull},
	syscall.EFAULT:       {exhausted, memoryFull}, // the guest names no address but its own: there was no page for what lies there
	syscall.E2BIG:        {invalid, "write the arguments to a file and pass its path"},
	syscall.EPIPE:        {conflict, ""},
	syscall.ENOTSUP:      {unsupported, "this file system cannot do it"},
	syscall.ENOSYS:       {unsupported, "the sandbox's kernel cannot do it"},
	syscall.ERANGE:       {invalid, ""},
	syscall.EMLINK:       {exhausted, ""},
}

const memoryFull = "the sandbox's memory is full: end processes, or give it more memory_bytes"

// fromOS turns an error of the operating system into one with a code. The text
// is the cause alone: the caller knows the path.
func fromOS(err error) error {
	if err == nil {
		return nil
	}
	if e := new(connect.Error); errors.As(err, &e) {
		return err
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		if known, ok := errnos[errno]; ok {
			return refuse(known.code, known.hint, "%w", errno)
		}
		return refuse(internal, "", "%w", errno)
	}
	switch {
	case escapes(err):
		return refuse(invalid, "a symbolic link on the path leads out of the sandbox: name what it points to", "the path leaves the sandbox")
	case errors.Is(err, fs.ErrNotExist):
		return refuse(notFound, "", "%w", syscall.ENOENT)
	case errors.Is(err, fs.ErrClosed), errors.Is(err, context.Canceled):
		return connect.NewError(canceled, err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return connect.NewError(internal, err)
}

// escapes reports whether an os.Root refused to leave its folder. The package
// os does not export that error; its text has been the same since os.Root came.
func escapes(err error) bool {
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Err != nil {
		return pe.Err.Error() == "path escapes from parent"
	}
	var le *os.LinkError
	return errors.As(err, &le) && le.Err != nil && le.Err.Error() == "path escapes from parent"
}

// codeOf, textOf: an error's code, and its text without the code's name.
func codeOf(err error) connect.Code { return connect.CodeOf(err) }

func textOf(err error) string {
	if e := new(connect.Error); errors.As(err, &e) {
		return e.Message()
	}
	return err.Error()
}

// withHint adds a hint to an error of a code that has none yet.
func withHint(err error, code connect.Code, hint string) error {
	if e := new(connect.Error); errors.As(err, &e) && e.Code() == code && hintOf(err) == "" {
		e.Meta().Set(guestapi.HintHeader, hint)
	}
	return err
}
