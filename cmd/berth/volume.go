package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Keep folders that outlive sandboxes",
		Long: "Keep folders that outlive sandboxes and that several may share at the same time.\n" +
			"create --volume NAME:PATH mounts one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.volumeCreateCommand(), p.volumeLsCommand(), p.volumeRmCommand())
	return cmd
}

func (p *program) volumeCreateCommand() *cobra.Command {
	var room string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a volume and print its id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bytes, err := parseSize(room)
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			v, err := c.CreateVolume(cmd.Context(), sandbox.VolumeRequest{Name: args[0], SizeBytes: bytes})
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, v)
			}
			_, err = fmt.Fprintln(p.out, v.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&room, "size", "", "what fits, such as 500MiB (default 10GiB)")
	return cmd
}

func (p *program) volumeLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List volumes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.Volumes(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				if all == nil {
					all = []sandbox.Volume{}
				}
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "ID", "NAME", "SIZE", "AGE")
			for _, v := range all {
				t.row(string(v.ID), v.Name, size(v.SizeBytes), age(time.Since(v.Created)))
			}
			return t.flush()
		},
	}
}

func (p *program) volumeRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm VOLUME...",
		Aliases: []string{"remove"},
		Short:   "Remove volumes with all that they hold",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			for _, v := range args {
				if err := c.RemoveVolume(cmd.Context(), v); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// parseVolumes reads NAME:PATH, or NAME:PATH:ro.
func parseVolumes(given []string) (all []sandbox.VolumeMount, err error) {
	for _, text := range given {
		name, path, ok := strings.Cut(text, ":")
		path, readOnly := strings.CutSuffix(path, ":ro")
		if !ok {
			return nil, &sandbox.Error{Op: "parse volume", Kind: sandbox.Invalid, Err: fmt.Errorf("%q is not NAME:PATH", text), Hint: "such as data:/workspace/data, or data:/data:ro to read alone"}
		}
		all = append(all, sandbox.VolumeMount{Volume: name, Path: path, ReadOnly: readOnly})
	}
	return all, nil
}
