# shellcheck shell=bash
# For the scripts to source: the Debian packages that tests and linters need, and their installation.

readonly SERVICE_POLICY=/usr/sbin/policy-rc.d

has() { PATH=$PATH:/usr/sbin command -v "$1" >/dev/null; }

has_python_headers() {
  "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

has_client_library() {
  has pkg-config && { pkg-config --exists libmariadb || pkg-config --exists mysqlclient; }
}

# missing_packages PYTHON BROWSER [PACKAGE...]: one per line, first those that are known to be missing.
# The -core packages contain only the programs, without a system service.
missing_packages() {
  local python=$1 browser=$2
  shift 2
  (($#)) && printf '%s\n' "$@"
  if ! has mariadbd || ! has mariadb-install-db || ! has my_print_defaults; then
    printf '%s\n' mariadb-server-core mariadb-client-core
  fi
  has redis-server || say redis-server
  has nginx || say nginx-light
  has openssl || say openssl
  has curl || say curl
  if [[ $browser == yes ]] && ! has chromium-headless-shell; then
    printf '%s\n' chromium-headless-shell fonts-noto-cjk
  fi
  if [[ $browser == yes ]]; then has chromium || say chromium; fi # the headless shell has no camera
  has_mysqlclient && return
  has cc || say build-essential
  has pkg-config || say pkg-config
  has_client_library || say default-libmysqlclient-dev
  has_python_headers "$python" || say python3-dev
}

# Install what is missing, as root or with a passwordless sudo; otherwise name it and stop.
require_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  has apt-get || die "the tests need what Debian calls: ${missing[*]}"
  may_install || die "the tests need more packages: as root, run apt-get install ${missing[*]}"
  install_with_apt "${missing[@]}"
}

# lab_packages PYTHON ARGUMENTS: the missing packages of the experiments that script/race runs with them.
# shellcheck disable=SC2153 # ROOT is that of the script
lab_packages() { "$1" "$ROOT/script/lib/lab_servers.py" "${@:2}"; }

missing_galera() { [[ -e /usr/lib/galera/libgalera_smm.so ]] || say galera-4; }

missing_for_operations() {
  has promtool || say prometheus
  has mariadb-backup || say mariadb-backup
  has mariadb-binlog || say mariadb-client
  has mmdebstrap || say mmdebstrap
}

missing_for_cluster() {
  has rabbitmq-server || say rabbitmq-server
  missing_galera
  has haproxy || say haproxy
  has buildah || say buildah
  has mmdebstrap || say mmdebstrap
}

# Debian has no Kafka: its jars come from Maven Central. Without them an experiment leaves it out.
fetch_kafka() {
  local pom=$ROOT/script/lib/kafka.xml jars=$RUN/kafka
  if ! has mvn || is_stamped "$jars/.pom" "$(hash_of "$pom")"; then return 0; fi
  say "Fetching Kafka with Maven ..."
  rm -rf "$jars"
  if retried attended mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies \
    -DoutputDirectory="$jars" >"$RUN/install.log" 2>&1; then
    hash_of "$pom" >"$jars/.pom"
  else
    rm -rf "$jars"
    say "Kafka could not be fetched: read .run/install.log"
  fi
}

may_install() { ((EUID == 0)) || sudo --non-interactive true 2>/dev/null; }

install_with_apt() {
  local root=()
  ((EUID == 0)) || root=(sudo --non-interactive)
  say "Installing with apt: $* ..."
  retried without_services apt_install "$@" ||
    die_with_log "apt-get could not install $*: read .run/install.log"
}

apt_install() {
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get
    --quiet --yes -o DPkg::Lock::Timeout=300)
  {
    "${apt[@]}" update || true # the known lists may suffice
    "${apt[@]}" install --no-install-recommends "$@"
  } >"$RUN/install.log" 2>&1
}

# Debian starts a service when its package is installed, unless this policy forbids it.
without_services() {
  local status=0
  if [[ -e $SERVICE_POLICY ]]; then
    "$@"
    return
  fi
  trap '"${root[@]}" rm -f "$SERVICE_POLICY"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${root[@]}" install -m 755 /dev/stdin "$SERVICE_POLICY"
  "$@" || status=$?
  "${root[@]}" rm -f "$SERVICE_POLICY"
  trap - EXIT
  return "$status"
}
