# shellcheck shell=bash
# For the other scripts to source: messages, the Python to use, and the virtual environment in .venv.
# Needs ROOT (the repository).

readonly OLDEST_PYTHON=3.11
readonly VENV=$ROOT/.venv
readonly RUN=$ROOT/.run
readonly RUN_MB=100 INSTALL_MB=400 INSTALL_DEV_MB=800 # of free disk, roughly
RETRY_AFTER_S=5
# Without bytecode each process compiles the whole shop again, which takes seconds of every start.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Show why an installation failed before exiting: on CI nobody can read the log.
die_with_log() {
  tail -n 20 "$RUN/install.log" >&2
  die "$@"
}

# Run a step that downloads something, and retry it once: mirrors fail now and then.
retried() {
  "$@" && return
  say "That failed; trying once more ..." >&2
  sleep "$RETRY_AFTER_S"
  "$@"
}

# make_run MB: make .run, or say in one line why this folder cannot take it and as many megabytes.
make_run() {
  local why free
  why=$( (export LC_ALL=C && umask 077 && mkdir -p "$RUN" && : >"$RUN/probe" && rm "$RUN/probe") 2>&1) ||
    die "cannot write to $RUN (${why##*: }): use a clone of your own, on a disk that can be written to"
  free=$(df --output=avail --block-size=1M "$RUN" | tail -n 1)
  ((free >= $1)) ||
    die "the disk of $RUN has $((free)) MB left, and this needs about $1 MB: make room, or use a clone on another disk"
}

# The megabytes that a run needs, with the packages of a lock where they are not installed.
room_for() {
  if [[ -f $VENV/.$1.lock ]]; then
    printf '%s' "$RUN_MB"
  elif [[ $1 == requirements ]]; then
    printf '%s' "$INSTALL_MB"
  else
    printf '%s' "$INSTALL_DEV_MB"
  fi
}

# A script's help is the comment below its first line.
help_of() { sed -n '2,/^$/ s/^# \{0,1\}//p' "$1"; }

# Run a long command so that Ctrl-C or SIGTERM to this script ends all of it; return its status.
attended() {
  local child status=0
  setsid "$@" &
  child=$!
  trap 'kill -TERM -- "-$child" 2>/dev/null; wait "$child"; exit 143' TERM HUP
  trap 'kill -TERM -- "-$child" 2>/dev/null; wait "$child"; exit 130' INT
  wait "$child" || status=$?
  trap - TERM HUP INT
  return "$status"
}

new_enough() {
  "$1" -c "import sys; sys.exit(sys.version_info < (${OLDEST_PYTHON/./, }))" 2>/dev/null
}

find_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
      printf '%s' "$candidate"
      return
    fi
  done
  if command -v python3 >/dev/null; then
    die "$(python3 --version) is too old: install Python $OLDEST_PYTHON or newer (Debian 12: apt-get install python3)"
  fi
  die "no python3 on PATH: install Python $OLDEST_PYTHON or newer (Debian 12: apt-get install python3)"
}

has_ensurepip() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

make_venv() {
  local python options=(--clear) pip
  if new_enough "$VENV/bin/python" && "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    return
  fi
  python=$(find_python) || exit 1
  has_ensurepip "$python" || options+=(--without-pip)
  attended "$python" -m venv "${options[@]}" "$VENV" >"$RUN/install.log" 2>&1 ||
    die "could not make the virtual environment .venv: read .run/install.log"
  has_ensurepip "$python" && return
  # Debian's Python without python3-venv: another pip installs pip into the environment.
  pip=$(pip_of "$python" || retried debian_pip) ||
    die "this Python has neither venv nor pip: as root, run apt-get install python3-venv"
  retried attended "$VENV/bin/python" "$pip" install pip >"$RUN/install.log" 2>&1 || install_failed
  rm -rf "$RUN/debian-pip"
}

pip_of() { "$1" -c 'import pip; print(pip.__path__[0])' 2>/dev/null; }

