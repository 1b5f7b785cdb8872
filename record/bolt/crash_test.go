package bolt_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
)

// crashVar names the store file to the child that is to be killed.
const crashVar = "BERTH_TEST_COMMIT_UNTIL_KILLED"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashVar); path != "" {
		fmt.Fprintln(os.Stderr, commitUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// commitUntilKilled commits for ever and says each revision once it is kept.
func commitUntilKilled(path string) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		pad := strings.Repeat("x", i*37%9000)
		rev, err := s.Commit(context.Background(), record.Txn{Then: []record.Op{
			{Key: fmt.Sprintf("rev/%08d", i), Value: []byte(pad)},
			{Key: "last", Value: []byte(strconv.Itoa(i))},
		}})
		if err != nil {
			return err
		}
		if _, err := fmt.Println(i, rev); err != nil {
			return err
		}
	}
}

// TestKilled kills a committing process five times over: every commit that it
// was told of is there, whole, and revisions go on growing.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	var newest int64
	for round := range 5 {
		acknowledged := killAfter(t, path, 20+31*round)
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i, rev := range acknowledged {
			if rev <= newest {
				t.Errorf("round %d: revision %d after %d", round, rev, newest)
			}
			newest = rev
			e, err := s.Get(t.Context(), fmt.Sprintf("rev/%08d", i))
			if err != nil || e.Revision != rev || len(e.Value) != i*37%9000 {
				t.Errorf("round %d, commit %d: revision %d with %d bytes, %v", round, i, e.Revision, len(e.Value), err)
			}
		}
		checkPair(t, s, len(acknowledged)-1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkPair checks that both keys of the last transaction are from it.
func checkPair(t *testing.T, s *bolt.Store, least int) {
	t.Helper()
	last, err := s.Get(t.Context(), "last")
	if err != nil {
		t.Fatal(err)
	}
	i, err := strconv.Atoi(string(last.Value))
	if err != nil || i < least {
		t.Errorf("last is %q, %v; want %d or more", last.Value, err, least)
	}
	e, err := s.Get(t.Context(), fmt.Sprintf("rev/%08d", i))
	if err != nil || e.Revision != last.Revision {
		t.Errorf("half a transaction: last of revision %d, its pair of %d (%v)", last.Revision, e.Revision, err)
	}
}

// killAfter runs the child until it has said n commits, kills it and returns
// the revisions that it said.
func killAfter(t *testing.T, path string, n int) []int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashVar+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var revisions []int64
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var i int
		var rev int64
		if c, _ := fmt.Sscan(lines.Text(), &i, &rev); c != 2 || i != len(revisions) {
			break // the last line may be cut
		}
		if revisions = append(revisions, rev); len(revisions) == n {
			cmd.Process.Kill()
		}
	}
	if cmd.Wait() == nil || len(revisions) < n {
		t.Fatalf("the child ended by itself after %d commits", len(revisions))
	}
	return revisions
}
