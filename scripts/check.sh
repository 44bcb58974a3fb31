#!/usr/bin/env bash
# What `make check` runs: everything that can be said about the sources without running them. All checks run, even after
# one has failed, so that one round shows all there is to mend.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=()

step() {
    local name=$1
    shift
    printf '== %s\n' "$name"
    if ! "$@"; then
        failed+=("$name")
    fi
}

rustdoc() {
    RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps --document-private-items --quiet
}

step rustfmt cargo fmt --all --check
step clippy cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
step rustdoc rustdoc
step layout cargo run --locked --quiet -p packstone-harness -- layout
if cargo deny --version >/dev/null 2>&1; then
    # Advisories need a database from the network, so they are asked for by hand: cargo deny check advisories.
    step cargo-deny cargo deny --log-level error check bans licenses sources
else
    printf '== cargo-deny: skipped, it is not installed (cargo install cargo-deny --locked)\n'
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf 'check: failed: %s\n' "${failed[*]}"
    exit 1
fi
printf 'check: all good\n'
