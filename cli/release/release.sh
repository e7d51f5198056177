#!/usr/bin/env bash
# release.sh [OS/ARCH...] builds archives, packages, bills of materials and checksums; release.sh image [ARCH] the files
# of the image. Both write into dist, or where DIST says, and make release and make image run them.
#
# The same commit and the same Go, tar and gzip give the same bytes, in whatever directory, as whatever user, with
# whatever umask, time zone and language. So there is no time but that of the commit or SOURCE_DATE_EPOCH, no owner but
# root, no mode but 0644 and 0755, and no setting of Go but these. Nothing is signed or published. goreleaser could do
# all of it, and takes five minutes of a processor and 3 GB to build; nfpm and cyclonedx-gomod take two and 0.9.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
cd ../..

# Each is built from source once, and then kept in Go's cache.
NFPM=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
CYCLONEDX=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

umask 022
GO=${GO:-go}
export LC_ALL=C TZ=UTC CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOFLAGS=-trimpath GOWORK=off GOFIPS140=off
unset GODEBUG GOEXPERIMENT GOOS GOARCH
mkdir -p "${DIST:=dist}"
dist=$(cd "$DIST" && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

if [ -e .git ]; then
	vcs=auto
	time=$(git log -1 --format=%ct) # fails if git refuses a checkout, of another user's for example
	list() { git ls-files; }
else # not of the commit of a repository around it
	vcs=false
	time=315532800 # 1980, the earliest that every format of archives can hold
	list() { find ./* -type f | sed 's|^\./||'; }
fi
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$time} # nfpm reads it too
export MAINTAINER="${MAINTAINER:-whoever built this package <root@localhost>}"

# tar and gzip as reproducible as they can be. On macOS GNU tar is called gtar.
tar=$(command -v gtar || echo tar)
archive() {
	"$tar" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX -C "$1" -cf - "$2" | gzip -n
}

# compile OS/ARCH FILE builds muster.
compile() {
	GOOS=${1%/*} GOARCH=${1#*/} "$GO" build -buildvcs=$vcs -ldflags='-s -w' -o "$2" .
}

experiment=$("$GO" env GOEXPERIMENT) # from "go env -w"
if [ -n "$experiment" ]; then
	echo "release: GOEXPERIMENT=$experiment changes the binary: go env -u GOEXPERIMENT" >&2
	exit 1
fi
"$GO" build -ldflags=-w -o "$temp/release" ./cli/release

if [ "${1:-}" = image ]; then
	rm -rf "$dist/image"
	mkdir -p "$dist/image/"{etc/ssl/certs,usr/local/bin}
	mkdir -m 1777 "$dist/image/tmp" # for the sockets of workers
	echo 'muster:x:65534:65534:muster:/:' >"$dist/image/etc/passwd"
	"$temp/release" certificates >"$dist/image/etc/ssl/certs/ca-certificates.crt"
	compile "linux/${2:-$("$GO" env GOARCH)}" "$dist/image/usr/local/bin/muster"
	exit
fi

[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
mkdir "$temp/out"
for platform; do
	compile "$platform" "$temp/muster"
	version=$("$temp/release" version "$temp/muster")
	name=muster_${version}_${platform/\//_}
	files=$temp/$name
	mkdir -p "$files"
	mv "$temp/muster" "$files"
	"$temp/release" files "$files" "$version" "$SOURCE_DATE_EPOCH"
	list | grep -E '^(README\.md|CHANGELOG\.md|docs/.*\.md|examples/.*)$' |
		grep -v -E '_test\.go$|/testdata/|/__pycache__/|^examples/(checkpoint/images|gang/checkpoints)/' |
		"$tar" -cf - -T - | "$tar" -C "$files" -xf -
	"$GO" run "$CYCLONEDX" bin -json -noserial -notimestamp -std -version "$version" \
		-output "$files/sbom.cdx.json" "$files/muster" 2>"$temp/log" || { cat "$temp/log" >&2 && exit 1; }
	archive "$temp" "$name" >"$temp/out/$name.tar.gz"
	if [ "${platform%/*}" = linux ]; then
		gzip -nr "$files/man"
		for packager in deb rpm; do
			(cd "$files" && ARCH=${platform#*/} VERSION=$version "$GO" run "$NFPM" package \
				-f "$here/nfpm.yaml" -p $packager -t "$temp/out" >/dev/null)
		done
	fi
done
cd "$temp/out"
sha256sum -- * >"$temp/SHA256SUMS"
mv -- "$temp/SHA256SUMS" * "$dist"
ls -l "$dist"
