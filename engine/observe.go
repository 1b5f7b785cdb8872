package engine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// Observer hears how long verbs take. Its methods return at once.
type Observer interface {
	Verb(verb string, took time.Duration, err error)
	Stage(verb, stage string, took time.Duration)
}

type noObserver struct{}

func (noObserver) Verb(string, time.Duration, error)   {}
func (noObserver) Stage(string, string, time.Duration) {}

// timing is one verb under way.
type timing struct {
	to          Observer
	verb        string
	begin, last time.Time
}

func (e *Engine) timed(verb string) *timing {
	now := time.Now()
	return &timing{e.observer, verb, now, now}
}

// stage ends a stage, which began where the one before ended.
func (t *timing) stage(name string) {
	now := time.Now()
	t.to.Stage(t.verb, name, now.Sub(t.last))
	t.last = now
}

// guest tells of the stages of a command that came to its end.
func (t *timing) guest(at guestclient.Timing) {
	for stage, took := range map[string]time.Duration{"link": at.Link, "plan": at.Plan, "start": at.Start, "run": at.Run, "output": at.Output} {
		t.to.Stage(t.verb, stage, took)
	}
}

// end is to be deferred.
func (t *timing) end(err *error) { t.to.Verb(t.verb, time.Since(t.begin), *err) }

// Making is how many creates, wakings and forks are under way, and how many wait
// for their turn.
func (e *Engine) Making() (running, queued int) {
	return int(e.slots.running.Load()), int(e.slots.waiting.Load())
}

// Census counts the sandboxes of every account, for the operator's eyes.
type Census struct {
	Count map[CensusKey]int
}

// CensusKey is what sandboxes are counted by.
type CensusKey struct {
	State sandbox.State
	Class string
}

// Census counts the sandboxes. States without any are there, with 0.
func (e *Engine) Census(ctx context.Context) (Census, error) {
	c := Census{Count: map[CensusKey]int{}}
	for _, class := range e.classes {
		for _, s := range sandbox.States() {
			if s != sandbox.Deleted {
				c.Count[CensusKey{s, class}] = 0
			}
		}
	}
	err := e.each(ctx, func(s *stored) error { c.Count[CensusKey{s.State, s.Class}]++; return nil })
	return c, fail("count sandboxes", "", err)
}
