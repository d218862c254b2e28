#!/bin/bash
set -e
cd /app
export PATH="$PATH:/usr/local/go/bin:/usr/lib/go/bin" GOFLAGS=-mod=mod GOPROXY=off GOCACHE=/tmp/go-cache HOME=/tmp
if [ -z "${1:-}" ]; then
    go test -v -vet=off ./...
else
    go test -v -vet=off -run "^(${1//,/|})$" ./...
fi
