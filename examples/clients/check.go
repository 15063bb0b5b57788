// Asks Tidegate whether each of four logins may go on. Without an answer in time they go on: it fails open.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

var (
	url      = setting("TIDEGATE_URL", "http://127.0.0.1:8080")
	token    = os.Getenv("TIDEGATE_TOKEN")
	passedOn = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy", "Retry-After"}
)

// One client for the whole program: it keeps connections open between calls. The timeout is for connecting and the answer together.
var client = &http.Client{Timeout: timeout(), Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second}}

func setting(name, standard string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return standard
}

func timeout() time.Duration {
	duration, err := time.ParseDuration(setting("TIDEGATE_TIMEOUT", "1") + "s")
	if err != nil {
		panic(err)
	}
	return duration
}

// ask returns the status and headers of the answer. The body is read to its end, or the connection could not be used again.
func ask(attributes map[string]string) (int, http.Header, error) {
	body, err := json.Marshal(map[string]any{"attributes": attributes})
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequest("POST", url+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err
	}
	switch answer.StatusCode {
	case 200, 429, 503:
		return answer.StatusCode, answer.Header, nil
	}
	// A mistake in this program or its token, and no decision.
	return 0, nil, fmt.Errorf("%d %s", answer.StatusCode, text)
}

// check returns what the client gets: 200 to go on, or 429 or 503; and the headers of its response.
func check(attributes map[string]string) (int, http.Header) {
	headers := http.Header{}
	status, answered, err := ask(attributes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no decision:", err)
		return 200, headers
	}
	for _, name := range passedOn {
		if value := answered.Get(name); value != "" {
			headers.Set(name, value)
		}
	}
	return status, headers
}

func main() {
	for range 4 {
		status, headers := check(map[string]string{"path": "/login", "method": "POST", "ip": "203.0.113.4"})
		name := "x-ratelimit-remaining"
		if status != 200 {
			name = "retry-after"
		}
		if value := headers.Get(name); value != "" {
			fmt.Printf("%d %s: %s\n", status, name, value)
		} else {
			fmt.Println(status)
		}
	}
}
