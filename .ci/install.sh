# What `.ci/with-tools` and `.ci/tool` share: how they install from Debian, PyPI and Go. It is sourced.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/gridhook"
pinned="$(cd "$(dirname "${BASH_SOURCE[0]}")/pip" && pwd)"

say() { echo "with-tools: $*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_apt() {
  command -v apt-get >/dev/null && as_root true 2>/dev/null
}

# Whether this may be installed: asked on a terminal, and granted where nobody can be asked by `CI` or `GRIDHOOK_YES`.
may_install() {
  local what="$1" why="$2" reply
  say "$what is missing: $why"
  [ -z "${CI:-}${GRIDHOOK_YES:-}" ] || return 0
  if [ ! -t 0 ]; then
    say "not installed, because nobody can be asked: set GRIDHOOK_YES=1 to install it"
    return 1
  fi
  read -r -p "with-tools: install it? [Y/n] " reply >&2
  case "$reply" in
    "" | [yY]*) return 0 ;;
    *) return 1 ;;
  esac
}

apt_updated=no
# Installs packages of Debian. The caller has asked.
apt() {
  may_apt || return 1
  say "installing Debian's $* (apt-get)"
  if [ "$apt_updated" = no ]; then
    as_root apt-get update -qq >&2 || return 1
    apt_updated=yes
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# The command that installs this by hand, for the system that this is: arguments are the packages of Debian, of Fedora, and
# of Homebrew.
by_hand() {
  if command -v apt-get >/dev/null; then
    echo "sudo apt-get install $1"
  elif command -v dnf >/dev/null; then
    echo "sudo dnf install $2"
  elif [ "$(uname)" = Darwin ]; then
    echo "$3"
  else
    echo "install what Debian has as $1"
  fi
}

# Debian's python3 comes without pip, its venv with one. Packages are the ones whose hashes the file of this name has.
tools_pip() {
  local name="$1"
  shift
  [ -x "$cache/tools/python/bin/pip" ] || python3 -m venv "$cache/tools/python" || return 1
  "$cache/tools/python/bin/pip" install --quiet --require-hashes --only-binary :all: -r "$pinned/$name.txt" "$@" >&2
}

install_cargo_deb() {
  cargo deb --version >/dev/null 2>&1 && return 0
  say "installing cargo-deb (cargo install) into $cache/tools"
  # It is compiled without optimisation, which takes a third of the time.
  env -u CARGO_TARGET_DIR cargo install --quiet --locked --debug --root "$cache/tools" cargo-deb@3.6.3 >&2
}

# cargo-deb asks it for the libraries that the package depends on, and without it makes a package that names none.
install_shlibdeps() { command -v dpkg-shlibdeps >/dev/null || apt dpkg-dev; }
