package kernel

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"
)

// nonceMark stands in a kernelspec's fence for what it is to show.
const nonceMark = "{nonce}"

// fence is a question behind a run. Some kernels publish what code shows on ways that
// their word of its end overtakes: the fence is code that shows a nonce on each of those
// ways, and all that the run showed has come once the nonces have.
type fence struct {
	id, nonce     string
	left          int // nonces that have not come
	replied, idle bool
}

// open reports whether something of the run may still come.
func (f *fence) open() bool { return f != nil && (f.left > 0 || !f.replied || !f.idle) }

// raise asks for the fence of a run that is over, if its kernel has one. One that cannot
// be asked for has no kernel any more, and that is told soon.
func (t *turn) raise() {
	if t.fence != nil || !t.replied || !t.idle || t.k.spec.Fence == "" {
		return
	}
	f := &fence{nonce: rand.Text(), left: strings.Count(t.k.spec.Fence, nonceMark)}
	code := strings.ReplaceAll(t.k.spec.Fence, nonceMark, f.nonce)
	var err error
	if f.id, err = t.k.request(shell, "execute_request", executeRequest{Code: code, Expressions: map[string]string{}}); err != nil {
		f.left, f.replied, f.idle = 0, true, true
	}
	t.fence, t.late, t.kill = f, time.After(straggle), nil
}

// meet takes what came behind the run's end: the fence's own, which it reports, or
// something of the run that was late, which it leaves.
func (t *turn) meet(a arrival) bool {
	f := t.fence
	if f == nil {
		return false
	}
	t.late = time.After(straggle)
	mine := a.msg.Parent == f.id
	switch {
	case a.from == shell && mine && a.msg.Type == "execute_reply":
		var r struct {
			Status string `json:"status"`
		}
		f.replied = true
		if json.Unmarshal(a.msg.Content, &r) != nil || r.Status != "ok" {
			f.left = 0 // the run has broken what it needs
		}
		return true
	case a.from != iopub:
		return true
	case bytes.Contains(a.msg.Content, []byte(f.nonce)) && a.msg.Type != "execute_input":
		f.left--
		if a.msg.Type == "stream" {
			t.stream(bytes.ReplaceAll(a.msg.Content, []byte(f.nonce), nil)) // what was printed together with it
		}
		return true
	case mine && a.msg.Type == "status":
		f.idle = f.idle || isIdle(a.msg.Content)
		return true
	}
	return mine && (a.msg.Type == "execute_input" || a.msg.Type == "error")
}

func isIdle(content json.RawMessage) bool {
	var s struct {
		State string `json:"execution_state"`
	}
	return json.Unmarshal(content, &s) == nil && s.State == "idle"
}
