package znode

import "fmt"

// body is what a znode holds as one JSON object: each has a type in this package. P is a pointer to that type.
type body[T any] interface {
	*T
	// check says what is wrong with it. It may bring it into the form in which it is written.
	check() error
	// what names it in errors.
	what() string
}

// Encode checks a body and encodes it.
func Encode[T any, P body[T]](v T) ([]byte, error) {
	p := P(&v)
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.what(), err)
	}
	return encodeJSON(p.what(), v)
}

// Decode decodes a body and checks it. It ignores fields that it does not know.
func Decode[T any, P body[T]](data []byte) (T, error) {
	var v, none T
	p := P(&v)
	if err := decodeJSON(p.what(), data, p); err != nil {
		return none, err
	}
	if err := p.check(); err != nil {
		return none, fmt.Errorf("%s: %w", p.what(), err)
	}
	return v, nil
}

// DecodeAny is Decode of what may be empty: then it is nil.
func DecodeAny[T any, P body[T]](data []byte) (*T, error) {
	if len(data) == 0 {
		return nil, nil
	}
	v, err := Decode[T, P](data)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

func (Present) what() string       { return "member" }
func (Seat) what() string          { return "seat" }
func (DutyTaken) what() string     { return "duty" }
func (Holder) what() string        { return "holder" }
func (Resignation) what() string   { return "resignation" }
func (Ask) what() string           { return "request" }
func (Journal) what() string       { return "journal" }
func (StepRecord) what() string    { return "step" }
func (Opening) what() string       { return "operation" }
func (QueueProcess) what() string  { return "process" }
func (QueueSeat) what() string     { return "seat" }
func (BatchManifest) what() string { return "batch" }
func (BatchEnd) what() string      { return "ended batch" }
func (Health) what() string        { return "health" }
func (StateTotal) what() string    { return "state" }
func (TickCursor) what() string    { return "cursor" }
func (TickRecord) what() string    { return "run" }
func (Claim) what() string         { return "claim" }
func (Round) what() string         { return "round" }
func (Index) what() string         { return "index of a stack" }
func (Mark) what() string          { return "mark" }
func (AskLog) what() string        { return "log of requests" }

// required refuses a body whose field is empty. It takes names and values in turn.
func required(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return fmt.Errorf("it has no %s", pairs[i])
		}
	}
	return nil
}

func checkSorted(field string, names []string) error {
	for i, name := range names {
		if name == "" || i > 0 && names[i-1] >= name {
			return fmt.Errorf("%s: %q is not sorted, or twice there", field, names)
		}
	}
	return nil
}
