package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) watchCommand() *cobra.Command {
	var r sandbox.WatchRequest
	var flat bool
	cmd := &cobra.Command{
		Use:   "watch ID PATH",
		Short: "Print what changes in a sandbox's files",
		Long: "Print a line for each change at or beneath a path, until it is interrupted. A\n" +
			"stream that breaks is taken up again where it was. \"overflow\" says that changes\n" +
			"are missing: list what you need again.\n\n" +
			"Patterns have * ? [a-z] {a,b} and ** for directories; one without a slash is of a\n" +
			"name at any depth.",
		Example: "  berth watch $ID /workspace --exclude node_modules --exclude '*.pyc'\n" +
			"  berth watch --json $ID /workspace | jq -r .path",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			r.Path, r.Recursive = args[1], !flat
			return p.watch(cmd.Context(), c, id, r)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&flat, "flat", false, "not the directories beneath it")
	flags.StringArrayVar(&r.Include, "include", nil, "print only what matches this pattern; may be repeated")
	flags.StringArrayVar(&r.Exclude, "exclude", nil, "leave out what matches this pattern; may be repeated")
	flags.StringVar(&r.Cursor, "cursor", "", "go on behind this event, from --json")
	flags.DurationVar(&r.Window, "window", sandbox.DefaultWatchWindow, "changes of one path within it are one line")
	return cmd
}

// Bounds on taking up a watch again.
const (
	watchTries = 30
	watchPause = time.Second
)

// watch prints changes, and takes the stream up again when it breaks.
func (p *program) watch(ctx context.Context, c *client.Client, id string, r sandbox.WatchRequest) error {
	signalIgnoreBrokenPipe()
	for failed := 0; ; failed++ {
		seen, err := p.watchOnce(ctx, c, id, &r)
		if seen {
			failed = 0
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if sandbox.KindOf(err) != sandbox.Unavailable || r.Cursor == "" || failed >= watchTries {
			return err
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchOnce prints one stream's changes and remembers how far it came.
func (p *program) watchOnce(ctx context.Context, c *client.Client, id string, r *sandbox.WatchRequest) (seen bool, err error) {
	w, err := c.Watch(ctx, id, *r)
	if err != nil {
		return false, err
	}
	defer w.Close()
	for {
		e, err := w.Recv()
		if err != nil {
			return seen, err
		}
		again := e.Type == sandbox.WatchReady && r.Cursor != ""
		seen, r.Cursor = true, e.Cursor
		if again {
			continue
		}
		if err := p.printChange(e); errors.Is(err, unix.EPIPE) {
			return seen, &exitError{code: exitBrokenPipe}
		} else if err != nil {
			return seen, err
		}
	}
}

// printChange prints one event as an object, or as a line for people.
func (p *program) printChange(e sandbox.WatchEvent) error {
	if p.json {
		b, err := json.Marshal(e)
		if err == nil {
			_, err = p.out.Write(append(b, '\n'))
		}
		return err
	}
	line := fmt.Sprintf("%-8s %s", e.Type, e.Path)
	switch e.Type {
	case sandbox.WatchReady:
		_, err := fmt.Fprintln(p.err, "watching")
		return err
	case sandbox.WatchRename:
		line = fmt.Sprintf("%-8s %s -> %s", e.Type, e.From, e.Path)
	case sandbox.WatchOverflow:
		line = fmt.Sprintf("%-8s %s", e.Type, e.Reason)
	}
	_, err := fmt.Fprintln(p.out, strings.NewReplacer("\n", "?", "\t", "?").Replace(printable(line)))
	return err
}
