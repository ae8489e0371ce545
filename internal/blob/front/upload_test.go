package front_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
)

// block is the content of block i: made when it is read, kept nowhere.
func block(i, size int) io.Reader {
	seed := [32]byte{byte(i), byte(i >> 8)}
	return io.LimitReader(rand.NewChaCha8(seed), int64(size))
}

// watchHeap reports the most the heap grew while f ran.
func watchHeap(f func()) int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	base := int64(m.HeapAlloc)
	var peak atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var m runtime.MemStats
		for {
			select {
			case <-done:
				return
			default:
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), int64(m.HeapAlloc)))
				runtime.Gosched()
			}
		}
	})
	f()
	close(done)
	wg.Wait()
	return peak.Load() - base
}

// 200 MiB in blocks, in parallel and out of order, and back in one piece: the server, and this
// client with it, hold a few buffers of them.
func TestLargeUploadInConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 400 MiB")
	}
	s := serve(t)
	const size, count = 4 << 20, 50
	at := s.server.URL + "/st.blob.berth/box/big?" + s.sas
	send := func(query string, body io.Reader, n int64) error {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", at+query, body)
		if err != nil {
			return err
		}
		req.ContentLength = n
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 201 {
			return fmt.Errorf("%d %s", resp.StatusCode, text)
		}
		return nil
	}
	id := func(i int) string { return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%06d", i)) }
	grown := watchHeap(func() {
		var g errgroup.Group
		g.SetLimit(8)
		for _, i := range rand.Perm(count) {
			g.Go(func() error { return send("&comp=block&blockid="+url.QueryEscape(id(i)), block(i, size), size) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		var list bytes.Buffer
		list.WriteString("<BlockList>")
		for i := range count {
			list.WriteString("<Latest>" + id(i) + "</Latest>")
		}
		list.WriteString("</BlockList>")
		if err := send("&comp=blocklist", &list, int64(list.Len())); err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, want := sha256.New(), sha256.New()
		if n, err := io.Copy(got, resp.Body); n != size*count || err != nil {
			t.Fatal(n, err)
		}
		for i := range count {
			io.Copy(want, block(i, size))
		}
		if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			t.Error("other bytes came back")
		}
		b, err := s.store.Stat(t.Context(), "box", "big")
		if err != nil || b.Hash != hex.EncodeToString(want.Sum(nil)) {
			t.Error(b, err)
		}
	})
	t.Logf("the heap grew by %.1f MiB for %d MiB", float64(grown)/(1<<20), size*count>>20)
	if grown > 24<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

func TestCutConnectionLeavesNothing(t *testing.T) {
	for name, target := range map[string]string{"blob": "", "block": "&comp=block&blockid=MDAw"} {
		for _, body := range []string{
			"Content-Length: 10000000\r\n\r\n" + strings.Repeat("x", 1<<20), "Content-Length: 100\r\n\r\nshort",
			"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + strings.Repeat("x", 500_000),
		} {
			t.Run(name, func(t *testing.T) {
				s := serve(t)
				conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "PUT /st.blob.berth/box/cut?%s%s HTTP/1.1\r\nHost: x\r\nx-ms-blob-type: BlockBlob\r\n%s", s.sas, target, body)
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if answer, _ := io.ReadAll(conn); !bytes.Contains(answer, []byte("IncompleteBody")) {
					t.Errorf("answered %q", answer)
				}
				conn.Close()
				s.server.Close() // waits for the handler
				if _, err := s.store.Stat(t.Context(), "box", "cut"); err == nil {
					t.Error("it is in the index")
				}
				err = filepath.WalkDir(s.store.Dir(), func(path string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						t.Error("left:", path)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestChunkedUpload(t *testing.T) {
	s := serve(t)
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.server.URL+"/st.blob.berth/box/a?"+s.sas, io.MultiReader(strings.NewReader("hello "), strings.NewReader("world")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.want(201, "", resp, "")
	if _, body := s.do("GET", "box/a", ""); body != "hello world" {
		t.Errorf("got %q", body)
	}
}

// A log is served as far as it has come; its tag follows, and a download in parts goes on although
// it grows.
func TestGrowingLog(t *testing.T) {
	s := serve(t)
	path := filepath.Join(s.store.Dir(), "std_log.txt")
	if _, err := s.store.PutLive(t.Context(), "box", "log", "std_log.txt"); err != nil {
		t.Fatal(err)
	}
	resp, body := s.do("GET", "box/log", "")
	s.want(200, "", resp, body)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("line 1\n")
	first, body := s.do("GET", "box/log", "")
	if body != "line 1\n" || first.Header.Get("ETag") == resp.Header.Get("ETag") {
		t.Errorf("%q %s", body, first.Header.Get("ETag"))
	}
	f.WriteString("line 2\n")
	second, body := s.do("GET", "box/log", "")
	if body != "line 1\nline 2\n" || second.Header.Get("ETag") == first.Header.Get("ETag") {
		t.Errorf("%q %s", body, second.Header.Get("ETag"))
	}
	resp, body = s.do("GET", "box/log", "", "Range", "bytes=7-", "If-Match", first.Header.Get("ETag"))
	s.want(206, "", resp, body)
	if body != "line 2\n" {
		t.Errorf("got %q", body)
	}
	resp, _ = s.do("GET", "box/log", "", "If-None-Match", second.Header.Get("ETag"))
	if resp.StatusCode != 304 {
		t.Error("If-None-Match of the same size:", resp.StatusCode)
	}
	resp, _ = s.do("GET", "box/log", "", "If-None-Match", first.Header.Get("ETag"))
	if resp.StatusCode != 200 {
		t.Error("If-None-Match of a shorter one:", resp.StatusCode)
	}
}
