package wrap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster/worker"
)

// The variables that a command is given, besides AddressVariable. Launchers of distributed training and of MPI programs
// set the last four.
const (
	JobVariable        = "MUSTER_JOB"
	IDVariable         = "MUSTER_ID"
	WorkersVariable    = "MUSTER_WORKERS"
	IdentityVariable   = "MUSTER_IDENTITY"
	GenerationVariable = "MUSTER_GENERATION"
	SocketVariable     = "MUSTER_SOCKET"
	RollVariable       = "MUSTER_ROLL"
	rankVariable       = "RANK"
	sizeVariable       = "WORLD_SIZE"
	addrVariable       = "MASTER_ADDR"
	portVariable       = "MASTER_PORT"
)

// environment is the command's: Config's, with what it should know about its worker.
func (r *run) environment(ctx context.Context) ([]string, error) {
	var first worker.Worker // id 0 has joined: ids are given in order
	var m *worker.Member
	err := r.membership.within(ctx, 0, func(ctx context.Context, current *worker.Member) (err error) {
		m = current
		first, err = m.Lookup(ctx, 0)
		return err
	}, "where worker 0 is")
	if err != nil {
		return nil, err
	}
	roll := ""
	if r.c.Start != StartJoined {
		if roll, err = r.writeRoll(ctx); err != nil {
			return nil, err
		}
	}
	addr, port := first.IP, strconv.Itoa(first.Port)
	if first.Problem != "" {
		addr, port = "", ""
		r.c.Log.Warn("the address of worker 0 is not known, so the command does not get it", "reason", first.Problem)
	}
	id, size := strconv.Itoa(m.ID), strconv.Itoa(m.Job.Workers)
	return setVariables(r.c.Environ, [][2]string{
		{JobVariable, m.Job.Name}, {IDVariable, id}, {WorkersVariable, size}, {IdentityVariable, m.Identity},
		{GenerationVariable, m.Generation}, {SocketVariable, r.socket.path}, {RollVariable, roll},
		{AddressVariable, m.Address()},
		{rankVariable, id}, {sizeVariable, size}, {addrVariable, addr}, {portVariable, port},
	}), nil
}

// credentials are the variables that hold what this process proves with who it is, or name the files that do. A name
// that ends with an underscore stands for all that begin so.
func credentials() []string {
	return []string{
		"MUSTER_ZK_AUTH", "MUSTER_ZK_AUTH_FILE", "MUSTER_TLS_CERT", "MUSTER_TLS_KEY", "MUSTER_REDIS_", "MUSTER_SENTINEL_",
	}
}

// WithoutCredentials returns an environment without what only muster itself needs to know: what a command has in its
// environment gets into its logs and its own children.
func WithoutCredentials(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(credentials(), func(one string) bool {
			return name == one || strings.HasSuffix(one, "_") && strings.HasPrefix(name, one)
		})
	})
}

// setVariables returns the environment with these variables set. An empty value removes the variable.
func setVariables(environ []string, variables [][2]string) []string {
	all := slices.DeleteFunc(slices.Clone(environ), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.ContainsFunc(variables, func(v [2]string) bool { return v[0] == name })
	})
	for _, v := range variables {
		if v[1] != "" {
			all = append(all, v[0]+"="+v[1])
		}
	}
	return all
}

// writeRoll writes all workers to a file, as JSON in the order of their ids.
func (r *run) writeRoll(ctx context.Context) (string, error) {
	var roll []worker.Worker
	err := r.membership.within(ctx, 0, func(ctx context.Context, m *worker.Member) (err error) {
		roll, err = m.Roll(ctx)
		return err
	}, "who has joined")
	if err != nil {
		return "", err
	}
	body, err := json.MarshalIndent(roll, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(r.socket.path), "roll.json")
	if err := os.WriteFile(path, append(body, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("the roll: %w", err)
	}
	return path, nil
}
