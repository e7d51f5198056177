// Package group is the kind of groups: the processes of one application, which come and go, and the duties that exactly
// one of them has at a time. It holds the fields of a group and of its duties, their limits and defaults, and what the
// facts found about a group mean.
//
// One type Group serves all: HCL declares it, ZooKeeper records it and a member reads it. The package holds plain data
// and rules about it; it talks to no server and runs no duty.
package group
