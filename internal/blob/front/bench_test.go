package front_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func BenchmarkGet(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			s := serve(b)
			s.put("box/a", strings.Repeat("x", size))
			at := s.server.URL + "/st.blob.berth/box/a?" + s.sas
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				resp, err := http.Get(at)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); n != int64(size) || err != nil {
					b.Fatal(n, err)
				}
				resp.Body.Close()
			}
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			s := serve(b)
			tail := strings.Repeat("x", size-8)
			b.SetBytes(int64(size))
			i := 0
			for b.Loop() {
				i++
				s.put("box/a", fmt.Sprintf("%08d", i)+tail)
			}
		})
	}
}
