package guest

import (
	"os"
	"syscall"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// sumUsage adds up what processes use.
func sumUsage(members []processStat) *guestv1.ProcessUsage {
	u := &guestv1.ProcessUsage{Processes: int32(len(members))}
	for _, p := range members {
		u.CpuMs += p.cpu * tick.Milliseconds()
		u.MemoryBytes += p.pages * int64(os.Getpagesize())
	}
	return u
}

// usage is of the tree while it lives. Of one that has ended it is the time of
// the leader, and of those it waited for.
func (l *program) usage(all []processStat) *guestv1.ProcessUsage {
	select {
	case <-l.child.done:
		return &guestv1.ProcessUsage{CpuMs: milliseconds(l.child.used)}
	default:
	}
	t := tracked{leader: l.child.pid, sessions: map[int]bool{l.child.pid: true}}
	return sumUsage(t.among(all))
}

func milliseconds(r syscall.Rusage) int64 {
	return max(0, (r.Utime.Nano()+r.Stime.Nano())/1e6)
}
