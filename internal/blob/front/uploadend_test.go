package front_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
)

// zeros is a body that does not end.
type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n += len(p); z.n > 1<<30 {
		return 0, errors.New("a GiB was taken")
	}
	clear(p)
	return len(p), nil
}

// TestUploadsEndWithTheirSignature: an upload that was begun while a signature was valid does not
// go on after that, neither as a whole nor as a block.
func TestUploadsEndWithTheirSignature(t *testing.T) {
	s := serve(t)
	for _, query := range []string{"", "comp=block&blockid=MDE=&"} {
		asked := 0
		h := front.New(s.store, s.signer, front.Options{Account: "st", Suffix: "berth", Signed: func(*http.Request, front.Grant) error {
			if asked++; asked == 1 {
				return nil
			}
			return berth.Errorf(berth.Denied, "its task has ended")
		}})
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "/st.blob.berth/data/f?"+query+s.signer.Sign(all), io.NopCloser(&zeros{}))
		r.Header.Set("x-ms-blob-type", "BlockBlob")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 403 || asked != 2 {
			t.Errorf("%q: %d %s, asked %d times", query, w.Code, w.Body, asked)
		}
	}
}

// TestUploadsOfOneBlobEndWithTheirSignature: one that arrives slowly is not kept if the signature
// is not good any more at its end.
func TestUploadsOfOneBlobEndWithTheirSignature(t *testing.T) {
	s := serve(t)
	one := front.Grant{Container: "data", Prefix: "f", Perm: "w", Expiry: all.Expiry, One: true}
	for query, content := range map[string]string{"": "bytes", "comp=block&blockid=MDE=&": "bytes", "comp=blocklist&": "<BlockList></BlockList>"} {
		asked := 0
		h := front.New(s.store, s.signer, front.Options{Account: "st", Suffix: "berth", Signed: func(*http.Request, front.Grant) error {
			if asked++; asked == 1 {
				return nil
			}
			return berth.Errorf(berth.Denied, "its run is gone")
		}})
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "/st.blob.berth/data/f?"+query+s.signer.Sign(one), strings.NewReader(content))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 403 {
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
	}
	if _, err := s.store.Stat(t.Context(), "data", "f"); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("it is kept: %v", err)
	}
}

// TestUploadsOfTokensAreCheckedAtTheirEnd: what a slow upload with a token is for may be somebody
// else's job by its end, and the token may have ended.
func TestUploadsOfTokensAreCheckedAtTheirEnd(t *testing.T) {
	s := serve(t)
	for what, ends := range map[string]func(o *front.Options){
		"the job of another": func(o *front.Options) {
			asked := 0
			o.Writer = func(context.Context, string, string) (job, user string, err error) {
				if asked++; asked == 1 {
					return "j", "good", nil
				}
				return "j", "other", nil
			}
		},
		"a token that ended": func(o *front.Options) {
			asked, is := 0, o.Bearer
			o.Bearer = func(r *http.Request) (string, bool, error) {
				if asked++; asked == 1 {
					return is(r)
				}
				return "", false, berth.Errorf(berth.Denied, "it was revoked")
			}
		},
	} {
		for query, content := range map[string]string{"": "bytes", "?comp=block&blockid=MDE=": "bytes", "?comp=blocklist": "<BlockList></BlockList>", "?comp=pack": pack("a", "one")} {
			o := front.Options{Account: "st", Suffix: "berth", Bearer: func(*http.Request) (string, bool, error) { return "good", false, nil }}
			ends(&o)
			r := httptest.NewRequestWithContext(t.Context(), "PUT", "/st.blob.berth/data/ExperimentRun/dcid.j/f"+query, strings.NewReader(content))
			r.Header.Set("Authorization", "Bearer good")
			w := httptest.NewRecorder()
			front.New(s.store, s.signer, o).ServeHTTP(w, r)
			if w.Code != 403 {
				t.Errorf("%s, %q: %d %s", what, query, w.Code, w.Body)
			}
		}
	}
	if _, err := s.store.Stat(t.Context(), "data", "ExperimentRun/dcid.j/f"); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("it is kept: %v", err)
	}
}
