package main

import (
	"fmt"
	"net/url"
	"os"
)

func registerOutput() {
	attempts["print"] = func(q url.Values) string {
		_, err := fmt.Println(q.Get("text"))
		return result(err)
	}
	attempts["crash"] = func(url.Values) string {
		go os.Exit(3)
		return "done"
	}
	attempts["env"] = func(q url.Values) string { return os.Getenv(q.Get("name")) }
}
