package gvisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Early = (*Driver)(nil)

// Late implements driver.Early: private memory is asked for when it is used.
func (d *Driver) Late() string { return engineName + "/" + coldName }

// RestoreEarly implements driver.Early.
func (d *Driver) RestoreEarly(ctx context.Context, spec driver.Spec, dir string, feed driver.Feed) (driver.Machine, error) {
	return d.restore(ctx, spec, dir, feed)
}

// lackingNote is there while a machine's memory is still on its way.
func (p place) lackingNote() string { return p.dir + "/lacking" }

// feeding brings an engine word of its memory, over a socket: see the engine's side.
type feeding struct {
	feed   driver.Feed
	socket net.Conn
	cancel context.CancelFunc
	whole  chan struct{} // closed when all is there, or the feeding has ended
	err    error         // set before: nil if all is there
	ends   sync.WaitGroup
}

// feedSocket makes the two ends of a feeding's socket.
func feedSocket() (ours net.Conn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	f, theirs := os.NewFile(uintptr(pair[0]), "feed"), os.NewFile(uintptr(pair[1]), "feed")
	ours, err = net.FileConn(f)
	f.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// beginFeeding serves ours until all is there or stop is called.
func beginFeeding(feed driver.Feed, ours net.Conn) *feeding {
	ctx, cancel := context.WithCancel(context.Background())
	f := &feeding{feed: feed, socket: ours, cancel: cancel, whole: make(chan struct{})}
	f.ends.Go(f.hear)
	f.ends.Go(func() {
		f.err = f.tell(ctx)
		close(f.whole)
		ours.Close()
	})
	return f
}

// hear passes on what the engine asks for, until the socket is closed.
func (f *feeding) hear() {
	var b [16]byte
	for {
		if _, err := io.ReadFull(f.socket, b[:]); err != nil {
			return
		}
		// Whoever has taken the engine over gets what it says at once, and no more.
		f.feed.Want(int64(binary.LittleEndian.Uint64(b[:])), min(int64(binary.LittleEndian.Uint64(b[8:])), maxWant))
	}
}

// maxWant is the most bytes that are asked for at once.
const maxWant = 1 << 20

// during is ctx until the feeding fails.
func (f *feeding) during(ctx context.Context) (context.Context, context.CancelFunc) {
	if f == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with ctx or the feeding
		select {
		case <-f.whole:
			if f.err != nil {
				cancel()
			}
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// tell tells the engine what comes, and in the end that all has. An engine that does not
// listen any more has all, or has ended.
func (f *feeding) tell(ctx context.Context) error {
	deaf := false
	for i := 0; ; i++ {
		offset, n, err := f.feed.Next(ctx, i)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var b [16]byte
		if err == nil {
			binary.LittleEndian.PutUint64(b[:], uint64(offset))
			binary.LittleEndian.PutUint64(b[8:], uint64(n))
		}
		if !deaf {
			_, werr := f.socket.Write(b[:])
			deaf = werr != nil
		}
		if err != nil {
			return nil
		}
	}
}

// stop ends a feeding and returns when it has ended. The engine waits for another.
func (f *feeding) stop() {
	if f == nil {
		return
	}
	f.cancel()
	f.socket.Close()
	f.ends.Wait()
}

// loadFed is shell.load of a folder whose private memory is still on its way.
func (sh *shell) loadFed(ctx context.Context, dir string, feed driver.Feed) (*feeding, error) {
	files, cold, err := openKept(dir)
	if err != nil {
		return nil, err
	}
	defer func() { files.close() }()
	if cold != 2 { // the index and one file
		return nil, notWhole(fmt.Errorf("memory that comes late lies in %d files", cold-1))
	}
	ours, theirs, err := feedSocket()
	if err != nil {
		return nil, err
	}
	files = append(files, theirs)
	f := beginFeeding(feed, ours)
	ctx, cancel := f.during(ctx)
	defer cancel()
	if err = sh.giveBases(ctx); err == nil {
		err = sh.place.callCtx(ctx, sh.id, "containerManager.Restore", &fedArgs{ColdFeed: true, restoreArgs: restoreArgs{
			FilePayload: urpc.FilePayload{Files: files}, HavePagesFile: true, ColdFiles: cold + 1, Background: true,
		}})
	}
	if err != nil {
		err = bootError(ctx, err, sh.place)
		if ferr := f.failed(); ferr != nil {
			err = ferr
		}
		f.stop()
		return nil, err
	}
	return f, sh.protect()
}

// failed is what a feeding failed with by itself.
func (f *feeding) failed() error {
	if f == nil {
		return nil
	}
	select {
	case <-f.whole:
		if f.err != nil && !errors.Is(f.err, context.Canceled) {
			return f.err
		}
	default:
	}
	return nil
}

// fedArgs is restoreArgs with a socket behind the files of private memory.
type fedArgs struct {
	restoreArgs
	ColdFeed bool
}

// attendFeeding ends the machine if its memory cannot be had, with that as the reason.
// It returns when nothing more is to come.
func (m *machine) attendFeeding(f *feeding) {
	<-f.whole
	f.stop()
	if f.err == nil {
		_ = os.Remove(m.place.lackingNote()) // one that is left costs the next process a look
		return
	}
	if errors.Is(f.err, context.Canceled) {
		return // another process goes on with it
	}
	m.mu.Lock()
	m.ill = f.err.Error()
	m.mu.Unlock()
	_ = unix.PidfdSendSignal(int(m.pidfd.Fd()), unix.SIGKILL, nil, 0) // or it has ended
}

// feed makes a feeding the machine's.
func (m *machine) feed(f *feeding) {
	m.mu.Lock()
	m.feeding = f
	m.mu.Unlock()
	go m.attendFeeding(f) // ends with the feeding: release stops that
}

// whole returns when all of the machine's memory is there.
func (m *machine) whole(ctx context.Context) error {
	m.mu.Lock()
	f, lacking := m.feeding, m.lacking
	m.mu.Unlock()
	if f == nil && !lacking {
		return nil
	}
	if f == nil {
		return &sandbox.Error{Op: "await its memory", Kind: sandbox.Unavailable, Err: errors.New("what it was restored from is not being fetched now"),
			Hint: "try again in a moment; the server's log says why it is not fetched"}
	}
	select {
	case <-f.whole:
		if f.err != nil {
			return &sandbox.Error{Op: "await its memory", Kind: sandbox.Unavailable, Err: f.err}
		}
		return nil
	case <-m.over:
		return sandbox.Errorf("await its memory", sandbox.Unavailable, "the machine has ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Refeed implements driver.Early.
func (d *Driver) Refeed(ctx context.Context, dm driver.Machine, fill driver.Fill) (<-chan struct{}, error) {
	m, err := d.own(dm)
	if err != nil {
		return nil, &sandbox.Error{Op: "feed", Err: err}
	}
	f, err := m.refeed(ctx, fill)
	if err != nil {
		return nil, fault("feed", m.id, err)
	}
	if f == nil {
		none := make(chan struct{})
		close(none)
		return none, nil
	}
	return f.whole, nil
}

// refeed returns nil if the machine lacks nothing.
func (m *machine) refeed(ctx context.Context, fill driver.Fill) (*feeding, error) {
	m.mu.Lock()
	f, lacking := m.feeding, m.lacking
	m.mu.Unlock()
	if f != nil || !lacking {
		return f, nil
	}
	files, err := m.memoryFiles()
	if err != nil {
		return nil, err
	}
	if files.Lacks == 0 || len(files.Pages) == 0 {
		return nil, m.lacksNothing()
	}
	file, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", m.state.Process.PID, files.Pages[0]), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	// The process with that number was the engine all the time.
	if err := unix.PidfdSendSignal(int(m.pidfd.Fd()), 0, nil, 0); err != nil {
		return nil, errors.Join(&sandbox.Error{Op: "look at its memory", Kind: sandbox.Unavailable, Err: err}, file.Close())
	}
	ours, theirs, err := feedSocket()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	defer theirs.Close()
	lacks, err := m.takeFeed(theirs)
	if err == nil && len(lacks) == 0 {
		return nil, errors.Join(m.lacksNothing(), ours.Close(), file.Close())
	}
	var feed driver.Feed
	if err == nil {
		feed, err = fill(file, lacks) // which has the file from here on
	}
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	f = beginFeeding(feed, ours)
	m.feed(f)
	return f, nil
}

// takeFeed gives the engine another socket, and returns what it lacks.
func (m *machine) takeFeed(theirs *os.File) (lacks [][2]int64, err error) {
	var spans []struct{ Off, Len uint64 }
	args := &struct{ urpc.FilePayload }{urpc.FilePayload{Files: []*os.File{theirs}}}
	if err := m.place.callFor(m.id, "containerManager.FeedCold", args, &spans); err != nil {
		return nil, err
	}
	for _, s := range spans {
		lacks = append(lacks, [2]int64{int64(s.Off), int64(s.Len)})
	}
	return lacks, nil
}

// seeLacking finds out whether an earlier process has left the machine's memory
// incomplete.
func (m *machine) seeLacking() error {
	if _, err := os.Lstat(m.place.lackingNote()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	files, err := m.memoryFiles()
	if err != nil {
		return err
	}
	if files.Lacks == 0 {
		return m.lacksNothing()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lacking = true
	return nil
}

// lacksNothing notes that the machine's memory is whole.
func (m *machine) lacksNothing() error {
	m.mu.Lock()
	m.lacking = false
	m.mu.Unlock()
	return removeAll(m.place.lackingNote())
}
