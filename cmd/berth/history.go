package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) metricsCommand() *cobra.Command {
	var since, until string
	var q sandbox.HistoryQuery
	cmd := &cobra.Command{
		Use:   "metrics ID",
		Short: "Show what a sandbox used in the last day",
		Long: "Show the processor time, memory and disk that a sandbox used in the last day while it\n" +
			"ran, the oldest first. The older samples are, the longer. It wakes nothing.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkID(args[0]); err != nil {
				return err
			}
			var err error
			now := time.Now()
			if q.From, err = parseMoment(since, now); err != nil {
				return err
			}
			if q.To, err = parseMoment(until, now); err != nil {
				return err
			}
			if err := q.Check(); err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.History(cmd.Context(), args[0], q)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "TIME", "SECONDS", "CPU", "MEMORY", "DISK")
			for _, s := range all {
				t.row(s.Time.Local().Format("15:04:05"), fmt.Sprintf("%.0f", s.Seconds), fmt.Sprintf("%d.%d %%", s.CPUMilli/10, s.CPUMilli%10), size(s.MemoryBytes), size(s.DiskBytes))
			}
			return t.flush()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "from then on: a time such as 1h ago, 2026-05-04 or 2026-05-04T10:00:00Z")
	flags.StringVar(&until, "until", "", "up to then, in the same forms")
	flags.DurationVar(&q.Step, "step", 0, "join shorter samples, up to this length")
	return cmd
}
