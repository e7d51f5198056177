package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"muster/cli"
)

// platform is what a binary runs on.
type platform struct{ os, arch string }

// built is a binary and what it says of itself.
type built struct {
	platform
	body    []byte
	info    *debug.BuildInfo
	version string
}

// build builds the binary of a platform.
func build(ctx context.Context, src source, p platform) (built, error) {
	b := built{platform: p}
	err := inTemp(func(dir string) error {
		out := filepath.Join(dir, "muster")
		if err := compile(ctx, src, p, out); err != nil {
			return fmt.Errorf("go build for %s/%s: %w", p.os, p.arch, err)
		}
		var err error
		if b.info, err = buildinfo.ReadFile(out); err != nil {
			return err
		}
		for _, s := range b.info.Settings {
			if s.Key == "GOEXPERIMENT" { // "go env -w" has it, and an empty variable does not take it back
				return fmt.Errorf("GOEXPERIMENT=%s changes the binary: go env -u GOEXPERIMENT", s.Value)
			}
		}
		if b.version, err = releaseVersion(b.info); err != nil {
			return err
		}
		b.body, err = os.ReadFile(out)
		return err
	})
	return b, err
}

// compile has no setting but these: what is in the environment or in "go env -w" could change the binary. Without -s it
// is half as large again; a panic shows the same either way.
func compile(ctx context.Context, src source, p platform, out string) error {
	vcs := "-buildvcs=false" // sources that were unpacked somewhere in another repository are not of its commit
	if src.git {
		vcs = "-buildvcs=auto"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", vcs, "-ldflags=-s", "-o", out, ".")
	cmd.Dir, cmd.Stderr = src.dir, os.Stderr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), changesBuild),
		"GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly",
		"GOWORK=off", "GOFIPS140=off")
	return cmd.Run()
}

// changesBuild reports whether a variable of the environment may change what go build builds.
func changesBuild(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"GODEBUG", "GOEXPERIMENT"}, name)
}

// releaseVersion is the version of archives and packages: that of the tag, or one with the time and the commit, or
// without git one that says only that it is no release.
func releaseVersion(info *debug.BuildInfo) (string, error) {
	v := cli.VersionOf(info)
	if v == cli.Version {
		return v, nil
	}
	if tagged, err := version.NewVersion(info.Main.Version); err == nil {
		if ours, err := version.NewVersion(v); err != nil || tagged.GreaterThan(ours) {
			return "", fmt.Errorf("git has %s, here or earlier, and cli/version.go says %s: raise it there, "+
				"or tag this commit, without changes, v%s", info.Main.Version, cli.Version, cli.Version)
		}
	}
	setting := make(map[string]string)
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	if revision := setting["vcs.revision"]; revision != "" {
		at := strings.NewReplacer("-", "", "T", "", ":", "", "Z", "").Replace(setting["vcs.time"])
		v += "." + at + "." + revision[:min(12, len(revision))]
	}
	if setting["vcs.modified"] == "true" {
		v += ".modified"
	}
	return v, nil
}

// files are what an archive has besides documentation and examples.
func (b built) files(src source) []file {
	files := []file{
		{name: "muster", body: b.body, executable: true},
		{name: "sbom.cdx.json", body: bom(b)},
	}
	for _, s := range []struct{ shell, name string }{{"bash", "muster"}, {"zsh", "_muster"}, {"fish", "muster.fish"}} {
		files = append(files, file{name: "completions/" + s.shell + "/" + s.name, body: completion(s.shell)})
	}
	for _, page := range manual(cli.Commands(), src.time, b.version) {
		page.name = "man/man1/" + page.name
		files = append(files, page)
	}
	return files
}
