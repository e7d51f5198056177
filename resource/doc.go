// Package resource holds what declared resources of all kinds have in common: their names, the fields that are
// compared, what was found of them in ZooKeeper, and the Record that ZooKeeper keeps of them.
//
// A kind (such as package job) provides a Declaration, which says what the facts about a resource mean. Code that
// decides on an action looks at the Class and the Policy, never at the kind. The package holds plain data and rules
// about it; it reads no file and talks to no server.
package resource
