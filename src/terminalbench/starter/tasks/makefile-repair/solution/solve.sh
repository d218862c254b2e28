#!/bin/bash
set -eu
cat > /app/Makefile <<'MAKE'
# Renders src/*.txt to build/*.out and joins them to build/bundle.txt.
TEXTS := $(sort $(wildcard src/*.txt))
OUTPUTS := $(TEXTS:src/%.txt=build/%.out)

.DELETE_ON_ERROR:
.PHONY: all clean

all: build/bundle.txt

build/bundle.txt: $(OUTPUTS)
	cat $^ > $@

build/%.out: src/%.txt src/header.inc tools/render.sh | build
	bash tools/render.sh src/header.inc $< > $@

build:
	mkdir -p $@

clean:
	rm -rf build
MAKE
cd /app && make
