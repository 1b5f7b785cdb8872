package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var errNoRoom = errors.New("too little room is left")

// Room tells how much is free of the disk that holds the data.
type Room interface {
	Free() (free, total int64, err error) // bytes
}

// Bounds on looking at the disk.
const (
	roomEvery = 10 * time.Second
	roomFresh = time.Second // how long a look is believed
)

// largeWake is the size from which what a sandbox keeps is too large to wake while
// the disk is nearly full: it must be put aside again one day.
const largeWake = 256 << 20

// rooms guards the reserve of free disk.
type rooms struct {
	RoomConfig
	now func() time.Time

	mu   sync.Mutex
	at   time.Time
	last sandbox.DiskStatus
	err  error
	told bool // running sandboxes were told that it is low
}

// RoomConfig says what must stay free of the disk: the more of the two.
type RoomConfig struct {
	Of      Room    // nil: nobody looks
	Reserve int64   // bytes; 0 means 2 GiB
	Share   float64 // of the disk, 0 to 0.9
}

// MustStay is what must stay free of a disk of so many bytes.
func (c RoomConfig) MustStay(total int64) int64 {
	return max(cmp.Or(c.Reserve, defaultReserve), int64(c.Share*float64(total)))
}

const defaultReserve = 2 << 30

func newRooms(c RoomConfig, now func() time.Time) *rooms { return &rooms{RoomConfig: c, now: now} }

// look returns what is free, as of the last moment.
func (r *rooms) look() (sandbox.DiskStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); r.at.IsZero() || now.Sub(r.at) >= roomFresh {
		free, total, err := r.Of.Free()
		r.at, r.err = now, err
		r.last = sandbox.DiskStatus{FreeBytes: free, TotalBytes: total, ReserveBytes: r.MustStay(total)}
		r.last.Low = free < r.last.ReserveBytes
	}
	return r.last, r.err
}

// status is what is shown of it; nil if nobody looks, or nothing can be seen.
func (r *rooms) status() *sandbox.DiskStatus {
	if r.Of == nil {
		return nil
	}
	d, err := r.look()
	if err != nil {
		return nil
	}
	return &d
}

// need refuses what is about to take so many bytes, unless they and the reserve
// are free. Nothing is begun on a disk that cannot be looked at.
func (r *rooms) need(bytes int64) error {
	if r.Of == nil {
		return nil
	}
	d, err := r.look()
	if err != nil {
		return &sandbox.Error{Op: "look at the disk", Kind: sandbox.Unavailable, Err: err}
	}
	if d.FreeBytes-bytes >= d.ReserveBytes {
		return nil
	}
	text := fmt.Sprintf("%d MiB of the data's disk are free, and %d must stay so", d.FreeBytes>>20, d.ReserveBytes>>20)
	if bytes > 0 {
		text = fmt.Sprintf("%d MiB are needed, %s", (bytes+1<<20-1)>>20, text)
	}
	return &sandbox.Error{Op: "check the disk", Kind: sandbox.Exhausted, Err: fmt.Errorf("%w: %s", errNoRoom, text),
		Hint: "remove sandboxes, snapshots or templates, or run berth gc; room.free of the configuration sets what must stay free"}
}

// LowDisk reports whether less of the disk is free than must be.
func (e *Engine) LowDisk() bool {
	d := e.room.status()
	return d != nil && d.Low
}

// roomToWake refuses a sandbox that keeps much while the disk is nearly full.
func (e *Engine) roomToWake(ctx context.Context, s *stored) error {
	err := e.room.need(0)
	if err == nil {
		return nil
	}
	k, ok := e.drivers[s.Class].(driver.Keeper)
	if !ok || s.From != "" {
		return err
	}
	n, kerr := k.Kept(ctx, s.ID)
	if kerr == nil && n < largeWake {
		return nil
	}
	return err
}

// roomToCopy refuses a copy of a sandbox, memory and all, that the disk has no room
// for.
func (e *Engine) roomToCopy(ctx context.Context, s *stored) error {
	if e.room.Of == nil {
		return nil
	}
	var bytes int64
	if l := e.held(s.ID); l != nil && s.State == sandbox.Running {
		if u, err := l.machine.Usage(ctx); err == nil { // one that has ended is found out by the copy
			bytes = u.MemoryBytes
		}
	} else if k, ok := e.drivers[s.Class].(driver.Keeper); ok && s.From == "" {
		if n, err := k.Kept(ctx, s.ID); err == nil {
			bytes = n
		}
	}
	return e.room.need(bytes)
}

// keepRoom tells the sandboxes that run when the disk gets low, until the engine
// closes.
func (e *Engine) keepRoom() {
	for {
		if err := e.tellRoom(e.ctx); err != nil && e.ctx.Err() == nil {
			e.log.Error("tell sandboxes of the disk", "error", err)
		}
		rest(e.ctx, roomEvery)
		if e.ctx.Err() != nil {
			return
		}
	}
}

// lowReason begins the reason of a sandbox that runs on a disk that is nearly full.
const lowReason = "the disk of the server is nearly full"

// tellRoom puts on record, and so in the journal, that the disk has become low, or
// is so no more.
func (e *Engine) tellRoom(ctx context.Context) error {
	d, err := e.room.look()
	if err != nil || d.Low == e.room.told {
		return err
	}
	if d.Low {
		e.log.Warn("the disk is nearly full: nothing is begun that needs room", "free", d.FreeBytes, "reserve", d.ReserveBytes)
	} else {
		e.log.Info("the disk has room again", "free", d.FreeBytes)
	}
	reason := ""
	if d.Low {
		reason = fmt.Sprintf("%s: %d MiB are free", lowReason, d.FreeBytes>>20)
	}
	var running []sandbox.ID
	if err := e.each(ctx, func(s *stored) error {
		told := strings.HasPrefix(s.Reason, lowReason)
		if s.State == sandbox.Running && (d.Low && s.Reason == "" || !d.Low && told) {
			running = append(running, s.ID)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, id := range running {
		e.note(ctx, id, reason)
	}
	e.room.told = d.Low
	return ctx.Err()
}
