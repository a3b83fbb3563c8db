#!/bin/sh
# Compares the downloaded vessels with their checksums.
cd "$(dirname "$0")" && sha256sum -c files.sha256