# Download Debian's own pip, without root, and unpack it in .run: nothing is installed.
debian_pip() {
  local place=$RUN/debian-pip apt
  mkdir -p "$place/lists/partial" "$place/archives/partial"
  apt=(apt-get -q -o "Dir::State::lists=$place/lists" -o "Dir::Cache=$place"
    -o APT::Sandbox::User="$(id -un)")
  (cd "$place" && "${apt[@]}" update && "${apt[@]}" download python3-pip-whl &&
    dpkg -x python3-pip-whl_*.deb .) >"$RUN/install.log" 2>&1 || return
  printf '%s/pip' "$place"/usr/share/python-wheels/pip-*.whl
}

hash_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

has_mysqlclient() { "$VENV/bin/python" -c 'import MySQLdb' 2>/dev/null; }

# pip_install FILE: quiet on success; a failure is in .run/install.log. The locks name every package, so
# pip resolves nothing: it would ask for a hash of "coverage[toml]" although coverage itself has one.
pip_install() {
  attended "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps \
    --require-hashes --requirement "$1" >"$RUN/install.log" 2>&1
}

install_failed() {
  if grep -qi 'no space left on device' "$RUN/install.log"; then
    die "the disk is full: make room for the Python packages, then start again"
  fi
  if grep -qiE 'name resolution|NewConnectionError|ConnectTimeout|ProxyError|from versions: none|Network is unreachable' \
    "$RUN/install.log"; then
    die "could not fetch the Python packages: check the network and how pip reaches its index, then start again (.run/install.log has pip's words)"
  fi
  die_with_log "pip could not install the Python packages: read .run/install.log, then start again"
}

is_stamped() { [[ -f $1 && $(<"$1") == "$2" ]]; }

# Only mysqlclient needs a compiler and a client library, so it is installed separately.
without_mysqlclient() { awk '/^[^ ]/ { of_it = /^mysqlclient==/ } !of_it' "$1"; }
mysqlclient_alone() { awk '/^[^ ]/ { of_it = /^mysqlclient==/ } of_it' "$1"; }

install_packages() {
  local name=$1 stamp=$VENV/.$1.lock hash list=$RUN/packages.lock
  without_mysqlclient "$ROOT/$name.lock" >"$list"
  hash=$(hash_of "$list")
  is_stamped "$stamp" "$hash" && return
  say "Installing the Python packages of $name.lock into .venv (about a minute the first time) ..."
  retried pip_install "$list" || install_failed
  printf '%s' "$hash" >"$stamp"
}

# Records a failure, so that not every start tries to build it again.
install_mysqlclient() {
  local hash list=$RUN/mysqlclient.lock status=0 installed=$VENV/.mysqlclient.lock
  local missing=$VENV/.no-mysqlclient.lock install=(pip_install)
  mysqlclient_alone "$ROOT/requirements.lock" >"$list"
  hash=$(hash_of "$list")
  if is_stamped "$installed" "$hash"; then return 0; fi
  if [[ $1 == optional ]] && is_stamped "$missing" "$hash"; then return 1; fi
  [[ $1 == optional ]] || install=(retried pip_install)
  "${install[@]}" "$list" && has_mysqlclient || status=1
  rm -f "$installed" "$missing"
  if ((status == 0)); then
    printf '%s' "$hash" >"$installed"
  else
    printf '%s' "$hash" >"$missing"
  fi
  return "$status"
}

# prepare requirements|requirements-dev optional|required: set up the environment from the locks.
prepare() {
  local list=$1 mysql=$2
  make_run "$(room_for "$list")"
  exec 8>"$RUN/install.lock"
  if ! flock --nonblock 8; then
    say "Another script is installing into .venv; waiting for it ..."
    flock 8
  fi
  make_venv
  install_packages "$list"
  if ! install_mysqlclient "$mysql"; then
    if [[ $mysql == required ]]; then
      die_with_log "could not build mysqlclient: as root, run apt-get install build-essential pkg-config python3-dev default-libmysqlclient-dev (.run/install.log has the details)"
    fi
    say "mysqlclient is left out: it needs a compiler and the MySQL client library to build, and SQLite does without it."
  fi
  exec 8>&-
}
