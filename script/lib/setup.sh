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

make_venv() {
  local python
  new_enough "$VENV/bin/python" && return
  python=$(find_python) || exit 1
  attended "$python" -m venv --clear --without-pip "$VENV" >"$RUN/install.log" 2>&1 ||
    die "could not make the virtual environment .venv: read .run/install.log"
}

# Print where a pip is. Unpacking one into .venv would take seconds, so it runs from where it is: with this
# Python, in the wheel that ensurepip would unpack, or in Debian's.
pip_of() {
  local wheel
  "$1" -c 'import pip; print(pip.__path__[0])' 2>/dev/null && return
  for wheel in "$("$1" -c 'import ensurepip; print(ensurepip.__path__[0])' 2>/dev/null)"/_bundled/pip-*.whl \
    {,"$RUN/debian-pip"}/usr/share/python-wheels/pip-*.whl; do
    [[ ! -f $wheel ]] || { printf '%s/pip' "$wheel" && return; }
  done
  return 1
}

# Download Debian's own pip, without root, and unpack it in .run: nothing is installed.
debian_pip() {
  local place=$RUN/debian-pip apt
  mkdir -p "$place/lists/partial" "$place/archives/partial"
  apt=(apt-get -q -o "Dir::State::lists=$place/lists" -o "Dir::Cache=$place"
    -o APT::Sandbox::User="$(id -un)")
  (cd "$place" && "${apt[@]}" update && "${apt[@]}" download python3-pip-whl &&
    dpkg -x python3-pip-whl_*.deb .) >"$place/log" 2>&1
}

hash_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

has_mysqlclient() { "$VENV/bin/python" -c 'import MySQLdb' 2>/dev/null; }

# Run a command whose words go to .run/install.log, and to the terminal if this is one: with its bars.
logged() {
  if [[ -t 1 ]] && command -v script >/dev/null; then
    SHELL=$BASH attended script --quiet --return --command "$(printf '%q ' "$@")" "$RUN/install.log" </dev/null
  else
    attended "$@" >"$RUN/install.log" 2>&1
  fi
}

# pip_install OPTIONS: the locks name every package, so pip resolves nothing: it would ask for a hash of
# "coverage[toml]" although coverage itself has one.
pip_install() {
  logged "${pip[@]}" --python "$VENV/bin/python" install --disable-pip-version-check --no-input --no-deps \
    --require-hashes "$@"
}

# find_uv: set pip to a command, or to nothing where uv does without. Set uv to the one on PATH, or to the
# pinned one, which pip then fetches into .run, and as_pip to what pip's configuration says, which uv does
# not read: a mirror is meant for both.
find_uv() {
  local lock=$ROOT/requirements-uv.lock stamp=$RUN/uv/.lock python where section name value
  python=$(find_python) || exit 1
  if ! where=$(pip_of "$python") && ! command -v uv >/dev/null; then
    retried debian_pip || true
    where=$(pip_of "$python") ||
      die "this Python has neither venv nor pip: as root, run apt-get install python3-venv"
  fi
  pip=(${where:+"$python" "$where"})
  : >"$RUN/pip-config"
  ((!${#pip[@]})) || "${pip[@]}" config list >"$RUN/pip-config" 2>/dev/null &
  uv=$(command -v uv) || uv=$RUN/uv/bin/uv
  if [[ $uv == "$RUN"/* ]] && ! is_stamped "$stamp" "$(hash_of "$lock")"; then
    pip_install --retries 1 --upgrade --target "$RUN/uv" --requirement "$lock" || return
    hash_of "$lock" >"$stamp"
  fi
  wait
  as_pip=()
  export UV_PYTHON_DOWNLOADS=never
  for section in global install :env:; do # a later one wins
    while IFS='=' read -r name value; do
      value=${value:1:-1}
      case ${name#"$section."} in
        index-url) export UV_DEFAULT_INDEX=$value ;;
        extra-index-url) export UV_INDEX=${value//\\n/ } ;;
        find-links) export UV_FIND_LINKS=${value//\\n/,} ;;
        no-index) as_pip[0]=--no-index ;;
        proxy) export ALL_PROXY=$value ;;
        cert) as_pip[1]=--cert=$value ;;
      esac
    done <"$RUN/pip-config"
  done
  rm "$RUN/pip-config"
}

# install_list FILE: with uv, several times as fast, or where that fails with pip.
install_list() {
  find_uv && logged "$uv" pip install "${as_pip[@]}" --python "$VENV/bin/python" --no-deps \
    --require-hashes --requirement "$1" && return
  tail -n 3 "$RUN/install.log" >&2
  say "uv could not install them; trying with pip, which takes longer ..." >&2
  ((${#pip[@]})) && retried pip_install --requirement "$1"
}

install_failed() {
  if grep -qi 'no space left on device' "$RUN/install.log"; then
    die "the disk is full: make room for the Python packages, then start again"
  fi
  if grep -qiE 'name resolution|NewConnectionError|ConnectTimeout|ProxyError|from versions: none|Network is unreachable|Failed to fetch' \
    "$RUN/install.log"; then
    die "could not fetch the Python packages: check the network and how pip reaches its index, then start again (.run/install.log has the details)"
  fi
  die_with_log "pip could not install the Python packages: read .run/install.log, then start again"
}

is_stamped() { [[ -f $1 && $(<"$1") == "$2" ]]; }

# Only mysqlclient needs a compiler and a client library, so it is installed separately.
without_mysqlclient() { awk '/^[^ ]/ { of_it = /^mysqlclient==/ } !of_it' "$1"; }
mysqlclient_alone() { awk '/^[^ ]/ { of_it = /^mysqlclient==/ } of_it' "$1"; }

# prepare NAME [mysql]: set up the environment with the packages of NAME.lock, and with mysqlclient.
prepare() {
  local list=$RUN/packages.lock mysql=$RUN/mysqlclient.lock
  make_run "$(room_for "$1")"
  exec 8>"$RUN/install.lock"
  if ! flock --nonblock 8; then
    say "Another script is installing into .venv; waiting for it ..."
    flock 8
  fi
  make_venv
  without_mysqlclient "$ROOT/$1.lock" >"$list"
  if ! is_stamped "$VENV/.$1.lock" "$(hash_of "$list")"; then
    say "Installing the Python packages of $1.lock into .venv ..."
    install_list "$list" || install_failed
    hash_of "$list" >"$VENV/.$1.lock"
  fi
  mysqlclient_alone "$ROOT/requirements.lock" >"$mysql"
  if [[ ${2-} == mysql ]] && ! is_stamped "$VENV/.mysqlclient.lock" "$(hash_of "$mysql")"; then
    say "Building mysqlclient ..."
    { install_list "$mysql" && has_mysqlclient; } ||
      die_with_log "could not build mysqlclient: as root, run apt-get install build-essential pkg-config python3-dev default-libmysqlclient-dev (.run/install.log has the details)"
    hash_of "$mysql" >"$VENV/.mysqlclient.lock"
  fi
  exec 8>&-
}
