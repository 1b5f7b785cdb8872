package guestapi

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TimingTrailer, behind the events of a process that a call has started, holds the
// Timing of that call.
const TimingTrailer = "Berth-Timing"

// Timing says where the time of a call went that started a process and followed it to
// its end, as far as the guest can tell.
type Timing struct {
	Plan   time.Duration // from the request to all that the process needs being known
	Start  time.Duration // until the program is executed
	Run    time.Duration // until it has ended
	Output time.Duration // until all that it wrote, and its exit, are on their way
}

// maxTiming bounds a stage that is believed: nothing runs longer than ten years.
const maxTiming = 10 * 365 * 24 * time.Hour

// String is the form of the trailer: whole microseconds, none of them negative.
func (t Timing) String() string {
	us := func(d time.Duration) int64 { return max(0, d.Microseconds()) }
	return fmt.Sprintf("%d %d %d %d", us(t.Plan), us(t.Start), us(t.Run), us(t.Output))
}

// ParseTiming reads what String wrote; a guest may say anything.
func ParseTiming(s string) (t Timing, ok bool) {
	stages := []*time.Duration{&t.Plan, &t.Start, &t.Run, &t.Output}
	for _, stage := range stages {
		var word string
		word, s, _ = strings.Cut(s, " ")
		us, err := strconv.ParseUint(word, 10, 63)
		if err != nil || us > uint64(maxTiming/time.Microsecond) {
			return Timing{}, false
		}
		*stage = time.Duration(us) * time.Microsecond
	}
	return t, s == ""
}

// Sum is the time of all stages.
func (t Timing) Sum() time.Duration { return t.Plan + t.Start + t.Run + t.Output }
