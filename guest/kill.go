package guest

import (
	"bytes"
	"io"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"
)

// killRounds bounds how often a tree is searched for what it started meanwhile.
const killRounds = 50

// killTree ends a process with all that descends from it: its group, its
// session, children that made sessions of their own, and what those start while
// they are being killed. A program that left its parents before the tree was
// looked at, by a double fork with a new session between, is known by the mark in
// its environment; one that threw that away too is not found.
func (c *children) killTree(k *child) {
	t := tracked{leader: k.pid, sessions: map[int]bool{k.pid: true}, mark: k.mark, unmarked: map[processKey]bool{}}
	for range killRounds {
		select {
		case <-k.done:
			t.leader = 0 // its number may be another's by now; the sessions still tell
		default:
		}
		members := t.members()
		if len(members) == 0 {
			break
		}
		for _, pid := range members {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(2 * time.Millisecond)
	}
	c.signal(k, syscall.SIGKILL) // whatever /proc showed
}

// tracked is what is known of a process tree from one look to the next.
type tracked struct {
	leader   int
	sessions map[int]bool // made by members
	mark     string       // what members' environments hold; "" for none
	unmarked map[processKey]bool
}

// processKey tells a process from others that have its number later.
type processKey struct {
	pid     int
	started int64
}

// marked reports whether p was started by a member, whoever its parent is now.
func (t *tracked) marked(p processStat) bool {
	key := processKey{p.pid, p.started}
	if t.mark == "" || p.dead || t.unmarked[key] {
		return false
	}
	if hasVariable(p.pid, t.mark) {
		return true
	}
	t.unmarked[key] = true
	return false
}

// maxEnviron bounds what is read of a process's environment.
const maxEnviron = 256 << 10

// hasVariable reports whether a process was executed with a variable, given as
// NAME=value.
func hasVariable(pid int, variable string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer f.Close()
	all, _ := io.ReadAll(io.LimitReader(f, maxEnviron)) // whatever it gives: the process may end
	for v := range bytes.SplitSeq(all, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// members lists the living processes of the tree.
func (t *tracked) members() []int {
	var list []int
	for _, p := range t.among(processStats()) {
		list = append(list, p.pid)
	}
	return list
}

// among picks the living processes of the tree.
func (t *tracked) among(all []processStat) []processStat {
	in := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.pid] || !(p.pid == t.leader || in[p.parent] || t.sessions[p.session] || t.marked(p)) {
				continue
			}
			in[p.pid], grown = true, true
			if p.session > 0 { // 0: led from outside of the sandbox
				t.sessions[p.session] = true
			}
		}
	}
	var list []processStat
	for _, p := range all {
		if in[p.pid] && !p.dead {
			list = append(list, p)
		}
	}
	return list
}

// processStat is a line of the process table.
type processStat struct {
	pid, parent, session int
	dead                 bool  // a zombie
	cpu                  int64 // ticks, with those of its children that were waited for
	started              int64 // ticks of the system's age
	pages                int64 // resident
}

// processStats reads the process table; what vanishes meanwhile is left out.
func processStats() []processStat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []processStat
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if p, ok := readStat("/proc/" + name + "/stat"); ok {
			all = append(all, p)
		}
	}
	return all
}

func readStat(path string) (processStat, bool) {
	f, err := os.Open(path)
	if err != nil {
		return processStat{}, false
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return processStat{}, false
	}
	return parseStat(line)
}

// parseStat reads "pid (name) state parent group session …". The name may hold
// any byte, brackets and spaces too, so the last bracket ends it.
func parseStat(line []byte) (processStat, bool) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return processStat{}, false
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) < 4 {
		return processStat{}, false
	}
	var p processStat
	var errs [3]error
	p.pid, errs[0] = strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	p.parent, errs[1] = strconv.Atoi(string(fields[1]))
	p.session, errs[2] = strconv.Atoi(string(fields[3]))
	p.dead = fields[0][0] == 'Z' || fields[0][0] == 'X'
	number := func(i int) int64 {
		if i >= len(fields) {
			return 0
		}
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // 0 where it is none
		return min(max(n, 0), math.MaxInt32*1000)
	}
	for i := 11; i <= 14; i++ {
		p.cpu += number(i)
	}
	p.started, p.pages = number(19), number(21)
	return p, errs == [3]error{} && p.pid > 0
}
