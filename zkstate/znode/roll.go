package znode

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

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
			var m []byte
			m, err = EncodeWorker(w)
			data = append(binary.BigEndian.AppendUint32(data, uint32(len(m))), m...)
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

// DecodeRoll decodes a roll of either format. It returns every worker that can be read, also workers without an id and
// several with one id. The problems are sentences for people about what could not be read. An empty body is an empty
// roll without problems.
//
// The first byte tells the format. In a protobuf roll that is the highest byte of a length, which is zero since a znode
// is small. A text roll holds no zero byte.
func DecodeRoll(data []byte) ([]Worker, []string) {
	odd := &oddities{}
	var ws []Worker
	switch {
	case len(data) > maxRoll:
		odd.add("%d bytes are too many for a roll: nothing was read", len(data))
	case len(data) > 0 && data[0] == 0:
		ws = decodeMessages(data, odd)
	default:
		ws = decodeText(data, odd)
	}
	if odd.more > 0 {
		odd.listed = append(odd.listed, fmt.Sprintf("and %d more", odd.more))
	}
	return ws, odd.listed
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

// The text roll of classic workers has one row for each worker, with a newline before it:
//
//	ip,port,workerID;nodeIP,rackName,datacenterName
//
// An absent field of the second part is the word null, in any case. The first prototype wrote ip:port=workerID;
// instead.

// appendRow appends one row. A field with the value "null" will be read as absent.
func appendRow(data []byte, w Worker) ([]byte, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	for _, s := range []string{w.IP, w.Node.IP, w.Node.Rack, w.Node.Datacenter} {
		if strings.ContainsAny(s, ",;") {
			return nil, fmt.Errorf("%q cannot be in a text roll, whose separators are ',' and ';'", s)
		}
	}
	return fmt.Appendf(data, "\n%s,%d,%d;%s,%s,%s", w.IP, w.Port, w.ID,
		cmp.Or(w.Node.IP, absentText), cmp.Or(w.Node.Rack, absentText), cmp.Or(w.Node.Datacenter, absentText)), nil
}

func decodeText(data []byte, odd *oddities) []Worker {
	var ws []Worker
	row := 0
	for line := range strings.SplitSeq(string(data), "\n") {
		if line == "" {
			continue
		}
		row++
		if rows, ok := decodePrototype(line); ok {
			ws = append(ws, rows...)
			continue
		}
		first, rest, _ := strings.Cut(line, ";")
		second, rest, _ := strings.Cut(rest, ";")
		w, err := decodeAddress(first)
		if err != nil {
			odd.add("row %d: %v", row, err)
			continue
		}
		if w.Node, err = decodeNode(second); err != nil {
			odd.add("row %d: no node: %v", row, err)
		}
		if rest != "" {
			odd.add("row %d: %.100q after its second part was ignored", row, rest)
		}
		ws = append(ws, w)
	}
	return ws
}

func decodeAddress(s string) (Worker, error) {
	fields := strings.Split(s, ",")
	if len(fields) != 3 {
		return Worker{}, fmt.Errorf("%.100q is not ip,port,workerID", s)
	}
	return newWorker(fields[0], fields[1], fields[2])
}

func decodeNode(s string) (Node, error) {
	fields := strings.Split(s, ",")
	if len(fields) != 3 {
		return Node{}, fmt.Errorf("%.100q is not nodeIP,rackName,datacenterName", s)
	}
	for i, f := range fields {
		if strings.EqualFold(f, absentText) {
			fields[i] = ""
		}
	}
	n := Node{fields[0], fields[1], fields[2]}
	if err := n.check(); err != nil {
		return Node{}, err
	}
	return n, nil
}

// decodePrototype reads a line of one or more ip:port=workerID; and reports whether it is one.
func decodePrototype(line string) ([]Worker, bool) {
	rest, ok := strings.CutSuffix(line, ";")
	if !ok || strings.Contains(rest, ",") {
		return nil, false
	}
	var ws []Worker
	for s := range strings.SplitSeq(rest, ";") {
		address, id, ok := strings.Cut(s, "=")
		colon := strings.LastIndexByte(address, ':')
		if !ok || colon < 0 {
			return nil, false
		}
		w, err := newWorker(address[:colon], address[colon+1:], id)
		if err != nil {
			return nil, false
		}
		ws = append(ws, w)
	}
	return ws, true
}

// newWorker is the worker of these texts. A negative id is NoID.
func newWorker(ip, port, id string) (Worker, error) {
	p, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return Worker{}, fmt.Errorf("%.100q is not a port", port)
	}
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil {
		return Worker{}, fmt.Errorf("%.100q is not an id", id)
	}
	w := Worker{ID: max(int(n), NoID), IP: ip, Port: int(p)}
	return w, w.check()
}

