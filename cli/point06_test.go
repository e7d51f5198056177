package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// correctConfig has every kind of name that can be mistyped. The test mistypes the names between ‹ and ›, one at a
// time.
const correctConfig = `‹muster› {
  ‹stack›            = "tests"
  ‹required_version› = ">= 0.1"
  ‹roots›            = ["/more"]
  ‹take_over›        = ["old"]
  ‹home›             = "/home"
}
‹zookeeper› {
  ‹servers›         = var.‹ensemble›
  ‹session_timeout› = "10s"
  ‹acl›             = ["auth::cdrwa"]
  ‹tls› {
    ‹ca_file›   = "ca.pem"
    ‹cert_file› = "me.pem"
    ‹key_file›  = "me.key"
  }
}
‹variable› "ensemble" {
  ‹type›        = list(‹string›)
  ‹default›     = ["127.0.0.1:1"]
  ‹description› = "host:port"
  ‹validation› {
    ‹condition›     = ‹length›(var.ensemble) > 0
    ‹error_message› = "Name a server."
  }
}
‹locals› {
  regions = { eu = 1 }
  size    = ‹max›(1, 2)
}
‹defaults› {
  ‹root› = "/jobs"
  ‹timeouts› {
    ‹join› = "2m"
  }
}
‹job› "ingest" {
  ‹for_each›    = local.‹regions›
  ‹name›        = "ingest-${each.‹key›}"
  ‹root›        = "/jobs"
  ‹workers›     = each.‹value›
  ‹roll_format› = "‹protobuf›"
  ‹timeouts› {
    ‹session› = "30s"
    ‹barrier› = "1m"
    ‹stale›   = "30s"
  }
  ‹lifecycle› {
    ‹on_complete› = "‹remove›"
    ‹on_running›  = "‹fail›"
    ‹protect›     = false
  }
  ‹labels› = { size = "${local.‹size›}" }
  ‹precondition› {
    ‹condition›     = true
    ‹error_message› = "No."
  }
}
‹drift› {
  ‹ignore› {
    ‹address› = "job.‹ingest›[\"eu\"]"
    ‹fields›  = ["‹labels›"]
    ‹until›   = "2999-01-31"
    ‹reason›  = "OPS-1412"
  }
}
`

// typosOf returns names at an edit distance of 1 or 2 from name.
func typosOf(name string) []string {
	middle := len(name) / 2
	typos := []string{
		name + "x",                                // one too many
		name[:middle] + name[middle+1:],           // one too few
		name[:middle] + "q" + name[middle+1:],     // another
		"x" + name[:middle] + "q" + name[middle:], // two too many
		name[1:2] + name[0:1] + name[2:],          // two exchanged
	}
	if len(name) > 4 { // two letters are too few for a suggestion
		typos = append(typos, name[1:len(name)-1])
	}
	return typos
}

// TestPoint06EveryTypoGetsASuggestion mistypes every block, argument, variable, local, function, label, type and
// keyword.
func TestPoint06EveryTypoGetsASuggestion(t *testing.T) {
	marks := regexp.MustCompile(`‹\w+›`).FindAllStringIndex(correctConfig, -1)
	plain := strings.NewReplacer("‹", "", "›", "")
	f := fixture{dir: t.TempDir()}
	check := func(text string) outcome {
		dir, err := os.MkdirTemp(f.dir, "")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "jobs.hcl"), []byte(text), 0o644)
		}
		if err != nil {
			return outcome{code: -1, stderr: err.Error()}
		}
		cmd := f.command("", "validate", dir)
		cmd.Env = append(cmd.Env, "MUSTER_ZK_AUTH=digest:a:b")
		return result(cmd)
	}
	expect(t, check(plain.Replace(correctConfig)), 0, "Valid: stack tests, 1 job.")
	var g errgroup.Group
	g.SetLimit(4)
	typos := 0
	for _, m := range marks {
		name := plain.Replace(correctConfig[m[0]:m[1]])
		for _, typo := range typosOf(name) {
			if strings.Contains(correctConfig, "‹"+typo+"›") || typo == name {
				continue // another name, and no typo
			}
			typos++
			g.Go(func() error {
				got := check(plain.Replace(correctConfig[:m[0]] + typo + correctConfig[m[1]:]))
				if got.code != 1 || !strings.Contains(got.stderr, "did you mean ") {
					t.Errorf("%s for %s: code %d\n%s", typo, name, got.code, got.stderr)
				}
				return nil
			})
		}
	}
	_ = g.Wait()
	if typos < 300 {
		t.Errorf("only %d typos", typos)
	}
}
