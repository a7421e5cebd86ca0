#!/usr/bin/env bash
# The steps of action.yml: `action.sh start` and `action.sh finish`. The variables of the inputs are
# STEP, MODE, STORE, CASSETTE, OPTIONS and PACKAGE; the rest comes from the runner.
set -euo pipefail

folder="${RUNNER_TEMP:?}/tapeway"
bin="${TAPEWAY_ENVIRONMENT:-$folder/environment}/bin"

install() {
    [ -x "$bin/tapeway" ] && return
    python3 -m venv "${bin%/bin}"
    "$bin/python" -m pip install --quiet "${PACKAGE:-$GITHUB_ACTION_PATH}"
}

start() {
    mkdir -p "$folder"
    install
    # Of a start before this one.
    : >"$folder/ready"
    # Its variables would be options of this one.
    unset TAPEWAY_URL TAPEWAY_ADMIN_URL
    # shellcheck disable=SC2086 # options are words
    nohup "$bin/tapeway" serve --mode "$MODE" --store "$STORE" --cassette "$CASSETTE" \
        --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 $OPTIONS \
        >"$folder/ready" 2>"$folder/log" </dev/null &
    local server=$!
    echo "$server" >"$folder/pid"
    # It prints one line when it serves.
    until grep -q '"ready"' "$folder/ready"; do
        if ! kill -0 "$server" 2>/dev/null; then
            echo "::error::tapeway did not start"
            cat "$folder/log"
            exit 1
        fi
        sleep 0.1
    done
    MODE="$MODE" "$bin/python" - "$folder/ready" >>"${GITHUB_ENV:?}" <<'PYTHON'
import json, os, sys
from tapeway.embedded.admin_client import AdminClient
from tapeway.embedded.client_variables import ClientSetup, client_variables

ready = json.loads(open(sys.argv[1]).readline())
setup = ClientSetup.of(AdminClient(ready["admin"], os.environ.get("TAPEWAY_ADMIN_TOKEN")).call("GET", "clients"))
dummies = os.environ["MODE"] == "replay"
for name, value in client_variables(setup, ready["proxy"], ready["admin"], os.environ, dummies=dummies).items():
    print(f"{name}={value}")
PYTHON
    echo "tapeway serves in mode $MODE"
}

finish() {
    local failed=0
    "$bin/python" - "${GITHUB_STEP_SUMMARY:?}" <<'PYTHON' || failed=$?
import os, sys
from tapeway.embedded.admin_client import AdminClient, DeckError

if not (url := os.environ.get("TAPEWAY_ADMIN_URL")):
    sys.exit("::error::tapeway did not start in this job: the step start comes first")
admin = AdminClient(url, os.environ.get("TAPEWAY_ADMIN_TOKEN"))
try:
    reports = {"cassettes": admin.call("GET", "report")["cassettes"]}
    with open(sys.argv[1], "a", encoding="utf-8") as summary:
        summary.write(admin.text("POST", "report", reports, format="markdown"))
    for line in admin.call("POST", "report/notes", reports)["annotations"]:
        print(line)
    counts = admin.call("GET", "status")["counts"]
except DeckError as exc:
    sys.exit(f"::error::{exc}")
print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
if not any(counts.values()):
    sys.exit("::error::nothing was asked: do the base URLs of the clients come from the variables?")
if counts["miss"] or counts["error"]:
    sys.exit("::error::requests missed or failed")
PYTHON
    if [ -f "$folder/pid" ]; then
        local server
        server=$(cat "$folder/pid")
        # Recordings in flight are finished and stored first.
        kill -TERM "$server" 2>/dev/null || true
        while kill -0 "$server" 2>/dev/null; do sleep 0.1; done
        [ "$failed" = 0 ] || cat "$folder/log"
    fi
    exit "$failed"
}

case "${1:-}" in
start) start ;;
finish) finish ;;
*)
    echo "::error::step is '${1:-}': use start or finish"
    exit 2
    ;;
esac
