#!/usr/bin/env bash
# Asks Tidegate whether each of four logins may go on. Without an answer in time they go on: it fails open.
url=${TIDEGATE_URL:-http://127.0.0.1:8080}
token=${TIDEGATE_TOKEN:-}
timeout=${TIDEGATE_TIMEOUT:-1} # seconds, for connecting and the answer together

# check ATTRIBUTES: sets `status` to what the client gets, and `headers` to the lines that go with it.
check() {
  local answer
  answer=$(curl --silent --include --max-time "$timeout" "$url/v1/check" \
    --header "Authorization: Bearer $token" --json "{\"attributes\": $1}") || answer=""
  status=$(sed -n '1s/^HTTP[^ ]* \([0-9]*\).*/\1/p' <<<"$answer")
  headers=$(tr -d '\r' <<<"$answer" | grep -iE '^(x-ratelimit-[a-z]+|ratelimit|ratelimit-policy|retry-after): ')
  # 401 and 400 are mistakes in this program or its token, and no decision.
  case $status in
    200 | 429 | 503) ;;
    *) echo "no decision: ${status:-no answer}" >&2 && status=200 headers="" ;;
  esac
}

for _ in 1 2 3 4; do
  check '{"path": "/login", "method": "POST", "ip": "203.0.113.1"}'
  echo "$status $(grep -E '^(x-ratelimit-remaining|retry-after):' <<<"$headers" | head -1)"
done
