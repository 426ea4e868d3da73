// The scenarios of the Go clients: `scenarios NAME`. Each ends with status 0, or prints what was wrong.
package main

import (
	"fmt"
	"os"
)

var scenarios = map[string]func(){
	"manage":      manage,
	"publish":     publish,
	"pull":        pull,
	"cloudevents": cloudEvents,
}

func main() {
	for _, name := range os.Args[1:] {
		scenario, found := scenarios[name]
		if !found {
			fmt.Fprintf(os.Stderr, "no scenario %q\n", name)
			os.Exit(2)
		}
		scenario()
	}
}
