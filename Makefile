# The commands of CONTRIBUTING.md. CI (.ci/run) calls them, too; each can be called alone.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory
.PHONY: help build demo test race modules vet nested fmt lint workflows generate console pictures check-console check-generated openapi breaking land-api vuln sbom release-snapshot package fuzz docs model faults browser flood long versions newcomer bench profile

# PKG are the packages to test, RUN a pattern of the names of tests (empty: all), ARGS further arguments of the command.
PKG ?= ./...
RUN ?=
ARGS ?=
only := $(if $(RUN),-run '$(RUN)')

tool := go tool -modfile=tools/
buf := $(tool)go.mod buf

help: ## What there is to make
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1 \2/p' $(MAKEFILE_LIST) | while read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done

build: ## The program, ./cleanupd
	go build -o cleanupd ./cmd/cleanupd

demo: ## A cleanup of a private database; ARGS='--rows 1000000 --keep'
	go run ./cmd/cleanupd demo $(ARGS)

test: ## Tests; PKG=./service/runs RUN=TestWatchers ARGS=-v for some of them
	go test $(only) $(PKG) $(ARGS)

race: ## All tests but the browser's, the heavy suites too, under the race detector; PKG, RUN, ARGS
	CLEANUPD_SUITES=model,faults,flood,long go test -race -vet=off -timeout 45m $(only) $(PKG) $(ARGS)

# Heavy tests, which go test ./... leaves out or makes small: see internal/suite.
browser: web/node_modules/.package-lock.json ## The console in Chromium, web/test; RUN='a plan' for the tests with that in their names
	CLEANUPD_SUITES=browser go test -timeout 30m -count 1 -v -run '^TestConsole$$' ./cmd/cleanupd -console '$(RUN)' $(ARGS)

flood: ## Thousands of connections and calls
	CLEANUPD_SUITES=flood go test -timeout 30m -run '$(or $(RUN),Flood)' ./cmd/cleanupd $(ARGS)

long: ## All tests at their full size, but for random databases, faults, floods and the browser; PKG, RUN, ARGS
	CLEANUPD_SUITES=long go test -timeout 30m $(only) $(PKG) $(ARGS)

versions: ## Rules, random models, purges, policies and holds on PostgreSQL 14, 16, 17 and 18 from npm; VERSIONS=18 SEEDS=1000
	.ci/versions "$(VERSIONS)" $(SEEDS)

newcomer: ## The README's two commands on a clean clone of a busy machine, five times as an ordinary user and once as root; PASSES=1
	.ci/newcomer $(PASSES)

modules: ## What go.mod and go.sum say is true
	go mod verify
	go mod tidy -diff

vet: ## go vet
	go vet ./...

nested: $(addprefix nested/,bench deploy examples internal/dashboard) ## Vet and test the modules in these folders; nested/deploy for one

nested/%:
	cd $* && go vet ./... && go test -vet=off ./...

fmt: ## Format Go and the console, at 120 columns
	$(tool)lint/go.mod golangci-lint fmt ./...
	npm --prefix web run --silent format

lint: ## golangci-lint, the format of Go, and which package may import which
	$(tool)lint/go.mod golangci-lint run ./...

workflows: ## actionlint, of .github/workflows
	$(tool)workflows/go.mod actionlint

generate: ## gen/, and the documents that are made from the code, after a change in proto/ or of a task
	$(buf) generate
	go -C tools run ./openapi ../gen/cleanup.swagger.json openapi/overlay.yaml >gen/openapi.json
	go run ./docs/generate docs/reference
	$(rules) >$(operator)

# The console is built by npm, from the versions that web/package-lock.json pins.
web/node_modules/.package-lock.json: web/package-lock.json
	npm --prefix web ci --no-audit --no-fund --silent

built = npm --prefix web run --silent types && npm --prefix web run --silent check && npm --prefix web run --silent test && npm --prefix web run --silent bundle

console: web/node_modules/.package-lock.json ## web/dist, after a change of the console or of the REST API
	$(built)

pictures: ## docs/how-to/console, the pictures of the console in the documents
	@$(MAKE) browser RUN='more events than are loaded' ARGS='-pictures $(CURDIR)/docs/how-to/console'

check-console: web/node_modules/.package-lock.json ## Whether web/dist is what the sources of the console make
	$(built)
	test -z "$$(git status --porcelain web/dist)" || { git --no-pager diff --stat web/dist; git status --short web/dist; exit 1; }

# The alerts as a resource of the Prometheus Operator.
operator := deploy/kubernetes/prometheus-operator/prometheusrule.yaml
rules := (printf '%s\n' '\# Written by make generate, from deploy/prometheus/alerts.yaml.' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
	'metadata:' '  name: cleanupd' 'spec:'; sed '/^\#/d; s/^./  &/' deploy/prometheus/alerts.yaml)

check-generated: ## The style of proto/, and whether gen/ is what it generates
	@fresh=$$(mktemp -d)
	trap 'rm -rf "$$fresh"' EXIT
	$(buf) lint
	$(buf) generate --output "$$fresh"
	go -C tools run ./openapi "$$fresh/gen/cleanup.swagger.json" openapi/overlay.yaml >"$$fresh/gen/openapi.json"
	diff -r gen "$$fresh/gen"
	diff $(operator) <($(rules))

openapi: ## What redocly says of the description of the REST API
	@if ! node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)'; then
		echo "skipped: redocly needs Node 20 or later"
		exit
	fi
	npm ci --prefix tools/openapi --no-audit --no-fund
	REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true npm exec --prefix tools/openapi -- redocly lint --extends recommended gen/openapi.json

