package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

func (p *program) psCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "ps ID",
		Short:             "List the processes started in a sandbox",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeOneSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(args[0])
			if err != nil {
				return err
			}
			processes, err := c.Processes(cmd.Context(), id)
			if err != nil {
				return err
			}
			return p.printProcesses(processes)
		},
	}
}

// connectTo makes the client and checks the id or name that the verb is about.
func (p *program) connectTo(id string) (*client.Client, string, error) {
	if err := checkID(id); err != nil {
		return nil, "", err
	}
	c, err := p.connect()
	return c, id, err
}

// checkID reports an error of kind Invalid unless id can be a sandbox's, or its
// name.
func checkID(id string) error {
	if sandbox.CheckRef(id) != nil {
		return &sandbox.Error{Op: strconv.Quote(shortened(id, 40)), Kind: sandbox.Invalid, Err: errors.New("neither an id nor a name"),
			Hint: "berth ls lists the sandboxes with their ids and names"}
	}
	return nil
}

func (p *program) printProcesses(processes []sandbox.Process) error {
	if p.json {
		if processes == nil {
			processes = []sandbox.Process{}
		}
		return writeJSON(p.out, processes)
	}
	t := newTable(p.out, "PROCESS", "NAME", "PID", "USER", "STATE", "CPU", "MEMORY", "AGE", "COMMAND")
	for _, proc := range processes {
		cpu, memory := "", ""
		if u := proc.Usage; u != nil {
			cpu = (time.Duration(u.CPUMillis) * time.Millisecond).String()
			if u.Processes > 0 {
				memory = size(u.MemoryBytes)
			}
		}
		t.row(proc.ID, proc.Name, strconv.Itoa(proc.PID), proc.User, processState(proc), cpu, memory,
			age(time.Since(proc.Started)), shortened(strings.Join(proc.Argv, " "), 60))
	}
	return t.flush()
}

func processState(proc sandbox.Process) string {
	switch e := proc.Exit; {
	case e == nil && proc.Session != "" && proc.PID == 0:
		return "waiting"
	case e == nil:
		return "running"
	case e.TimedOut:
		return "timed out"
	case e.Signal != "":
		return e.Signal
	default:
		return "exit " + strconv.Itoa(e.Code)
	}
}

// shortened cuts s to at most n characters and shows that it did.
func shortened(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
