// Package sim runs the real code of muster's recipes in one process, against a ZooKeeper in memory. A scheduler decides
// the order of all messages, and when processes crash, connections break and sessions end. Time is virtual. Only tests
// import it.
//
// A world declares processes, each with a function that runs real code, and what must hold: after every step (Check),
// for every transaction (OnTxn) and at the end (AtEnd). Run explores schedules of it. Each schedule ends without
// faults, and then every process must end too. What a process has seen it tells by Process.Saw: if it has crashed,
// nobody hears it.
//
// A schedule that fails is printed as a trace, which is shortened first. A line is what happened, to which life of
// which process, and what the message was: "apply a.1 set /x@v" means that the server got the request of the second
// life of a to set /x, and that it names a version; "deliver a.1 set /x@v" that the process got the answer. Requests of
// a process that has crashed or lost its connection may still arrive. -sim.trace FILE runs a trace again.
//
// A seed gives nearly always the same schedule, and not always: the client library and the recipes have goroutines of
// their own. So a trace tells what happened, not only by which random numbers. Replaying skips lines that do not fit.
//
// Mutants shows for each guard of each transaction that it is needed: without it some world must fail.
//
// What it does not simulate: a process that stands still for a while and notices nothing (Faults.Expiries comes close),
// a server that loses what it has confirmed, and the order of what one process's own goroutines do.
package sim
