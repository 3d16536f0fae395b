// Command blogs is a web server to try feeds with. It listens on loopback only, serves the files of
// a folder with an ETag, redirects /old-NAME to /NAME, and prints a line for every request.
//
//	go run ./examples/feeds/blogs examples/feeds/site
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	port := flag.Int("port", 8026, "to listen on; 0 finds a free one")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("blogs: name the folder to serve")
	}
	root, err := os.OpenRoot(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("feeds on http://%s\n", listener.Addr())
	server := &http.Server{Handler: &site{root}, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	log.Fatal(server.Serve(listener))
}

// site serves a folder.
type site struct{ root *os.Root }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Clean("/" + r.URL.Path)[1:]
	code := http.StatusOK
	text, err := s.root.ReadFile(name)
	version := fmt.Sprintf("%q", hash(text))
	switch {
	case strings.HasPrefix(name, "old-"):
		code = http.StatusMovedPermanently
		w.Header().Set("Location", "/"+strings.TrimPrefix(name, "old-"))
	case err != nil:
		code, text = http.StatusNotFound, nil
	default:
		w.Header().Set("ETag", version)
		if r.Header.Get("If-None-Match") == version {
			code, text = http.StatusNotModified, nil
		}
	}
	fmt.Println(r.Method, "/"+name, code)
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client may have gone
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}
