package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
)

func (p *program) signCommand() *cobra.Command {
	var s signing
	cmd := &cobra.Command{
		Use:   "sign ID PATH",
		Short: "Make a URL that opens one file without a key",
		Long: "Make a URL under which anybody who has it reads one file of a sandbox (GET), or\n" +
			"with --write writes it (PUT), until it expires. It opens nothing else, and nothing\n" +
			"once the sandbox is removed.",
		Example: "  curl -o report.pdf \"$(berth sign $ID /workspace/report.pdf)\"\n" +
			"  curl -T data.csv \"$(berth sign --write --max-bytes 1GiB $ID /workspace/data.csv)\"",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.sign(cmd.Context(), args[0], args[1], s)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&s.write, "write", false, "the URL writes the file")
	flags.DurationVar(&s.life, "expires", time.Hour, "how long it opens the file, at most 168h")
	flags.StringVar(&s.most, "max-bytes", "", "the file's most, as 512MiB or 2GiB")
	return cmd
}

// signing is what a URL is to allow.
type signing struct {
	write bool
	life  time.Duration
	most  string
}

func (p *program) sign(ctx context.Context, id, path string, s signing) error {
	most, err := parseSize(s.most)
	if err != nil {
		return err
	}
	if s.life < time.Second {
		return usage("give it as 30m or 24h", "%v is too short", s.life)
	}
	c, id, err := p.connectTo(id)
	if err != nil {
		return err
	}
	sign := c.SignRead
	if s.write {
		sign = c.SignWrite
	}
	signed, err := sign(ctx, id, path, s.life, most)
	if err != nil {
		return err
	}
	return p.printSigned(signed)
}

func (p *program) printSigned(s client.Signed) error {
	if p.json {
		return writeJSON(p.out, map[string]any{"url": s.URL, "expires": s.Expires})
	}
	_, err := fmt.Fprintln(p.out, s.URL)
	return err
}
