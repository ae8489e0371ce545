package auth_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// TestSealAddress: what opens an address is sealed where it stands, for the user who gave it and
// the host it is for; everything else can be read as before.
func TestSealAddress(t *testing.T) {
	k, err := auth.LoadKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const sealed = "berth-sealed."
	for address, like := range map[string]string{
		"https://a.blob.core.windows.net/c/x%20y.csv?sv=2024-11-04&se=2027-01-01T00%3A00%3A00Z&sp=r&sig=a%2Fb%3D":                                                                                              "https://a.blob.core.windows.net/c/x%20y.csv?sv=2024-11-04&se=2027-01-01T00%3A00%3A00Z&sp=r&sig=*",
		"https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F1&X-Amz-Date=20270101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Security-Token=t&X-Amz-Signature=s": "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=*&X-Amz-Date=20270101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Security-Token=*&X-Amz-Signature=*",
		"https://storage.googleapis.com/b/k?X-Goog-Signature=00ff":                                                                                                                                             "https://storage.googleapis.com/b/k?X-Goog-Signature=*",
		"https://user:pass@host/x":                          "https://user:*@host/x",
		"https://user:pa/ss@host/x":                         "https://user:*@host/x",
		"HTTPS://ghp_secret@host/x#part":                    "HTTPS://*@host/x#part",
		"https://host/x?token=t#part":                       "https://host/x?token=*#part",
		"https://host/x?unknown=0123456789abcdef01234":      "https://host/x?unknown=*",
		"https://host/x?s%69g=s":                            "https://host/x?s%69g=*",
		"https://host/x?0123456789abcdef01234":              "https://host/x?*",
		"https://host/x?a=1#sig=s":                          "https://host/x?a=1#sig=*",
		"azureml://datastores/lake/paths/a?sig=b":           "azureml://datastores/lake/paths/a?sig=b",
		"file:///data/a?token=b":                            "file:///data/a?token=b",
		"https://host?sig=s":                                "https://host?sig=*",
		"s3://id:key@bucket/x":                              "s3://id:*@bucket/x",
		"https://host/${{name}}/x?sig=s&page=1":             "https://host/${{name}}/x?sig=*&page=1",
		"https://host/x?version=3&download=true&sig=":       "https://host/x?version=3&download=true&sig=",
		"wasbs://container@account.blob.core.windows.net/x": "wasbs://container@account.blob.core.windows.net/x",
		"azureml://datastores/lake/paths/a?b":               "azureml://datastores/lake/paths/a?b",
		"azureml:data:1":                                    "azureml:data:1",
		"${{parent.inputs.x}}":                              "${{parent.inputs.x}}",
		"what://is this?token=abc":                          "what://is this?token=*",
		"":                                                  "",
	} {
		got := k.SealAddress(address, "ann")
		shown := got
		for {
			before, after, found := strings.Cut(shown, sealed)
			if !found {
				break
			}
			shown = before + "*" + after[len(after)-len(strings.TrimLeft(after, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")):]
		}
		if shown != like {
			t.Errorf("%s is shown as %s", address, shown)
		}
		if again := k.SealAddress(address, "ann"); again != got {
			t.Errorf("%s is sealed as %s and as %s", address, got, again)
		}
		if again := k.SealAddress(got, "bob"); again != got {
			t.Errorf("%s is sealed twice: %s", address, again)
		}
		if opened, err := k.OpenAddress(got, "ann"); err != nil || opened != address {
			t.Errorf("%s is opened as %s, %v", address, opened, err)
		}
		if !strings.Contains(got, sealed) {
			continue
		}
		if _, err := url.Parse(got); err != nil && !strings.Contains(address, " ") {
			t.Error(err)
		}
		for user, other := range map[string]string{"bob": got, "ann": strings.Replace(strings.Replace(strings.Replace(got, "host", "evil", 1), ".com", ".org", 1), "net/", "org/", 1)} {
			if strings.HasPrefix(got, "s3") || strings.HasPrefix(got, "what") {
				continue
			}
			if opened, err := k.OpenAddress(other, user); berth.CodeOf(err) != berth.Denied || strings.Contains(err.Error(), sealed) {
				t.Errorf("%s has %s: %s, %v", user, other, opened, err)
			}
		}
	}
	if k.SealAddress("https://host/x?sig=s", "ann") == k.SealAddress("https://host/x?sig=s", "bob") {
		t.Error("two users have the same text")
	}
}
