// Command bench measures a real server with real gVisor sandboxes and prints a
// table, and the same as JSON.
//
// Machines differ and are noisy: compare figures of one run only.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// row is one measure. Reference is the figure of an unchanged gVisor on a
// machine of two cores, where one is known; Target is what Berth aims at.
type row struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Low       float64 `json:"low,omitempty"`
	High      float64 `json:"high,omitempty"`
	Samples   int     `json:"samples"`
	Reference string  `json:"reference,omitempty"`
	Target    string  `json:"target,omitempty"`
}

func main() {
	berth := flag.String("berth", "bin/berth", "the program under test")
	data := flag.String("data", "", "data directory to keep, for its templates; default a new one")
	out := flag.String("json", "", "file that receives the table as JSON")
	only := flag.String("only", "", "the one measure to take")
	warm := flag.Int("warm", -1, "the server's --warm; -1 leaves it at its default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *berth, *data, *out, *only, *warm); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, berth, data, out, only string, warm int) error {
	s, err := startServer(ctx, berth, data, warm)
	if err != nil {
		return err
	}
	defer s.stop()
	var rows []row
	for _, m := range measures {
		if only != "" && only != m.name {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s\n", m.name)
		got, err := m.take(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		rows = append(rows, got...)
	}
	print(rows)
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(map[string]any{"cores": runtime.NumCPU(), "at": time.Now().UTC(), "rows": rows}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}

func print(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\tmedian\tlow … high\tstock gVisor\taim")
	for _, r := range rows {
		spread := ""
		if r.Samples > 1 && r.High > 0 { // a mean has no spread
			spread = fmt.Sprintf("%.4g … %.4g", r.Low, r.High)
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, spread, r.Reference, r.Target)
	}
	w.Flush()
}

// median makes a row of samples.
func median(name, unit string, samples []float64) row {
	slices.Sort(samples)
	return row{Name: name, Unit: unit, Value: samples[len(samples)/2], Low: samples[0], High: samples[len(samples)-1], Samples: len(samples)}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
