#!/bin/sh
# SPDX-License-Identifier: MIT
# run_tests.sh BUILD_DIR [CTEST_ARGUMENTS...]: runs the tests and ends with one line of counts.
# Fails if a test failed or none ran. Without arguments all but the long ones (label long). One more
# at once than there are processors (TEST_JOBS): many wait for a drive, a socket or a clock.
set -u

build=$1
shift
[ $# -ne 0 ] || set -- --label-exclude '^long$'
report=$build/test-report.xml
rm -f "$report"
ctest --test-dir "$build" --output-on-failure --output-junit test-report.xml \
    --parallel "${TEST_JOBS:-$(($(nproc) + 1))}" "$@" </dev/null
ctest_status=$?
if [ ! -f "$report" ]; then
    echo "0 passed, 0 failed"
    exit 1
fi

# A program that could not be run at all counts as failed, though CTest's report says otherwise.
total=$(grep -c '<testcase ' "$report")
passed=$(grep -c '<testcase .*status="run"' "$report")
skipped=$(grep -c '<skipped message="SKIP_' "$report")
failed=$((total - passed - skipped))
if [ "$failed" -eq 0 ] && [ "$ctest_status" -ne 0 ]; then
    echo "ctest ended with status $ctest_status" >&2
fi

line="$passed passed, $failed failed"
[ "$skipped" -ne 0 ] && line="$line, $skipped skipped"
echo
echo "$line"
[ "$failed" -eq 0 ] && [ "$passed" -ne 0 ] && [ "$ctest_status" -eq 0 ]
