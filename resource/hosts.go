package resource

import (
	"net"
	"slices"
	"strings"
)

// Hosts are the hosts that may get credentials, each as host or host:port. Where a process connects to may have been
// written by somebody else, so whoever gives it credentials also says for which hosts they are.
type Hosts []string

// ParseHosts reads hosts that are separated by commas.
func ParseHosts(text string) Hosts {
	var all Hosts
	for host := range strings.SplitSeq(text, ",") {
		if host = strings.TrimSpace(host); host != "" {
			all = append(all, host)
		}
	}
	return all
}

// Include reports whether the server at an address may get the credentials. An address without a port is a host.
func (h Hosts) Include(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	return slices.ContainsFunc(h, func(one string) bool {
		return strings.EqualFold(one, host) || strings.EqualFold(one, addr)
	})
}
