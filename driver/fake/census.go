package fake

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// censusAge is how long a count of all processes is believed. With hundreds of
// machines each of which asks for its own, looking through /proc for every one
// would be all that the process does.
const censusAge = 500 * time.Millisecond

// census knows the processes of every machine on the host.
type census struct {
	mu sync.Mutex
	at time.Time
	of map[sandbox.ID][]hostProcess
}

// processes lists a machine's, as of a moment ago.
func (c *census) processes(id sandbox.ID) []hostProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || time.Since(c.at) > censusAge {
		c.of, c.at = everyMarked(), time.Now()
	}
	return c.of[id]
}

// everyMarked finds the processes of all machines in one pass.
func everyMarked() map[sandbox.ID][]hostProcess {
	all := map[sandbox.ID][]hostProcess{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(dir + "/environ")
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if id, ok := bytes.CutPrefix(v, []byte(mark+"=")); ok {
				all[sandbox.ID(id)] = append(all[sandbox.ID(id)], hostProcess(pid))
			}
		}
	}
	return all
}
