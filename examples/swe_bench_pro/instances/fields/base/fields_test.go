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
