// Package differ holds package zkmodel against real ZooKeeper servers. Random traces run on both, and each reply, Stat
// and event must be the same. So must be the results of the recipes of kazoo, a client that others wrote. It has only
// tests. This one runs new traces for an hour:
//
//	go test ./dev/zkmodel/differ -run AreTheModel -differ.for 1h
package differ
