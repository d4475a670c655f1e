# dew: run `make help` for the targets.

# A pipe fails if any of its commands fails.
SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
UNITDIR ?= $(PREFIX)/lib/systemd/system
BIN     ?= bin
ARCH    ?= $(shell $(GO) env GOARCH)
BENCH   ?= .
FUZZ    ?= 30s

# The first seed, the number of seeds, and the faults and apps of each run of `make fire`.
SEED    ?= 1
SEEDS   ?= 1
FAULTS  ?= 100
APPS    ?= 20
LINES   ?= 100
RACE    ?= 0
MINUTES ?= 0

# No debug information: the build removes it from the programs, and tests do not need it. The
# flag is the same for all commands, because Go compiles a package again for every other one.
DWARF := -gcflags=all=-dwarf=false
export GOFLAGS := $(strip $(filter-out $(DWARF),$(shell $(GO) env GOFLAGS 2>/dev/null)) $(DWARF))

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The state of `make run` is in the checkout. Its sockets are not, because the path of a
# socket has at most 107 characters. The path is different for each checkout.
ROOT ?= $(CURDIR)/.dew/root
RUN  ?= /run/dew-$(shell printf %s '$(CURDIR)' | sha256sum | cut -c1-8)

# what=package, see dist/need.sh. Any name below .localhost works. If the NSS module is
# installed but disabled, make setup does not install its package again.
RUN_NEEDS  := containerd=containerd runc=runc curl=curl
NAME_NEEDS := name:setup.dew.localhost=libnss-myhostname
TEST_NEEDS := gcc=gcc '/usr/include/stdlib.h=libc6-dev' mkfs.ext4=e2fsprogs rsync=rsync ssh=openssh-client zip=zip git=git \
	javac=openjdk-17-jdk-headless /usr/share/tomcat10/skel/conf/web.xml=tomcat10-user ruby=ruby bundle=ruby-bundler node=nodejs php=php-cli nginx=nginx-light /usr/bin/python3=python3 \
	/usr/bin/pip3=python3-pip unzip=unzip \
	mmdebstrap=mmdebstrap docker-registry=docker-registry \
	'/usr/lib/postgresql/*/bin/postgres=postgresql' psql=postgresql-client mariadbd=mariadb-server mariadb=mariadb-client \
	redis-server=redis-server redis-cli=redis-tools rsyslogd=rsyslog postfix=postfix '/usr/lib/*/rsyslog/lmnsd_gtls.so=rsyslog-gnutls' \
	chromium=chromium certutil=libnss3-tools
BENCH_NEEDS := dockerd=docker.io podman=podman caddy=caddy wrk=wrk
K8S_NEEDS  := containerd=containerd runc=runc mmdebstrap=mmdebstrap docker-registry=docker-registry nft=nftables \
	/usr/lib/cni/ptp=containernetworking-plugins nsenter=util-linux kubectl=kubernetes-client
VM_NEEDS   := qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap mkfs.ext4=e2fsprogs

# The linters are in tools/go.mod and the sample apps in examples/go.mod, so that
# go.mod has only the dependencies of the programs and their tests.
MODULES := . examples
LINTER  := $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

# Runs `go test` in every module, and fails if it fails in one of them.
eachmodule = status=0; for module in $(MODULES); do $(GO) test -C $$module $(1) ./... || status=1; done; exit $$status

# Runs the integration tests of every module with a time limit for each package.
integration = status=0; \
	$(GO) test -race -tags integration -p 1 -count 1 -timeout $(1) $(call tagged,integration) || status=1; \
	$(GO) test -C examples -race -tags integration -p 1 -count 1 -timeout $(1) ./... || status=1; \
	exit $$status

# Folders of this module whose tests have the tag, and folders of every module
# whose functions have the prefix.
tagged = $(shell grep -rlE --include='*_test.go' --exclude-dir=examples '^//go:build .*\<$(1)\>' . | xargs -r -n1 dirname | sort -u)
holding = $(shell grep -rlE --include='*_test.go' '^func $(1)[A-Z]' . | xargs -r -n1 dirname | sort -u)

.DEFAULT_GOAL := help
.PHONY: help setup setup-test setup-bench setup-vmtest setup-k8stest build build-kubernetes run stop test quick unit integration proof fire fuzz vmtest matrix k8stest lint vulncheck probes bench cover install uninstall deb env tarballs reproducible fresh clean root console-vendor

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what dewd needs to run, if it is not there (Debian)
	@dist/need.sh $(RUN_NEEDS)
	@ls /lib/*/libnss_myhostname.so.2 /usr/lib/*/libnss_myhostname.so.2 >/dev/null 2>&1 || dist/need.sh $(NAME_NEEDS)

