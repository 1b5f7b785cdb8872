package intercept

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxProgramAnswer bounds what a program may print, in bytes.
const maxProgramAnswer = 8 << 20

// run asks a program, as RFC 3875 (CGI) has it: the request is in its environment
// and on its standard input, its standard output is the reply. It must end within
// the time for a decision; it is killed with all that it started.
func (h *handlers) run(ctx context.Context, argv []string, q *question) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = q.environment()
	cmd.Stdin = bytes.NewReader(q.body)
	out := &limited{most: maxProgramAnswer}
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("its program gave no decision within %v", h.timeout)
	case err != nil:
		return nil, fmt.Errorf("its program: %w", err)
	case out.over:
		return nil, fmt.Errorf("its program printed more than %d bytes", maxProgramAnswer)
	}
	return parseCGI(out.b.Bytes())
}

// environment is the whole of what the program is told; nothing of the server's
// own environment is in it.
func (q *question) environment() []string {
	u, err := url.Parse(q.url)
	if err != nil { // it was made from one
		u = &url.URL{}
	}
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"GATEWAY_INTERFACE=CGI/1.1", "SERVER_SOFTWARE=berth", "SERVER_PROTOCOL=HTTP/1.1", "SCRIPT_NAME=",
		"REQUEST_METHOD=" + q.r.in.Method, "SERVER_NAME=" + q.r.s.flow.Host, "SERVER_PORT=" + strconv.Itoa(int(q.r.s.flow.Addr.Port())),
		"PATH_INFO=" + u.Path, "REQUEST_URI=" + u.RequestURI(), "QUERY_STRING=" + u.RawQuery,
		"CONTENT_TYPE=" + q.header.Get("Content-Type"), "CONTENT_LENGTH=" + strconv.Itoa(len(q.body)),
	}
	for k, values := range q.header {
		if k == "Proxy" { // HTTP_PROXY means something else to many programs
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z':
				return r - 'a' + 'A'
			case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
				return r
			}
			return '_'
		}, k)
		env = append(env, "HTTP_"+name+"="+strings.Join(values, ", "))
	}
	for i, e := range env {
		env[i] = strings.ReplaceAll(e, "\x00", "") // the kernel takes none
	}
	return env
}

// parseCGI reads a program's reply: header lines, an empty line, the body. The
// status is 200 unless a line "Status:" says otherwise.
func parseCGI(b []byte) (*reply, error) {
	in := bufio.NewReader(bytes.NewReader(b))
	fields, err := textproto.NewReader(in).ReadMIMEHeader()
	if err != nil || len(fields) == 0 {
		return nil, fmt.Errorf("its program printed no header: %w", orEOF(err))
	}
	h, status := http.Header(fields), http.StatusOK
	if s := h.Get("Status"); s != "" {
		code, _, _ := strings.Cut(s, " ")
		if status, err = strconv.Atoi(code); err != nil || status < 200 || status > 599 {
			return nil, fmt.Errorf("its program printed the status %.40q", s)
		}
		h.Del("Status")
	}
	return &reply{status, h, io.NopCloser(in)}, nil
}

func orEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// limited keeps so many bytes and notes that there were more.
type limited struct {
	b    bytes.Buffer
	most int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > l.most {
		l.over = true
		return len(p), nil
	}
	return l.b.Write(p)
}
