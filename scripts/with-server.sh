# Sourced by the scripts that ask a real server: starts the debug build (or TIDEGATE_BIN) in a temporary folder, and at the end
# waits for it to stop before the folder is removed, because it writes its counters there while it stops.
folder=$(mktemp -d)
server=""

stop_server() {
  local status=$?
  trap - EXIT
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" || { echo "the server ended with status $?" >&2; cat "$folder/log" >&2; status=1; }
  fi
  rm -rf "$folder"
  exit "$status"
}
trap stop_server EXIT

# start_server FRONT_END FLAGS...: starts the server and sets `address` to where that front end listens.
start_server() {
  local front_end=$1
  shift
  "${TIDEGATE_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/debug/tidegate}" serve --http 127.0.0.1:0 --data-dir "$folder/data" --log-level warn "$@" \
    >"$folder/out" 2>"$folder/log" &
  server=$!
  for _ in $(seq 100); do
    grep -q "^listening $front_end=" "$folder/out" && break
    sleep 0.1
  done
  address=$(sed -n "s/^listening $front_end=//p" "$folder/out")
  [ -n "$address" ] || { cat "$folder/log" >&2; exit 1; }
}
