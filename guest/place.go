package guest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// tick is the grain of the times at which processes are said to have started.
const tick = 10 * time.Millisecond

// place is where a session's command runs: a shell, and the moment from which
// what the shell starts belongs to the command. What earlier commands left
// running does not.
type place struct {
	kids  *children
	shell *child
	began int64        // ticks of the system's age
	older map[int]bool // started within the tick, but before the command
}

// newPlace is a place from now on. soon says that the shell has started
// something a moment ago, maybe.
func newPlace(kids *children, shell *child, soon bool) *place {
	p := &place{kids: kids, shell: shell, began: systemAge()}
	if soon {
		older := map[int]bool{}
		for _, m := range p.members(processStats()) {
			older[m.pid] = true
		}
		p.older = older
	}
	return p
}

// members are the command's living processes, the shell left out.
func (p *place) members(all []processStat) []processStat {
	t := tracked{leader: p.shell.pid, sessions: map[int]bool{p.shell.pid: true}}
	select {
	case <-p.shell.done:
		t.leader = 0
	default:
	}
	var list []processStat
	for _, m := range t.among(all) {
		if m.pid != p.shell.pid && m.started >= p.began && !p.older[m.pid] {
			list = append(list, m)
		}
	}
	return list
}

// kill ends the members, and what they start meanwhile.
func (p *place) kill() {
	for range killRounds {
		members := p.members(processStats())
		if len(members) == 0 {
			return
		}
		for _, m := range members {
			syscall.Kill(m.pid, syscall.SIGKILL)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// signal sends to the shell and to the members; false means that the shell has
// ended.
func (p *place) signal(s syscall.Signal) (bool, error) {
	members := p.members(processStats())
	alive, err := p.kids.signalOne(p.shell, s)
	if !alive || err != nil {
		return alive, err
	}
	for _, m := range members {
		syscall.Kill(m.pid, s)
	}
	return true, nil
}

// signalOne sends to a child alone; false means that it has ended.
func (c *children) signalOne(k *child, s syscall.Signal) (bool, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	select {
	case <-k.done:
		return false, nil
	default:
	}
	if err := syscall.Kill(k.pid, s); err != nil && err != syscall.ESRCH {
		return true, err
	}
	return true, nil
}

// sessionMembers are the living processes of a session whose leader has ended.
// If there is a process of that number it is another, and so is its session.
func sessionMembers(sid int) (pids []int) {
	for _, p := range processStats() {
		if p.pid == sid {
			return nil
		}
		if p.session == sid && !p.dead {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// killSession ends what a lost shell left running.
func killSession(sid int) {
	for range killRounds {
		pids := sessionMembers(sid)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// systemAge is the system's age in ticks, as processes' starts are counted.
func systemAge() int64 {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	return parseAge(b)
}

// parseAge reads "seconds.hundredths …"; what is malformed is 0.
func parseAge(b []byte) int64 {
	word, _, _ := bytes.Cut(b, []byte(" "))
	seconds, rest, _ := bytes.Cut(bytes.TrimSpace(word), []byte("."))
	s, err1 := strconv.ParseInt(string(seconds), 10, 48)
	h, err2 := strconv.ParseInt((string(rest) + "00")[:2], 10, 8)
	if err1 != nil || err2 != nil || s < 0 || h < 0 {
		return 0
	}
	return s*100 + h
}
