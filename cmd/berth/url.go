package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

// sharing is what "berth url" asks for.
type sharing struct {
	public, private, once, revoke bool
	ttl                           time.Duration
	path, host                    string
	hostSet                       bool
}

func (p *program) urlCommand() *cobra.Command {
	var s sharing
	cmd := &cobra.Command{
		Use:   "url ID PORT",
		Short: "Print the URL of a port's preview, and say who may open it",
		Long: "Print a URL under which a server in a sandbox is reached from a browser or a\n" +
			"program. The port is private unless --public was said: the URL then holds a token\n" +
			"that is valid for a day, or for --ttl. A browser gets a cookie in its place;\n" +
			"programs may send it in the header Berth-Token. A request wakes a sleeping sandbox.",
		Example: "  berth url $ID 8080\n" +
			"  berth url $ID 3000 --public --ttl 2h\n" +
			"  berth url $ID 3000 --private --revoke",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.hostSet = cmd.Flags().Changed("host-header")
			return p.share(cmd.Context(), args[0], args[1], &s)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&s.public, "public", false, "anybody may open it from now on, for --ttl or until --private")
	flags.BoolVar(&s.private, "private", false, "only who has a token may open it from now on")
	flags.DurationVar(&s.ttl, "ttl", 0, "how long the token, or being public, lasts: 30m, 24h, at most 720h")
	flags.BoolVar(&s.once, "once", false, "the URL serves one browser, once")
	flags.BoolVar(&s.revoke, "revoke", false, "end every URL and cookie that was given out for the port before")
	flags.StringVar(&s.path, "path", "/", "of the page")
	flags.StringVar(&s.host, "host-header", "", "what the server is told it is called, such as localhost:3000; \"\" for the URL's host")
	cmd.MarkFlagsMutuallyExclusive("public", "private")
	return cmd
}

func (p *program) share(ctx context.Context, id, port string, s *sharing) error {
	n, err := parsePort(port)
	if err != nil {
		return err
	}
	if s.ttl < 0 || s.ttl > 0 && s.ttl < time.Second {
		return usage("give it as 30m or 24h", "%v is too short", s.ttl)
	}
	if !strings.HasPrefix(s.path, "/") {
		return usage("a path looks like /admin", "%.80q is not a path", s.path)
	}
	req := sandbox.ShareRequest{TTLSeconds: int64(s.ttl / time.Second), Once: s.once, Revoke: s.revoke}
	if s.public || s.private {
		req.Public = &s.public
	}
	if s.hostSet {
		req.HostHeader = &s.host
	}
	c, id, err := p.connectTo(id)
	if err != nil {
		return err
	}
	given, err := c.Share(ctx, id, n, req)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, given)
	}
	if given.Base == "" {
		return &sandbox.Error{Op: "make URL", Kind: sandbox.Unsupported, Err: errors.New("this server serves no previews"), Hint: "berth forward reaches the port too"}
	}
	_, err = fmt.Fprintln(p.out, strings.TrimSuffix(given.Base, "/")+s.path+strings.TrimPrefix(given.URL, given.Base))
	return err
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, usage("a port is a number from 1 to 65535", "%.20q is not a port", s)
	}
	return int(n), nil
}

func (p *program) portsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "ports ID",
		Short:             "List the ports on which something listens, and those that are public",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			all, err := c.Ports(cmd.Context(), id)
			if err != nil {
				return err
			}
			return p.printPorts(all)
		},
	}
}

func (p *program) printPorts(all []sandbox.Port) error {
	if p.json {
		return writeJSON(p.out, all)
	}
	t := newTable(p.out, "PORT", "ADDRESS", "PID", "COMMAND", "ACCESS", "URL")
	for _, o := range all {
		access, pid, address := "private", "", o.Address
		if o.Public {
			access = "public"
		}
		if o.PID != 0 {
			pid = strconv.Itoa(o.PID)
		}
		if !o.Listening {
			address = "(nothing listens)"
		}
		t.row(strconv.Itoa(o.Port), address, pid, printable(o.Command), access, o.URL)
	}
	return t.flush()
}
