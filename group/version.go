package group

import (
	"strings"

	"github.com/hashicorp/go-version"
)

// Fits reports whether a member of this version may hold the duty. A version that is not one fits only a duty without a
// constraint.
func (d Duty) Fits(memberVersion string) bool {
	if d.Versions == "" {
		return true
	}
	fits, err := version.NewConstraint(d.Versions)
	if err != nil {
		return false
	}
	v, err := version.NewVersion(memberVersion)
	return err == nil && fits.Check(v)
}

// CompareVersions is negative if version a is older than b. What is no version is older than every version.
func CompareVersions(a, b string) int {
	va, errA := version.NewVersion(a)
	vb, errB := version.NewVersion(b)
	switch {
	case errA != nil && errB != nil:
		return strings.Compare(a, b)
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return va.Compare(vb)
}
