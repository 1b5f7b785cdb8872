// Command berth-guest is PID 1 of a sandbox: it prepares the system, reaps
// orphans and serves the guest contract to the host.
//
// It reads a guestapi.Boot document from its standard input. A boot that cannot
// succeed ends it with one line on standard error and exit code 70.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/berth-dev/berth/guest"
	"github.com/berth-dev/berth/guest/fusemount"
	"github.com/berth-dev/berth/guestapi"
)

// version is of this build; the linker sets it.
var version = "dev"

// exitBoot is the code of a boot that failed (EX_SOFTWARE).
const exitBoot = 70

func main() {
	if fusemount.IsProgram(os.Args[0]) { // links to this program have such names
		os.Exit(fusemount.Program(os.Args, os.Getenv, os.Stdout, os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Printf("berth-guest %s protocol %d\n", version, guestapi.Protocol)
		return
	}
	if err := run(context.Background(), os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "berth-guest:", err)
		os.Exit(exitBoot)
	}
}

// run serves until its life is over, or its listener fails; as PID 1 that is never.
func run(ctx context.Context, in *os.File) error {
	// Memory goes back to the host early: most of a guest's life is idle.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(128 << 20)
	// Its work is passing things on. To wake a second thread for that costs more, in
	// a sandbox, than the second core gains.
	runtime.GOMAXPROCS(1)
	keepDescriptors()
	holdSignals()
	syscall.Umask(0o022)

	boot, err := readBoot(in)
	if err != nil {
		return err
	}
	if err := releaseInput(in); err != nil {
		return err
	}
	if err := prepare(boot); err != nil {
		return err
	}
	if err := confine(boot.Drop); err != nil {
		return err
	}
	l, err := net.Listen("tcp", boot.Listen)
	if err != nil {
		return err
	}
	if boot.LifeSeconds > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, time.Duration(boot.LifeSeconds)*time.Second)
		defer end()
	}
	// What comes in from now on waits for Serve.
	fmt.Println(guestapi.Ready, boot.SandboxID)
	c := guest.Config{SandboxID: boot.SandboxID, Version: version, Peer: boot.Peer, Init: os.Getpid() == 1, Rename: rename, FuseMounts: int(boot.FuseMounts)}
	copy(c.Secret[:], boot.Secret)
	return guest.New(c).Serve(ctx, l)
}

// readBoot reads the document to the end of the file, within its bound.
func readBoot(r io.Reader) (guestapi.Boot, error) {
	var b guestapi.Boot
	data, err := io.ReadAll(io.LimitReader(r, guestapi.MaxBoot+1))
	if err != nil {
		return b, fmt.Errorf("read boot document: %w", err)
	}
	if len(data) > guestapi.MaxBoot {
		return b, fmt.Errorf("read boot document: more than %d bytes", guestapi.MaxBoot)
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("read boot document: %w", err)
	}
	switch {
	case len(b.Secret) != guestapi.SecretLen:
		err = fmt.Errorf("the secret has %d bytes, not %d", len(b.Secret), guestapi.SecretLen)
	case net.ParseIP(b.Peer) == nil:
		err = fmt.Errorf("peer %q is not an address", b.Peer)
	case b.Listen == "":
		err = errors.New("no address to listen on")
	case b.FuseMounts < 0 || b.FuseMounts > guestapi.MaxFuseMounts:
		err = fmt.Errorf("%d FUSE mounts", b.FuseMounts)
	case b.LifeSeconds < 0 || b.LifeSeconds > guestapi.MaxLifeSeconds:
		err = fmt.Errorf("a life of %d seconds", b.LifeSeconds)
	}
	if err != nil {
		return b, fmt.Errorf("read boot document: %w", err)
	}
	return b, nil
}

// releaseInput lets go of the pipe that the boot document came through.
func releaseInput(in *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return os.NewSyscallError("dup3", syscall.Dup3(int(null.Fd()), int(in.Fd()), 0))
}

// holdSignals keeps every signal that a process inside may send from ending the
// guest. They are received and dropped, not ignored: what is ignored would stay
// ignored in every program that the guest starts. SIGCHLD is the reaper's and
// SIGURG the runtime's.
func holdSignals() {
	drop := make(chan os.Signal, 1) // never read: what does not fit is dropped
	for n := syscall.Signal(1); n < 65; n++ {
		switch n {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGKILL, syscall.SIGSTOP, 32, 33, 34:
		default:
			signal.Notify(drop, n)
		}
	}
}
