// Package differ holds package zkmodel against real ZooKeeper servers. Random traces run on both, and each reply, Stat
// and event must be the same. So must be the results of the recipes of kazoo, a client that others wrote. It has only
// tests.
package differ
