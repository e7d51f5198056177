package planfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
)

// Decode reads a file that Encode wrote. It accepts exactly the bytes that Encode writes for the result. Every other
// file is ErrDamaged or ErrVersion. The digest finds accidents and careless edits. It does not prove who wrote the
// file: what it covers is checked too.
func Decode(kinds []resource.Kind, file []byte) (Saved, error) {
	if len(file) > MaxFile {
		return Saved{}, damaged("it has %d bytes; a plan file has at most %d", len(file), MaxFile)
	}
	var version struct {
		FormatVersion string `json:"format_version"`
	}
	_ = json.Unmarshal(file, &version) // what is no JSON has no digest
	if v := version.FormatVersion; v != "" && v != FormatVersion {
		return Saved{}, fmt.Errorf("%w: its format_version is %.20q; this muster reads %q", ErrVersion, v, FormatVersion)
	}
	digest, ok := verify(file)
	if !ok {
		return Saved{}, damaged("its digest does not match its content: " +
			"it is no plan, was cut short, or was edited or formatted anew after plan wrote it")
	}
	s, err := decode(kinds, file)
	if err != nil {
		return Saved{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	same := &comparer{rest: file}
	if err := s.write(same, kinds, digest); err != nil || len(same.rest) > 0 {
		return Saved{}, damaged("its text is not as plan wrote it, although its digest matches")
	}
	return s, nil
}

// verify returns the digest in the file, and whether it is that of the file.
func verify(file []byte) (digest string, ok bool) {
	at := digestAt(file)
	if at+len(noDigest) > len(file) {
		return "", false
	}
	sum := sha256.New()
	sum.Write(file[:at])
	sum.Write([]byte(noDigest))
	sum.Write(file[at+len(noDigest):])
	digest = hex.EncodeToString(sum.Sum(nil))
	return digest, digest == string(file[at:at+len(noDigest)])
}

func decode(kinds []resource.Kind, file []byte) (Saved, error) {
	var doc document
	if err := json.Unmarshal(file, &doc); err != nil {
		return Saved{}, err
	}
	s := doc.Saved
	s.Plan = doc.Plan
	s.Plan.Partial = !doc.Complete
	if err := s.check(); err != nil {
		return Saved{}, err
	}
	paths := map[string]bool{}
	for _, c := range doc.Rows {
		r, err := c.row(kinds)
		if err == nil {
			err = checkRow(r, plan.Want{Stack: doc.Stack, Home: doc.Home})
		}
		if err != nil {
			return Saved{}, fmt.Errorf("row %.200q: %w", c.Address, err)
		}
		if paths[r.Path] {
			return Saved{}, fmt.Errorf("two rows have the path %.200q", r.Path)
		}
		paths[r.Path] = true
		s.Plan.Rows = append(s.Plan.Rows, r)
	}
	if !slices.IsSortedFunc(s.Plan.Rows, plan.CompareRows) {
		return Saved{}, errors.New("its rows are out of order")
	}
	return s, nil
}

// check refuses values outside the rows that are invalid. An apply with an invalid name could change znodes that are
// not muster's.
func (s Saved) check() error {
	err := cmp.Or(resource.InField("id", resource.CheckShortName("plan", s.Plan.ID, 64)),
		resource.InField("stack", resource.CheckName("stack", s.Plan.Stack)))
	if s.Plan.Home != "" {
		err = cmp.Or(err, resource.InField("home", resource.CheckHome(s.Plan.Home)))
	}
	for _, root := range slices.Concat(s.Plan.Roots, s.Plan.Unlisted) {
		err = cmp.Or(err, resource.InField("roots", resource.CheckRoot(root)))
	}
	if t := s.SessionTimeout; t != 0 && (t < resource.MinSessionTimeout || t > resource.MaxSessionTimeout) {
		err = cmp.Or(err, fmt.Errorf("session_timeout: %s is not between %s and %s",
			t, resource.MinSessionTimeout, resource.MaxSessionTimeout))
	}
	return err
}

// checkRow returns an error if no plan of w has such a row.
func checkRow(r plan.Row, w plan.Want) error {
	if r.Old == nil && r.New == nil {
		return errors.New("it is neither declared nor observed")
	}
	if err := checkNames(r); err != nil {
		return err
	}
	// The file does not say which stacks may be taken over, so both reasons are possible.
	takingOver := w
	if r.Old != nil && r.Old.Record != nil {
		takingOver.TakeOver = []string{r.Old.Record.Stack}
	}
	if r.Reason != takingOver.Reason(r) && r.Reason != w.Reason(r) {
		return fmt.Errorf("action_reason %q contradicts the row's facts: they say %q", r.Reason, takingOver.Reason(r))
	}
	return nil
}

// checkNames refuses names with which a commit would change znodes outside the row's path.
func checkNames(r plan.Row) error {
	if !r.Action().Changes() && r.New == nil {
		return nil // only shown
	}
	slash := strings.LastIndex(r.Path, "/") + 1
	root, name := strings.TrimSuffix(r.Path[:slash], "/"), r.Path[slash:]
	if err := cmp.Or(resource.CheckName(r.Kind().Name, name), resource.CheckRoot(root)); err != nil {
		return err
	}
	if r.New != nil && r.New.ID().Path() != r.Path {
		return fmt.Errorf("it declares %s and changes %s", r.New.ID().Path(), r.Path)
	}
	if r.Old == nil {
		return nil
	}
	if rec := r.Old.Record; rec != nil {
		if err := resource.CheckName("generation", rec.Generation); err != nil && r.Action().Changes() {
			return fmt.Errorf("generation %q cannot be: %w", rec.Generation, err)
		}
		if at := rec.Declaration.ID().Path(); at != r.Path {
			return fmt.Errorf("it observed %s and changes %s", at, r.Path)
		}
	}
	for _, c := range r.Old.Companions {
		if rest, ok := strings.CutPrefix(c, r.Path+"-"); !ok || strings.Contains(rest, "/") {
			return fmt.Errorf("%s is no companion of %s", c, r.Path)
		}
	}
	return nil
}

// comparer is a writer that fails if it gets other bytes than those of rest.
type comparer struct{ rest []byte }

func (c *comparer) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(c.rest, p) {
		return 0, ErrDamaged
	}
	c.rest = c.rest[len(p):]
	return len(p), nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}
