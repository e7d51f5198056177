package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/cli"
)

// nfpm makes the packages. It is a program and not a library here, since as a library it would put twenty modules into
// the go.mod of the product.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// nfpmConfig is what nfpm reads: JSON is YAML.
type nfpmConfig struct {
	Name        string        `json:"name"`
	Arch        string        `json:"arch"`
	Platform    string        `json:"platform"`
	Version     string        `json:"version"`
	Release     string        `json:"release"`
	Section     string        `json:"section"`
	Priority    string        `json:"priority"`
	Maintainer  string        `json:"maintainer"`
	Description string        `json:"description"`
	Time        time.Time     `json:"mtime"`
	NoGlobbing  bool          `json:"disable_globbing"`
	Contents    []nfpmContent `json:"contents"`
	RPM         nfpmRPM       `json:"rpm"`
}

type nfpmRPM struct {
	Summary   string `json:"summary"`
	BuildHost string `json:"buildhost"`
}

type nfpmContent struct {
	From string   `json:"src"`
	At   string   `json:"dst"`
	Type string   `json:"type,omitempty"`
	Info nfpmInfo `json:"file_info"`
}

type nfpmInfo struct {
	Mode  uint32    `json:"mode"`
	Time  time.Time `json:"mtime"`
	Owner string    `json:"owner"`
	Group string    `json:"group"`
}

// packageName is the usual name of a package's file.
func packageName(format string, b built) string {
	version := strings.Replace(b.version, "-", "~", 1) // ~ is what comes before
	if format == "deb" {
		return fmt.Sprintf("muster_%s-1_%s.deb", version, b.arch)
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[b.arch]
	return fmt.Sprintf("muster-%s-1.%s.rpm", version, arch)
}

// pack makes a package. It installs no service: a worker's unit names its job, so it is an example.
func pack(ctx context.Context, format, maintainer string, src source, b built) ([]byte, error) {
	files, err := installed(format, src, b)
	if err != nil {
		return nil, err
	}
	var body []byte
	err = inTemp(func(dir string) error {
		config := nfpmPackage(format, maintainer, src, b)
		for i, f := range files {
			from := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(from, f.body, 0o600); err != nil {
				return err
			}
			kind := ""
			if format == "rpm" && strings.HasPrefix(f.name, "/usr/share/doc/") {
				kind = "doc"
			}
			config.Contents = append(config.Contents, nfpmContent{
				From: from, At: f.name, Type: kind, Info: nfpmInfo{uint32(f.mode()), src.time, "root", "root"},
			})
		}
		body, err = runNfpm(ctx, format, dir, config)
		return err
	})
	return body, err
}

// nfpmPackage is what nfpm is told of a package without its files.
func nfpmPackage(format, maintainer string, src source, b built) nfpmConfig {
	muster := cli.Commands()
	config := nfpmConfig{
		Name: "muster", Arch: b.arch, Platform: "linux", Version: b.version, Release: "1", Section: "admin",
		Priority: "optional", Maintainer: maintainer, Description: description(muster), Time: src.time, NoGlobbing: true,
		RPM: nfpmRPM{Summary: muster.Short, BuildHost: "localhost"}, // not this machine's name
	}
	if format == "deb" { // where the first line is the summary
		config.Description = muster.Short + "\n" + config.Description
	}
	return config
}

func runNfpm(ctx context.Context, format, dir string, config nfpmConfig) ([]byte, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	name, target := filepath.Join(dir, "nfpm.yaml"), filepath.Join(dir, "muster."+format)
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return nil, err
	}
	if _, err := output(ctx, dir, "go", "run", nfpm, "package", "-f", name, "-p", format, "-t", target); err != nil {
		return nil, err
	}
	return os.ReadFile(target)
}

// installed are the files of a package, where distributions look for them.
func installed(format string, src source, b built) ([]file, error) {
	zsh := "/usr/share/zsh/vendor-completions/"
	if format == "rpm" {
		zsh = "/usr/share/zsh/site-functions/"
	}
	var files []file
	for _, f := range slices.Concat(b.files(src), src.shared) {
		switch {
		case f.name == "muster":
			f.name = "/usr/bin/muster"
		case strings.HasPrefix(f.name, "completions/bash/"):
			f.name = "/usr/share/bash-completion/completions/" + filepath.Base(f.name)
		case strings.HasPrefix(f.name, "completions/zsh/"):
			f.name = zsh + filepath.Base(f.name)
		case strings.HasPrefix(f.name, "completions/fish/"):
			f.name = "/usr/share/fish/vendor_completions.d/" + filepath.Base(f.name)
		case strings.HasPrefix(f.name, "man/"):
			body, err := compress(f.body)
			if err != nil {
				return nil, err
			}
			f.name, f.body = "/usr/share/"+f.name+".gz", body
		default:
			f.name = "/usr/share/doc/muster/" + f.name
		}
		files = append(files, f)
	}
	return files, nil
}
