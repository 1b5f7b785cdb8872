# build   bin/berth, with the guest inside
# test    everything CI runs; as root
# demo    the main job, from a clean checkout
# bench   the table of docs/benchmarks.md
# deps    what the machine needs, from its distribution
SHELL       := /bin/bash
export CGO_ENABLED := 0
export GOFLAGS     := -modfile=$(CURDIR)/build/go.mod
# The checksum database is not asked: go.sum, which is committed, decides.
export GONOSUMDB   := *
VERSION     := $(shell git describe --always --dirty --tags 2>/dev/null || echo dev)
LDFLAGS     := -s -w -X main.version=$(VERSION)
GUEST       := cmd/berth/embedded/berth-guest
TEST_DATA   ?= $(CURDIR)/.cache/test

.PHONY: build test demo bench deps engine generate vet unit race blackbox clean fuzz

build: bin/berth

# The engine is gVisor with the edits of tools/engineedit.
engine:
	@mkdir -p build
	@GOFLAGS= go run ./tools/engineedit -out build

$(GUEST): engine FORCE
	@go build -trimpath -ldflags='$(LDFLAGS)' -o $@ ./cmd/berth-guest

bin/berth: engine $(GUEST) FORCE
	@mkdir -p bin
	go build -trimpath -ldflags='$(LDFLAGS)' -o $@ ./cmd/berth

FORCE:

deps:
	@test/deps.sh

vet: engine $(GUEST)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...

clean:
	rm -rf bin build .cache $(GUEST)
