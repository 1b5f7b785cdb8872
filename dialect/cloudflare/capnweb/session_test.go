package capnweb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of these tests.
const patience = time.Minute

// line is a transport in memory.
type line struct {
	to   chan string // the session reads
	from chan string // the session has sent
}

func newLine() *line { return &line{make(chan string, 1024), make(chan string, 1024)} }

func (l *line) Receive(ctx context.Context) ([]byte, error) {
	select {
	case m, ok := <-l.to:
		if !ok {
			return nil, io.EOF
		}
		return []byte(m), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) Send(ctx context.Context, b []byte) error {
	select {
	case l.from <- string(b):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// peer is the other side, written by hand.
type peer struct {
	*testing.T
	*line
	over chan error
}

func dial(t *testing.T, main Object, limits Limits) *peer {
	t.Helper()
	p := &peer{t, newLine(), make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { p.over <- Serve(ctx, p.line, main, limits) }()
	t.Cleanup(cancel)
	return p
}

func (p *peer) send(all ...string) {
	for _, m := range all {
		p.to <- m
	}
}

// expect fails the test unless the session sends these messages next.
func (p *peer) expect(all ...string) {
	p.Helper()
	for _, want := range all {
		select {
		case got := <-p.from:
			if got != want {
				p.Fatalf("got  %s\nwant %s", got, want)
			}
		case <-time.After(patience):
			p.Fatalf("nothing came; want %s", want)
		}
	}
}

// ended fails the test unless the session ends, with an error or without.
func (p *peer) ended(broken bool) {
	p.Helper()
	select {
	case err := <-p.over:
		if (err != nil) != broken {
			p.Fatalf("it ended with %v", err)
		}
	case <-time.After(patience):
		p.Fatal("it did not end")
	}
}

func testMain() Object {
	return Object{"utils": Object{
		"ping": Method(func(context.Context, []any) (any, error) { return "healthy", nil }),
		"echo": Method(func(_ context.Context, args []any) (any, error) { return args, nil }),
		"fail": Method(func(context.Context, []any) (any, error) {
			return nil, &Error{Message: "no such file", Properties: map[string]any{"code": "FILE_NOT_FOUND", "details": map[string]any{"path": "/x"}}}
		}),
		"panic": Method(func(context.Context, []any) (any, error) { panic("oh") }),
		"hang":  Method(func(ctx context.Context, _ []any) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
		"words": Method(func(context.Context, []any) (any, error) {
			return Source(func(_ context.Context, w io.Writer) error {
				for _, s := range []string{"one", "two"} {
					if _, err := io.WriteString(w, s); err != nil {
						return err
					}
				}
				return nil
			}), nil
		}),
		"broken": Method(func(context.Context, []any) (any, error) {
			return Source(func(context.Context, io.Writer) error { return errors.New("disk") }), nil
		}),
		"read": Method(func(_ context.Context, args []any) (any, error) {
			b, err := io.ReadAll(args[0].(*Readable))
			return string(b), err
		}),
		"callback": Method(func(ctx context.Context, args []any) (any, error) {
			return args[0].(*Stub).Call(ctx, nil, "a", 1)
		}),
	}}
}

func TestCall(t *testing.T) {
	p := dial(t, testMain(), Limits{})
	p.send(`["push",["pipeline",0,["utils","ping"],[]]]`, `["pull",1]`)
	p.expect(`["resolve",1,"healthy"]`)
	p.send(`["release",1,1]`, `["push",["pipeline",0,["utils","fail"],[]]]`, `["pull",2]`)
	p.expect(`["reject",2,["error","Error","no such file",null,{"code":"FILE_NOT_FOUND","details":{"path":"/x"}}]]`)
	p.send(`["release",2,1]`, `["push",["pipeline",0,["utils","panic"],[]]]`, `["pull",3]`)
	p.expect(`["reject",3,["error","Error","internal error"]]`)
	p.send(`["push",["pipeline",0,["utils","none"],[]]]`, `["pull",4]`)
	p.expect(`["reject",4,["error","TypeError","RPC object has no property \"none\"."]]`)
	close(p.to)
	p.ended(false)
}

func TestValues(t *testing.T) {
	p := dial(t, testMain(), Limits{})
	for i, v := range []string{`null`, `true`, `1.5`, `"x"`, `["undefined"]`, `["inf"]`, `["-inf"]`, `["nan"]`, `["date",1234]`, `["date",null]`, `["bigint","123456789012345678901"]`,
		`["bytes","aGk"]`, `[[1,[[2]],{"a":[[]]}]]`, `{"a":{"b":["undefined"]}}`, `["error","TypeError","m"]`, `["error","Error","m",null,{"code":1}]`} {
		p.send(fmt.Sprintf(`["push",["pipeline",0,["utils","echo"],[%s]]]`, v), fmt.Sprintf(`["pull",%d]`, i+1))
		p.expect(fmt.Sprintf(`["resolve",%d,[[%s]]]`, i+1, v))
	}
}

func TestPipelining(t *testing.T) {
	p := dial(t, testMain(), Limits{})
	p.send(`["push",["pipeline",0,["utils","echo"],[{"a":[["x","y"]]}]]]`,
		`["push",["pipeline",1,[0,"a",1]]]`, `["pull",2]`)
	p.expect(`["resolve",2,"y"]`)
	p.send(`["push",["pipeline",0,["utils","echo"],[["pipeline",2],["pipeline",0,["utils","ping"],[]]]]]`, `["pull",3]`)
	p.expect(`["resolve",3,[["y","healthy"]]]`)
	p.send(`["push",["pipeline",2,["method"],[]]]`, `["pull",4]`)
	p.expect(`["reject",4,["error","TypeError","[\"method\"] is not a function."]]`)
	p.send(`["push",["pipeline",0,["utils","ping"]]]`, `["pull",5]`)
	p.expect(`["resolve",5,["export",-1]]`)
	p.send(`["push",["pipeline",-1,[],[]]]`, `["pull",6]`)
	p.expect(`["resolve",6,"healthy"]`)
	p.send(`["release",-1,1]`, `["push",["promise",-1]]`, `["pull",7]`, `["resolve",-1,"later"]`)
	var got []string
	for range 2 {
		select {
		case m := <-p.from:
			got = append(got, m)
		case <-time.After(patience):
			t.Fatal(got)
		}
	}
	if all := strings.Join(got, " "); !strings.Contains(all, `["resolve",7,"later"]`) || !strings.Contains(all, `["release",-1,1]`) {
		t.Errorf("%v", got)
	}
}

func TestStreamDown(t *testing.T) {
	p := dial(t, testMain(), Limits{})
	p.send(`["push",["pipeline",0,["utils","words"],[]]]`, `["pull",1]`)
	p.expect(`["pipe"]`, `["resolve",1,["readable",1]]`,
		`["stream",["pipeline",1,["write"],[["bytes","b25l"]]]]`, `["stream",["pipeline",1,["write"],[["bytes","dHdv"]]]]`, `["stream",["pipeline",1,["close"],[]]]`)
	p.send(`["resolve",2,["undefined"]]`, `["resolve",3,["undefined"]]`, `["resolve",4,["undefined"]]`)
	p.expect(`["release",1,1]`)
	p.send(`["push",["pipeline",0,["utils","broken"],[]]]`, `["pull",2]`)
	p.expect(`["pipe"]`, `["resolve",2,["readable",5]]`, `["stream",["pipeline",5,["abort"],[["error","Error","disk"]]]]`, `["release",5,1]`)
}

func TestStreamUp(t *testing.T) {
	p := dial(t, testMain(), Limits{})
	p.send(`["pipe"]`, `["push",["pipeline",0,["utils","read"],[["readable",1]]]]`, `["pull",2]`,
		`["stream",["pipeline",1,["write"],[["bytes","b25l"]]]]`)
	p.expect(`["resolve",3,["undefined"]]`)
	p.send(`["stream",["pipeline",1,["write"],["two"]]]`)
	p.expect(`["resolve",4,["undefined"]]`)
	p.send(`["stream",["pipeline",1,["close"],[]]]`)
	want := map[string]bool{`["resolve",5,["undefined"]]`: true, `["resolve",2,"onetwo"]`: true}
	for range 2 {
		select {
		case m := <-p.from:
			if !want[m] {
				t.Errorf("%s", m)
			}
		case <-time.After(patience):
			t.Fatal("nothing came")
		}
	}
	p.send(`["pipe"]`, `["push",["pipeline",0,["utils","read"],[["readable",6]]]]`, `["pull",7]`, `["stream",["pipeline",6,["abort"],[["error","Error","gone"]]]]`)
	want = map[string]bool{`["resolve",8,["undefined"]]`: true, `["reject",7,["error","Error","gone"]]`: true}
	for range 2 {
		select {
		case m := <-p.from:
			if !want[m] {
				t.Errorf("%s", m)
			}
		case <-time.After(patience):
			t.Fatal("nothing came")
		}
	}
}

func TestCallback(t *testing.T) {
	p := dial(t, testMain(), Limits{})
	p.send(`["push",["pipeline",0,["utils","callback"],[["export",-1]]]]`, `["pull",1]`)
	p.expect(`["push",["pipeline",-1,[],["a",1]]]`, `["pull",1]`)
	p.send(`["resolve",1,[["b"]]]`)
	got := map[string]bool{}
	for range 3 {
		select {
		case m := <-p.from:
			got[m] = true
		case <-time.After(patience):
			t.Fatal(got)
		}
	}
	for _, want := range []string{`["release",1,1]`, `["resolve",1,[["b"]]]`, `["release",-1,1]`} {
		if !got[want] {
			t.Errorf("%s is not among %v", want, got)
		}
	}
}

// TestHostile sends what no peer should: the session ends, and nothing else does.
func TestHostile(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for name, all := range map[string][]string{
		"no JSON":                {`[`},
		"no array":               {`{}`},
		"no kind":                {`[]`},
		"an unknown kind":        {`["run"]`},
		"no expression":          {`["push"]`},
		"an unknown value":       {`["push",["lambda"]]`},
		"an id that is none":     {`["pull","x"]`},
		"an id of nothing":       {`["pull",7]`},
		"half an id":             {`["pull",0.5]`},
		"a release of nothing":   {`["release",3,1]`},
		"a release twice":        {`["push",1]`, `["release",1,1]`, `["release",1,1]`},
		"too much of a release":  {`["push",1]`, `["release",1,2]`},
		"a negative release":     {`["push",1]`, `["release",1,-1]`},
		"a pipeline of nothing":  {`["push",["pipeline",9,["a"],[]]]`},
		"a path that is none":    {`["push",["pipeline",0,"a",[]]]`},
		"a path of objects":      {`["push",["pipeline",0,[{}],[]]]`},
		"arguments that are not": {`["push",["pipeline",0,["utils","echo"],1]]`},
		"depth":                  {`["push",["pipeline",0,["utils","echo"],[` + deep + `]]]`},
		"bytes that are none":    {`["push",["bytes","!"]]`},
		"a pipe that is none":    {`["push",["readable",0]]`},
		"a pipe read twice":      {`["pipe"]`, `["push",["readable",1]]`, `["push",["readable",1]]`},
		"something lent at 1":    {`["push",["export",1]]`},
		"a promise twice":        {`["push",[[["promise",-1],["promise",-1]]]]`},
		"a map":                  {`["push",["remap",0,[],[],[]]]`},
		"a request":              {`["push",["request","http://x",{}]]`},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, testMain(), Limits{})
			p.send(all...)
			p.ended(true)
		})
	}
}

// TestBounds holds a peer to what it may have.
func TestBounds(t *testing.T) {
	t.Run("table", func(t *testing.T) {
		p := dial(t, testMain(), Limits{Table: 8})
		for range 9 {
			p.send(`["pipe"]`)
		}
		p.ended(true)
	})
	t.Run("calls that hang", func(t *testing.T) {
		p := dial(t, testMain(), Limits{Table: 8})
		for i := range 9 {
			p.send(`["push",["pipeline",0,["utils","hang"],[]]]`, fmt.Sprintf(`["release",%d,1]`, i+1))
		}
		p.ended(true)
	})
	t.Run("streams that nobody reads", func(t *testing.T) {
		p := dial(t, testMain(), Limits{Pending: 10})
		p.send(`["pipe"]`)
		for range 4 {
			p.send(`["stream",["pipeline",1,["write"],[["bytes","b25l"]]]]`)
		}
		p.ended(true)
	})
	t.Run("the end ends calls", func(t *testing.T) {
		p := dial(t, testMain(), Limits{})
		p.send(`["push",["pipeline",0,["utils","hang"],[]]]`, `["pull",1]`, `["abort",["error","Error","bye"]]`)
		p.ended(false)
	})
}

// FuzzSession feeds a session any messages: it must not panic, nor hang.
func FuzzSession(f *testing.F) {
	f.Add(`["push",["pipeline",0,["utils","echo"],[[[1]],["bytes","aGk"],{"a":["date",1]}]]]` + "\n" + `["pull",1]` + "\n" + `["release",1,1]`)
	f.Add(`["pipe"]` + "\n" + `["push",["pipeline",0,["utils","read"],[["readable",1]]]]` + "\n" + `["stream",["pipeline",1,["close"],[]]]`)
	f.Add(`["push",["pipeline",0,["utils","callback"],[["export",-1]]]]` + "\n" + `["resolve",1,["error","A","b",null,{"c":1}]]`)
	f.Fuzz(func(t *testing.T, text string) {
		l := &line{make(chan string, 64), make(chan string, 4096)}
		go func() {
			for range l.from { // what it says is not looked at
			}
		}()
		for i, m := range strings.Split(text, "\n") {
			if i == cap(l.to) {
				break
			}
			l.to <- m
		}
		close(l.to)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_ = Serve(ctx, l, testMain(), Limits{Table: 64})
		if ctx.Err() != nil {
			t.Fatal("it hangs")
		}
		close(l.from)
	})
}

// TestValuesOfOthers encodes what marshals to JSON.
func TestValuesOfOthers(t *testing.T) {
	e := &encoder{session: &Session{limits: Limits{}.orDefaults()}}
	v, err := e.value(struct {
		A []string `json:"a"`
		B any      `json:"b,omitempty"`
	}{A: []string{"x"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(v); err != nil || string(b) != `{"a":[["x"]]}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := e.value(make(chan int), 0); err == nil {
		t.Error("a channel was encoded")
	}
}
