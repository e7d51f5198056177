// Package resource says what everything that is declared has in common, whatever its kind: what it is called, the fields
// that are compared, what was found of it in ZooKeeper, and the record that ZooKeeper keeps of it.
//
// A kind (package job is one) gives a Declaration and says what the facts about it mean. Whatever decides what is done
// with it looks at its Class and its Policy, never at its kind. The package holds plain data and rules about it; it reads
// no file and talks to no server.
package resource
