// Package roster decides which member of a group has which duty. Assign is a pure function of what is declared, who is
// live, and what the group's assigner remembers. The package reads no clock, talks to no server and writes nothing. It
// does not know how a member takes a duty or hands it over, and does not check what is declared.
//
// A member is known by its seat. A smaller seat is senior. A process that comes back has another seat, so what is
// remembered of its last life (a duty, a pin, failures) is not about it.
//
// # Who may have a duty
//
// A member can do a duty if it is ready, lists the duty, and has a version that fits. Of those, a duty that prefers the
// newest version wants the members of one version:
//
//   - the version that it had last time, while a member of it can do the duty; or else the version of its holder; or
//     else the newest that has enough members, whatever their age; or else the newest;
//   - and then, again and again, the newest version above that one which has enough members that are at least settle
//     old. If young members counted, everything would move to the first of them that is old enough, and then again.
//     What is enough may be a percentage of the version so far, so it changes with each step. Without the repetition
//     the next call would change the roster again although nothing happened.
//
// These rules are tried in this order:
//
//   - A paused duty has no holder, and is no load. Its holder loses it, because else its command would go on.
//   - In a group that starts, a holder keeps its duty and nobody gets one. Otherwise the first one up would start
//     everything. A group starts while every member is younger than settle, and they are fewer than half of those that
//     it had last: after an outage, in which all were lost, it does not wait for the oldest. Members that can do no
//     declared duty do not count.
//   - A pin to a member that can do the duty is stronger than everything below, also than preferred versions, failures
//     and settle. A pin to a member that cannot do it, or has to wait after it gave it up, has no effect until it can,
//     because no duty is vacant while somebody could have it. A pin to a member that left is over: Roster.Pins lacks
//     it.
//   - A holder that was asked to hand over loses the duty to any other member that is wanted, and gets it back only if
//     nobody else may have it: evenness would undo the hand-over. If it keeps the duty, or gets it back, the request is
//     over; so it is when the member leaves.
//   - A leader stays where it is while its member is wanted, because evenness is not worth the end of its command. So a
//     leader that prefers no version stays while its member can do it.
//   - A holder of another version than the wanted one loses the duty to a wanted member that is at least settle old,
//     and keeps it until there is one.
//   - A vacant duty goes to a wanted member of any age at once. If all of them have to wait after they gave it up, it
//     goes to the newest version of which somebody has not.
//   - Any other duty stays or moves to a wanted member that is at least settle old.
//   - Only the members with the fewest failures at this duty get it. A holder that does its duty keeps it, whatever it
//     did before; but nobody who failed more often gets the duty from it.
//
// Members that joined within a tenth of settle are as old as the oldest of them.
//
// # Who has it
//
// Assign minimises, in this order: the number of vacant duties; the sum of the squares of loads, which is how uneven
// they are; the number of moves; the sum of the seats of all duties. A move is a duty that a holder loses although it
// might keep it.
//
// A load has no limit, so a duty is vacant only if nobody may have it. The rest is a flow of least cost from duties
// through members, whose k-th duty costs 2k-1 squares. Assign starts with what is kept, gives the other duties, those
// with the fewest eligible members first, to the least loaded, and then shifts duties along the cheapest alternating
// path until no path makes the roster better. That reaches the optimum:
//
//   - A flow is optimal if no cycle of its residual network has a negative cost (Klein 1967).
//   - A cycle that keeps all loads can only save moves. At the start there is none: whatever may be kept is kept. A
//     shift along a cheapest path between two members makes none.
//   - So a negative cycle changes the loads of two members, and is a path from one to the other. The search finds the
//     best of all such paths, and ends if it is no improvement.
//
// Paths that save squares end at a member with a load at least 2 smaller. They alone are not enough: the seats would
// not be minimal without the paths to a member with a load of 1 less, which save moves or seats. And a path that sends
// a duty back home saves a move again, so that the order of the shifts does not matter.
//
// The same input in any order gives the same roster, and Assign of its own result changes nothing: who may have a duty
// then is a part of who might before.
package roster
