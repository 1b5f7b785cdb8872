package gvisor

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestNothingIsStartedBesideWhoIsInHaste asks a shelf what it would start, at times that
// are given: nothing while a verb is under way nor right after, and something all the
// same once that has lasted.
func TestNothingIsStartedBesideWhoIsInHaste(t *testing.T) {
	s := &shelf{config: Shells{Most: 2}, poke: make(chan struct{}, 1), kinds: map[kind]*demand{}}
	now := time.Now()
	s.demand(kind{root: "/root", limits: sandbox.DefaultLimits()}, now)
	asks := func(after time.Duration) (starts bool, again time.Duration) {
		t.Helper()
		_, st, again := s.lacking(now.Add(after))
		if st != nil { // and it comes to nothing
			s.under--
			for _, w := range s.kinds {
				w.unclaim(st)
			}
		}
		return st != nil, again
	}
	if starts, _ := asks(0); !starts {
		t.Error("nothing is started although nobody is in haste")
	}
	s.haste.begin(now)
	s.haste.begin(now.Add(time.Millisecond))
	s.haste.end(now.Add(2 * time.Millisecond))
	if starts, again := asks(hasteMost / 2); starts || again <= 0 || again > hasteMost/2 {
		t.Errorf("beside a verb: started is %v, the next look comes after %v", starts, again)
	}
	if starts, _ := asks(hasteMost); !starts {
		t.Error("nothing is started beside a verb that takes long")
	}
	s.haste.end(now.Add(hasteMost / 2))
	if starts, again := asks(hasteMost/2 + hasteRest/2); starts || again <= 0 || again > hasteRest {
		t.Errorf("right after a verb: started is %v, the next look comes after %v", starts, again)
	}
	// Others begin before there is rest: they do not put it off for ever.
	s.haste.begin(now.Add(hasteMost/2 + hasteRest/2))
	if starts, _ := asks(hasteMost); !starts {
		t.Error("nothing is started although verbs have followed one another for long")
	}
	s.haste.end(now.Add(hasteMost))
	if starts, _ := asks(hasteMost + hasteRest); !starts {
		t.Error("nothing is started although nobody is in haste any more")
	}
	s.haste.begin(now.Add(2 * hasteMost))
	if starts, _ := asks(2*hasteMost + 1); starts {
		t.Error("started beside a verb that began after a rest")
	}
}
