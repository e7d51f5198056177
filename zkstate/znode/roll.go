package znode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"muster/job"
)

// RollLimit is the size of the largest roll that is written, in bytes: room is left below ZooKeeper's limit of 1 MiB
// for the rest of the transaction.
const RollLimit = 900_000

// maxRoll is the size of the largest roll that is read: classic workers wrote until ZooKeeper refused.
const maxRoll = 1 << 20

// lengthSize is the size of what precedes each message: a 32-bit big-endian signed integer.
const lengthSize = 4

// ErrRollTooLarge means that the roll would exceed RollLimit. Leave the job znode empty; peers are still found by id.
var ErrRollTooLarge = errors.New("the roll is too large for one znode")

// EncodeRoll writes the roll in the given format, in the order of ws.
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

// DecodeRoll reads a roll of either format, by anybody. It returns every worker that can be read, as stored: also
// those without an id, and two with the same one. The problems say, for people, what could not be read and what is odd
// about the ids. The format is empty if there is no worker; an empty body is an empty roll without problems.
func DecodeRoll(data []byte) (job.RollFormat, []Worker, []string) {
	format, ws, odd := decodeRoll(data)
	odd.checkIDs(ws)
	return format, ws, odd.list()
}

// decodeRoll tells the formats apart by the first byte. That is certain: it is the highest byte of a length, hence
// zero for any roll that fits a znode, and no text holds a zero.
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
