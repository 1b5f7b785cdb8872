package intercept

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on handlers.
const (
	defaultDecision = 10 * time.Second // for a decision
	maxDecision     = time.Minute
	maxAtOnce       = 64      // decisions under way, of all sandboxes
	maxShown        = 1 << 20 // bytes of a request's body that a handler is shown
	minHandlerKey   = 32      // bytes
)

// Handlers says which programs may decide requests.
type Handlers struct {
	Named map[string]Endpoint // the operator's own
	Key   []byte              // signs what they are sent; at least 32 bytes

	// URLs lets policies name addresses of their own, which Dial reaches: it must
	// refuse what is not public. nil: none may.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Timeout time.Duration // for one decision; 0 means 10 s, at most a minute
}

// Endpoint is one handler of the operator's: an address, or a program that is run
// for each request, as CGI has it. Exactly one is given.
type Endpoint struct {
	URL     string
	Program []string // an absolute path, and arguments
}

// The headers by which a handler is told of a request, and decides. All others
// are the request's own, or the answer's.
const (
	headSandbox   = "Berth-Sandbox"
	headName      = "Berth-Name"
	headAccount   = "Berth-Account"
	headURL       = "Berth-Url"       // whole, as the sandbox asks for it
	headShown     = "Berth-Body"      // "whole", or "withheld": it is long, or its length is not known
	headTime      = "Berth-Timestamp" // seconds since 1970
	headSignature = "Berth-Signature" // hex, see sign

	headDecision = "Berth-Decision" // forward, answer, refuse
	headMethod   = "Berth-Method"   // of a request that is forwarded
	headPath     = "Berth-Path"     // and its path and query
	headSet      = "Berth-Set"      // "Name: value", any number
	headRemove   = "Berth-Remove"   // "Name", any number
	headReplace  = "Berth-Replace"  // "body": the answer's body is the request's
)

// handlers asks those who decide.
type handlers struct {
	named   map[string]Endpoint
	key     []byte
	timeout time.Duration
	secrets secrets
	now     func() time.Time
	own     *http.Client // to the operator's handlers
	others  *http.Client // to those of callers; nil: there are none
	turn    chan struct{}
}

func newHandlers(c Handlers, s secrets, now func() time.Time) (*handlers, error) {
	const op = "set up handlers"
	if c.Timeout == 0 {
		c.Timeout = defaultDecision
	}
	if c.Timeout < 0 || c.Timeout > maxDecision {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "the timeout is %v, at most %v is taken", c.Timeout, maxDecision)
	}
	if len(c.Named) > 0 && len(c.Key) < minHandlerKey {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "the key has %d bytes, at least %d are needed", len(c.Key), minHandlerKey)
	}
	for name, e := range c.Named {
		if err := errors.Join(sandbox.CheckName(name), e.check()); err != nil {
			return nil, &sandbox.Error{Op: op + ": " + name, Kind: sandbox.Invalid, Err: err,
				Hint: "a handler is an http or https address, or the absolute path of a program with its arguments"}
		}
	}
	h := &handlers{named: c.Named, key: c.Key, timeout: c.Timeout, secrets: s, now: now, turn: make(chan struct{}, maxAtOnce)}
	h.own = handlerClient((&net.Dialer{Timeout: c.Timeout}).DialContext)
	if c.Dial != nil {
		h.others = handlerClient(c.Dial)
	}
	return h, nil
}

func (e *Endpoint) check() error {
	if (e.URL == "") == (len(e.Program) == 0) {
		return errors.New("give one of an address and a program")
	}
	if e.URL == "" {
		if !filepath.IsAbs(e.Program[0]) {
			return fmt.Errorf("%.200q is not an absolute path", e.Program[0])
		}
		return nil
	}
	u, err := url.Parse(e.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%.200q is not an http or https address", e.URL)
	}
	return nil
}

