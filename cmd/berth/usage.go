package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) usageCommand() *cobra.Command {
	var q sandbox.UsageQuery
	var since, until, by string
	cmd := &cobra.Command{
		Use:   "usage [ID]",
		Short: "Sum up what sandboxes have used, and its price",
		Long: "Sum up the processor time, the memory and disk over time and the bytes sent of\n" +
			"sandboxes, removed ones too: of one, or of all, the dearest first. Memory is priced\n" +
			"as it was provisioned. With bounds, hours are counted whole.",
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
			now := time.Now()
			if q.Since, err = parseMoment(since, now); err != nil {
				return err
			}
			if q.Until, err = parseMoment(until, now); err != nil {
				return err
			}
			q.By = sandbox.UsageBy(by)
			if err := q.Check(); err != nil {
				return err
			}
			return p.usage(cmd.Context(), q)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Account, "account", "", "of this account")
	flags.StringVar(&since, "since", "", "from then on: a time such as 24h or 7d ago, 2026-05-04 or 2026-05-04T10:00:00Z")
	flags.StringVar(&until, "until", "", "up to then, in the same forms")
	flags.StringVar(&by, "by", "sandbox", "what a row stands for: sandbox, account or hour")
	flags.IntVar(&q.Limit, "limit", 100, "rows that are printed; the total has them all")
	cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]cobra.Completion{"sandbox", "account", "hour"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p *program) usage(ctx context.Context, q sandbox.UsageQuery) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	report, err := c.Consumption(ctx, q)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, report)
	}
	return p.printUsage(report, q.By)
}

func (p *program) printUsage(r sandbox.UsageReport, by sandbox.UsageBy) error {
	var heads []string
	var key func(*sandbox.UsageRow) []string
	switch by {
	case sandbox.ByHour:
		heads, key = []string{"HOUR"}, func(r *sandbox.UsageRow) []string { return []string{r.Hour.Local().Format("2006-01-02 15:04")} }
	case sandbox.ByAccount:
		heads, key = []string{"ACCOUNT"}, func(r *sandbox.UsageRow) []string { return []string{r.Account} }
	default:
		heads, key = []string{"ID", "NAME", "STATE"}, func(r *sandbox.UsageRow) []string {
			if r.Volume != "" {
				return []string{string(r.Volume), r.Name, strings.TrimSpace("volume " + string(r.State))}
			}
			return []string{string(r.Sandbox), r.Name, string(r.State)}
		}
	}
	t := newTable(p.out, append(heads, "CPU", "MEMORY", "USED", "DISK", "EGRESS", "COST")...)
	for i := range r.Rows {
		t.row(append(key(&r.Rows[i]), amounts(r.Rows[i].Consumption, r.Rows[i].Cost)...)...)
	}
	if r.More > 0 {
		t.row(append(make([]string, len(heads)-1), fmt.Sprintf("and %d more", r.More))...)
	}
	total := append([]string{"TOTAL"}, make([]string, len(heads)-1)...)
	t.row(append(total, amounts(r.Total, r.Cost)...)...)
	return t.flush()
}

// amounts are the cells of what was used.
func amounts(c sandbox.Consumption, cost sandbox.Cost) []string {
	hours := func(units int64, unit float64, name string) string {
		return strconv.FormatFloat(float64(units)/unit/3600, 'f', 4, 64) + " " + name
	}
	out := "-"
	if c.EgressBytes != nil {
		out = size(*c.EgressBytes)
	}
	return []string{
		(time.Duration(c.CPUMillis) * time.Millisecond).String(),
		hours(c.MemoryKiBSeconds, 1<<20, "GiBh"), hours(c.MemoryUsedKiBSeconds, 1<<20, "GiBh"), hours(c.DiskKBSeconds, 1e6, "GBh"),
		out, "$" + money(cost.Total),
	}
}

// money leaves out the zeros at the end, but for cents.
func money(s string) string {
	whole, places, _ := strings.Cut(s, ".")
	for len(places) > 2 && places[len(places)-1] == '0' {
		places = places[:len(places)-1]
	}
	return whole + "." + places
}

// parseMoment reads a moment: how long ago it was, a day, or a time. "" is zero.
func parseMoment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if seconds, err := parseSeconds(s); err == nil && seconds > 0 {
		return now.Add(-time.Duration(seconds) * time.Second), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("give how long ago it was, such as 24h or 7d, or a time such as 2026-05-04 or 2026-05-04T10:00:00Z", "%q is no time", s)
}
