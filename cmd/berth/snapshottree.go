package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/sandbox"
)

func (p *program) snapshotTreeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tree",
		Short: "Show which snapshot came from which",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := p.snapshots(cmd.Context(), nil)
			if err != nil {
				return err
			}
			if p.json {
				return writeJSON(p.out, all)
			}
			return p.printForest(all)
		},
	}
}

// printForest prints snapshots beneath their parents, the oldest first. One whose
// parent is gone stands as a root.
func (p *program) printForest(all []sandbox.Snapshot) error {
	known := map[sandbox.ID]bool{}
	for _, s := range all {
		known[s.ID] = true
	}
	children := map[sandbox.ID][]sandbox.Snapshot{}
	for i := len(all) - 1; i >= 0; i-- { // they come newest first
		parent := all[i].Parent
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], all[i])
	}
	var print func(of sandbox.ID, indent string) error
	print = func(of sandbox.ID, indent string) error {
		for i, s := range children[of] {
			branch, next := "├─ ", "│  "
			if i == len(children[of])-1 {
				branch, next = "└─ ", "   "
			}
			if of == "" {
				branch, next = "", ""
			}
			name := string(s.ID)
			if s.Name != "" {
				name = s.Name + " " + name
			}
			if _, err := fmt.Fprintf(p.out, "%s%s%s  %s of %s, %s, %s ago\n", indent, branch, name, s.Keep, s.Sandbox, size(s.Bytes), age(time.Since(s.Created))); err != nil {
				return err
			}
			if err := print(s.ID, indent+next); err != nil {
				return err
			}
		}
		return nil
	}
	return print("", "")
}