// maxOddities is how many oddities are listed. A body of a million newlines must not give a million sentences.
const maxOddities = 20

// oddities collects what is wrong with a roll, in sentences.
type oddities struct {
	listed []string
	more   int
}

func (o *oddities) add(format string, args ...any) {
	if len(o.listed) == maxOddities {
		o.more++
		return
	}
	o.listed = append(o.listed, fmt.Sprintf(format, args...))
}

// Workers of the classic controller make a classic job; muster keeps their layout. It has no Record, and its children
// are its live workers. Its other znodes are siblings, whose names start with its name: its companions.

// companionSuffixes are the ends of companions' names. A suffix that ends in another one comes before that.
func companionSuffixes() []string {
	return []string{
		"-dai-for-worker-id", // counter of ids
		"-dai-for-barrier",   // counter of arrivals
		"-dai",               // the one counter of the first prototype
		"-lock", "-barrier", "-job-master",
	}
}

// Companions maps each job to its companions among names, the children of a root, sorted. isJob reports whether a name
// is a job because it has a Record or is declared; such a name is never a companion. The job of a companion is one of
// these, or another name that is no companion itself. A companion whose job is gone is left out.
func Companions(names []string, isJob func(name string) bool) map[string][]string {
	of := map[string][]string{}
	candidate := make(map[string]bool, len(names)) // may have companions
	// Shorter names come first: the name of a job is shorter than those of its companions.
	shorter := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(slices.Values(names), shorter) {
		base := ""
		if !isJob(name) {
			base = companionOf(name, func(b string) bool { return candidate[b] || isJob(b) })
		}
		if base == "" {
			candidate[name] = true
			continue
		}
		of[base] = append(of[base], name)
	}
	for _, companions := range of {
		slices.Sort(companions)
	}
	return of
}

// companionOf is the job of the companion name, by its suffix; "" if name is no companion.
func companionOf(name string, isJob func(name string) bool) string {
	for _, suffix := range companionSuffixes() {
		if base, ok := strings.CutSuffix(name, suffix); ok && isJob(base) {
			return base
		}
	}
	return ""
}

// IsCompanion reports whether path has the name of a companion of the job at jobPath.
func IsCompanion(path, jobPath string) bool {
	suffix, ok := strings.CutPrefix(path, jobPath)
	return ok && slices.Contains(companionSuffixes(), suffix)
}

// LooksClassic reports whether a znode without a Record is a classic job: its body is a roll, or it is empty and a
// child is called like an address.
func LooksClassic(body []byte, children []string) bool {
	if len(body) > 0 {
		ws, _ := DecodeRoll(body)
		return slices.ContainsFunc(ws, func(w Worker) bool { return w.IP != "" })
	}
	return slices.ContainsFunc(children, func(child string) bool {
		name, _ := StripProtected(child)
		return isAddress(name)
	})
}

// isAddress reports whether name is host:port, split at the last colon.
func isAddress(name string) bool {
	colon := strings.LastIndexByte(name, ':')
	if colon < 1 {
		return false
	}
	port, err := strconv.ParseUint(name[colon+1:], 10, 16)
	return err == nil && port > 0
}

// protected matches Curator's protected names: a prefix, a UUID, a dash and the requested name.
var protected = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^_c_[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}-(?s:(.*))$`)
})

// StripProtected removes Curator's 40 characters from the name of a protected znode. It returns any other name
// unchanged, and false.
func StripProtected(name string) (string, bool) {
	if parts := protected().FindStringSubmatch(name); parts != nil {
		return parts[1], true
	}
	return name, false
}
