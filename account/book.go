package account

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Book is made of.
type Config struct {
	Records record.Store
	Clock   func() time.Time // nil means time.Now
	Logger  *slog.Logger     // nil means none
	Terms   Terms
}

// Terms are what may change while a server runs.
type Terms struct {
	Quota     sandbox.Quota // of accounts that are made without one, and of those that are claimed
	Temporary *Temporary    // nil: none are made
}

// Temporary says how accounts are made without sign-up.
type Temporary struct {
	Quota    sandbox.Quota
	Lifetime time.Duration // until one that nobody claims is removed; 0 means DefaultLifetime
	Hourly   int           // made in an hour for one address; 0 means 10
	Most     int           // alive at once; 0 means 100
	WorkBits int           // of work that is asked for; 0: none, at most MaxWorkBits
}

// DefaultLifetime is how long a temporary account has to be claimed.
const DefaultLifetime = time.Hour

// Estate removes what accounts have.
type Estate interface {
	// Clear removes all that an account has. It can be called again after it
	// failed, or after the process that called it ended.
	Clear(ctx context.Context, account string) error
}

// Book keeps accounts. All methods may be called at once from many goroutines;
// Open comes first. The verbs act for the caller of their context.
type Book struct {
	records record.Store
	now     func() time.Time
	log     *slog.Logger
	terms   atomic.Pointer[Terms]

	turn   chan struct{} // held by whoever counts before it writes
	visits visits
	used   used
	work   *worker
	rates  rates

	estate Estate
	kick   chan struct{} // makes the sweeper look now
	swept  signal        // after each look
	ctx    context.Context
	end    context.CancelFunc
	tasks  sync.WaitGroup
}

// New returns a Book. It touches nothing before Open.
func New(c Config) *Book {
	b := &Book{records: c.Records, now: c.Clock, log: c.Logger, turn: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
	if b.now == nil {
		b.now = time.Now
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.work = newWorker(b.now)
	b.ctx, b.end = context.WithCancel(context.Background())
	b.SetTerms(c.Terms)
	return b
}

// SetTerms changes what holds for what is made from now on.
func (b *Book) SetTerms(t Terms) {
	if t.Temporary != nil {
		own := *t.Temporary
		own.Lifetime = orDefault(own.Lifetime, DefaultLifetime)
		own.Hourly = orDefault(own.Hourly, 10)
		own.Most = orDefault(own.Most, 100)
		t.Temporary = &own
	}
	b.terms.Store(&t)
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// Open makes the main account at the first start, and begins to remove, with the
// help of estate, what is to be removed.
func (b *Book) Open(ctx context.Context, estate Estate) error {
	b.estate = estate
	_, err := b.load(ctx, sandbox.MainAccount)
	if sandbox.KindOf(err) == sandbox.NotFound {
		err = b.create(ctx, &stored{Account: sandbox.Account{ID: sandbox.MainAccount, State: sandbox.AccountActive, Created: b.stamp()}})
	}
	if err != nil {
		return &sandbox.Error{Op: "open accounts", Err: err}
	}
	b.tasks.Go(b.keepSweeping)
	b.tasks.Go(b.keepNoting)
	return nil
}

// Close waits for the sweeper and writes when keys were last used.
func (b *Book) Close() error {
	b.end()
	b.tasks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return b.note(ctx)
}

func (b *Book) stamp() time.Time { return b.now().UTC().Round(0) }

// alone holds the Book's turn until the result is called.
func (b *Book) alone(ctx context.Context) (release func(), err error) {
	select {
	case b.turn <- struct{}{}:
		return func() { <-b.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// signal wakes all who wait for something to have happened.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
