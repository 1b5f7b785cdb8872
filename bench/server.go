package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// server is a berth that this program has started.
type server struct {
	*client.Client
	url     string
	key     string
	cmd     *exec.Cmd
	scratch string // removed at the end; "" keeps the data
	socket  string // of the containers' calls
	outside *outside
}

func startServer(ctx context.Context, berth, data string, warm int) (*server, error) {
	s := &server{}
	if data == "" {
		var err error
		if s.scratch, err = os.MkdirTemp("", "berth-bench-"); err != nil {
			return nil, err
		}
		data = s.scratch
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().String()
	ln.Close()
	if s.outside, err = openOutside(); err != nil {
		return nil, err
	}
	s.socket = filepath.Join(data, "docker.sock")
	s.cmd = exec.Command(berth, append([]string{"serve", "--data", data, "--listen", addr, "--docker-socket", s.socket}, s.outside.flags...)...)
	if warm >= 0 {
		s.cmd.Args = append(s.cmd.Args, "--warm", strconv.Itoa(warm))
	}
	s.cmd.Stderr = os.Stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		s.outside.close()
		return nil, err
	}
	go io.Copy(io.Discard, bufio.NewReader(stdout)) // ends with the server
	if err := s.connect(ctx, "http://"+addr, filepath.Join(data, "admin.key")); err != nil {
		s.stop()
		return nil, err
	}
	if _, err := s.Template(ctx, sandbox.DefaultTemplate); err == nil {
		return s, nil // of an earlier run
	}
	_, err = s.BuildTemplate(ctx, sandbox.BuildRequest{Name: sandbox.DefaultTemplate, From: "distribution:bookworm"}, func(p sandbox.Progress) {
		if p.Log == "" {
			fmt.Fprintf(os.Stderr, "template: %s\n", p.Step)
		}
	})
	if err != nil {
		s.stop()
	}
	return s, err
}

// connect waits until the server answers.
func (s *server) connect(ctx context.Context, url, keyFile string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if key, err := os.ReadFile(keyFile); err == nil {
			s.url, s.key = url, strings.TrimSpace(string(key))
			s.Client = client.New(s.url, s.key)
			if _, err := s.Status(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server did not answer: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.cmd.Wait()
	s.outside.close()
	if s.scratch != "" {
		os.RemoveAll(s.scratch)
	}
}

// run executes a command and returns its standard output.
func (s *server) run(ctx context.Context, id string, argv ...string) (string, error) {
	events, err := s.Exec(ctx, id, sandbox.Command{Argv: argv, Lossless: true})
	if err != nil {
		return "", err
	}
	defer events.Close()
	var out, bad bytes.Buffer
	for {
		e, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		case e.Exit != nil && e.Exit.Code != 0:
			return "", fmt.Errorf("%q: exit %d: %s", argv, e.Exit.Code, bad.String())
		case e.Exit != nil:
			return out.String(), nil
		case e.Stream == sandbox.Stderr:
			bad.Write(e.Data)
		default:
			out.Write(e.Data)
		}
	}
}

// with makes a sandbox for the time of f.
func (s *server) with(ctx context.Context, f func(id string) error) error {
	sb, err := s.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		return err
	}
	err = f(string(sb.ID))
	return errors.Join(err, s.Remove(context.WithoutCancel(ctx), string(sb.ID)))
}
