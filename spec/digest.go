package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"muster/resource"
)

// digest is a hash of what the configuration means. Places, spelling and credentials do not change it.
func (c *Config) digest() string {
	type ignore struct {
		Address string   `json:"address"`
		Fields  []string `json:"fields"`
		Until   string   `json:"until"`
		Reason  string   `json:"reason"`
	}
	ignores := []ignore{}
	for _, i := range c.Ignores {
		ignores = append(ignores, ignore{i.Address, i.Fields, i.Until.Format(time.DateOnly), i.Reason})
	}
	// The keys of a saved plan would change the digests of all configurations.
	type tls struct{ CAFile, CertFile, KeyFile string }
	sum := sha256.New()
	meaning := map[string]any{
		"stack": c.Stack, "home": c.Home, "roots": sorted(c.Roots), "take_over": sorted(c.TakeOver),
		"servers": c.ZooKeeper.Servers, "session_timeout": c.ZooKeeper.SessionTimeout, "acl": sorted(c.ZooKeeper.ACL),
		"tls": tls(c.ZooKeeper.TLS), "jobs": byAddress(c.Jobs), "ignores": ignores,
	}
	if len(c.Groups) > 0 { // a configuration without groups keeps the digest that it had before there were groups
		meaning["groups"] = byAddress(c.Groups)
	}
	if len(c.Queues) > 0 { // likewise
		meaning["queues"] = byAddress(c.Queues)
	}
	_ = json.NewEncoder(sum).Encode(meaning) // plain data into a hash: neither can fail
	return hex.EncodeToString(sum.Sum(nil))
}

func byAddress[T resource.Declaration](list []T) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return cmp.Compare(a.ID().Address, b.ID().Address) })
}

// sorted copies and sorts a list whose order means nothing. A nil list becomes like an empty one.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
