# Everything a contributor or a build machine runs. `make help` lists it.
#
# Output of builds goes to stderr, so that `make demo` prints answers and nothing
# else on stdout. Nothing here needs more than Go, make, openssl and npm; captures,
# bench-peer, deploy-check, generate and runaway say what else they need. The tests of the
# Prometheus rules are left out where promtool is missing, those of the console where
# chromium is, those that run the parts of deploy together but for deploy-check.

GO        ?= go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TESTFLAGS ?=
TIMEOUT   ?= 20m
FUZZTIME  ?= 20s
BENCH     ?= .

# The version comes from VERSION, and a checkout of another user must build too.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# Modules of their own below this one, tested with it and kept out of its go.mod.
MODULES = $(shell find . -mindepth 2 -name go.mod -not -path '*/node_modules/*' -not -path '*/testdata/*' -exec dirname {} \; | sort)

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: engine
engine: ## fetch the ClickHouse library into bin (once, checked against a pinned checksum)
	@deploy/engine/fetch.sh bin/libchdb.so >/dev/null

# Built again only when one of its sources is newer than what was built.
CONSOLE = query/console
CONSOLE_SOURCES = $(shell find $(CONSOLE)/src $(CONSOLE)/public $(CONSOLE)/index.html $(CONSOLE)/package-lock.json $(CONSOLE)/vite.config.mjs $(CONSOLE)/tsconfig.json -type f)

$(CONSOLE)/dist/index.html: $(CONSOLE_SOURCES)
	@if ! command -v npm >/dev/null; then echo "npm is not installed: going on without the console" >&2; \
		elif ! (cd $(CONSOLE) && npm ci --no-audit --no-fund >&2); then echo "npm could not fetch what the console is built with: going on without it" >&2; \
		else cd $(CONSOLE) && npm run build >&2; fi

.PHONY: console
console: $(CONSOLE)/dist/index.html ## build the web console, where npm is installed; go build embeds it

.PHONY: build
build: engine console ## bin/flyball, with the engine library beside it
	@$(GO) build -ldflags '-X main.Version=$(VERSION)' -o bin/flyball ./cmd/flyball >&2

.PHONY: demo
demo: build ## the service on traffic it makes itself; DEMO_ONCE=1 ends after the answers
	@bin/flyball demo

.PHONY: runaway
runaway: build ## agents that run away, and what stops them: every claim is checked (installs Alertmanager)
	@SKIP_BUILD=1 deploy/examples/runaway-agent/run.sh

.PHONY: deploy-check
deploy-check: ## every file of deploy by its own tool, and the parts together (builds a Collector, once)
	@deploy/check.sh -v

.PHONY: test
test: engine console ## set up, vet, gofmt, every test
	@unformatted=$$(find . -name '*.go' -not -path '*/node_modules/*' -not -path './bin/*' -exec gofmt -l {} +); \
		if [ -n "$$unformatted" ]; then printf 'not formatted, run gofmt -w on:\n%s\n' "$$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) ./...
	@set -e; for m in $(MODULES); do echo "module $$m"; (cd $$m && $(GO) vet ./... && $(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) ./...); done

.PHONY: fault
fault: engine ## kill, corrupt and starve the running service, at length
	FLYBALL_FAULT=long $(GO) test -count=1 -v -timeout 60m ./cmd/app/...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s)
	@set -e; grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | sed -E 's|^(.*)/[^/]*:func (Fuzz.*)$$|\1 \2|' | while read -r dir name; do \
		echo "fuzz $$dir $$name"; \
		(cd "$$dir" && $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x .); done

.PHONY: bench
bench: build ## benchmarks of the hot functions, then of the whole service
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m ./...
	deploy/bench/bench.sh

.PHONY: bench-enforce
bench-enforce: build ## guards, the feed and the limiter, then the closed loop beside 20,000 spans/s
	$(GO) test -run '^$$' -bench . -benchmem -timeout 30m ./enforce/...
	deploy/bench/enforce.sh

.PHONY: bench-query
bench-query: build ## questions and panels over 50 million rows of 90 days, made once (ROWS, DATA: deploy/bench/query.sh)
	SKIP_BUILD=1 deploy/bench/query.sh

.PHONY: bench-peer
bench-peer: build ## the same load on an OpenTelemetry Collector that writes to ClickHouse
	deploy/bench/peer.sh

.PHONY: captures
captures: ## record the telemetry of the agent SDKs again (npm and Python with venv)
	ingest/dialect/capture/run.sh

.PHONY: generate
generate: ## everything that is generated (the price catalogue needs Python with venv)
	$(GO) generate ./...
	@set -e; for m in $(MODULES); do (cd $$m && $(GO) generate ./...); done

.PHONY: clean
clean: ## remove what was built; the engine library stays in the cache
	rm -rf bin flyball-data $(CONSOLE)/node_modules
	find $(CONSOLE)/dist -mindepth 1 -not -name .keep -delete
