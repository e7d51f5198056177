// Command release builds what users get: archives, packages and the image of muster. The Makefile runs it.
//
// The same commit and the same Go give the same bytes, in whatever directory, as whatever user, with whatever umask,
// time zone and language. So it takes no time but that of the commit, no owner but root, no mode but 0644 and 0755, and
// no setting of Go but its own. It refuses a tag that cli.Version does not agree with. It signs and publishes nothing,
// and states no licence, vendor or maintainer, since there is none.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	dir        string // the source tree
	out        string
	platforms  []platform
	maintainer string
	image      string // its name; with it only the image is built
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil && o.image != "" {
		err = releaseImage(ctx, o)
	} else if err == nil {
		err = release(ctx, o)
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{dir: "."}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&o.out, "out", "dist", "write into this `directory`")
	platforms := fs.String("platforms", "", "a `list`, with commas; default: linux and darwin, amd64 and arm64; "+
		"of an image: linux and what this machine is")
	// deb requires a maintainer. Nobody maintains a package of muster but whoever builds it.
	fs.StringVar(&o.maintainer, "maintainer", "whoever built this package <root@localhost>",
		"the `person` whom packages name: name <address>")
	fs.StringVar(&o.image, "image", "", "build only the image, of this `name`")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	list := "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"
	if o.image != "" {
		list = "linux/" + runtime.GOARCH
	}
	for p := range strings.SplitSeq(cmp.Or(*platforms, list), ",") {
		goos, arch, ok := strings.Cut(p, "/")
		if !ok || !slices.Contains([]string{"linux", "darwin"}, goos) || arch != "amd64" && arch != "arm64" {
			return o, fmt.Errorf("-platforms: %q is not linux or darwin, a slash, and amd64 or arm64", p)
		}
		o.platforms = append(o.platforms, platform{goos, arch})
	}
	if o.image != "" && (len(o.platforms) > 1 || o.platforms[0].os != "linux") {
		return o, errors.New("an image is for one platform of linux: -platforms linux/amd64, or linux/arm64")
	}
	return o, nil
}

// release writes the archives, the packages and the list of their checksums.
func release(ctx context.Context, o options) error {
	src, err := readSource(ctx, o.dir)
	if err != nil {
		return err
	}
	sums := make(map[string][]byte)
	for _, p := range o.platforms {
		b, err := build(ctx, src, p)
		if err != nil {
			return err
		}
		name := "muster_" + b.version + "_" + p.os + "_" + p.arch
		body, err := archive(name, slices.Concat(src.shared, b.files(src)), src.time)
		if err != nil {
			return err
		}
		if err := write(o.out, name+".tar.gz", body, sums); err != nil {
			return err
		}
		if p.os != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			body, err := pack(ctx, format, o.maintainer, src, b)
			if err != nil {
				return err
			}
			if err := write(o.out, packageName(format, b), body, sums); err != nil {
				return err
			}
		}
	}
	return write(o.out, "SHA256SUMS", checksums(sums), nil)
}

// write writes a file and says so.
func write(dir, name string, body []byte, sums map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, body, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s  %.1f MB\n", path, float64(len(body))/1e6)
	if sums != nil {
		sums[name] = body
	}
	return nil
}