setup-test: setup ## install what the tests need besides, starting no service
	@dist/need.sh --no-start $(TEST_NEEDS)

setup-vmtest: setup-test
	@dist/need.sh --no-start $(VM_NEEDS)

setup-k8stest:
	@dist/need.sh --no-start $(K8S_NEEDS)

# The compiler runs for a second per package. It collects garbage only if it uses much memory.
build build-kubernetes: export GOGC ?= off
build build-kubernetes: export GOMEMLIMIT ?= 512MiB

build: ## build bin/dewd, bin/dew, bin/dew-init, bin/dew-sftp, bin/dew-static, bin/dew-buildpack and bin/dew-pod, static (ARCH=amd64 or arm64)
	@mkdir -p '$(BIN)'
	@[ -x '$(BIN)/dewd' ] || echo '==> building $(BIN)/: a minute or two the first time'
	@CGO_ENABLED=0 GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o '$(BIN)/' ./cmd/...

build-kubernetes: ## the same, with a dewd that can run instances in a Kubernetes cluster
	@mkdir -p '$(BIN)'
	@CGO_ENABLED=0 GOARCH=$(ARCH) $(GO) build -tags kubernetes -trimpath -ldflags '$(LDFLAGS)' -o '$(BIN)/' ./cmd/...

run: setup build ## start dewd, push the sample app with its sidecar, show its answer and its logs
	@dist/checkout.sh start '$(ROOT)' '$(RUN)'

stop: ## stop the dewd of `make run` and its apps; the next `make run` starts them again
	@dist/checkout.sh stop '$(ROOT)' '$(RUN)'

env: ## print the line that makes `dew` in this shell talk to the dewd of `make run`
	@printf 'export DEW_RUN=%s PATH=%s:$$PATH\n' '$(RUN)' '$(CURDIR)/bin'

test: root setup-test build ## every kind of test (root, some 20 minutes)
	@{ $(GO) test -race -timeout 10m $$($(GO) list ./... | grep -vxF "$$($(GO) list -tags integration $(call tagged,integration))") && \
		$(MAKE) --no-print-directory integration; } | dist/slowest.sh

# The linker and the tests of a package run for seconds and have little data. They collect
# garbage less often, which saves a quarter of the processor time.
quick unit: export GOGC ?= 400

# These are the settings of the build, so that the packages are compiled once for both.
# Half of the time goes into linking: no symbols are written. Lint runs vet. Some tests
# wait for a peer, so more packages run at once than there are processors.
quick: ## unit tests without the race detector (half a minute when compiled)
	@export CGO_ENABLED=0; { $(call eachmodule,-trimpath -p $$((2 * $$(nproc))) -vet=off -ldflags '-s -w' -timeout 5m); } | dist/slowest.sh

unit: ## unit tests with the race detector (a minute or two)
	@{ $(call eachmodule,-race -timeout 5m); } | dist/slowest.sh

# Packages run one after the other: each starts containers and counts what is left, and
# tests with a hundred clients need the whole machine. This runs all tests of the tagged
# packages and of the examples, including unit tests.
integration: root build ## the tests with real containers, databases and peers (root)
	@$(call integration,30m)

proof: root setup-test build fuzz ## the long versions of the tests, and every fuzz test (FUZZ=30s each)
	@export DEW_PROOF=1; $(call eachmodule,-race -count 1 -timeout 1h)
	@export DEW_PROOF=1; $(call integration,4h)

fire: root setup-test build ## inject faults under load and check that nothing is lost (SEED=1 SEEDS=1 FAULTS=100 APPS=20 LINES=100 RACE=0 MINUTES=0)
	@DEW_FIRE_SEED=$(SEED) DEW_FIRE_SEEDS=$(SEEDS) DEW_FIRE_FAULTS=$(FAULTS) DEW_FIRE_APPS=$(APPS) DEW_FIRE_LINES=$(LINES) DEW_FIRE_RACE=$(RACE) DEW_FIRE_MINUTES=$(MINUTES) DEW_FIRE_COMMIT=$(VERSION) \
		$(GO) test -tags integration -count 1 -timeout 0 -v -run '^TestFire$$' ./fire

probes: root setup-test build ## attack dewd and its containers, and write the table of docs/security.md
	@DEW_PROBES_UPDATE=1 $(GO) test -race -tags integration -count 1 -timeout 30m -run '^TestProbes$$' ./probe

fuzz: ## run every fuzz test (FUZZ=30s each, JOBS=1 at a time; KEEP=1 stores the inputs that it finds in dist/fuzz-corpus.tar.gz)
	@GO='$(GO)' KEEP='$(KEEP)' JOBS='$(JOBS)' dist/fuzz.sh $(FUZZ) $(call holding,Fuzz)

