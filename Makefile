# build   bin/berth, with the guest and the engine inside
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
ENGINE      := cmd/berth/embedded/berth-engine
MCP         := cmd/berth/embedded/berth-mcp
TEST_DATA   ?= $(CURDIR)/.cache/test

# The S3 server that tests store into: a module of its own, built once.
S3SERVER := .cache/tools/s3server
$(S3SERVER): tools/s3server/go.mod
	@mkdir -p $(@D)
	GOFLAGS= go build -C tools/s3server -trimpath -o $(CURDIR)/$@ github.com/versity/versitygw/cmd/versitygw

s3server: $(S3SERVER)

# Tests run through gotestsum. One that fails is run up to twice more alone; if it then
# passes, it is named at the end as one that is not steady, which is a defect to
# mend. A data race or many failures end the run at once.
GOTESTSUM := .cache/tools/gotestsum
$(GOTESTSUM):
	@mkdir -p $(@D)
	GOFLAGS= GOBIN=$(CURDIR)/$(@D) go install gotest.tools/gotestsum@v1.13.0

UNSTEADY := build/unsteady
RUN_TESTS = $(GOTESTSUM) --format standard-quiet --rerun-fails=2 --rerun-fails-max-failures=6 \
	--rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report=$(UNSTEADY).$@

.PHONY: s3server
.PHONY: build test demo bench deps engine generate vet race fetched real clean fuzz browser cgroup2 FORCE

build: bin/berth

# The engine is gVisor with the edits of tools/engineedit.
engine:
	@mkdir -p build
	@GOFLAGS= go run ./tools/engineedit -out build

$(GUEST): engine FORCE
	@go build -trimpath -ldflags='$(LDFLAGS)' -o $@ ./cmd/berth-guest

# The engine is a program of its own: each sandbox starts it several times.
$(ENGINE): engine FORCE
	@go build -trimpath -ldflags='-s -w' -o $@ ./cmd/berth-engine

# The gateway of MCP servers is part of templates: the same program gives the same ones.
$(MCP): engine FORCE
	@go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o $@ ./cmd/berth-mcp

bin/berth: engine $(GUEST) $(ENGINE) $(MCP) FORCE
	@mkdir -p bin
	go build -trimpath -ldflags='$(LDFLAGS)' -o $@ ./cmd/berth

FORCE:

deps:
	@tools/deps.sh

# Packages that hold no engine run under the race detector, which needs cgo and
# so cannot be had where the engine is linked in.
RACE := ./sandbox ./audit ./screen/... ./guestapi/... ./record/... ./blob/... ./snapshot/... ./guest/... ./guestclient/... ./driver/fake/... ./secret/... ./account/... ./config/... ./netgw/intercept/... ./image/... ./engine/... ./pass/... ./publicip/... ./dockerfile ./dialect/... ./tunnel/... ./edge/... ./api/... ./client/... ./meter/... ./metrics/... ./volume/... ./loopfs/... ./tarball/... ./keystore ./keylock ./handover ./refusal ./mcpgateway ./timerslack

vet: engine $(GUEST) $(ENGINE) $(MCP)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...

race: engine $(GUEST) $(S3SERVER) $(GOTESTSUM)
	@rm -f $(UNSTEADY).$@
	CGO_ENABLED=1 $(RUN_TESTS) --packages='$(RACE)' -- -race -timeout 15m

# The templates that tests on real sandboxes share, and the browser: what comes from
# elsewhere.
fetched: deps build
	@tools/browser.sh
	test/templates.sh bin/berth $(TEST_DATA)

# What the race detector cannot reach, real gVisor among it, on real templates.
real: fetched $(S3SERVER) $(GOTESTSUM)
	@rm -f $(UNSTEADY).$@
	BERTH_TEST_DATA=$(TEST_DATA) BERTH_BIN=$(CURDIR)/bin/berth $(RUN_TESTS) \
		--packages='. ./tools/... ./netgw/... ./driver/gvisor/... ./cmd/... ./bench/... ./test/...' -- -timeout 30m -p 2

# Templates are fetched and built while the race detector has the other processor.
test: deps build vet $(S3SERVER) $(GOTESTSUM)
	@$(MAKE) --no-print-directory -j2 --output-sync=line race fetched
	@$(MAKE) --no-print-directory real
	@for f in $(UNSTEADY).*; do ! test -s "$$f" || { echo "NOT STEADY, passed when run again alone:"; cat "$$f"; }; done

demo: deps build
	@test/demo.sh

bench: deps build
	@go run ./bench -berth bin/berth -json build/bench.json

FUZZTIME ?= 20s
fuzz: engine
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c6-); do \
			echo "== $$p $$f"; go test ./$$p -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x || exit 1; done; done

# A dev server's hot reload, through a preview, in a browser.
browser: deps build
	@tools/browser.sh
	BERTH_TEST_DATA=$(TEST_DATA) BERTH_BIN=$(CURDIR)/bin/berth go test -count=1 -v ./test/browser

# The limits on cgroup version 2, in an emulated machine.
cgroup2: engine
	@tools/cgroup2.sh

generate: engine
	go generate ./guestapi/...

clean:
	rm -rf bin build .cache $(GUEST) $(ENGINE) $(MCP)
