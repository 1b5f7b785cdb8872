package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) webhookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Have events sent to addresses",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(p.webhookAddCommand(), p.webhookLsCommand(), p.webhookRmCommand())
	return cmd
}

func (p *program) webhookAddCommand() *cobra.Command {
	var types []string
	var secret string
	cmd := &cobra.Command{
		Use:   "add URL",
		Short: "Send every event from now on to an address",
		Long: "Send every event from now on to an address, signed with a secret. It prints the id;\n" +
			"the secret, unless you chose it, is told once, on standard error.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := sandbox.WebhookRequest{URL: args[0], Secret: secret}
			for _, t := range types {
				req.Events = append(req.Events, sandbox.ChangeType(t))
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			made, err := c.CreateWebhook(cmd.Context(), req)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, made)
			}
			if secret == "" {
				fmt.Fprintf(p.err, "secret: %s\n", made.Secret)
			}
			_, err = fmt.Fprintln(p.out, made.ID)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&types, "type", nil, "only these types: "+joined(sandbox.ChangeTypes()))
	cmd.Flags().StringVar(&secret, "secret", "", "16 to 256 bytes to sign with; left out, one is made")
	return cmd
}

func (p *program) webhookLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List webhooks, and how their deliveries go",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			all, err := c.Webhooks(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				if all == nil {
					all = []sandbox.Webhook{}
				}
				return writeJSON(p.out, all)
			}
			t := newTable(p.out, "ID", "URL", "EVENTS", "AGE", "FAILURES", "DROPPED", "LAST ERROR")
			for _, w := range all {
				events := joined(w.Events)
				if events == "" {
					events = "all"
				}
				t.row(w.ID, w.URL, events, age(time.Since(w.Created)), strconv.Itoa(w.Failures), strconv.FormatInt(w.Dropped, 10), w.LastError)
			}
			return t.flush()
		},
	}
}

func (p *program) webhookRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"remove"},
		Short:   "End the deliveries to addresses",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := c.RemoveWebhook(cmd.Context(), id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
