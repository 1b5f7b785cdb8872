package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// defaultSource is what the template base is built from.
const defaultSource = "distribution:bookworm"

// codeSource is what the template of interpreters for code is built from.
const codeSource = "distribution:bookworm+code"

// bucketSource is what the template that can mount buckets is built from.
const bucketSource = "distribution:bookworm+s3fs"

// mcpSource is what the template with the gateway of MCP servers is built from.
const mcpSource = "distribution:bookworm+mcp"

// usualSource is what a template of a name is built from when nobody says it.
func usualSource(ctx context.Context, c *client.Client, name, otherwise string) (string, error) {
	switch name {
	case sandbox.CodeTemplate:
		return codeSource, nil
	case sandbox.MCPTemplate:
		return mcpSource, nil
	case sandbox.BucketTemplate: // with what there is for code, so that one image has both
		_, err := c.Template(ctx, sandbox.CodeTemplate)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return bucketSource, nil
		}
		return codeSource + strings.TrimPrefix(bucketSource, defaultSource), err
	}
	return otherwise, nil
}

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
	var files buildFiles
	var login loginFlags
	var policy string
	cmd := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Build a template from packages, an image or an archive",
		Long: "Build a template (default " + sandbox.DefaultTemplate + ") and print its digest.\n\n" +
			"Sources, read by the server:\n" +
			"  distribution:bookworm    the distribution's packages, with what agents need\n" +
			"  distribution:bookworm+code  the same with interpreters for code; what " + sandbox.CodeTemplate + " is built from\n" +
			"  distribution:bookworm+s3fs  with the program that mounts buckets, and +code+s3fs with both; what " + sandbox.BucketTemplate + " is built from\n" +
			"  distribution:bookworm+mcp  with a gateway of MCP servers; what " + sandbox.MCPTemplate + " is built from\n" +
			"  oci:REFERENCE            an image of a registry\n" +
			"  oci-archive:PATH         an OCI archive or layout\n" +
			"  docker-archive:PATH      what \"docker save\" wrote\n" +
			"  template:NAME            another template\n\n" +
			"With --file, or --context and a Dockerfile in it, the Dockerfile says what to do:\n" +
			"its steps run in sandboxes. FROM names a template, or an image of a registry.",
		Example: "  berth template build\n  berth template build py --from oci:python:3.13-slim\n" +
			"  berth template build app --context . --start 'npm run dev' --ready 'curl -sf localhost:3000'",
		Args: cobra.MaximumNArgs(1),
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
			if !cmd.Flags().Changed("from") {
				if request.From, err = usualSource(cmd.Context(), c, request.Name, request.From); err != nil {
					return err
				}
			}
			if request.Policy, err = p.egressPolicy(policy, ""); err != nil {
				return err
			}
			if err := login.into(p.in, &request); err != nil {
				return err
			}
			if err := files.into(cmd.Context(), c, &request, cmd.Flags().Changed("from")); err != nil {
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
	cmd.Flags().StringVar(&login.user, "login", "", "name for the registry of a private image; the password is read from standard input")
	cmd.Flags().StringVar(&login.registry, "login-registry", "", "HOST that may see it; left out, that of --from")
	cmd.Flags().StringVar(&policy, "policy", "", "document of what its sandboxes may reach unless they say so themselves")
	cmd.Flags().StringVarP(&files.file, "file", "f", "", "Dockerfile; left out, the one of --context")
	cmd.Flags().StringVar(&files.context, "context", "", "folder that COPY takes from")
	cmd.Flags().StringVar(&request.Target, "target", "", "stage of the Dockerfile; left out, the last")
	cmd.Flags().StringToStringVar(&request.Args, "build-arg", nil, "NAME=VALUE of an ARG; may be given again")
	cmd.Flags().StringVar(&request.Start, "start", "", "a line for bash that runs in every sandbox of the template")
	cmd.Flags().StringVar(&request.Ready, "ready", "", "a line for bash that ends with 0 once what --start began is ready")
	cmd.Flags().Int64Var(&request.ReadySeconds, "ready-seconds", 0, "how long that may take; 0 means 60")
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
