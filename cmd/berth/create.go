package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

type createFlags struct {
	template, class   string
	snapshot          string
	cpu, memory, disk string
	env, metadata     []string
	volumes           []string
	policy, profile   string
	fuse              int64
	policyFlags
}

func (p *program) createCommand() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a sandbox and print its id",
		Long: "Create a sandbox and print its id alone on standard output. With a name, the\n" +
			"sandbox that has it already is taken as it is.\n\n" +
			"The template base is built first when the server does not have it yet.",
		Example: "  ID=$(berth create --memory 1GiB --metadata team=search)",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.create(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.template, "template", "t", sandbox.DefaultTemplate, "template to start from")
	flags.StringVar(&f.snapshot, "snapshot", "", "snapshot to go on from, with its template, class and limits")
	flags.StringVar(&f.class, "class", "", "isolation class (default the server's)")
	flags.StringVar(&f.cpu, "cpu", "", "cores, such as 0.5 or 2 (default 1)")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory, such as 512MiB (default 2GiB)")
	flags.StringVar(&f.disk, "disk", "", "what it may write, such as 20GiB (default 8GiB)")
	flags.Int64Var(&f.fuse, "fuse-mounts", 0, "FUSE file systems that programs in it may have mounted at once, at most 16")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE of every process")
	flags.StringArrayVar(&f.metadata, "metadata", nil, "KEY=VALUE kept with the sandbox, for ls")
	flags.StringArrayVar(&f.volumes, "volume", nil, "NAME:PATH of a volume to mount, NAME:PATH:ro to read alone; may be given again")
	flags.StringVar(&f.profile, "profile", "", "what it may reach: open, allow-list or none (default the template's, or open)")
	flags.StringVar(&f.policy, "policy", "", "document of what it may reach; - is standard input")
	f.policyFlags.register(cmd)
	cmd.RegisterFlagCompletionFunc("template", p.completeTemplates)
	return cmd
}

func (p *program) create(ctx context.Context, f *createFlags) error {
	request, err := f.request()
	if err != nil {
		return err
	}
	if request.Policy, err = p.egressPolicy(f.policy, f.profile); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	made, err := c.Create(ctx, request)
	if sandbox.KindOf(err) == sandbox.NotFound && request.Template == sandbox.DefaultTemplate {
		made, err = p.buildAndCreate(ctx, c, request, err)
	}
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, made)
	}
	_, err = fmt.Fprintln(p.out, made.ID)
	return err
}

// buildAndCreate makes the default template on its first use, then the sandbox.
// When the template is there after all, cause says what was not found.
func (p *program) buildAndCreate(ctx context.Context, c *client.Client, request sandbox.CreateRequest, cause error) (sandbox.Sandbox, error) {
	_, err := c.Template(ctx, sandbox.DefaultTemplate)
	if err == nil {
		return sandbox.Sandbox{}, cause
	}
	if sandbox.KindOf(err) != sandbox.NotFound {
		return sandbox.Sandbox{}, err
	}
	fmt.Fprintf(p.err, "template %s is not there yet: building it, once\n", sandbox.DefaultTemplate)
	build := sandbox.BuildRequest{Name: sandbox.DefaultTemplate, From: defaultSource}
	if _, err := p.build(ctx, c, build); err != nil {
		return sandbox.Sandbox{}, err
	}
	return c.Create(ctx, request)
}

func (f *createFlags) request() (sandbox.CreateRequest, error) {
	r := sandbox.CreateRequest{Template: f.template, Class: f.class, Snapshot: f.snapshot}
	if r.Snapshot != "" && r.Template == sandbox.DefaultTemplate {
		r.Template = "" // the snapshot has it
	}
	var err error
	if r.Limits.CPUMilli, err = parseCPU(f.cpu); err != nil {
		return r, err
	}
	if r.Limits.MemoryBytes, err = parseSize(f.memory); err != nil {
		return r, err
	}
	if r.Limits.DiskBytes, err = parseSize(f.disk); err != nil {
		return r, err
	}
	r.Limits.FuseMounts = f.fuse
	if r.Env, err = parseEnv(f.env); err != nil {
		return r, err
	}
	if r.Metadata, err = parsePairs("metadata", f.metadata); err != nil {
		return r, err
	}
	if r.Volumes, err = parseVolumes(f.volumes); err != nil {
		return r, err
	}
	return r, f.policyFlags.fill(&r)
}
