package znode

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"muster/job"
)

// recordFormat numbers the layout of everything below .muster, not just of the Record. It changes only when a muster
// that does not know the new one would do harm.
const recordFormat = 1

// maxJSON bounds every JSON body, in bytes.
const maxJSON = 256 << 10

// ErrFormat means a muster of another layout wrote the Record. Leave the job alone, and use that version.
var ErrFormat = errors.New("record of another format")

// record is the body of a Record znode.
type record struct {
	Format int `json:"format"`
	job.Record
}

// EncodeRecord writes a Record. Equal Records have equal bytes.
func EncodeRecord(r job.Record) ([]byte, error) {
	if err := checkRecord(r); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return encodeJSON("record", record{recordFormat, r})
}

// DecodeRecord reads a Record and checks it. See DecodeRecordAt.
func DecodeRecord(data []byte) (job.Record, error) {
	var r record
	// The format first: the rest of another layout may not even have the same types.
	var head struct {
		Format *int `json:"format"`
	}
	if err := decodeJSON("record", data, &head); err != nil {
		return job.Record{}, err
	}
	switch {
	case head.Format == nil:
		return job.Record{}, fmt.Errorf("record: it has no format")
	case *head.Format != recordFormat:
		return job.Record{}, fmt.Errorf("%w: it has format %d, this muster knows %d", ErrFormat, *head.Format, recordFormat)
	}
	if err := decodeJSON("record", data, &r); err != nil {
		return job.Record{}, err
	}
	if err := checkRecord(r.Record); err != nil {
		return job.Record{}, fmt.Errorf("record: %w", err)
	}
	return r.Record, nil
}

// DecodeRecordAt is DecodeRecord for the Record of the job at path: one that names another job is refused, so that
// a copied Record cannot direct a write elsewhere.
func DecodeRecordAt(path string, data []byte) (job.Record, error) {
	r, err := DecodeRecord(data)
	if err == nil && r.Job.Path() != path {
		return job.Record{}, fmt.Errorf("record: it belongs to %q", r.Job.Path())
	}
	return r, err
}

// checkRecord says what makes a Record unusable, by the names of its JSON.
func checkRecord(r job.Record) error {
	if err := r.Job.Check(); err != nil {
		return fmt.Errorf("job.%w", err)
	}
	if r.Stack == "" {
		return fmt.Errorf("stack: it is empty")
	}
	if err := CheckToken(r.Generation); err != nil {
		return fmt.Errorf("generation: %w", err)
	}
	if r.State != job.Open && r.State != job.Terminating {
		return fmt.Errorf("state: %q is neither %q nor %q", r.State, job.Open, job.Terminating)
	}
	return nil
}

// encodeJSON writes v, whose maps encoding/json sorts.
func encodeJSON(what string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(data) > maxJSON {
		return nil, fmt.Errorf("%s: %d bytes are more than the %d allowed", what, len(data), maxJSON)
	}
	return data, nil
}

// decodeJSON reads one JSON object of bounded size into v.
func decodeJSON(what string, data []byte, v any) error {
	switch {
	case len(data) == 0:
		return fmt.Errorf("%s: it is empty", what)
	case len(data) > maxJSON:
		return fmt.Errorf("%s: %d bytes are more than the %d allowed", what, len(data), maxJSON)
	case !utf8.Valid(data):
		return fmt.Errorf("%s: it is not UTF-8", what)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
