#!/bin/sh
# Runs the cleanup over REST, with curl and jq, and prints what happens. Its exit status is 0 only if the run succeeded.
#
#   cleanup.sh ['{"tasks": ["sessions"], "dryRun": true}']
#
# CLEANUPD_URL     the server's HTTP address
# CLEANUPD_TOKEN   the token to send, to https only
# CLEANUPD_TLS_CA  trust the authorities in this PEM file
# CLEANUPD_PATIENCE  how many seconds to repeat the request if no answer comes (60)
set -eu
url=${CLEANUPD_URL:-http://127.0.0.1:8080}
if [ -n "${CLEANUPD_TOKEN:-}" ] && [ "${url#https://}" = "$url" ]; then
	echo 'CLEANUPD_TOKEN would be sent in plain text: CLEANUPD_URL must be https' >&2
	exit 2
fi
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# What may hold text of the database is printed as JSON, since that may hold anything, such as commands to a terminal.
show='
  .result.event as $e
  | if $e.runStarted then "Run \($e.runId) began."
    elif $e.taskProgress then $e.taskProgress | "\(.task): \(.rowsDeleted) rows so far, now \(.object | tojson)"
    elif $e.taskFinished then $e.taskFinished.result | "\(.task): \(.state), \(.rowsDeleted) rows deleted, \(.rowsUpdated) updated, \(.rowsRetained) left"
    elif $e.log.level == "LOG_LEVEL_WARNING" or $e.log.level == "LOG_LEVEL_ERROR" then "\($e.log.task): \($e.log.level) \($e.log.message | tojson)"
    elif $e.runFinished then "Run \($e.runId) ended: \($e.runFinished.run.state)."
    else empty end'

# The id lets the request be repeated until an answer comes, and starts one run. UNAVAILABLE (14) is no answer.
id=$(uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid)
request=$(printf '%s' "${1:-{\}}" | jq --compact-output --arg id "$id" '.requestId //= $id')
end=$(($(date +%s) + ${CLEANUPD_PATIENCE:-60}))
while :; do
	# The header goes through a pipe, as other users can see arguments.
	printf '%s' "${CLEANUPD_TOKEN:+authorization: Bearer $CLEANUPD_TOKEN}" |
		curl --silent --show-error --no-buffer ${CLEANUPD_TLS_CA:+--cacert "$CLEANUPD_TLS_CA"} --header @- \
			--header 'content-type: application/json' --data "$request" "$url/v1/runs" |
		tee "$answer" |
		jq --unbuffered --raw-output "$show" || true
	if [ -s "$answer" ] && [ "$(head -n 1 "$answer" | jq '.error.code')" != 14 ]; then
		break
	fi
	[ "$(date +%s)" -lt "$end" ] || break
	echo 'The server does not answer, repeating the request.' >&2
	sleep 1
done

# Only the last line tells: the server may have died, the stream may be cut, or end with an error. jq -e would not do: some versions
# end with 0 when there is nothing to read.
state=$(tail -n 1 "$answer" | jq --raw-output .result.event.runFinished.run.state) || true
if [ "$state" = RUN_STATE_SUCCEEDED ]; then
	exit 0
fi
{
	echo 'The run did not succeed, or is not known to have:'
	tail -n 1 "$answer" | jq '.error // . | .message // "the stream ended before the run did"' || true
	run=$(head -n 1 "$answer" | jq --raw-output '.result.event.runId // empty') || true
	[ -z "$run" ] || echo "$url/v1/runs/$run tells how it is."
} >&2
exit 1
