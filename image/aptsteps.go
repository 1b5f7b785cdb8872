package image

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// aptSteps turns the output of mmdebstrap, apt and dpkg into steps with counts.
type aptSteps struct {
	say func(sandbox.Progress)

	now      sandbox.Progress
	updating bool             // apt fetches lists, not packages
	total    int64            // packages of the present run of apt
	counts   map[string]int64 // of the present run, by step
}

var (
	newlyInstalled = regexp.MustCompile(`^\d+ upgraded, (\d{1,6}) newly installed`)
	fetched        = regexp.MustCompile(`^Get:(\d{1,6}) `)
)

// line takes one line of the output.
func (a *aptSteps) line(l string) {
	a.now.Log = l
	switch {
	case strings.HasPrefix(l, "I: "):
		a.phase(strings.TrimPrefix(l, "I: "))
	case newlyInstalled.MatchString(l):
		a.total = number(newlyInstalled.FindStringSubmatch(l)[1])
		a.updating, a.counts = false, map[string]int64{}
	case fetched.MatchString(l) && !a.updating:
		a.reach("download packages", number(fetched.FindStringSubmatch(l)[1]))
	case strings.HasPrefix(l, "Unpacking "):
		a.advance("unpack packages")
	case strings.HasPrefix(l, "Setting up "):
		a.advance("set up packages")
	}
	a.say(a.now)
}

// phase follows mmdebstrap's own words.
func (a *aptSteps) phase(p string) {
	for _, known := range []struct{ begins, step string }{
		{"running apt-get update", "fetch package lists"},
		{"downloading packages", "download packages"},
		{"extracting archives", "unpack essential packages"},
		{"installing essential packages", "set up essential packages"},
		{"installing remaining packages", "download packages"},
		{"running --customize-hook", "make locales"},
		{"cleaning package lists", "clean up"},
	} {
		if strings.HasPrefix(p, known.begins) {
			a.now = sandbox.Progress{Step: known.step, Log: a.now.Log}
			a.updating = known.step == "fetch package lists"
		}
	}
}

// advance counts one more package in a step; steps take turns.
func (a *aptSteps) advance(step string) {
	if a.counts == nil {
		a.counts = map[string]int64{}
	}
	a.counts[step]++
	a.reach(step, a.counts[step])
}

// reach sets a step's count. Essential packages are set up twice over by dpkg,
// so a count may pass the total, which then is no longer known.
func (a *aptSteps) reach(step string, done int64) {
	p := sandbox.Progress{Step: step, Done: done, Total: a.total, Unit: "packages", Log: a.now.Log}
	if done > p.Total {
		p.Total = 0
	}
	a.now = p
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
