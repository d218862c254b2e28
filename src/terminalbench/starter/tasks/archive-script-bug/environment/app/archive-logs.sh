#!/bin/bash
# archive-logs.sh SOURCE TARGET: compress every log in SOURCE into TARGET.
mkdir -p $2
cd $1
count=0
ls *.log | while read file; do
    gzip -c $file > $2/$file.gz
    rm $file
    count=$((count + 1))
done
echo "archived $count"
