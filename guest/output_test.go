package guest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// TestRingKeepsTheNewest compares with the plain way of doing it.
func TestRingKeepsTheNewest(t *testing.T) {
	for _, limit := range []int{1, 7, 512, 513, 4096} {
		r := ring{limit: limit}
		var all []byte
		rng := rand.New(rand.NewPCG(1, uint64(limit)))
		for range 300 {
			p := make([]byte, rng.IntN(2*limit+3))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			r.write(p)
			all = append(all, p...)
			if r.end != int64(len(all)) || r.kept > limit || r.kept < min(len(all), limit) {
				t.Fatalf("limit %d: end %d, kept %d of %d", limit, r.end, r.kept, len(all))
			}
			got := make([]byte, limit+1)
			from := r.start() + int64(rng.IntN(r.kept+1))
			n := r.read(from, got)
			if !bytes.Equal(got[:n], all[from:]) {
				t.Fatalf("limit %d: from %d of %d: %d other bytes", limit, from, len(all), n)
			}
		}
	}
}

func FuzzRing(f *testing.F) {
	f.Add(3, []byte("abc"), []byte("defgh"), []byte(""))
	f.Add(512, bytes.Repeat([]byte("x"), 600), []byte("y"), []byte("z"))
	f.Fuzz(func(t *testing.T, limit int, a, b, c []byte) {
		if limit < 1 || limit > 1<<16 {
			return
		}
		r := ring{limit: limit}
		var all []byte
		for _, p := range [][]byte{a, b, c} {
			r.write(p)
			all = append(all, p...)
		}
		got := make([]byte, limit)
		n := r.read(r.start(), got)
		if !bytes.Equal(got[:n], all[max(0, len(all)-limit):]) {
			t.Errorf("limit %d: kept %q of %q", limit, got[:n], all)
		}
	})
}

// drain reads what there is.
func drain(c *cursor) (out [streams][]byte, missed int64, exit *guestv1.Exit) {
	for {
		e := c.next()
		switch {
		case e == nil:
			return
		case e.GetOutput() != nil:
			i := int(e.GetOutput().Stream) - 1
			out[i] = append(out[i], e.GetOutput().Data...)
		case e.GetMissed() != nil:
			missed += e.GetMissed().Bytes
		case e.GetExit() != nil:
			exit = e.GetExit()
			return
		}
	}
}

func TestSlowReadersAreToldWhatTheyMissed(t *testing.T) {
	o := newOutput(1000)
	slow, err := o.read([streams]int64{})
	if err != nil {
		t.Fatal(err)
	}
	fast, err := o.read([streams]int64{})
	if err != nil {
		t.Fatal(err)
	}
	var seen int
	for range 50 {
		o.write(stdout, bytes.Repeat([]byte("x"), 100))
		out, missed, _ := drain(fast)
		if seen += len(out[stdout]); missed > 0 {
			t.Fatal("the fast reader missed something")
		}
	}
	o.write(stderr, []byte("e"))
	o.finish(&guestv1.Exit{Code: 3})
	out, missed, exit := drain(slow)
	if seen != 5000 || missed != 4000 || len(out[stdout]) != 1000 || string(out[stderr]) != "e" || exit.GetCode() != 3 {
		t.Errorf("fast %d; slow missed %d, got %d and %q, exit %v", seen, missed, len(out[stdout]), out[stderr], exit)
	}
	if _, err := o.read([streams]int64{5001}); err == nil {
		t.Error("an offset beyond the end was taken")
	}
	if _, err := o.read([streams]int64{-1}); err == nil {
		t.Error("a negative offset was taken")
	}
	late, err := o.read([streams]int64{4999, 1})
	if err != nil {
		t.Fatal(err)
	}
	if out, missed, exit := drain(late); string(out[stdout]) != "x" || len(out[stderr]) != 0 || missed != 0 || exit == nil {
		t.Errorf("from an offset: %q, missed %d, %v", out, missed, exit)
	}
}

func TestALosslessReaderHoldsTheWriter(t *testing.T) {
	o := newOutput(1000)
	c, err := o.read([streams]int64{})
	if err != nil {
		t.Fatal(err)
	}
	o.lossless = c
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			o.write(stdout, bytes.Repeat([]byte("x"), 300))
		}
		o.finish(&guestv1.Exit{})
	})
	total := 0
	for {
		out, missed, exit := drain(c)
		if total += len(out[stdout]); missed > 0 {
			t.Fatalf("missed %d", missed)
		}
		if exit != nil {
			break
		}
		<-c.wake
	}
	wg.Wait()
	if total != 500*300 {
		t.Errorf("got %d bytes", total)
	}

	// One that leaves lets the writer go on.
	o = newOutput(1000)
	if c, err = o.read([streams]int64{}); err != nil {
		t.Fatal(err)
	}
	o.lossless = c
	wg.Go(func() {
		for range 500 {
			o.write(stderr, bytes.Repeat([]byte("x"), 300))
		}
	})
	c.close()
	wg.Wait()
}

func TestWhatIsReadIsNotForgotten(t *testing.T) {
	o := newOutput(1000)
	c, err := o.read([streams]int64{})
	if err != nil {
		t.Fatal(err)
	}
	o.write(stdout, []byte("hello"))
	o.finish(&guestv1.Exit{})
	o.forget()
	if out, missed, _ := drain(c); string(out[stdout]) != "hello" || missed != 0 {
		t.Errorf("got %q, missed %d", out[stdout], missed)
	}
	c.close()
	if o.size() != 0 {
		t.Errorf("%d bytes stay", o.size())
	}
	if c, err = o.read([streams]int64{}); err != nil {
		t.Fatal(err)
	}
	if _, missed, exit := drain(c); missed != 5 || exit == nil {
		t.Errorf("missed %d, %v", missed, exit)
	}
}
