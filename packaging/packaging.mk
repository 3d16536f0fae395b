# Packages, an image, and the files of a release, all in dist/. The same commit gives the same bytes. packaging/ is a
# module of its own, so that go.mod stays small.

DIST      := dist
NFPM      := $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
CYCLONEDX := $(GO) run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)

# A commit without a tag has no version that package managers can compare, so the number of commits stands for it.
PACKAGE_VERSION := $(if $(filter v%,$(VERSION)),$(patsubst v%,%,$(VERSION)),0.0.0-dev.$(shell git rev-list --count HEAD 2>/dev/null))

PLATFORMS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64
PROGRAMS  := $(PLATFORMS:%=$(DIST)/bin/%/ledgerd)

# The programs are phony, since the go command knows what has changed.
.PHONY: $(PROGRAMS)
$(PROGRAMS): $(DIST)/bin/%/ledgerd:
	mkdir -p $(@D)
	CGO_ENABLED=0 GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) \
		$(GO) build -buildvcs=auto -trimpath -ldflags '-s -w $(LDFLAGS)' -o $@ ./cmd/ledgerd

# The files of a package without the program. The units of contrib have the program in /usr/local and a dynamic user;
# in a package it is in /usr, and postinstall.sh makes the user.
.PHONY: package-tree
package-tree: $(DIST)/bin/$(shell $(GO) env GOHOSTOS)-$(shell $(GO) env GOHOSTARCH)/ledgerd
	rm -rf $(DIST)/tree
	mkdir -p $(addprefix $(DIST)/tree/,usr/bin usr/lib/systemd/system usr/share/man/man1 usr/share/doc/ledgerd/examples \
		usr/share/bash-completion/completions usr/share/zsh/vendor-completions usr/share/fish/vendor_completions.d etc/ledgerd)
	$< self man $(DIST)/tree/usr/share/man/man1
	gzip -9n $(DIST)/tree/usr/share/man/man1/*
	$< self completion bash >$(DIST)/tree/usr/share/bash-completion/completions/ledgerd
	$< self completion zsh >$(DIST)/tree/usr/share/zsh/vendor-completions/_ledgerd
	$< self completion fish >$(DIST)/tree/usr/share/fish/vendor_completions.d/ledgerd.fish
	$< config init --config $(CURDIR)/$(DIST)/tree/etc/ledgerd/ledgerd.toml
	for unit in contrib/systemd/*; do sed -e 's,/usr/local/bin/,/usr/bin/,' -e '/^DynamicUser=/d' $$unit \
		>$(DIST)/tree/usr/lib/systemd/system/$${unit##*/} || exit 1; done
	cp contrib/prometheus/alerts.yml contrib/grafana/ledgerd.json $(DIST)/tree/usr/share/doc/ledgerd/examples/
	cp packaging/debian/copyright $(DIST)/tree/usr/share/doc/ledgerd/copyright
	gzip -9nc CHANGELOG.md >$(DIST)/tree/changelog.gz
	printf 'ledgerd (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
		"$$(echo $(PACKAGE_VERSION) | sed 's/-/~/')" 'The ledgerd authors <ledgerd@users.noreply.github.com>' \
		"$$(LC_ALL=C date -uRd @$(SOURCE_DATE_EPOCH))" | gzip -9n >$(DIST)/tree/changelog.Debian.gz
	find $(DIST)/tree -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +

.PHONY: packages
packages: package-tree $(DIST)/bin/linux-amd64/ledgerd $(DIST)/bin/linux-arm64/ledgerd ## make deb, rpm and apk packages for amd64 and arm64 in dist/
	rm -f $(DIST)/*.deb $(DIST)/*.rpm $(DIST)/*.apk
	for arch in amd64 arm64; do \
		install -m 755 $(DIST)/bin/linux-$$arch/ledgerd $(DIST)/tree/usr/bin/ledgerd || exit 1; \
		for packager in deb rpm apk; do \
			PACKAGE_VERSION=$(PACKAGE_VERSION) PACKAGE_ARCH=$$arch \
			$(NFPM) package -f packaging/nfpm.yaml -p $$packager -t $(DIST)/ || exit 1; \
		done; \
	done

.PHONY: image
image: $(DIST)/bin/linux-amd64/ledgerd $(DIST)/bin/linux-arm64/ledgerd ## make an OCI image for amd64 and arm64, dist/ledgerd-image.tar, without a daemon
	$(GO) run -C packaging . image -version '$(or $(VERSION),dev)' -commit '$(COMMIT)' -out $(CURDIR)/$(DIST)/ledgerd-image.tar \
		-amd64 $(CURDIR)/$(DIST)/bin/linux-amd64/ledgerd -arm64 $(CURDIR)/$(DIST)/bin/linux-arm64/ledgerd

.PHONY: test-packages
test-packages: packages image ## install, upgrade and purge the package in a clean Debian, run the image (root, mmdebstrap, lintian)
	$(ENSURE) mmdebstrap lintian rpm skopeo umoci
	packaging/test-packages.sh $(DIST)

# govulncheck ends with 3 if it finds something, with 1 if it cannot reach its database. OFFLINE=yes lets that pass.
.PHONY: audit
audit: ## the modules are as they were published, with licenses that are allowed, and without known vulnerabilities
	$(GO) mod verify
	$(CYCLONEDX) mod -json -licenses -noserial . | $(GO) run -C packaging . licenses
	GOBIN=$(CURDIR)/$(DIST)/bin $(GO) install $(GOVULNCHECK)
	$(DIST)/bin/govulncheck ./... || { [ $$? -eq 1 ] && echo "audit: vulnerabilities were not looked up" >&2 && [ -n "$(OFFLINE)" ]; }

.PHONY: release release-checked
release: release-checked packages image $(PROGRAMS) ## make the files of a release in dist/release (VERSION=v1.2.3, a tag of HEAD)
	rm -rf $(DIST)/release && mkdir -p $(DIST)/release
	cp $(DIST)/CHANGES.md $(DIST)/release/
	for platform in $(PLATFORMS); do \
		case $$platform in windows-*) suffix=.exe;; *) suffix=;; esac; \
		cp $(DIST)/bin/$$platform/ledgerd $(DIST)/release/ledgerd-$(VERSION)-$$platform$$suffix || exit 1; \
	done
	cp $(DIST)/*.deb $(DIST)/*.rpm $(DIST)/*.apk $(DIST)/release/
	cp $(DIST)/ledgerd-image.tar $(DIST)/release/ledgerd-$(VERSION)-image.tar
	$(CYCLONEDX) mod -json -licenses -noserial -output $(DIST)/release/ledgerd-$(VERSION).cdx.json .
	cd $(DIST)/release && sha256sum * >SHA256SUMS

# The first prerequisite, because the others take minutes.
release-checked:
	@echo '$(VERSION)' | grep -Eq '^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$$' || \
		{ echo "VERSION=$(VERSION) is not a version of a release: make release VERSION=v1.2.3" >&2; exit 1; }
	mkdir -p $(DIST)
	$(GO) run -C packaging . changes $(CURDIR)/CHANGELOG.md '$(VERSION)' >$(DIST)/CHANGES.md
