// Package sim runs the real code of muster's recipes in one process, against a ZooKeeper in memory. A scheduler decides
// the order of all messages, and when processes crash, connections break and sessions end. Time is virtual. Only tests
// import it.
package sim
