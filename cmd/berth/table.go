package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// table prints aligned columns under a head.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.row(head...)
	return t
}

// row adds one line. Its cells may hold what a sandbox wrote: they are made
// safe for a terminal.
func (t table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(c))
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.TrimSuffix(strings.Join(cells, "\t"), "\t-"))
}

func (t table) flush() error { return t.w.Flush() }

// age writes a length of time in its largest unit: "42s", "5m", "3h", "12d".
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// cores writes thousandths of a core as cores: "0.5", "2".
func cores(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'g', -1, 64) }

func pairs(m map[string]string) string {
	words := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, k+"="+m[k])
	}
	return strings.Join(words, " ")
}
