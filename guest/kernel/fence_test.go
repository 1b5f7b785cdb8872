package kernel

import "testing"

// TestFence hears what a kernel publishes after its word that a run is over.
func TestFence(t *testing.T) {
	s, _, o := newScripted(t)
	o.Folders = []string{scriptedSpec(t, "", "print so {nonce}far\nshow {nonce}")}
	c := create(t, s, o)
	expect(t, s, c, "late b\nprint a\nlate-value 7", OK, "out a", "out b", "shown main=true text/plain json=false 7", "out so far")
	expect(t, s, c, "print a\nlate b\nraise no", Failed, "out a", "raised ValueError no 2", "out b", "out so far")
	if end := expect(t, s, c, "", OK, "out so far"); end.Count == 0 {
		t.Errorf("the run's own count is lost: %+v", end)
	}
}

// TestFenceThatFails goes on without the nonces of a fence that code has broken, and
// waits for no others for ever.
func TestFenceThatFails(t *testing.T) {
	s, _, o := newScripted(t)
	o.Folders = []string{scriptedSpec(t, "", "raise {nonce}\nprint {nonce}")}
	expect(t, s, create(t, s, o), "print a\nlate b", OK, "out a", "out b")
	shorten(t, &straggle)
	o.Folders = []string{scriptedSpec(t, "", "forget {nonce}")}
	c := create(t, s, o)
	expect(t, s, c, "print a\nlate b", OK, "out a", "out b", "missed 1")
	o.Folders = []string{scriptedSpec(t, "", "die {nonce}")}
	expect(t, s, create(t, s, o), "print a", Died, "out a")
}
