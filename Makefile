# The commands of CONTRIBUTING.md. `make` alone lists them.

SEEDS ?= 30
lint := go tool -modfile=tools/lint/go.mod golangci-lint
buf := go tool -modfile=tools/go.mod buf

.PHONY: help ci test race lint generate random faults bench demo

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

ci: ## what CI does, on a clean checkout
	.ci/run

test: ## all tests
	go test ./...

race: ## all tests with the race detector
	go test -race -timeout 30m ./...

lint: ## the linters, and that of the API
	go vet ./...
	$(lint) run ./...
	$(buf) lint

generate: ## gen/ from proto/
	$(buf) generate

random: ## SEEDS random databases against the model
	go test ./tasks -run 'TestRandomDatabases$$' -timeout 0 -seeds $(SEEDS)

faults: ## SEEDS databases under attack in each setting, a third of it in special ones
	go test ./tasks -run TestFaults -timeout 0 -fault-seeds $(SEEDS)

bench: ## ratios against a plain DELETE
	go -C bench run .

demo: ## a private PostgreSQL, a database, a run
	go run ./cmd/cleanupd demo
