// A pod to test with: answers with its name, and writes it where a test reads its log.
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	name, _ := os.Hostname()
	if len(os.Args) == 3 && os.Args[1] == "read" {
		content, err := os.ReadFile(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Stdout.Write(content)
		return
	}
	fmt.Println("serving as", name)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	http.ListenAndServe(":8080", nil)
}
