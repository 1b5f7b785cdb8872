package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/dialect/cloudflare/docker"
	"github.com/berth-dev/berth/sandbox"
)

// commandLine is the command line of a call. By one of these names the program is
// taken for the docker that tools call.
func commandLine(args []string) []string {
	switch filepath.Base(args[0]) {
	case "docker", "berth-docker":
		return append([]string{"docker"}, args[1:]...)
	}
	return args[1:]
}

// dockerCommand speaks as much of docker's command line as tools need that build
// images and have workerd start containers from them.
func (p *program) dockerCommand() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:   "docker",
		Short: "Build templates as tools build container images",
		Long: "Speak the part of docker's command line that tools call before workerd starts\n" +
			"containers. An image is a template; a link to this program with the name docker\n" +
			"or berth-docker does the same:\n\n" +
			"  ln -s \"$(command -v berth)\" /usr/local/bin/berth-docker\n" +
			"  WRANGLER_DOCKER_BIN=berth-docker WRANGLER_DOCKER_HOST=unix:///run/berth/docker.sock npx wrangler dev",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&host, "host", "H", os.Getenv("DOCKER_HOST"), "the socket of \"berth serve --docker-socket\", unix:///PATH (DOCKER_HOST)")
	image := &cobra.Command{Use: "image", Short: "Look at and remove images", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	image.AddCommand(p.dockerInspectCommand(), p.dockerImageRmCommand())
	cmd.AddCommand(p.dockerInfoCommand(&host), p.dockerBuildCommand(), p.dockerPullCommand(), image)
	return cmd
}

func (p *program) dockerInfoCommand(host *string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Say whether the server is there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := pingSocket(cmd.Context(), *host); err != nil {
				return err
			}
			return p.formatted(format, map[string]any{
				"Name": "berth", "ServerVersion": s.Version, "OSType": "linux", "Architecture": "x86_64", "SecurityOptions": []string{}, "Driver": "berth",
			})
		},
	}
	cmd.Flags().StringVarP(&format, "format", "f", "", "a template of what to print")
	return cmd
}

// pingSocket asks whether the server answers on its socket, if one is named.
func pingSocket(ctx context.Context, host string) error {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/_ping", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("it answers %d", resp.StatusCode)
		}
	}
	if err != nil {
		return &sandbox.Error{Op: "ask " + path, Kind: sandbox.Unavailable, Err: err, Hint: "start the server with --docker-socket " + path}
	}
	return nil
}

// formatted prints an object, or what a template of it says.
func (p *program) formatted(format string, v any) error {
	if format == "" || format == "json" {
		return writeJSON(p.out, v)
	}
	t, err := template.New("format").Funcs(template.FuncMap{"json": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	}}).Parse(format)
	if err != nil {
		return usage("a template such as '{{json .}}'", "--format: %v", err)
	}
	if err := t.Execute(p.out, v); err != nil {
		return usage("a template such as '{{json .}}'", "--format: %v", err)
	}
	_, err = fmt.Fprintln(p.out)
	return err
}

func (p *program) dockerBuildCommand() *cobra.Command {
	var tags, args []string
	var file, target, platform string
	cmd := &cobra.Command{
		Use:   "build CONTEXT",
		Short: "Build a template from a Dockerfile",
		Long: "Build a template that stands for the image of that tag. ENTRYPOINT and CMD are kept\n" +
			"with it, and run when a container of it is started.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, a []string) error {
			if platform != "" && platform != "linux/amd64" {
				return usage("leave --platform out, or take linux/amd64", "sandboxes run on linux/amd64, not on %.40q", platform)
			}
			if len(tags) == 0 {
				return usage("give -t NAME", "the image needs a name")
			}
			given := map[string]string{}
			for _, one := range args {
				name, value, ok := strings.Cut(one, "=")
				if !ok {
					value = os.Getenv(name)
				}
				given[name] = value
			}
			return p.dockerBuild(cmd.Context(), tags, file, a[0], sandbox.BuildRequest{Target: target, Args: given, Hold: true})
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&tags, "tag", "t", nil, "name of the image; may be given again")
	f.StringVarP(&file, "file", "f", "", "Dockerfile, - for standard input; left out, the one of CONTEXT")
	f.StringVar(&target, "target", "", "stage of the Dockerfile; left out, the last")
	f.StringArrayVar(&args, "build-arg", nil, "NAME=VALUE of an ARG, or NAME for one of the environment; may be given again")
	f.StringVar(&platform, "platform", "", "linux/amd64, the only one there is")
	ignored(cmd, "load", "provenance", "sbom", "progress", "network", "cache-from", "cache-to")
	f.Lookup("load").NoOptDefVal = "true"
	return cmd
}

