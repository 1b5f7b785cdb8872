package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// defaultSource is what the template base is built from.
const defaultSource = "distribution:bookworm"

func (p *program) templateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Build, list and remove templates",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.templateBuildCommand(), p.templateLsCommand(), p.templateRmCommand())
	return cmd
}

func (p *program) templateBuildCommand() *cobra.Command {
	request := sandbox.BuildRequest{Name: sandbox.DefaultTemplate}
	cmd := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Build a template from packages, an image or an archive",
		Long: "Build a template (default " + sandbox.DefaultTemplate + ") and print its digest.\n\n" +
			"Sources, read by the server:\n" +
			"  distribution:bookworm    the distribution's packages, with what agents need\n" +
			"  oci:REFERENCE            an image of a registry\n" +
			"  oci-archive:PATH         an OCI archive or layout\n" +
			"  docker-archive:PATH      what \"docker save\" wrote",
		Example: "  berth template build\n  berth template build py --from oci:python:3.13-slim",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				request.Name = args[0]
			}
			if err := sandbox.CheckName(request.Name); err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			made, err := p.build(cmd.Context(), c, request)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, made)
			}
			_, err = fmt.Fprintln(p.out, made.Digest)
			return err
		},
	}
	cmd.Flags().StringVar(&request.From, "from", defaultSource, "source to build from")
	cmd.Flags().BoolVar(&request.Force, "force", false, "build although nothing changed")
	return cmd
}

// build builds a template and shows how it goes on standard error.
func (p *program) build(ctx context.Context, c *client.Client, request sandbox.BuildRequest) (sandbox.Template, error) {
	start := time.Now()
	show := newProgress(p.err)
	made, err := c.BuildTemplate(ctx, request, show.report)
	show.end(err)
	if err != nil {
		return made, err
	}
	fmt.Fprintf(p.err, "template %s: %s from %s, %.1f s\n", made.Name, size(made.Size), printable(made.Source), time.Since(start).Seconds())
	return made, nil
}

func (p *program) templateLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List templates",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			templates, err := c.Templates(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				if templates == nil {
					templates = []sandbox.Template{}
				}
				return writeJSON(p.out, templates)
			}
			t := newTable(p.out, "NAME", "DIGEST", "SIZE", "AGE", "SOURCE")
			for _, v := range templates {
				t.row(v.Name, shortened(v.Digest, 20), size(v.Size), age(time.Since(v.Created)), v.Source)
			}
			return t.flush()
		},
	}
}

func (p *program) templateRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME",
		Aliases:           []string{"remove"},
		Short:             "Remove a template that no sandbox uses",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeTemplates,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			return c.RemoveTemplate(cmd.Context(), args[0])
		},
	}
}
