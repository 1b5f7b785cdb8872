package main

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/berth-dev/berth/driver"
)

type house struct {
	handler http.Handler
}

func openHouse(ctx context.Context, f *serveFlags, data, key string, log *slog.Logger) (*house, error) {
	return &house{http.NotFoundHandler()}, nil
}
func (h *house) close() error { return nil }

func probeGVisor(ctx context.Context) (driver.Capabilities, error) { return driver.Capabilities{}, nil }
