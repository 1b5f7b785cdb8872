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

func (p *program) auditCommand() *cobra.Command {
	var q sandbox.AuditQuery
	var kinds []string
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use:   "audit [ID]",
		Short: "Print what sandboxes did and tried towards the outside",
		Long: "Print every connection, refusal and question for a name that is on record, oldest\n" +
			"first. With --follow those to come are printed too, until it is interrupted; a\n" +
			"stream that breaks is taken up again where it was. A sandbox that is gone is found\n" +
			"by its id.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Sandbox = args[0]
				if err := checkID(q.Sandbox); err != nil {
					return err
				}
			}
			var err error
			if since != "" {
				if q.Since, err = parseMoment(since, time.Now()); err != nil {
					return err
				}
			}
			for _, k := range kinds {
				q.Kinds = append(q.Kinds, sandbox.AuditKind(k))
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			if follow {
				return p.followAudit(cmd.Context(), c, q)
			}
			return p.listAudit(cmd.Context(), c, q)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on with those to come")
	flags.BoolVar(&q.Denied, "denied", false, "refusals alone")
	flags.StringVar(&since, "since", "", "not those before: a moment, or a time ago such as 10m")
	flags.StringSliceVar(&kinds, "kind", nil, "only these kinds: "+joined(sandbox.AuditKinds()))
	flags.StringVar(&q.After, "after", "", "only those after this cursor, from --json")
	return cmd
}

func (p *program) listAudit(ctx context.Context, c *client.Client, q sandbox.AuditQuery) error {
	q.Limit = sandbox.MaxPage
	return listLog(q.After, q.Limit, p.printAudit, func(after string) ([]sandbox.AuditEntry, string, error) {
		q.After = after
		page, err := c.Audit(ctx, q)
		if page.Missed {
			fmt.Fprintln(p.err, "note: entries after the cursor were removed, by age or size")
		}
		return page.Entries, page.Next, err
	})
}

func (p *program) followAudit(ctx context.Context, c *client.Client, q sandbox.AuditQuery) error {
	begin := func(after string) (logEntries[sandbox.AuditEntry], error) {
		q.After = after
		return c.FollowAudit(ctx, q)
	}
	return followLog(ctx, q.After, begin, func(e sandbox.AuditEntry) (string, error) { return e.Cursor, p.printAudit(e) })
}

// printAudit prints one entry: a line, or an object on a line.
func (p *program) printAudit(e sandbox.AuditEntry) error {
	if p.json {
		return writeJSON(p.out, e)
	}
	_, err := fmt.Fprintln(p.out, auditLine(e))
	return err
}

// auditLine is an entry for people. What came from the sandbox is made printable.
func auditLine(e sandbox.AuditEntry) string {
	parts := []string{e.Time.Local().Format("2006-01-02 15:04:05"), string(e.Sandbox), fmt.Sprintf("%-7s", e.Verdict), auditWhat(e)}
	if e.Sent+e.Received > 0 {
		parts = append(parts, fmt.Sprintf("%d out %d in", e.Sent, e.Received))
	}
	if e.Rule != "" {
		parts = append(parts, "by "+printable(e.Rule))
	}
	if e.Credential != "" {
		parts = append(parts, "with "+printable(e.Credential))
	}
	if e.Reason != "" {
		parts = append(parts, "("+printable(e.Reason)+")")
	}
	return strings.Join(parts, "  ")
}

func auditWhat(e sandbox.AuditEntry) string {
	host := printable(e.Host)
	switch e.Kind {
	case sandbox.AuditDNS:
		s := "dns " + e.Question + " " + host
		if len(e.Answers) > 0 {
			s += " = " + printable(strings.Join(e.Answers, " "))
		}
		return s
	case sandbox.AuditRequest:
		return fmt.Sprintf("http %s %s%s %d", printable(e.Method), host, printable(e.Path), e.Status)
	case sandbox.AuditDropped:
		return fmt.Sprintf("%d entries", e.Count)
	case sandbox.AuditPolicy:
		return "policy"
	}
	s := e.Protocol + " "
	if host != "" {
		s += host + " "
	}
	if strings.Contains(e.Address, ":") {
		s += "[" + e.Address + "]"
	} else {
		s += e.Address
	}
	if e.Port != 0 {
		s += fmt.Sprintf(":%d", e.Port)
	}
	return s
}
