// Package zkmodel is a small ZooKeeper in memory: the data tree, sessions, watches and the wire protocol that muster
// uses. It is for trying things out and for simulation, never for production: nothing outlives the process.
//
// It knows what muster's client sends: sessions that begin, resume and end; pings; create and create2 with the four
// modes; delete, exists, getData, getChildren, getChildren2, setData, getACL, setACL, sync, multi, and check inside it;
// one-shot watches, and setWatches after a reconnection; ACLs and credentials of the schemes world, digest and auth.
// Everything else it refuses with an error: containers, znodes with a time to live, persistent watches, quotas, other
// schemes, TLS, four-letter words. It never guesses.
//
// It answers as one server of ZooKeeper 3.8 does that stands alone. Tests hold it against real servers: each reply,
// code, zxid, Stat and event.
package zkmodel
