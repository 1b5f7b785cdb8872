package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) backupCommand() *cobra.Command {
	var excludes []string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "backup ID PATH",
		Short: "Keep what a folder of a sandbox holds, and print the backup's id",
		Long: "Keep what a folder of a sandbox holds, a cheaper thing than a snapshot: files alone,\n" +
			"and what is the same as in another backup is stored once. Files that change\n" +
			"meanwhile are kept as they are found.",
		Example:           "  berth backup box /workspace --exclude node_modules --exclude '*.log' --ttl 168h",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			seconds, err := wholeSeconds("ttl", ttl)
			if err != nil {
				return err
			}
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			b, err := c.Backup(cmd.Context(), id, sandbox.BackupRequest{Path: args[1], Excludes: excludes, TTLSeconds: seconds})
			if err != nil {
				return err
			}
			return p.printID(b, b.ID)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&excludes, "exclude", nil, "leave out what matches this pattern, with all beneath it; may be repeated")
	flags.DurationVar(&ttl, "ttl", 0, "removed after so long, such as 72h (default never)")
	cmd.AddCommand(p.backupLsCommand(), p.backupRmCommand(), p.backupRestoreCommand())
	return cmd
}

func (p *program) backupLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "ls [ID]",
		Aliases:           []string{"list"},
		Short:             "List backups, newest first; of one sandbox, if it is given",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			of, err := sandboxOf(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			all, err := c.Backups(cmd.Context(), of)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "ID", "SANDBOX", "NAME", "PATH", "SIZE", "STORED", "AGE", "EXPIRES", "WITHOUT")
			for _, b := range all {
				t.row(string(b.ID), string(b.Sandbox), b.Name, b.Path, size(b.Bytes), size(b.Stored),
					age(time.Since(b.Created)), until(b.Expires, "never"), strings.Join(b.Excludes, " "))
			}
			return t.flush()
		},
	}
}

func (p *program) backupRmCommand() *cobra.Command {
	return p.removeCommand("BACKUP", "Remove backups; what they share with others stays", (*client.Client).RemoveBackup)
}

func (p *program) backupRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore ID BACKUP [PATH]",
		Short: "Put what a backup holds into a folder of a sandbox",
		Long: "Put what a backup holds into a folder of a sandbox: the one that it was of, unless a\n" +
			"path is given. Files of the same names are replaced, others stay. All of the backup\n" +
			"is checked before the first file is written.",
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			req := sandbox.RestoreBackupRequest{Backup: args[1]}
			if len(args) == 3 {
				req.Path = args[2]
			}
			u, err := c.RestoreBackup(cmd.Context(), id, req)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, u)
			}
			fmt.Fprintf(p.err, "%d files, %s\n", u.Files, size(u.Bytes))
			return nil
		},
	}
}
