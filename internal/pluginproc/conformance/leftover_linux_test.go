//go:build unix

package conformance_test

func init() {
	planted = append(planted, struct {
		check, defect, want string
		impatient           bool
	}{"left behind", "daemon", "outside of its process group: 1", false})
}
