package gvisor

import (
	"bytes"
	"context"
	"math"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/compressio"
	graph "gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/waiter"
)

// objects has a field of each kind that the engine's edits save in a way of their own.
type objects struct {
	registers []byte                  // a block
	ports     [40]atomicbitops.Uint32 // another
	few       [3]atomicbitops.Uint32  // not long enough for one
	negative  atomicbitops.Int64
	most      atomicbitops.Uint64
	zero      atomicbitops.Int32
	yes       atomicbitops.Bool
	queue     waiter.Queue
	text      string

	register *byte                // within registers
	port     *atomicbitops.Uint32 // within ports
	number   *atomicbitops.Int64  // within this
	counter  *atomicbitops.Uint64 // an object of its own
	events   *waiter.Queue        // within this
	by       map[string]*atomicbitops.Int32
	any      any
}

func (*objects) StateTypeName() string { return "berth.objects" }

func (*objects) StateFields() []string {
	return []string{"registers", "ports", "few", "negative", "most", "zero", "yes", "queue", "text",
		"register", "port", "number", "counter", "events", "by", "any"}
}

func (o *objects) fields() []any {
	return []any{&o.registers, &o.ports, &o.few, &o.negative, &o.most, &o.zero, &o.yes, &o.queue, &o.text,
		&o.register, &o.port, &o.number, &o.counter, &o.events, &o.by, &o.any}
}

func (o *objects) StateSave(s graph.Sink) {
	for i, f := range o.fields() {
		s.Save(i, f)
	}
}

func (o *objects) StateLoad(_ context.Context, s graph.Source) {
	for i, f := range o.fields() {
		s.Load(i, f)
	}
}

func init() { graph.Register((*objects)(nil)) }

// noCloser is what the engine's readers and writers want.
type noCloser struct{ *bytes.Buffer }

func (noCloser) Close() error { return nil }

// What the engine saves quickly is loaded as it was, also where pointers lead into
// it, and two graphs that follow each other in one file are kept apart.
func TestObjectsAreSavedAndLoadedAsTheyAre(t *testing.T) {
	var file bytes.Buffer
	w := compressio.NewSimpleWriter(&file, nil, 1<<20)
	first, second := newObjects(11012), newObjects(300_000)
	for _, o := range []*objects{first, second} {
		if _, err := graph.Save(t.Context(), w, o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := compressio.NewSimpleReader(noCloser{&file}, nil)
	for _, want := range []*objects{first, second} {
		var got objects
		if _, err := graph.Load(t.Context(), r, &got); err != nil {
			t.Fatal(err)
		}
		got.check(t, want)
	}
}

func newObjects(n int) *objects {
	o := &objects{registers: make([]byte, n), text: "text", counter: new(atomicbitops.Uint64), any: int64(-7)}
	for i := range o.registers {
		o.registers[i] = byte(i * 7)
	}
	for i := range o.ports {
		o.ports[i].Store(uint32(i) * 0x1234567)
	}
	o.few[1].Store(5)
	o.negative.Store(math.MinInt64)
	o.most.Store(math.MaxUint64)
	o.yes.Store(true)
	o.counter.Store(300)
	minus := new(atomicbitops.Int32)
	minus.Store(-9)
	o.by = map[string]*atomicbitops.Int32{"zero": new(atomicbitops.Int32), "minus": minus}
	o.register, o.port, o.number, o.events = &o.registers[100], &o.ports[7], &o.negative, &o.queue
	return o
}

func (o *objects) check(t *testing.T, want *objects) {
	t.Helper()
	if !bytes.Equal(o.registers, want.registers) || o.text != want.text || o.any != want.any {
		t.Errorf("got %d bytes, %q, %v, wanted %d, %q, %v", len(o.registers), o.text, o.any, len(want.registers), want.text, want.any)
	}
	for i := range o.ports {
		if got := o.ports[i].Load(); got != want.ports[i].Load() {
			t.Errorf("element %d is %d, wanted %d", i, got, want.ports[i].Load())
		}
	}
	number := func(o *objects) []uint64 {
		minus, zero := o.by["minus"], o.by["zero"]
		return []uint64{uint64(o.few[0].Load()), uint64(o.few[1].Load()), uint64(o.negative.Load()), o.most.Load(),
			uint64(o.zero.Load()), o.counter.Load(), uint64(minus.Load()), uint64(zero.Load()), uint64(len(o.by))}
	}
	if got, want := number(o), number(want); !slices.Equal(got, want) || !o.yes.Load() {
		t.Errorf("got %d, %v, wanted %d, true", got, o.yes.Load(), want)
	}
	if o.register != &o.registers[100] || o.port != &o.ports[7] || o.number != &o.negative || o.events != &o.queue {
		t.Error("a pointer leads elsewhere")
	}
}
