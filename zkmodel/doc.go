// Package zkmodel is a small ZooKeeper in memory: the data tree, sessions, watches and the wire protocol that muster
// uses. It is for trying things out and for simulation, never for production: nothing outlives the process.
//
// It refuses every request that it does not know. Its tests hold it against real servers: each reply, Stat and event.
package zkmodel