// ignored takes flags that change nothing here.
func ignored(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		cmd.Flags().String(n, "", "taken, and of no effect")
	}
}

func (p *program) dockerBuild(ctx context.Context, tags []string, file, folder string, req sandbox.BuildRequest) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	files := buildFiles{file: file, context: folder}
	if file == "-" {
		text, err := io.ReadAll(io.LimitReader(p.in, maxDockerfile+1))
		if err == nil && len(text) > maxDockerfile {
			err = errors.New("it is too large")
		}
		if err != nil {
			return &sandbox.Error{Op: "read Dockerfile", Kind: sandbox.Invalid, Err: err}
		}
		req.Dockerfile = string(text)
		if req.Context, err = files.send(ctx, c); err != nil {
			return err
		}
	} else if err := files.into(ctx, c, &req, false); err != nil {
		return err
	}
	req.Images = docker.Images(req.Dockerfile, req.Args)
	req.Dockerfile = docker.Standalone(req.Dockerfile)
	if req.Limits, err = docker.Size(req.Dockerfile); err != nil {
		return err
	}
	if err := p.haveOwnImage(ctx, c, req.Images); err != nil {
		return err
	}
	for _, tag := range tags { // the second and later ones find all that is made
		if req.Name, err = docker.TemplateName(tag); err != nil {
			return err
		}
		if docker.IsOwn(req.Name) {
			return usage("take another tag", "%s stands for an image that is not made here", tag)
		}
		made, err := p.build(ctx, c, req)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.err, "%s is the template %s\n", printable(tag), made.Name)
	}
	return nil
}

// haveOwnImage makes the template of the image that others begin with, if one of
// them does and it is not there.
func (p *program) haveOwnImage(ctx context.Context, c *client.Client, images map[string]string) error {
	for _, name := range images {
		if !docker.IsOwn(name) {
			continue
		}
		_, err := c.Template(ctx, name)
		if sandbox.KindOf(err) == sandbox.NotFound {
			err = p.buildOwnImage(ctx, c, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *program) buildOwnImage(ctx context.Context, c *client.Client, name string) error {
	req, err := docker.OwnImage(ctx, name, c.Template)
	if err == nil {
		_, err = p.build(ctx, c, req)
	}
	return err
}

func (p *program) dockerPullCommand() *cobra.Command {
	var platform string
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Make an image ready, if it is not",
		Long: "Make the template of an image. The one of sandboxes is made of the server's own\n" +
			"template, and what looks after the network of containers needs none; any other is\n" +
			"fetched from its registry unless it is there.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if docker.IsSidecar(args[0]) {
				return nil
			}
			name, err := docker.TemplateName(args[0])
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			_, err = c.Template(cmd.Context(), name)
			if sandbox.KindOf(err) != sandbox.NotFound {
				return err
			}
			if docker.IsOwn(name) {
				return p.buildOwnImage(cmd.Context(), c, name)
			}
			_, err = p.build(cmd.Context(), c, sandbox.BuildRequest{Name: name, From: "oci:" + args[0]})
			return err
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "taken, and of no effect")
	cmd.Flags().BoolP("quiet", "q", false, "taken, and of no effect")
	return cmd
}

func (p *program) dockerInspectCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "Describe an image",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := docker.TemplateName(args[0])
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			t, err := c.Template(cmd.Context(), name)
			if err != nil {
				return err
			}
			described := docker.Describe(args[0], t)
			if format == "" {
				return writeJSON(p.out, []any{described})
			}
			return p.formatted(format, described)
		},
	}
	cmd.Flags().StringVarP(&format, "format", "f", "", "a template of what to print")
	return cmd
}

func (p *program) dockerImageRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE",
		Short: "Remove the template of an image",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := docker.TemplateName(args[0])
			if err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			return c.RemoveTemplate(cmd.Context(), name)
		},
	}
}
