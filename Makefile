# Everything a newcomer needs: `make quickstart`, then `make test`.
GO      ?= go
export CGO_ENABLED ?= 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X github.com/berthml/berth.Version=$(VERSION)
CACHE   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/berth-tools

.PHONY: build quickstart test test-engines lint bench compatibility dist clean
build: ## bin/berth, one static binary
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/berth ./cmd/berth

quickstart: build ## train a real model end to end, nothing configured
	./examples/quickstart.sh

test: build ## every test; installs what it needs into a cache
	./scripts/test.sh

test-engines: build ## the suites that need real engines (Docker, Podman, PostgreSQL); installs them
	./scripts/test-engines.sh

lint: ## gofumpt, vet, builds for macOS and Windows, golangci-lint, deadcode, govulncheck
	CACHE='$(CACHE)' ./scripts/lint.sh

bench: build ## against real peers, ratios in one run
	./bench/run.sh

compatibility: build ## Microsoft's own live tests and the YAML corpus, into docs/compatibility.md
	./scripts/compatibility.sh

dist: ## release files: binaries, packages, container images, wheels, Helm chart
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' ./scripts/dist.sh

clean:
	rm -rf bin dist bench/out .cache