vmtest: root setup-vmtest ## install, use, upgrade and remove dew in a guest with systemd and cgroup v2, and run the engine's tests there (qemu; PART=life or tests)
	@.ci/vmtest $(PART)

matrix: root setup-test ## the engine's tests with other versions of containerd and runc (CONTAINERD=latest RUNC=latest)
	@CONTAINERD='$(CONTAINERD)' RUNC='$(RUNC)' .ci/matrix

k8stest: root setup-k8stest ## the tests in a real Kubernetes cluster (root; the first build takes about 10 minutes)
	@.ci/k8stest

lint: ## check style, formatting, English and known vulnerabilities; prints nothing when all is well
	@for module in $(MODULES); do (cd $$module && $(LINTER) run ./...) || exit 1; done
	@cd tools/cluster && $(LINTER) run . ./pause # not ./kubernetes, which needs all packages of Kubernetes
	@GO='$(GO)' dist/prose.sh
	@GO='$(GO)' dist/vulncheck.sh
	@for script in dist/*.sh .ci/run; do sh -n $$script || exit 1; done; bash -n .ci/vmtest .ci/vmtest-run .ci/vmtest-life .ci/vmtest-runtime .ci/matrix .ci/k8stest .ci/fresh .ci/page

vulncheck: ## check for known vulnerabilities (VULNDB=folder for a copy of the database)
	@GO='$(GO)' dist/vulncheck.sh

setup-bench: setup-test
	@dist/need.sh --no-start $(BENCH_NEEDS)

bench: root setup-bench build ## measure, as docs/performance.md tells (BENCH=regexp; RECORD=1 writes the figures of that page)
	@$(GO) test -tags bench -p 1 -run '^$$' -bench '$(BENCH)' -timeout 2h $(call holding,Benchmark) | \
		$(if $(filter 1,$(RECORD)),$(GO) run ./dist/figures -commit '$(VERSION)' docs,cat)

cover: ## coverage of the unit tests, and as root of the integration tests too
	@$(GO) test -covermode atomic -coverpkg ./... -coverprofile cover.out -p 1 -timeout 30m \
		$$([ "$$(id -u)" != 0 ] || echo -tags integration) ./...
	@$(GO) test -C examples -cover -p 1 -timeout 30m $$([ "$$(id -u)" != 0 ] || echo -tags integration) ./...
	@$(GO) tool cover -func cover.out | tail -1
	@echo 'by line: go tool cover -html cover.out'

install: build ## install to PREFIX=/usr/local: programs, systemd units, manual pages, completion
	@dist/install.sh install '$(BIN)' '$(BIN)' '$(DESTDIR)' '$(PREFIX)' '$(UNITDIR)'

uninstall: ## remove what `make install` installed; apps and logs in /var/lib/dew stay
	@dist/install.sh uninstall '$(DESTDIR)' '$(PREFIX)' '$(UNITDIR)'

deb: ## build a Debian package, bin/dew_VERSION_ARCH.deb (ARCH=amd64 or arm64)
	@dist/deb.sh '$(VERSION)' '$(ARCH)'

# The files have the time of the newest commit, so that two builds are the same.
tarballs: ## make bin/dew_VERSION_ARCH.tar.gz with static programs for amd64 and arm64, their bill of materials and licenses
	@for arch in amd64 arm64; do \
		$(MAKE) --no-print-directory build ARCH=$$arch BIN=bin/$$arch && \
		rm -f bin/$$arch/dew.cdx.json bin/$$arch/LICENSES.txt && $(GO) run -trimpath ./dist/parts -version '$(VERSION)' -out bin/$$arch bin/$$arch/* && \
		tar -C bin/$$arch -c --owner 0 --group 0 --numeric-owner --sort name --mtime "@$$(git log -1 --format=%ct)" --mode go-w . | gzip -9n >bin/dew_$(VERSION)_$$arch.tar.gz && \
		echo bin/dew_$(VERSION)_$$arch.tar.gz || exit 1; \
	done

reproducible: ## build the newest commit twice and compare all programs and packages (ten minutes)
	@dist/reproducible.sh

console-vendor: ## fetch the third-party scripts of the console with npm, and verify their checksums
	@dist/console-vendor.sh

fresh: root ## run the commands of README and docs/install.md on a bare Debian with only Go, make and apt
	@dist/need.sh --no-start mmdebstrap=mmdebstrap unshare=util-linux
	@.ci/fresh

clean: stop ## stop the dewd of `make run`, delete its apps and data, and what was built
	rm -rf bin .dew cover.out

root:
	@test "$$(id -u)" = 0 || { echo 'make: the integration tests need root (sudo make test); make unit does not' >&2; exit 1; }
