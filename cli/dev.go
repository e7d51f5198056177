package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muster/zkserver"
)

// devOptions of "muster dev".
type devOptions struct {
	servers int
	port    int
}

func newDevCmd(p *process) *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a throw-away ZooKeeper on this machine",
		Long: `Runs a real ZooKeeper, the one installed on this machine, on loopback until it
is interrupted: on a free port, unless --port names one. It prints the line to
paste where other commands are to find it; at port 2181 they do without. Nothing
of it is left behind.`,
		Example: `  muster dev                               one server on a free port
  muster dev --port 2181                   one where the others look for it
  muster dev --servers 3 --port 2181       an ensemble on 2181, 2182 and 2183`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), p, o) },
	}
	cmd.Flags().IntVar(&o.servers, "servers", 1, "run `N` servers: 1 or 3")
	completeWith(cmd, "servers", "1", "3")
	cmd.Flags().IntVar(&o.port, "port", 0, "first client `PORT`; 0 takes free ones")
	return cmd
}

func runDev(ctx context.Context, p *process, o devOptions) (err error) {
	if o.servers != 1 && o.servers != 3 {
		return usagef("muster dev --servers 3", "an ensemble has 1 or 3 servers here, not %d", o.servers)
	}
	if o.port < 0 || o.port+o.servers > 1<<16 {
		return usagef("muster dev --port 2181", "%d is not a port", o.port)
	}
	opts := zkserver.Options{Servers: o.servers}
	for i := range o.servers {
		if o.port != 0 {
			opts.Ports = append(opts.Ports, o.port+i)
		}
	}
	start := time.Now()
	e, err := zkserver.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	if !p.flags.quiet {
		fmt.Fprintf(p.out, "ZooKeeper serves at %s after %d ms.\n", e.Connect(), time.Since(start).Milliseconds())
		fmt.Fprint(p.out, "It is gone, with all its data, when this command ends.\n\n")
	}
	fmt.Fprintf(p.out, "export MUSTER_SERVERS=%s\n", e.Connect())
	<-ctx.Done()
	return nil
}
