package docker

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/sandbox"
)

// sizeLabel finds the labels of a Dockerfile that say how large its containers are:
// LABEL berth.cpu=2 berth.memory=4GiB berth.disk=20GB.
var sizeLabel = regexp.MustCompile(`(?m)(?:^|[\s"])berth\.(cpu|memory|disk)"?=(?:"([^"\n]{0,64})"|(\S{0,64}))`)

// Size is what the labels of a Dockerfile ask for; nil if they ask for nothing. The
// last of a kind counts.
func Size(text string) (*sandbox.Limits, error) {
	var limits *sandbox.Limits
	for _, m := range sizeLabel.FindAllStringSubmatch(text, -1) {
		if limits == nil {
			limits = &sandbox.Limits{}
		}
		if err := setSize(limits, m[1], m[2]+m[3]); err != nil {
			return nil, &sandbox.Error{Op: "read label berth." + m[1], Kind: sandbox.Invalid, Err: err,
				Hint: "such as LABEL berth.cpu=2 berth.memory=4GiB berth.disk=20GB"}
		}
	}
	return limits, nil
}

func setSize(l *sandbox.Limits, what, value string) error {
	if what == "cpu" {
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(n) || n <= 0 || n > 1024 {
			return fmt.Errorf("%.40q is no number of processors", value)
		}
		l.CPUMilli = int64(math.Round(n * 1000))
		return nil
	}
	var size config.Size
	if err := size.UnmarshalText([]byte(value)); err != nil {
		return err
	}
	if what == "memory" {
		l.MemoryBytes = int64(size)
	} else {
		l.DiskBytes = int64(size)
	}
	return nil
}
