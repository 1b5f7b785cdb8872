package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// eventPrefix + a number of 16 digits: an entry of the journal as JSON. Each is
// written in the transaction of the change that it tells of.
const eventPrefix = "event/"

// defaultRetention is how many entries the journal keeps.
const defaultRetention = 10_000

// journal numbers the entries. A reader is shown none while an earlier one may
// still appear.
type journal struct {
	keep int64 // entries

	mu      sync.Mutex
	next    int64
	pending map[int64]bool
	grown   chan struct{} // closed and renewed when an entry has been settled
}

// entry is one number, with what it tells.
type entry struct {
	j      *journal
	number int64 // 0: nothing is told
	change sandbox.Change
}

// reserve takes the next number for a change of a record, unless what is "".
func (j *journal) reserve(what sandbox.ChangeType, from, to *stored) *entry {
	if what == "" {
		return &entry{}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.next
	j.next++
	j.pending[n] = true
	c := sandbox.Change{Cursor: cursorOf(n), Time: to.Updated, Type: what, Sandbox: to.ID, Account: to.Account, Name: to.Name, Parent: to.Parent, State: to.State, Reason: to.Reason}
	if from.revision != 0 {
		c.From = from.State
	}
	if what == sandbox.ChangePortOpened || what == sandbox.ChangePortClosed {
		c.Port = portChanged(from.Ports, to.Ports)
	}
	return &entry{j, n, c}
}

// keys adds the entry to a transaction, and removes the one that is too old.
func (n *entry) keys(t *record.Txn) error {
	if n.number == 0 {
		return nil
	}
	value, err := json.Marshal(n.change)
	if err != nil {
		return sandbox.Errorf("encode event", sandbox.Internal, "%w", err)
	}
	t.Then = append(t.Then, record.Op{Key: eventKey(n.number), Value: value})
	if old := n.number - n.j.keep; old > 0 {
		t.Then = append(t.Then, record.Op{Key: eventKey(old), Delete: true})
	}
	return nil
}

// settle says that the transaction has ended, with or without success.
func (n *entry) settle() {
	if n.number == 0 {
		return
	}
	n.j.mu.Lock()
	defer n.j.mu.Unlock()
	delete(n.j.pending, n.number)
	close(n.j.grown)
	n.j.grown = make(chan struct{})
}

// stable returns the number up to which nothing is added any more, and a channel
// that is closed when it may have grown.
func (j *journal) stable() (int64, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := j.next - 1
	for n := range j.pending {
		last = min(last, n-1)
	}
	return last, j.grown
}

func cursorOf(n int64) string { return fmt.Sprintf("%016d", n) }
func eventKey(n int64) string { return eventPrefix + cursorOf(n) }

// Latest is the cursor of whoever wants only what is to come.
const Latest = "latest"

// parsePlace reads a cursor; "" is 0.
func parsePlace(cursor string) (int64, error) {
	switch cursor {
	case "":
		return 0, nil
	case Latest:
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || n < 0 || cursorOf(n) != cursor {
		return 0, &sandbox.Error{Op: "check event query", Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is not a cursor", cursor),
			Hint: "after takes the cursor of an event, or next of a page"}
	}
	return n, nil
}

// openJournal goes on after the last entry and drops what is too old.
func (e *Engine) openJournal(ctx context.Context) error {
	var numbers []int64
	err := e.eachEntry(ctx, eventPrefix, func(entry record.Entry) error {
		n, err := parsePlace(entry.Key[len(eventPrefix):])
		numbers = append(numbers, n)
		return err
	})
	if err != nil {
		return err
	}
	last := int64(0)
	if len(numbers) > 0 {
		last = numbers[len(numbers)-1]
	}
	e.journal.mu.Lock()
	e.journal.next = last + 1
	e.journal.mu.Unlock()
	old := numbers[:max(0, len(numbers)-int(e.journal.keep))]
	for some := range slices.Chunk(old, record.MaxOps) {
		var t record.Txn
		for _, n := range some {
			t.Then = append(t.Then, record.Op{Key: eventKey(n), Delete: true})
		}
		if _, err := e.records.Commit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// Changes returns one page of the journal, oldest first. Next of the page always
// serves to go on, also when nothing was selected.
func (e *Engine) Changes(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangePage, error) {
	const op = "list events"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return sandbox.ChangePage{Events: []sandbox.Change{}}, fail(op, "", err)
	}
	page, err := e.changes(ctx, c, q)
	return page, fail(op, "", err)
}

// changes is Changes for a caller, who may be one of the engine's own.
func (e *Engine) changes(ctx context.Context, to sandbox.Caller, q sandbox.ChangeQuery) (sandbox.ChangePage, error) {
	page := sandbox.ChangePage{Events: []sandbox.Change{}}
	from, err := checkChanges(&q)
	if err != nil {
		return page, err
	}
	stable, _ := e.journal.stable()
	from = min(from, stable) // a cursor of another journal, or of an undone future
	page.Missed = q.After != "" && from < stable-e.journal.keep
	for {
		entries, err := e.records.List(ctx, eventPrefix, eventKey(from), 0)
		if err != nil {
			return page, err
		}
		for _, entry := range entries {
			var c sandbox.Change
			if err := json.Unmarshal(entry.Value, &c); err != nil {
				return page, sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
			}
			n, err := parsePlace(entry.Key[len(eventPrefix):])
			if err != nil {
				return page, err
			}
			if n > stable || len(page.Events) == q.Limit {
				page.Next = cursorOf(from)
				return page, nil
			}
			from = n
			if c.Account == "" { // written before there were accounts
				c.Account = sandbox.MainAccount
			}
			if to.Sees(c.Account) && picks(&q, &c) {
				page.Events = append(page.Events, c)
			}
		}
		if len(entries) < record.MaxPage {
			page.Next = cursorOf(from)
			return page, nil
		}
	}
}

func checkChanges(q *sandbox.ChangeQuery) (from int64, err error) {
	if q.Limit < 0 || q.Limit > sandbox.MaxPage {
		return 0, &sandbox.Error{Op: "check event query", Kind: sandbox.Invalid, Err: fmt.Errorf("limit is %d", q.Limit),
			Hint: fmt.Sprintf("limit takes 1 to %d; leave it out for %d", sandbox.MaxPage, sandbox.DefaultPage)}
	}
	if q.Limit == 0 {
		q.Limit = sandbox.DefaultPage
	}
	if err := checkChangeTypes(q.Types); err != nil {
		return 0, err
	}
	return parsePlace(q.After)
}

func checkChangeTypes(types []sandbox.ChangeType) error {
	for _, t := range types {
		if !slices.Contains(sandbox.ChangeTypes(), t) {
			return &sandbox.Error{Op: "check event types", Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is not a type of events", t),
				Hint: fmt.Sprintf("the types are %v", sandbox.ChangeTypes())}
		}
	}
	return nil
}

func picks(q *sandbox.ChangeQuery, c *sandbox.Change) bool {
	return (q.Sandbox == "" || q.Sandbox == string(c.Sandbox) || q.Sandbox == c.Name) &&
		(len(q.Types) == 0 || slices.Contains(q.Types, c.Type))
}
