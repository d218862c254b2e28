# The reward's folder is the agent's: a link to the work, in which a pipe and a file wait.
mkdir -p "$PWD/forged"
echo 1 > "$PWD/forged/reward.json"
mkfifo "$PWD/forged/reward.txt"
rm -rf /logs/verifier 2> /dev/null
mv /logs /logs.old 2> /dev/null
mkdir -p /logs
ln -s "$PWD/forged" /logs/verifier
