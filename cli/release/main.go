// Command release writes what users get besides the binary: manual pages, completions, the certificates of the image,
// and the version that the names of archives and packages have. release.sh runs it, and is what make release and make
// image run.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"muster/cli"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "version":
		info, err := buildinfo.ReadFile(args[1])
		if err != nil {
			return err
		}
		v, err := releaseVersion(info)
		if err == nil {
			_, err = fmt.Fprintln(out, v)
		}
		return err
	case len(args) == 4 && args[0] == "files":
		seconds, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return err
		}
		return writeFiles(args[1], args[2], time.Unix(seconds, 0).UTC())
	case len(args) == 1 && args[0] == "certificates":
		_, err := out.Write(certificates())
		return err
	}
	return errors.New("usage: release version BINARY, release files DIRECTORY VERSION SECONDS, or release certificates")
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

func writeFiles(dir, version string, at time.Time) error {
	files := manual(cli.Commands(), at, version)
	for name, shell := range map[string]string{"bash/muster": "bash", "zsh/_muster": "zsh", "fish/muster.fish": "fish"} {
		var script bytes.Buffer
		args := []string{"completion", shell}
		if code := cli.Run(context.Background(), args, nil, strings.NewReader(""), &script, os.Stderr); code != 0 {
			return fmt.Errorf("muster completion %s ends with %d", shell, code)
		}
		files["completions/"+name] = script.Bytes()
	}
	for name, body := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// certificates are the roots that Mozilla trusts. It leaves out those that it trusts only for what they signed before
// some day, since a file cannot say that. go.mod pins them; those of this machine would differ from the next one's.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}
