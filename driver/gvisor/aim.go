package gvisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// aim is what is made ready before a machine stands still to be written down.
type aim struct {
	m      *machine
	st     *stages
	held   time.Time // when streams were; zero: none need be
	files  files
	freeze *freezing
	undo   []func() error
}

// aim makes ready what shoot needs; rest undoes it.
func (m *machine) aim(ctx context.Context, img *image, st *stages) (*aim, error) {
	a := &aim{m: m, st: st}
	if err := a.take(ctx, img); err != nil {
		return nil, errors.Join(err, a.rest())
	}
	return a, nil
}

func (a *aim) take(ctx context.Context, img *image) (err error) {
	if img.about.Keep == driver.KeepMemory {
		if err := a.hold(ctx); err != nil {
			return err
		}
		a.undo = append(a.undo, func() error { return a.m.ifAlive(a.m.guest().Hold(context.WithoutCancel(ctx), 0)) })
	}
	end := a.st.step("make room")
	a.files, err = a.m.openFiles(img)
	end()
	if err != nil {
		return err
	}
	a.undo = append(a.undo, a.files.close)
	if a.m.driver.clones { // which writes out what was written since the last time
		end := a.st.step("sync layer")
		err := syncFile(a.m.place.layer())
		end()
		if err != nil {
			return err
		}
	}
	if a.freeze, err = a.m.prepareFreeze(); err != nil {
		return err
	}
	a.undo = append(a.undo, a.freeze.drop)
	return nil
}

// hold lets commands outlive their streams, which break in a copy.
func (a *aim) hold(ctx context.Context) error {
	defer a.st.step("hold streams")()
	a.held = time.Now()
	return a.m.guest().Hold(ctx, holdTime)
}

// rest undoes what is left of it, in reverse.
func (a *aim) rest() (err error) {
	for _, f := range slices.Backward(a.undo) {
		err = errors.Join(err, f())
	}
	a.undo = nil
	return err
}

// shoot lets the machine stand still while its image is written, and says for how long.
// Once the image is whole it calls taken, which does not wait for the machine to go on.
func (a *aim) shoot(ctx context.Context, img *image, taken func()) (pause time.Duration, err error) {
	m, memory := a.m, img.about.Keep == driver.KeepMemory
	if memory && time.Since(a.held) > holdTime/2 { // what came between has taken long
		if err := a.hold(ctx); err != nil {
			return 0, err
		}
	}
	impose, err := m.liftNoted()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.ifAlive(impose())) }()

	img.about.Taken = time.Now().UTC()
	end := a.st.step("pause")
	began := time.Now()
	still, err := m.place.stand(ctx, m.id)
	if err != nil {
		return 0, err
	}
	err = m.writeBoth(img, a.freeze, a.files, a.st)
	whole := err == nil && (!memory || img.left != nil)
	if whole {
		taken()
	}
	if rerr := still.release(); rerr != nil {
		return 0, errors.Join(err, &sandbox.Error{Op: "go on", Kind: sandbox.Internal, Err: rerr})
	}
	pause = time.Since(began)
	end()
	if err == nil && !whole {
		end := a.st.step("write")
		if err = m.finish(a.files); err == nil {
			taken()
		}
		end()
	}
	return pause, err
}
