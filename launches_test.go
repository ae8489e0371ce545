package berth_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

func TestLaunches(t *testing.T) {
	var all []berth.Launch
	for i := range 300 {
		all = append(all, berth.Launch{
			Task: berth.TaskID(fmt.Sprintf("j%d.1", i)), Command: strings.Repeat("echo 'ä\n' ", i), Env: map[string]string{"N": fmt.Sprint(i)},
			Home: berth.Home{CA: strings.Repeat("certificate ", 100)},
		})
	}
	text, err := berth.AppendLaunches([]byte("#!/bin/sh\nexec true\n"), all)
	if err != nil {
		t.Fatal(err)
	}
	if most := len(all) * 400; len(text) > most {
		t.Errorf("%d bytes, more than %d", len(text), most)
	}
	for i, want := range all {
		if got, err := berth.ReadLaunch(text, i); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("launch %d: %+v, %v", i, got, err)
		}
	}
	for name, bad := range map[string]string{"nothing": "", "a script": "#!/bin/sh\n", "cut": string(text[:len(text)-3]), "altered": strings.ReplaceAll(string(text), "A", "*")} {
		if l, err := berth.ReadLaunch([]byte(bad), len(all)-1); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	for _, index := range []int{-1, len(all)} {
		if _, err := berth.ReadLaunch(text, index); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("index %d: %v", index, err)
		}
	}
}
