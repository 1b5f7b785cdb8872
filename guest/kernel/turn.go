package kernel

import (
	"encoding/json"
	"time"
)

// Bounds on time of a run that does not end as it should. Tests shorten them.
var (
	killAfter  = 10 * time.Second // of an interrupt because its time was up
	straggle   = 10 * time.Second // for a kernel that has answered to say that it is idle
	unanswered = 5 * time.Second  // for one that is idle to answer, which it does first
	lastWords  = time.Second      // for what a dead kernel has sent to arrive
	unheard    = time.Second      // for a run to begin, before it is interrupted unbegun
)

// Bounds on what an error says.
const (
	maxErrorName  = 1 << 10
	maxErrorValue = 256 << 10
	maxTraceback  = 1 << 20
)

// turn is one run in the kernel, from its request to its end.
type turn struct {
	k   *interpreter
	run *Run
	id  string // of the request; answers have it as their parent

	begun, replied, idle, raised bool
	asked                        Status // TimedOut or Interrupted once that was asked for
	pending                      bool   // an interrupt waits for the run to begin
	end                          End
	told                         *raised // the error of the answer, for kernels that publish none
	fence                        *fence  // nil: none
	dead                         string  // why the kernel is of no more use

	began, late, kill <-chan time.Time
}

// executeRequest is the content of a request to run code.
type executeRequest struct {
	Code        string            `json:"code"`
	Silent      bool              `json:"silent"`
	History     bool              `json:"store_history"`
	Expressions map[string]string `json:"user_expressions"`
	Stdin       bool              `json:"allow_stdin"`
	StopOnError bool              `json:"stop_on_error"`
}

// execute runs code to its end. A kernel that is of no more use after it says why.
func execute(k *interpreter, r *Run, halt <-chan string) (end End, dead string) {
	t := &turn{k: k, run: r, end: End{Status: OK}}
	var err error
	t.id, err = k.request(shell, "execute_request", executeRequest{Code: r.code, History: true, Expressions: map[string]string{}})
	if err != nil {
		return t.died(k.broken(err).Error())
	}
	var out <-chan time.Time
	if r.timeout > 0 {
		bell := time.NewTimer(r.timeout)
		defer bell.Stop()
		out = bell.C
	}
	for !t.replied || !t.idle || t.fence.open() {
		select {
		case a := <-k.in:
			if a.err != nil {
				if a.from != iopub {
					t.hearLast()
				}
				return t.died(k.broken(a.err).Error())
			}
			t.take(a)
			t.raise()
		case <-k.process.Done():
			t.hearLast()
			return t.died("the kernel " + k.process.How())
		case <-out:
			out = nil
			t.stop(TimedOut)
		case <-r.cancel:
			t.stop(Interrupted)
		case why := <-halt:
			return End{Status: Interrupted, Reason: why}, why
		case <-t.began:
			t.begin()
		case <-t.kill:
			return End{Status: TimedOut, Reason: "its time was up; it did not heed the interrupt, so its kernel was killed"}, "the kernel was killed: a run did not end in its time"
		case <-t.late:
			t.giveUp()
		}
	}
	return t.settled(), ""
}

// giveUp ends a run of which the kernel has said one of two things: that it is
// answered, or that it is over. What it published last may be lost.
func (t *turn) giveUp() {
	if !t.replied && t.asked != 0 && t.end.Status == OK {
		t.end.Status = Failed // by the interrupt: some kernels lose their answer to it
	}
	t.idle, t.replied = true, true
	t.fence = &fence{replied: true, idle: true}
	t.run.log.add(Event{Kind: Missed, Missed: 1})
}

// settled is the end of a run whose kernel lives on.
func (t *turn) settled() End {
	if t.told != nil {
		t.fail(*t.told)
	}
	switch {
	case t.asked == TimedOut:
		t.end.Status, t.end.Reason = TimedOut, "its time was up"
	case t.asked == Interrupted && t.end.Status == Failed:
		t.end.Status, t.end.Reason = Interrupted, t.run.cancelled()
	}
	return t.end
}

func (t *turn) died(why string) (End, string) {
	if t.asked == TimedOut {
		return End{Status: TimedOut, Reason: "its time was up; " + why}, why
	}
	return End{Status: Died, Reason: why}, why
}

