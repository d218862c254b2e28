package fields

import (
	"reflect"
	"testing"
)

func TestSplit(t *testing.T) {
	got, err := Split("  a  b ")
	if err != nil || !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestQuoted(t *testing.T) {
	got, err := Split(`a "b c"`)
	if err != nil || !reflect.DeepEqual(got, []string{"a", "b c"}) {
		t.Fatalf("got %v, %v", got, err)
	}
	if _, err := Split(`a "b`); err == nil {
		t.Fatal("an open quote was accepted")
	}
}
