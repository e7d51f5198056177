package znode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"muster/resource/job"
)

// RollLimit is the maximum size of a roll that is written, in bytes. ZooKeeper's limit is 1 MiB; the difference is for
// the rest of the transaction.
const RollLimit = 900_000

// maxRoll is the maximum size of a roll that is read, in bytes. Classic workers write up to ZooKeeper's limit.
const maxRoll = 1 << 20

// lengthSize is the size of the length before each message: a 32-bit big-endian signed integer.
const lengthSize = 4

// ErrRollTooLarge means that the roll would exceed RollLimit. Leave the job znode empty; workers still find each other
// by id.
var ErrRollTooLarge = errors.New("the roll is too large for one znode")

// EncodeRoll encodes the roll in this format, in the order of ws.
func EncodeRoll(format job.RollFormat, ws []Worker) ([]byte, error) {
	var data []byte
	for _, w := range ws {
		var err error
		switch format {
		case job.Protobuf:
			data, err = appendMessage(data, w)
		case job.Text:
			data, err = appendRow(data, w)
		default:
			err = fmt.Errorf("%q is not a roll format", format)
		}
		if err != nil {
			return nil, fmt.Errorf("roll: worker %d: %w", w.ID, err)
		}
		if len(data) > RollLimit {
			return nil, fmt.Errorf("%w: %d workers exceed %d bytes", ErrRollTooLarge, len(ws), RollLimit)
		}
	}
	return data, nil
}

func appendMessage(data []byte, w Worker) ([]byte, error) {
	m, err := EncodeWorker(w)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(data, uint32(len(m))), m...), nil
}

// DecodeRoll decodes a roll of either format. It returns every worker that can be read, also workers without an id and
// several with one id. The problems are sentences for people: what could not be read, and what is wrong with the ids.
// The format is empty if there are no workers. An empty body is an empty roll without problems.
func DecodeRoll(data []byte) (job.RollFormat, []Worker, []string) {
	format, ws, odd := decodeRoll(data)
	odd.checkIDs(ws)
	return format, ws, odd.list()
}

// decodeRoll recognises the format by the first byte. In a protobuf roll that is the highest byte of a length, which is
// zero since a znode is small. A text roll holds no zero byte.
func decodeRoll(data []byte) (job.RollFormat, []Worker, *oddities) {
	odd := &oddities{}
	if len(data) > maxRoll {
		odd.add("%d bytes are too many for a roll: nothing was read", len(data))
		return "", nil, odd
	}
	if len(data) == 0 {
		return "", nil, odd
	}
	format, decode := job.Text, decodeText
	if data[0] == 0 {
		format, decode = job.Protobuf, decodeMessages
	}
	ws := decode(data, odd)
	if len(ws) == 0 {
		format = ""
	}
	return format, ws, odd
}

func decodeMessages(data []byte, odd *oddities) []Worker {
	var ws []Worker
	for row := 1; len(data) > 0; row++ {
		if len(data) < lengthSize {
			odd.add("row %d: cut short within its length", row)
			break
		}
		n := int64(int32(binary.BigEndian.Uint32(data)))
		data = data[lengthSize:]
		if n < 0 || n > int64(len(data)) {
			odd.add("row %d: it says %d bytes and %d follow", row, n, len(data))
			break
		}
		w, err := DecodeWorker(data[:n])
		switch {
		case n == 0:
			odd.add("row %d: it is empty", row)
		case err != nil:
			odd.add("row %d: %v", row, err)
		default:
			ws = append(ws, w)
		}
		data = data[n:]
	}
	return ws
}
