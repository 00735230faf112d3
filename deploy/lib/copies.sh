# Functions of deploy/backup and deploy/restore: what is in a directory of backups.
# shellcheck shell=bash

# shellcheck disable=SC2034 # the scripts use it
database=seckill
defaults=/etc/seckill-backup.cnf
PATH=$PATH:/usr/sbin:/usr/local/sbin

refuse() {
  echo "deploy/$(basename "$0"): $*" >&2
  exit 1
}

need() {
  local program
  for program; do
    command -v "$program" >/dev/null || refuse "no $program: as root, run apt-get install mariadb-client mariadb-backup mariadb-server"
  done
}

ask() {
  mariadb --defaults-file="$defaults" --connect-timeout=10 --batch --skip-column-names --execute "$1"
}

# 10.11.19-MariaDB-log -> 10.11
series() {
  [[ $1 =~ ^[^0-9]*([0-9]+\.[0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

# enough_space DIRECTORY KIB
enough_space() {
  local free
  free=$(df --output=avail -k "$1" | tail -1)
  [ "$free" -gt "$2" ] || refuse "no space in $1: $((free / 1024)) MB are free, $(($2 / 1024)) MB are needed"
}

last_error() {
  grep -E '\[ERROR\]|[Ee]rror|failed' "$1" | tail -1 | cut -c1-300
}

list_copies() {
  find "$1" -maxdepth 1 -type d -name 'full-*Z' | sort
}

list_logs() {
  find "$1/logs" -maxdepth 1 -type f -regex '.*\.[0-9]+' | sort
}

first_log() {
  cut -f1 "$1/data/xtrabackup_binlog_info" | head -1
}

# When a log was begun, and by which server.
born() {
  mariadb-binlog --stop-position=300 "$1" 2>/dev/null | sed -n 's/.*Start: //p'
}

born_there() {
  mariadb-binlog --defaults-file="$defaults" --read-from-remote-server --stop-position=300 "$1" 2>/dev/null |
    sed -n 's/.*Start: //p'
}

# chain DIRECTORY COPY: set `logs` to those that go on where the copy ends; refuse a gap.
chain() {
  local first at name log number=
  first=$(first_log "$2") at=$(cut -f2 "$2/data/xtrabackup_binlog_info" | head -1)
  logs=()
  while read -r log; do
    name=$(basename "$log")
    [[ $name < $first ]] && continue
    if [ -z "$number" ]; then
      [ "$name" = "$first" ] || refuse "a gap in the binary logs: $2 goes on in $first, and the next one here is $name"
    elif [ $((10#${name##*.})) -ne $((number + 1)) ]; then
      refuse "a gap in the binary logs: $name does not follow ${name%.*}.$(printf %06d "$number")"
    fi
    number=$((10#${name##*.}))
    # One that was being copied again when its server was lost.
    if [ -e "$log.before" ] && [ "$(stat -c %s "$log.before")" -gt "$(stat -c %s "$log")" ]; then
      log=$log.before
    fi
    logs+=("$log")
  done < <(list_logs "$1")
  [ -n "$number" ] || refuse "a gap in the binary logs: $2 goes on in $first, which is not here"
  [ "$(stat -c %s "${logs[0]}")" -ge "$at" ] || refuse "a gap in the binary logs: $2 goes on at $at of $first, which ends before that"
}
