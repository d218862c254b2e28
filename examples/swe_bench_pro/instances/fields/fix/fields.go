// Package fields splits lines into fields.
package fields

import (
	"errors"
	"strings"
)

// ErrQuote says that a quote was never closed.
var ErrQuote = errors.New("a quote is not closed")

// Split returns the fields of a line; one in double quotes may hold spaces.
func Split(line string) ([]string, error) {
	var found []string
	var field strings.Builder
	quoted, begun := false, false
	for _, letter := range line {
		switch {
		case letter == '"':
			quoted, begun = !quoted, true
		case letter == ' ' && !quoted:
			if begun {
				found = append(found, field.String())
			}
			field.Reset()
			begun = false
		default:
			field.WriteRune(letter)
			begun = true
		}
	}
	if quoted {
		return nil, ErrQuote
	}
	if begun {
		found = append(found, field.String())
	}
	return found, nil
}
