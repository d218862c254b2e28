// Package fields splits lines into fields.
package fields

import "strings"

// Split returns the fields of a line.
func Split(line string) ([]string, error) {
	return strings.Fields(line), nil
}
