package timerslack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/timerslack"
)

// TestWatcher: of this process's threads one has the slack afterwards, with those that it
// has started since, and not the first, which runs goroutines.
func TestWatcher(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: threads other than one's own take CAP_SYS_NICE")
	}
	if err := timerslack.Watcher(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%v, %v", tasks, err)
	}
	var slack []string
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%s/timerslack_ns", filepath.Base(task)))
		if err != nil {
			continue // a thread that has ended
		}
		if strings.TrimSpace(string(b)) == "500000" {
			slack = append(slack, filepath.Base(task))
		}
	}
	if len(slack) == 0 || slices.Contains(slack, fmt.Sprint(os.Getpid())) {
		t.Errorf("threads %v of %v have it", slack, tasks)
	}
}

// TestNobody: a process that has ended is no error.
func TestNobody(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := timerslack.Watcher(gone.Process.Pid); err != nil {
		t.Error(err)
	}
}