# The API as it last landed; source info would only make it larger.
landed := proto/landed.binpb

breaking: ## Whether a client of the API that last landed still works
	$(buf) breaking --against $(landed)

land-api: ## Declare the API as it is now to have landed; once it is released, it may only grow (make breaking)
	$(buf) build --exclude-source-info -o $(landed)

GOVULNDB ?= https://vuln.go.dev

vuln: ## Known vulnerabilities, if their database (GOVULNDB) can be reached
	@if curl --silent --show-error --fail --max-time 10 --output /dev/null "$(GOVULNDB)/index/db.json"; then
		$(tool)vuln/go.mod govulncheck -db "$(GOVULNDB)" ./...
	else
		echo "skipped: $(GOVULNDB) can not be reached from here"
	fi

sbom: ## The program's bill of materials, into the file SBOM, if given; it has no benchmark and no database in it
	@fresh=$$(mktemp -d)
	trap 'rm -rf "$$fresh"' EXIT
	bill="$(SBOM)"
	bill=$${bill:-$$fresh/sbom.json}
	$(tool)sbom/go.mod cyclonedx-gomod app -json -output "$$bill" -main cmd/cleanupd .
	grep -q '"name": "google.golang.org/grpc"' "$$bill"
	if grep -E 'gonum|embedded-postgres' "$$bill"; then exit 1; fi

# The version is the tag's, or a pseudo-version. All times are the commit's, so that the same commit gives the same files.
release-snapshot: ## dist/: archives of the program, Debian packages and checksums; PLATFORMS=linux/amd64 for some of them
	@rm -rf dist
	mkdir -p dist/man
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct)
	export SOURCE_DATE_EPOCH
	go run ./cmd/cleanupd man dist/man
	go run ./cmd/cleanupd completion bash >dist/man/cleanupd.bash
	sed 's,^ExecStart=/usr/local/bin/,ExecStart=/usr/bin/,' deploy/cleanupd.service >dist/cleanupd.service
	for platform in $(PLATFORMS); do
		export GOOS=$${platform%/*} GOARCH=$${platform#*/}
		CGO_ENABLED=0 go build -trimpath -buildvcs=true -o "dist/$$platform/cleanupd" ./cmd/cleanupd
		VERSION=$$(go version -m "dist/$$platform/cleanupd" | awk '$$1 == "mod" && $$3 != "(devel)" { print $$3 }')
		# Go finds no version in a worktree, where .git is a file.
		VERSION=$${VERSION:-v0.0.0-$$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd-%h --abbrev=12)}
		export VERSION
		tar --create --gzip --file "dist/cleanupd_$${VERSION#v}_$${GOOS}_$$GOARCH.tar.gz" $(same_tar) $(no_sources) \
			LICENSE README.md CHANGELOG.md docs deploy -C dist man -C "$$platform" cleanupd
		[ "$$GOOS" != linux ] || env -u GOOS -u GOARCH PACKAGE_ARCH="$$GOARCH" \
			$(tool)release/go.mod nfpm package --packager deb --config deploy/nfpm.yaml --target dist
		unset GOOS GOARCH
	done
	cd dist
	sha256sum -- *.tar.gz *.deb >checksums.txt
	cat checksums.txt
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
same_tar := --sort name --mtime "@$$SOURCE_DATE_EPOCH" --owner 0 --group 0 --numeric-owner --mode u=rwX,go=rX
no_sources := --exclude '*.go' --exclude 'go.*' --exclude docs/generate --exclude deploy/debian --exclude deploy/nfpm.yaml

package: ## The Debian package for this machine, built, installed, started and removed, as root or with sudo
	+PLATFORMS=linux/$$(go env GOARCH) .ci/release

fuzz: ## Each fuzz target for ten seconds; FUZZ=FuzzREST FUZZTIME=10m for one of them
	.ci/fuzz "$(FUZZ)" "$(FUZZTIME)"

docs: ## Every command of the documents, on the demo; DOCS=docs/reference/api.md for one of them
	.ci/docs $(DOCS)

model: ## Random databases and policies against models; SEEDS=1000, ARGS="-policy-tables 5000"
	CLEANUPD_SUITES=model go test ./tasks -run "TestRandomDatabases|TestRandomPolicies|TestRandomKeys" -timeout 2h -seeds $(or $(SEEDS),100) -key-seeds $(or $(SEEDS),100) $(ARGS)

faults: ## Runs on random databases under attack; SEEDS=200
	CLEANUPD_SUITES=faults go test ./tasks -run "TestFaults|TestInjectedErrors|TestHoldsUnderChaos|TestUndoUnderChaos" -parallel 4 -timeout 2h -fault-seeds $(or $(SEEDS),20) -chaos-seeds $(or $(SEEDS),20) -undo-seeds $(or $(SEEDS),200) $(ARGS)
	CLEANUPD_SUITES=faults go test ./service/runs -run TestInjectedErrors -parallel 4 -timeout 1h

bench: ## Ways to delete, compared; ARGS='--rows 300000'; see docs/explanation/benchmark.md
	go -C bench run . $(ARGS)

profile: ## Where the processor time of a test goes; PKG=./tasks/purge RUN=TestSweepWithinATarget
	@fresh=$$(mktemp -d)
	trap 'rm -rf "$$fresh"' EXIT
	go test $(only) $(PKG) $(ARGS) -o "$$fresh/test" -cpuprofile "$$fresh/cpu"
	go tool pprof -top -cum -nodecount=40 "$$fresh/test" "$$fresh/cpu"
