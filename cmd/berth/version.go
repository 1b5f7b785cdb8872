package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by "make build".
var version = "development"

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			revision := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = s.Value
					}
				}
			}
			guestErr := hasGuest()
			if p.json {
				return writeJSON(p.out, map[string]any{"version": version, "revision": revision,
					"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "guest": guestErr == nil})
			}
			_, err := fmt.Fprintf(p.out, "berth %s (%.12s, %s, %s/%s)\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
