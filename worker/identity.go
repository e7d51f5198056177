package worker

import (
	"fmt"
	"strings"

	"muster/zkstate/znode"
)

// Identify chooses the identity of a worker. It is the first of these: the flag; MUSTER_IDENTITY; the index of an
// indexed container job, as worker-<index>; in Kubernetes a host name that ends in a number, as a StatefulSet gives
// it; the address that the worker advertises, ip:port. Only the address is not stable: a worker that restarts with
// another address is a new worker. An error names the source whose value cannot be an identity.
func Identify(
	flag string, getenv func(string) string, hostname, advertise string,
) (identity string, stable bool, err error) {
	if flag != "" {
		return flag, true, from("--identity", znode.CheckIdentity(flag))
	}
	if name := getenv("MUSTER_IDENTITY"); name != "" {
		return name, true, from("MUSTER_IDENTITY", znode.CheckIdentity(name))
	}
	for _, source := range []string{"JOB_COMPLETION_INDEX", "SLURM_PROCID"} {
		if index := getenv(source); index != "" {
			return "worker-" + index, true, from(source, checkIndex(index))
		}
	}
	if getenv("KUBERNETES_SERVICE_HOST") != "" && numbered(hostname) {
		return hostname, true, from("the host name", znode.CheckIdentity(hostname))
	}
	return advertise, false, from("the address", znode.CheckIdentity(advertise))
}

func from(source string, err error) error {
	if err != nil {
		return fmt.Errorf("identity from %s: %w", source, err)
	}
	return nil
}

// checkIndex refuses an index that is not a number in its shortest form: 1 and 01 would be two workers.
func checkIndex(s string) error {
	if !digits(s) || len(s) > 9 || len(s) > 1 && s[0] == '0' {
		return fmt.Errorf("%q is not an index such as 0 or 12", s)
	}
	return nil
}

// numbered reports whether a host name is of the form base-<number>.
func numbered(host string) bool {
	i := strings.LastIndexByte(host, '-')
	return i > 0 && digits(host[i+1:])
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
