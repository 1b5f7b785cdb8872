// Package guestapi is the contract between the host and the guest: the
// protocol buffers in v1, and here what surrounds them.
//
// A connection to the guest begins with a preface of PrefaceLen bytes: the
// magic, then the machine's secret. The guest closes, without a byte, any
// connection that sends something else, sends it too slowly or comes from an
// address that is not the host's. After a right preface the guest sends nothing
// and speaks HTTP: HTTP/2 with prior knowledge for the Connect service, or
// HTTP/1.1 for file bodies:
//
//	GET  /files?path=P&offset=N&length=N   the bytes; Berth-File-Info holds a v1.FileInfo (JSON)
//	PUT  /files?path=P&mode=0644&user=U&parents=true   body in, a v1.FileInfo (JSON) out
//	PATCH /files?path=P&append=true or &at=N, and as PUT   the body is added, or written into the file
//	GET  /archive?path=P&gzip=true&exclude=G   a tar stream of what a folder holds; Berth-Excludes says how many patterns were heeded
//	PUT  /archive?path=P&user=U&keep_owner=true   a tar stream in, an Unpacked (JSON) out
//	GET  /tunnel?port=N               with Upgrade: TunnelProtocol; then the bytes of a connection to that port
//
// Errors of the file routes are a FileError, with the code a
// sandbox.Kind; those of the service are Connect errors, whose code maps to a
// kind one to one.
package guestapi

import (
	"crypto/subtle"
	"fmt"
	"io"
)

// Protocol is the number of the contract that this build speaks.
const Protocol = 1

// Port is where the guest listens inside a sandbox that is reached by TCP.
const Port = 1

// TunnelProtocol is what a connection is upgraded to that goes on to a port.
const TunnelProtocol = "berth-tunnel"

// SecretLen is the number of bytes of a machine's secret.
const SecretLen = 32

const magic = "berth/1\n"

// PrefaceLen is the number of bytes that open every connection.
const PrefaceLen = len(magic) + SecretLen

// FileInfoHeader carries the JSON of a v1.FileInfo on a file download.
const FileInfoHeader = "Berth-File-Info"

// ExcludesHeader says, on a tar stream, how many patterns of what to leave out
// were heeded.
const ExcludesHeader = "Berth-Excludes"

// CarryHeader asks, on a request of /files, whether the host may move the bytes
// itself. A guest that agrees names the descriptor under which it has the file
// open, and keeps it open until the request ends:
//
//   - on the answer to GET, with the offset and the length of what is to be read, as
//     in "7 0 1048576"; the answer's body has no bytes and ends when the host hangs up;
//   - on an interim answer (103) to PUT, as in "7"; the bytes of the body still count,
//     unless it ends with a CarriedTrailer.
const CarryHeader = "Berth-Carry"

// CarriedTrailer says, behind a PUT's empty body, how many bytes the host has moved
// into the file, and with which error number it refused more: "1048576 0".
const CarriedTrailer = "Berth-Carried"

// Secret opens connections to one machine's guest.
type Secret [SecretLen]byte

// String hides the secret from logs and errors.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return "guestapi.Secret{…}" }

// WritePreface opens a connection to the guest.
func WritePreface(w io.Writer, s Secret) error {
	b := make([]byte, 0, PrefaceLen)
	b = append(append(b, magic...), s[:]...)
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write preface: %w", err)
	}
	return nil
}

// ReadPreface reports whether r begins with the right preface. It takes equal
// time for every wrong one of full length, and reads no byte past it.
func ReadPreface(r io.Reader, s Secret) (bool, error) {
	got := make([]byte, PrefaceLen)
	if _, err := io.ReadFull(r, got); err != nil {
		return false, fmt.Errorf("read preface: %w", err)
	}
	want := append([]byte(magic), s[:]...)
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

// Boot is what the driver hands to the guest on its standard input when it
// starts: one JSON document, then the end of the file.
type Boot struct {
	SandboxID string `json:"sandbox_id"`
	Secret    []byte `json:"secret"`   // SecretLen bytes
	Listen    string `json:"listen"`   // "10.0.0.2:1"
	Peer      string `json:"peer"`     // the only address that may connect
	Hostname  string `json:"hostname"` // set by the driver already; written to /etc/hostname and /etc/hosts

	// Drop lists capabilities (numbers of capability.h) that the guest itself
	// keeps but nothing that it starts may have or gain.
	Drop []uint `json:"drop,omitempty"`

	Nameserver string `json:"nameserver"` // for /etc/resolv.conf; "" leaves it

	// FuseMounts is how many FUSE file systems programs may have mounted at once;
	// 0 is none.
	FuseMounts int64 `json:"fuse_mounts,omitempty"`

	// LifeSeconds is after how long the guest ends by itself, whoever watches; 0 is
	// never.
	LifeSeconds int64 `json:"life_seconds,omitempty"`
}

// Ready begins the one line that the guest writes to its standard output once
// it listens; the sandbox's id follows after a space.
const Ready = "ready"

// MaxLifeSeconds bounds Boot.LifeSeconds: a day.
const MaxLifeSeconds = 24 * 60 * 60

// MaxFuseMounts bounds Boot.FuseMounts.
const MaxFuseMounts = 16

// MaxBoot bounds the bytes of a Boot document.
const MaxBoot = 64 << 10
