package engine

import (
	"context"
	"io"
	"net"

	"github.com/berth-dev/berth/sandbox"
)

type guest interface {
	Close() error
	Start(context.Context, sandbox.Command) (sandbox.Events, error)
	Attach(ctx context.Context, process string, from sandbox.Offsets) (sandbox.Events, error)
	Input(ctx context.Context, process string, data []byte) error
	CloseInput(ctx context.Context, process string) error
	Signal(ctx context.Context, process, signal string) error
	Wait(ctx context.Context, process string) (sandbox.Exit, error)
	Processes(ctx context.Context) ([]sandbox.Process, error)
	Stat(ctx context.Context, path string, follow bool) (sandbox.FileInfo, error)
	ListDir(ctx context.Context, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error)
	MakeDir(ctx context.Context, path string, mode uint32, user string, parents bool) (sandbox.FileInfo, error)
	Move(ctx context.Context, from, to string, replace bool) error
	Remove(ctx context.Context, path string, recursive bool) error
	ReadFile(ctx context.Context, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error)
	WriteFile(ctx context.Context, path string, o sandbox.WriteOptions, r io.Reader) (sandbox.FileInfo, error)
}

var newGuest func(func(context.Context) (net.Conn, error)) guest