// hearLast takes what a kernel has sent before it died.
func (t *turn) hearLast() {
	late := time.NewTimer(lastWords)
	defer late.Stop()
	for {
		select {
		case a := <-t.k.in:
			if a.err != nil && a.from == iopub {
				return
			}
			if a.err == nil {
				t.take(a)
			}
		case <-late.C:
			return
		}
	}
}

// stop interrupts the run, once it has begun: before that kernels ignore it.
func (t *turn) stop(why Status) {
	if t.fence != nil { // it is over
		return
	}
	if t.asked == 0 {
		t.asked = why
	}
	if why == TimedOut {
		t.kill = time.After(killAfter)
	}
	if !t.begun {
		t.pending, t.began = true, time.After(unheard)
		return
	}
	_ = t.k.interrupt() // one that cannot be told ends, or is killed in time
}

func (t *turn) begin() {
	t.begun, t.began = true, nil
	if t.pending {
		t.pending = false
		_ = t.k.interrupt()
	}
}

// take takes a message over, if it belongs to the run.
func (t *turn) take(a arrival) {
	if a.lost {
		t.run.log.add(Event{Kind: Missed, Missed: 1})
		return
	}
	if a.msg.Parent != t.id && (t.fence == nil || a.msg.Parent != t.fence.id) || t.meet(a) {
		return
	}
	switch a.from {
	case shell:
		if a.msg.Type == "execute_reply" {
			t.reply(a.msg.Content)
		}
	case iopub:
		t.published(a.msg)
	}
}

// reply is the kernel's answer, which may overtake what it publishes. Some kernels
// tell an error only here.
func (t *turn) reply(content json.RawMessage) {
	var r struct {
		Status  string `json:"status"`
		Count   int64  `json:"execution_count"`
		Payload []struct {
			Source string                     `json:"source"`
			Data   map[string]json.RawMessage `json:"data"`
		} `json:"payload"`
		raised
	}
	if json.Unmarshal(content, &r) != nil {
		r.Status = "ok"
	}
	t.replied, t.late = true, time.After(straggle)
	t.end.Count = max(r.Count, 0)
	for _, p := range r.Payload[:min(len(r.Payload), maxForms)] {
		if p.Source != "page" {
			continue
		}
		if b, err := json.Marshal(shown{Data: p.Data}); err == nil {
			t.show(b, Result{})
		}
	}
	switch r.Status {
	case "ok":
	case "aborted":
		t.end.Status, t.end.Reason = Failed, "the kernel did not run it"
	default:
		t.end.Status, t.told = Failed, &r.raised
	}
}

// raised is what messages say of an error.
type raised struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

func (t *turn) fail(e raised) {
	t.end.Status = Failed
	if t.raised {
		return
	}
	t.raised = true
	f := &Failure{Name: clip(e.Name, maxErrorName), Value: clip(e.Value, maxErrorValue)}
	left := maxTraceback
	for _, line := range e.Traceback {
		if left -= len(line) + 1; left < 0 {
			break
		}
		f.Traceback = append(f.Traceback, line)
	}
	t.run.log.add(Event{Kind: Raised, Error: f})
}

// published is what the kernel tells everybody.
func (t *turn) published(m message) {
	switch m.Type {
	case "status":
		if isIdle(m.Content) {
			t.idle = true
			if !t.replied {
				t.late = time.After(unanswered)
			}
		}
	case "execute_input":
		t.begin()
	case "stream":
		t.stream(m.Content)
	case "execute_result":
		t.show(m.Content, Result{Main: true})
	case "display_data":
		t.show(m.Content, Result{})
	case "update_display_data":
		t.show(m.Content, Result{Update: true})
	case "clear_output":
		t.run.log.add(Event{Kind: Cleared})
	case "error":
		var e raised
		if json.Unmarshal(m.Content, &e) == nil {
			t.fail(e)
		}
	}
}

func (t *turn) stream(content json.RawMessage) {
	var s struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &s) != nil {
		return
	}
	kind := Stdout
	if s.Name == "stderr" {
		kind = Stderr
	}
	t.run.say(kind, s.Text)
}

func (t *turn) show(content json.RawMessage, as Result) {
	r, ok := resultOf(content)
	if !ok || len(r.Forms) == 0 && len(r.Omitted) == 0 {
		return
	}
	r.Main, r.Update = as.Main, as.Update
	t.run.log.add(Event{Kind: Shown, Result: r})
}
