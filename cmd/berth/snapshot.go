package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) snapshotCommand() *cobra.Command {
	var name string
	var disk bool
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "snapshot ID",
		Short: "Keep a sandbox as it is now, and print the snapshot's id",
		Long: "Keep a sandbox as it is at this moment: memory, processes, terminals and files, or\n" +
			"with --disk written files alone. It runs on with everything attached to it. A\n" +
			"paused or stopped one is copied as it lies, without waking.\n\n" +
			"berth create --snapshot makes sandboxes that go on from there, berth restore takes\n" +
			"the sandbox itself back.",
		Example:           "  berth snapshot box --name before-upgrade --ttl 72h",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			seconds, err := wholeSeconds("ttl", ttl)
			if err != nil {
				return err
			}
			req := sandbox.SnapshotRequest{Name: name, TTLSeconds: seconds}
			if disk {
				req.Keep = sandbox.KeepDisk
			}
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			s, err := c.Snapshot(cmd.Context(), id, req)
			if err != nil {
				return err
			}
			return p.printID(s, s.ID)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "name of the snapshot, one of the account's")
	flags.BoolVar(&disk, "disk", false, "written files alone, as after a clean end of power")
	flags.DurationVar(&ttl, "ttl", 0, "removed after so long, such as 72h (default never)")
	cmd.AddCommand(p.snapshotLsCommand(), p.snapshotTreeCommand(), p.snapshotRmCommand(), p.snapshotExportCommand(), p.snapshotImportCommand())
	return cmd
}

// wholeSeconds reads a length of time that a flag has.
func wholeSeconds(flag string, d time.Duration) (int64, error) {
	if d < 0 || d > 0 && d < time.Second {
		return 0, usage("leave --"+flag+" out, or give it at least 1s", "--%s is %v", flag, d)
	}
	return int64(d / time.Second), nil
}

// printID prints the id of what was made, or with --json the whole of it.
func (p *program) printID(whole any, id sandbox.ID) error {
	if p.json {
		return writeJSON(p.out, whole)
	}
	_, err := fmt.Fprintln(p.out, id)
	return err
}

func (p *program) snapshotLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "ls [ID]",
		Aliases:           []string{"list"},
		Short:             "List snapshots, newest first; of one sandbox, if it is given",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := p.snapshots(cmd.Context(), args)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "ID", "NAME", "SANDBOX", "KEEP", "SIZE", "STORED", "AGE", "EXPIRES", "PARENT")
			for _, s := range all {
				t.row(string(s.ID), s.Name, string(s.Sandbox), string(s.Keep), size(s.Bytes), size(s.Stored),
					age(time.Since(s.Created)), until(s.Expires, "never"), string(s.Parent))
			}
			return t.flush()
		},
	}
}

// snapshots asks for all, or for those of the one sandbox on the line.
func (p *program) snapshots(ctx context.Context, args []string) ([]sandbox.Snapshot, error) {
	c, err := p.connect()
	if err != nil {
		return nil, err
	}
	of, err := sandboxOf(ctx, c, args)
	if err != nil {
		return nil, err
	}
	return c.Snapshots(ctx, sandbox.SnapshotQuery{Sandbox: of})
}

// sandboxOf is the id of the sandbox on the line, which may be gone if it is given
// by its id; "" if there is none.
func sandboxOf(ctx context.Context, c *client.Client, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if err := checkID(args[0]); err != nil {
		return "", err
	}
	if _, err := sandbox.ParseID(args[0]); err == nil {
		return args[0], nil
	}
	s, err := c.Get(ctx, args[0])
	return string(s.ID), err
}

func (p *program) snapshotRmCommand() *cobra.Command {
	return p.removeCommand("SNAPSHOT", "Remove snapshots; what they share with others stays", (*client.Client).RemoveSnapshot)
}

// removeCommand removes each of what is named on the line, whatever becomes of the
// others.
func (p *program) removeCommand(what, short string, remove func(*client.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     "rm " + what + "...",
		Aliases: []string{"remove"},
		Short:   short,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			var failures []error
			for _, id := range ids {
				failures = append(failures, remove(c, cmd.Context(), id))
			}
			return errors.Join(failures...)
		},
	}
}

func (p *program) snapshotExportCommand() *cobra.Command {
	var req sandbox.ExportRequest
	cmd := &cobra.Command{
		Use:   "export SNAPSHOT [FILE]",
		Short: "Write a snapshot into one file, or to standard output",
		Long: "Write a snapshot into one file, which berth snapshot import reads on this or another\n" +
			"server, with the root image that it stands on. It holds all that was in the sandbox's\n" +
			"memory: keep it as secret as that.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			if len(args) == 1 || args[1] == "-" {
				if isTerminal(p.out) {
					return usage("give a file, or a pipe", "a snapshot is not for a terminal")
				}
				return c.ExportSnapshot(cmd.Context(), args[0], req, p.out)
			}
			return writeFileWhole(args[1], func(w io.Writer) error { return c.ExportSnapshot(cmd.Context(), args[0], req, w) })
		},
	}
	cmd.Flags().BoolVar(&req.WithoutRoot, "without-root", false, "leave out the root image, which the other server must have then")
	return cmd
}

// writeFileWhole makes a file of what write gives, or none.
func writeFileWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return sandbox.Errorf("write file", sandbox.Invalid, "%w", err)
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (p *program) snapshotImportCommand() *cobra.Command {
	var name string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Keep an exported snapshot, and print its id; with the operator's key",
		Long: "Keep what berth snapshot export wrote, from a file or from standard input. A file\n" +
			"that was written without its root image needs one that is here. Take files from servers\n" +
			"that you trust alone: what is in them runs beneath a sandbox's walls, not behind them.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			seconds, err := wholeSeconds("ttl", ttl)
			if err != nil {
				return err
			}
			from := p.in
			if len(args) == 1 && args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return sandbox.Errorf("read file", sandbox.Invalid, "%w", err)
				}
				defer f.Close()
				from = f
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			s, err := c.ImportSnapshot(cmd.Context(), from, sandbox.ImportRequest{Name: name, TTLSeconds: seconds})
			if err != nil {
				return err
			}
			return p.printID(s, s.ID)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the snapshot here")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "removed after so long, such as 72h (default never)")
	return cmd
}

func (p *program) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore ID SNAPSHOT",
		Short: "Take a sandbox back to a snapshot",
		Long: "Take a sandbox back to a snapshot, of itself or of another. Its id and its name stay;\n" +
			"all that it was since is gone. The snapshot is fetched and checked before anything\n" +
			"is touched.",
		Example:           "  berth restore box before-upgrade",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			s, err := c.Rollback(cmd.Context(), id, sandbox.RollbackRequest{Snapshot: args[1]})
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, s)
			}
			fmt.Fprintf(p.err, "%s is %s\n", s.ID, s.State)
			return nil
		},
	}
}
