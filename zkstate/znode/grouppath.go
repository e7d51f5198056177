package znode

import "muster/resource"

// Prefixes of the sequential znodes of groups.
const (
	seatPrefix     = "s-"
	guestPrefix    = "x-"
	resignedPrefix = "r-"
	askPrefix      = "a-"
)

// GroupFolders lists the znodes that the first member of a group, or the first operator's request, creates below the
// generation.
func GroupFolders() []string { return []string{"seat", "assigner", "duty", "resigned", "ask"} }

// Seats is the folder of a group's seats. Nothing else is ever created in it, so the number of a seat is its seniority.
func Seats(root, g string) string { return resource.Join(Run(root, g), "seat") }

// NewSeat is the path of the sequential, ephemeral znode that takes the next seat.
func NewSeat(root, g string) string { return resource.Join(Seats(root, g), seatPrefix) }

// SeatNumber reads the number of a seat from its name or path. A smaller one is senior.
func SeatNumber(name string) (int32, error) {
	if n, err := Seq(base(name), guestPrefix); err == nil {
		return n, nil
	}
	return Seq(base(name), seatPrefix)
}

// Decides reports whether the member with this seat may be the assigner. One with a seat such as "x-0000000003" has
// duties as all others, and never is: a program in another language need not know how duties are assigned.
func Decides(seat string) bool {
	_, err := Seq(base(seat), seatPrefix)
	return err == nil
}

// SeatAt is the znode of the seat with this name, such as "s-0000000003".
func SeatAt(root, g, name string) string { return resource.Join(Seats(root, g), name) }

// Assigner is the assigner's memory.
func Assigner(root, g string) string { return resource.Join(Run(root, g), "assigner") }

// Duties is the folder of the duties that somebody has taken at least once.
func Duties(root, g string) string { return resource.Join(Run(root, g), "duty") }

// Duty is the znode of one duty. Its data version guards every write of its holder. Each take sets it, and the zxid of
// that is the epoch.
func Duty(root, g, duty string) string { return resource.Join(Duties(root, g), duty) }

// Held is the ephemeral znode that exists while somebody holds a duty. Its body is a Holder.
func Held(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "held") }

// Resigned is the folder of the messages of members that gave up a duty, for the assigner.
func Resigned(root, g string) string { return resource.Join(Run(root, g), "resigned") }

// NewResigned is the path of the sequential znode of the next such message. Its body is a Resignation.
func NewResigned(root, g string) string { return resource.Join(Resigned(root, g), resignedPrefix) }

// Asks is the folder of operators' requests, for the assigner. Its body is an AskLog.
func Asks(root, g string) string { return resource.Join(Run(root, g), "ask") }

// NewAsk is the path of the sequential znode of the next request. Its body is an Ask.
func NewAsk(root, g string) string { return resource.Join(Asks(root, g), askPrefix) }

// States is the folder of a duty's saved state. Its body is a StateTotal.
func States(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "state") }

// State is one key. Its body is a SavedValue.
func State(root, g, duty, key string) string { return resource.Join(States(root, g, duty), key) }
