#!/bin/bash
# Builds /app/site, a tree with wrong permissions, and /app/shared, which it links to.
set -eu
mkdir -p /app/shared /app/site/{bin,pages,drop,secrets/keys,"old stuff/bin"}
echo shared > /app/shared/common.txt
chmod 640 /app/shared/common.txt
chmod 750 /app/shared
cd /app/site
printf '#!/bin/bash\necho deploy\n' > bin/deploy
printf 'not a script\n' > bin/README
printf '#!/usr/bin/env python3\n' > "old stuff/bin/run me"
printf '#!/bin/bash\n' > pages/looks-like-a-script.sh
printf '<h1>hi</h1>\n' > pages/index.html
printf '<h1>new</h1>\n' > 'pages/a *.html'
printf 'k\n' > secrets/keys/deploy.key
printf '#!/bin/bash\n' > secrets/rotate
printf 'x\n' > ./-rf
ln -s ../../shared/common.txt pages/common.txt
ln -s ../shared linked
chmod 777 pages pages/index.html 'pages/a *.html' secrets secrets/keys
chmod 666 secrets/keys/deploy.key bin/deploy
chmod 4755 bin/README
chmod 700 "old stuff"
chmod 2775 "old stuff/bin"
chmod 755 drop secrets/rotate ./-rf
