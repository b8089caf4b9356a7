#!/bin/sh
# A worker that keeps to the protocol until its third acquire, and then does what $1 says.
n=0
while read -r line; do
  id=${line#*\"id\":}
  id=${id%%[,\}]*}
  ok="{\"id\":$id,\"type\":\"ok\""
  case $line in
  *'"op":"init"'*) echo "$ok,\"value\":{\"protocol\":1,\"name\":\"odd\",\"clients\":1}}" ;;
  *'"op":"ping"'*) echo "$ok,\"value\":{\"claims\":[]}}" ;;
  *'"op":"acquire"'*)
    n=$((n + 1))
    if [ "$n" -ge 3 ]; then
      case $1 in
      rubbish) echo 'what?' ;;
      twice) echo "{\"id\":$id,\"type\":\"fail\",\"error\":\"busy\"}"; echo "{\"id\":$id,\"type\":\"fail\",\"error\":\"busy\"}" ;;
      unasked) echo '{"id":999999,"type":"ok","value":null}' ;;
      dies) echo 'no such luck' >&2; exit 7 ;;
      hangs) ;;
      esac
    else
      echo "{\"id\":$id,\"type\":\"fail\",\"error\":\"busy\"}"
    fi
    ;;
  *) echo "$ok,\"value\":null}" ;;
  esac
done
