#!/usr/bin/env bash
# Builds the fuzzer and runs each target for FUZZ_SECONDS (60 by default), or the targets given as arguments.
#
# What it finds stays in target/fuzz: corpora, one log a target, and the inputs that crash, hang, or take too much
# memory. `docs/testing.md` says how to turn such an input into a test. Ends with 1 if there is any.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

readonly SECONDS_EACH=${FUZZ_SECONDS:-60}
readonly OUT=${CARGO_TARGET_DIR:-target}/fuzz
say() { printf 'fuzz: %s\n' "$*"; }

command -v g++ >/dev/null || {
    [ "$(id -u)" -eq 0 ] || { say "g++ is missing, which builds libFuzzer: apt-get install g++"; exit 1; }
    say "installing g++, which builds libFuzzer"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ >/dev/null || exit 1
}

# Coverage as libFuzzer wants it; all of these are flags of the stable compiler. They are for the target alone, not for
# build scripts, which is why the triple is named.
FLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
for part in inline-8bit-counters pc-table trace-compares; do
    FLAGS+=" -Cllvm-args=-sanitizer-coverage-$part"
done
TRIPLE=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="$FLAGS" cargo build --release --locked --quiet --manifest-path fuzz/Cargo.toml --target "$TRIPLE" \
    --target-dir "$OUT/build" || exit 1
FUZZER=$OUT/build/$TRIPLE/release/packstone-fuzzer
cargo run --locked --quiet -p packstone-fuzz -- seeds "$OUT/seeds" || exit 1

if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(cargo run --locked --quiet -p packstone-fuzz -- targets); fi
found=()
for target in "${targets[@]}"; do
    mkdir -p "$OUT/corpus/$target" "$OUT/found/$target" "$OUT/logs"
    dirs=("$OUT/corpus/$target" "$OUT/seeds/$target")
    [ -d "fuzz/regressions/$target" ] && dirs+=("fuzz/regressions/$target")
    case $target in batch | node | usage_page | tables | session) longest=16384 ;; *) longest=4096 ;; esac
    more=()
    # Several changes to one image from the start, not one at first.
    [ "$target" = image ] && longest=256 && more=(-len_control=0)
    if ! PACKSTONE_FUZZ_TARGET=$target "$FUZZER" -max_total_time="$SECONDS_EACH" -timeout=25 -rss_limit_mb=1024 \
        -max_len="$longest" "${more[@]}" -print_final_stats=1 -artifact_prefix="$OUT/found/$target/" "${dirs[@]}" \
        >"$OUT/logs/$target.log" 2>&1; then
        found+=("$target")
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$OUT/logs/$target.log")
    coverage=$(grep -o 'cov: [0-9]*' "$OUT/logs/$target.log" | tail -n1)
    say "$target: ${runs:-?} runs, ${coverage:-no coverage}"
done
if [ ${#found[@]} -gt 0 ]; then
    say "found something in: ${found[*]} (inputs in $OUT/found, logs in $OUT/logs)"
    exit 1
fi
say "nothing found"
