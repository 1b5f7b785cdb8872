package sandbox

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrNotListening is in the chain of an error that says that no server in the
// sandbox takes connections at a port. Its kind is Unavailable.
var ErrNotListening = errors.New("nothing listens there")

// NotListening is the error of a connection to a port that nobody serves.
func NotListening(port uint16) error {
	return &Error{Op: fmt.Sprintf("dial port %d", port), Kind: Unavailable, Err: ErrNotListening,
		Hint: fmt.Sprintf("start a server in the sandbox that listens on port %d", port)}
}

// Port is a TCP port of a sandbox: something listens on it, or it is shared.
type Port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening"`
	Address   string `json:"address,omitempty"` // that is listened on, inside: "0.0.0.0", "127.0.0.1", "::"
	PID       int    `json:"pid,omitempty"`     // of a process that listens, inside
	Command   string `json:"command,omitempty"` // that process's name

	Public      bool      `json:"public"`                // anybody may reach it by its URL
	PublicUntil time.Time `json:"public_until,omitzero"` // zero: until that is changed
	HostHeader  string    `json:"host_header,omitempty"` // sent to the server in place of the URL's host
	URL         string    `json:"url,omitempty"`         // of its preview; "" where the server serves none
}

// ShareRequest asks for a way to a port from outside, and may change who has one.
type ShareRequest struct {
	Public     *bool   `json:"public,omitempty"`      // true: anybody; false: who has a token; nil leaves it
	TTLSeconds int64   `json:"ttl_seconds,omitempty"` // of the token, or of being public if that is asked for; 0: a day, or no end
	Once       bool    `json:"once,omitempty"`        // the token serves one browser, once
	Revoke     bool    `json:"revoke,omitempty"`      // end every token that was given out for the port
	HostHeader *string `json:"host_header,omitempty"` // for servers that refuse foreign names; "" means the URL's host
}

// Share is a way to a port from outside.
type Share struct {
	Sandbox     ID        `json:"sandbox"`
	Port        int       `json:"port"`
	URL         string    `json:"url"`              // with the token in it, if one is needed
	Base        string    `json:"base"`             // without
	Token       string    `json:"token,omitempty"`  // for HeaderToken or the query's ParamToken; none if it is public
	Expires     time.Time `json:"expires,omitzero"` // of the token
	Public      bool      `json:"public"`
	PublicUntil time.Time `json:"public_until,omitzero"`
	HostHeader  string    `json:"host_header,omitempty"`
}

// How a request to a preview shows its token.
const (
	HeaderToken = "Berth-Token"
	ParamToken  = "berth_token"
)

// Bounds on a share.
const (
	DefaultShareTTL = 24 * time.Hour
	MaxShareTTL     = 30 * 24 * time.Hour
	MaxSharedPorts  = 64 // of a sandbox, that are or were shared in another way than at first
)

// CheckPort reports an error of kind Invalid unless n is a port.
func CheckPort(n int) error {
	if n < 1 || n > 65535 {
		return &Error{Op: "check port", Kind: Invalid, Err: fmt.Errorf("%d is not a port", n), Hint: "a port is a number from 1 to 65535"}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *ShareRequest) Check() error {
	const op = "check share"
	if most := int64(MaxShareTTL / time.Second); r.TTLSeconds < 0 || r.TTLSeconds > most {
		return Errorf(op, Invalid, "ttl_seconds is %d, 1 to %d are taken", r.TTLSeconds, most)
	}
	if r.Public != nil && *r.Public && r.Once {
		return &Error{Op: op, Kind: Invalid, Err: errors.New("what is public needs no token"), Hint: "leave out once, or public"}
	}
	if r.HostHeader != nil && *r.HostHeader != "" {
		return checkHostHeader(*r.HostHeader)
	}
	return nil
}

func checkHostHeader(s string) error {
	bad := &Error{Op: "check share", Kind: Invalid, Err: fmt.Errorf("%.80q is not a host", s), Hint: "a host looks like localhost:3000"}
	host := s
	if h, p, err := net.SplitHostPort(s); err == nil {
		if _, err := net.LookupPort("tcp", p); err != nil {
			return bad
		}
		host = h
	}
	if host == "" || len(host) > 253 {
		return bad
	}
	for i := range len(host) {
		c := host[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return bad
		}
	}
	return nil
}

// Admission is what a request from outside needs to reach a port.
type Admission struct {
	Sandbox    ID
	Port       int
	HostHeader string // "" means the one that was asked for
	By         int    // which of the passes opened it; -1: none was needed
	Cookie     string // a pass for the browser that By serves, if it is to get one
	Expires    time.Time
}

// Pass is a token that a request shows.
type Pass struct {
	Text     string
	Cookie   bool // it came in a cookie
	Exchange bool // a browser shows it, and can be given a cookie in its place
}
