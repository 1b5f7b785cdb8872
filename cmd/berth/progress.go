package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/berth-dev/berth/sandbox"
)

// lineEvery is how often a step says again how far it is where no bar can.
const lineEvery = 5 * time.Second

// keptLog is how many lines of a builder's own output are shown when it fails.
const keptLog = 20

// progress shows long work on standard error: a bar on a terminal, a line a
// step elsewhere. It is used from one goroutine.
type progress struct {
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar // of the present step, on a terminal

	now  sandbox.Progress
	said time.Time
	log  []string
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w)}
}

// newStep is a progress that is in a step already: where no bar can be, short
// work says nothing.
func newStep(w io.Writer, step string) *progress {
	s := newProgress(w)
	s.now.Step, s.said = step, time.Now()
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func newBar(w io.Writer, step sandbox.Progress) *progressbar.ProgressBar {
	total := step.Total
	if total <= 0 {
		total = -1 // a spinner
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(printable(step.Step)),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionShowBytes(step.Unit == "bytes"),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(65*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(24),
		progressbar.OptionSpinnerType(14))
}

// report takes one step of the work.
func (s *progress) report(now sandbox.Progress) {
	if now.Log != "" {
		s.log = append(s.log, now.Log)
		s.log = s.log[max(0, len(s.log)-keptLog):]
	}
	if now.Step == "" {
		return
	}
	first := now.Step != s.now.Step
	s.now = now
	switch {
	case s.terminal:
		s.draw(first)
	case first || time.Since(s.said) >= lineEvery:
		fmt.Fprintln(s.w, "  "+printable(now.Step)+amount(now))
		s.said = time.Now()
	}
}

// draw moves the bar of the present step, or begins it. That a bar cannot be
// drawn is no reason to end the work it tells of.
func (s *progress) draw(first bool) {
	if first || s.bar == nil {
		s.clear()
		s.bar = newBar(s.w, s.now)
	}
	if t := s.now.Total; t > 0 && t != s.bar.GetMax64() {
		s.bar.ChangeMax64(t)
	}
	_ = s.bar.Set64(s.now.Done)
}

func (s *progress) clear() {
	if s.bar != nil {
		_ = s.bar.Clear()
		s.bar = nil
	}
}

// amount is how far a step is: " (3 of 12 packages)".
func amount(s sandbox.Progress) string {
	if s.Done == 0 && s.Total == 0 {
		return ""
	}
	text := func(n int64) string { return fmt.Sprint(n) }
	unit := s.Unit
	if unit == "bytes" {
		text, unit = size, ""
	}
	out := text(s.Done)
	if s.Total > 0 {
		out += " of " + text(s.Total)
	}
	if unit != "" {
		out += " " + printable(unit)
	}
	return " (" + out + ")"
}

// end clears the bar; when the work failed, it shows the last of the builder's
// own output.
func (s *progress) end(err error) {
	s.clear()
	if err == nil {
		return
	}
	for _, l := range s.log {
		fmt.Fprintln(s.w, "  | "+printable(l))
	}
}