// handlerClient follows no redirect: what a handler says is its decision.
func handlerClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 16,
			IdleConnTimeout: time.Minute, TLSHandshakeTimeout: handshakeTime, MaxResponseHeaderBytes: maxAnswer},
	}
}

// check reports whether a rule's handler can be asked here.
func (h *handlers) check(r *sandbox.Handler) error {
	if r.Name != "" {
		if _, ok := h.named[r.Name]; !ok {
			return &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("there is no handler %q", r.Name), Hint: "the server's operator sets handlers up"}
		}
		return nil
	}
	if h.others == nil {
		return &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New("this server allows no handlers of callers' own"),
			Hint: "name a handler that the operator has set up"}
	}
	e := Endpoint{URL: r.URL}
	if err := e.check(); err != nil {
		return &sandbox.Error{Kind: sandbox.Invalid, Err: err}
	}
	return nil
}

// question is what a handler is asked.
type question struct {
	r      *request
	url    string
	header http.Header
	body   []byte
	whole  bool
}

// reply is what it says. The body is open.
type reply struct {
	status int
	header http.Header
	body   io.ReadCloser
}

// ask has a handler decide. Whatever goes wrong is an error: nothing passes then.
func (h *handlers) ask(ctx context.Context, rule *sandbox.Handler, q *question) (*reply, error) {
	if err := h.check(rule); err != nil { // it may have been allowed before a restart
		return nil, err
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	endpoint, client := Endpoint{URL: rule.URL}, h.others
	if rule.Name != "" {
		endpoint, client = h.named[rule.Name], h.own
	}
	if err := h.sign(ctx, rule, q); err != nil {
		return nil, err
	}
	if endpoint.URL == "" {
		return h.run(ctx, endpoint.Program, q)
	}
	return h.post(ctx, client, endpoint.URL, q)
}

// sign adds the request's identity and, with a key, the signature: HMAC-SHA256 of
// the lines v1, time, sandbox, account, method, URL and the hex SHA-256 of the
// body that is shown.
func (h *handlers) sign(ctx context.Context, rule *sandbox.Handler, q *question) error {
	f := q.r.s.flow
	stamp := strconv.FormatInt(h.now().Unix(), 10)
	shown := "whole"
	if !q.whole {
		shown = "withheld"
	}
	for k, v := range map[string]string{headSandbox: string(f.Sandbox), headName: f.Name, headAccount: f.Account,
		headURL: q.url, headShown: shown, headTime: stamp} {
		q.header.Set(k, v)
	}
	sum := sha256.Sum256(q.body)
	text := strings.Join([]string{"v1", stamp, string(f.Sandbox), f.Account, q.r.in.Method, q.url, hex.EncodeToString(sum[:])}, "\n")
	with := func(key []byte) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		q.header.Set(headSignature, hex.EncodeToString(mac.Sum(nil)))
	}
	switch {
	case rule.Name != "":
		with(h.key)
	case rule.Secret != "":
		return h.secrets.Use(ctx, f.Account, rule.Secret, func(v sandbox.SecretValue) error { with(v); return nil })
	}
	return nil
}

// post asks an address. The decision is bounded in time; the answer's body is
// not, and ends with ctx.
func (h *handlers) post(ctx context.Context, client *http.Client, address string, q *question) (*reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(h.timeout, cancel)
	req, err := http.NewRequestWithContext(ctx, q.r.in.Method, address, bytes.NewReader(q.body))
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header = q.header
	resp, err := client.Do(req)
	if !late.Stop() && err == nil {
		resp.Body.Close()
		err = context.Canceled
	}
	if err != nil {
		cancel()
		if ue := new(url.Error); errors.As(err, &ue) {
			err = ue.Err // without the address, which is not the sandbox's business
		}
		return nil, fmt.Errorf("it gave no decision within %v: %w", h.timeout, err)
	}
	return &reply{resp.StatusCode, resp.Header, &ending{resp.Body, cancel}}, nil
}

// ending is a body whose closing ends what feeds it.
type ending struct {
	io.ReadCloser
	end func()
}

func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}
